"""Bodies on MySQL: equal bodies are kept once in a crawl, here or in a file, as long as the
crawl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import groupby
from operator import itemgetter

from greencrawl.store.bodies import Place
from greencrawl.store.mysql import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.ids import NUMBERS
from greencrawl.store.mysql.rows import Page
from greencrawl.store.mysql.statements import chunks, literal, numbers, raw
from greencrawl.store.mysql.transaction import Transaction
from greencrawl.store.rows import Row

Body = tuple[int, bytes]
"""A crawl and a digest."""


def known(db: Db, bodies: Iterable[Body]) -> dict[Body, int]:
    """Return the places of the bodies that exist."""
    found: dict[Body, int] = {}
    for crawl, group in groupby(sorted(bodies), key=itemgetter(0)):
        for some in chunks([digest for _, digest in group]):
            names = b",".join(map(literal, some))
            sql = b"SELECT digest, place FROM digests WHERE crawl = %d AND digest IN (%b)"
            raw(db, sql % (crawl, names))
            found.update(((crawl, digest), place) for digest, place in db.fetchall())
    return found


def files(db: Db, bodies: Mapping[Body, int]) -> dict[Body, Place]:
    """Return body → its place in a file, for the bodies that are in files."""
    found: dict[Body, Place] = {}
    for crawl, group in groupby(sorted(bodies), key=itemgetter(0)):
        for some in chunks([bodies[body] for body in group]):
            sql = (
                b"SELECT digest, file, start, length FROM bodies WHERE crawl = %d "
                b"AND place IN (%b) AND file <> ''"
            )
            raw(db, sql % (crawl, numbers(some)))
            for digest, file, start, length in db.fetchall():
                if (crawl, digest) in bodies:
                    found[crawl, digest] = Place(file.decode(), start, length)
    return found


def write(
    transaction: Transaction,
    pages: Sequence[Page],
    expected: Set[Body],
    places: Mapping[Body, Place],
) -> None:
    """Write bodies that do not exist; ``expected`` are bodies that existed at an earlier look.

    ``places`` are the places of bodies in files. Raises Unstorable.
    """
    wanted = {(page.crawl, page.digest): page for page in pages if page.plain}
    there = known(transaction.db, wanted if transaction.careful else wanted.keys() & expected)
    new = sorted(body for body in wanted if body not in there)
    if not new:
        return
    rows.pack_bodies(transaction.codec, [wanted[body] for body in new if body not in places])
    first = NUMBERS.take(len(new))
    digests: list[Row] = []
    bodies: list[Row] = []
    for at, (crawl, digest) in enumerate(new, start=first):
        place = places.get((crawl, digest))
        blob = wanted[crawl, digest].packed or b""
        file = place or Place("", 0, len(blob))
        digests.append((crawl, digest, at, file.length))
        bodies.append(
            (
                crawl,
                at,
                digest,
                file.file.encode(),
                file.offset,
                file.length,
                b"" if place else blob,
            )
        )
    names = [wanted[body].url for body in new]
    transaction.insert("digests", "crawl, digest, place, bytes", digests, names)
    transaction.insert("bodies", "crawl, place, digest, file, start, length, body", bodies, names)
