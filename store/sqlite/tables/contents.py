"""Bodies and versions on SQLite; each function runs in a caller's transaction.

A body that a page now has is kept once in a crawl, by its digest. ``uses`` counts the pages that
have the body; when no page has it any more, it is deleted. Versions that are ``kept`` count, too:
the last versions of each page, as many as the crawl's ``keep_versions`` says. A body is in
``contents``, or at a place in a file. A fetch that was replaced, or that came too late, is a
version: time, status, and its body by the digest.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain, groupby
from operator import itemgetter

import msgspec
import zstandard

from greencrawl.schema.records import Version
from greencrawl.store.bodies import Place
from greencrawl.store.rows import Codec, Row
from greencrawl.store.sqlite.batches import marks, padded, parts, values

Key = tuple[int, int]
"""A page: crawl, fingerprint."""
Known = tuple[int, bytes]
"""A body: crawl, digest."""
Blob = bytes | Place
"""A compressed body, perhaps with a text before it; or its place in a file."""

CRAWL, FINGERPRINT, FETCHED, STATUS, SIZE, CONTENT, LINKS, TEXT, BODY = 0, 1, 2, 4, 6, 8, 20, 21, 22
"""Columns of ``rows.PAGE`` by index."""

WHERE = (
    "LEFT JOIN bodies ON pages.body_bytes > 0 "
    "AND bodies.crawl = pages.crawl AND bodies.digest = pages.content "
    "LEFT JOIN contents ON contents.id = bodies.content"
)
PLACE = "pages.body_bytes, contents.body, bodies.file, bodies.offset, bodies.length"
"""The columns that :data:`WHERE` returns for a body."""
BESIDE = (
    "LEFT JOIN bodies ON typeof(pages.text) = 'integer' "
    "AND bodies.crawl = pages.crawl AND bodies.digest = pages.content "
    "LEFT JOIN contents ON contents.id = bodies.content"
)
"""If a row has only the length of its text, this join finds the text, in ``contents.body``."""

_VERSIONS = (
    "SELECT fetched_ms, status, body_bytes, content AS digest "
    "FROM pages WHERE crawl = :crawl AND fingerprint = :number UNION ALL "
    "SELECT fetched_ms, status, body_bytes, digest FROM versions "
    "WHERE crawl = :crawl AND fingerprint = :number ORDER BY fetched_ms DESC LIMIT :limit"
)


class Settled(msgspec.Struct):
    """The changes that new rows of pages make. ``uses`` has the changes of counts, by body."""

    newer: list[Row] = []
    late: list[Row] = []
    versions: list[Row] = []
    uses: dict[Known, int] = {}


def settle(db: sqlite3.Connection, pages: Sequence[Row]) -> Settled:
    """Decide which row replaces which, of a few dozen pages at most."""
    there = _states(db, pages)
    if not there and len({row[:2] for row in pages}) == len(pages):  # all are new
        found = Counter((row[CRAWL], row[CONTENT]) for row in pages if row[SIZE])
        return Settled(newer=list(pages), uses=found)
    result = Settled()
    now: dict[Key, Row] = dict(there)
    for row in pages:
        key = row[:2]
        state: Row = (*row[:2], row[FETCHED], row[STATUS], row[SIZE], row[CONTENT])
        known = now.get(key)
        if known is not None and known[2] > row[FETCHED]:
            result.late.append(row)
            result.versions.append((*state, False))
            continue
        if known is not None and known[2] < row[FETCHED]:
            result.versions.append((*known, bool(known[4])))
        result.newer.append(row)
        now[key] = state
    result.uses = _changed(there, now)
    if any(row[-1] for row in result.versions):
        _keep(db, result)
    return result


def _keep(db: sqlite3.Connection, result: Settled) -> None:
    """Keep the last versions of each page, with their bodies, and release older ones."""
    uses, versions = Counter(result.uses), []
    for crawl, found in groupby(sorted(result.versions), key=itemgetter(CRAWL)):
        sql = "SELECT json_extract(options, '$.keep_versions') FROM crawls WHERE id = ?"
        most = (db.execute(sql, (crawl,)).fetchone() or (0,))[0] or 0
        for fingerprint, some in groupby(found, key=itemgetter(FINGERPRINT)):
            # A replaced version may also come late: one row is kept for each time, the one with a
            # body.
            new = list({row[FETCHED]: row for row in sorted(some, key=itemgetter(-1))}.values())
            page = (crawl, fingerprint)
            last = {row[FETCHED] for row in new if row[-1]}
            if most:
                there = _kept(db, page)
                last = set(sorted(last | there.keys(), reverse=True)[:most])
                gone = [at for at in there if at not in last]
                uses.subtract((crawl, there[at]) for at in gone)
                forget = "UPDATE versions SET kept = 0 WHERE (crawl, fingerprint, fetched_ms) = "
                db.executemany(f"{forget} (?, ?, ?)", [(*page, at) for at in gone])
            kept = [row for row in new if most and row[-1] and row[FETCHED] in last]
            uses.update((crawl, row[5]) for row in kept)
            versions += [(*row[:-1], row in kept) for row in new]
    result.versions = versions
    result.uses = {body: change for body, change in uses.items() if change}


def _kept(db: sqlite3.Connection, page: Key) -> dict[int, bytes]:
    """Return fetch time → digest of a page's versions whose bodies are kept."""
    sql = "SELECT fetched_ms, digest FROM versions WHERE crawl = ? AND fingerprint = ? AND kept = 1"
    return dict(db.execute(sql, page).fetchall())


def let_go(db: sqlite3.Connection, bodies: Iterable[Known]) -> None:
    """Release the bodies of versions that are removed."""
    uses = Counter(bodies)
    if uses:
        count(db, {body: -number for body, number in uses.items()}, {})


def body_row(db: sqlite3.Connection, crawl: int, digest: bytes) -> Row | None:
    """Return (frame, file, offset, length) of a body, None if it is not kept."""
    found: Row | None = db.execute(
        "SELECT contents.body, file, offset, length FROM bodies "
        "LEFT JOIN contents ON contents.id = bodies.content WHERE crawl = ? AND digest = ?",
        (crawl, digest),
    ).fetchone()
    return found


def _changed(there: Mapping[Key, Row], now: Mapping[Key, Row]) -> dict[Known, int]:
    uses: Counter[Known] = Counter()
    for key, state in now.items():
        before = there.get(key)
        if before is state:
            continue
        if before is not None and before[4]:
            uses[before[0], before[5]] -= 1
        if state[4]:
            uses[state[0], state[5]] += 1
    return {body: change for body, change in uses.items() if change}


def _states(db: sqlite3.Connection, pages: Sequence[Row]) -> dict[Key, Row]:
    """Return crawl, fingerprint, time, status, size and digest of the pages that exist."""
    found: dict[Key, Row] = {}
    for crawl, some in groupby(pages, key=itemgetter(CRAWL)):
        numbers = padded([row[FINGERPRINT] for row in some])
        sql = (
            "SELECT crawl, fingerprint, fetched_ms, status, body_bytes, content "
            f"FROM pages WHERE crawl = ? AND fingerprint IN ({marks(len(numbers))})"
        )
        for row in db.execute(sql, (crawl, *numbers)).fetchall():
            found[row[:2]] = row
    return found


def put_versions(db: sqlite3.Connection, versions: Sequence[Row]) -> None:
    """Keep versions; existing ones stay as they are."""
    columns = "crawl, fingerprint, fetched_ms, status, body_bytes, digest, kept"
    for some in parts(versions):
        db.execute(
            f"INSERT INTO versions ({columns}) VALUES {values(columns, len(some))} "
            "ON CONFLICT DO NOTHING",
            list(chain.from_iterable(some)),
        )


def history(db: sqlite3.Connection, crawl: int, fingerprint: int, limit: int) -> list[Version]:
    """See ``Store.history``."""
    values = {"crawl": crawl, "number": fingerprint, "limit": limit + 1}
    found = db.execute(_VERSIONS, values).fetchall()
    return [
        Version(
            fetched_ms=fetched_ms, status=status, digest=digest, body_bytes=size,
            changed=place + 1 == len(found) or not digest or found[place + 1][3] != digest,
            first=place + 1 == len(found),
        )
        for place, (fetched_ms, status, size, digest) in enumerate(found[:limit])
    ]  # fmt: skip


class Vanished(Exception):
    """Raised when a body that existed before the transaction has been deleted since."""


def places(db: sqlite3.Connection, bodies: Iterable[Known]) -> dict[Known, Place]:
    """Return body → its place in a file, for ``bodies`` that are in files."""
    return {body: Place(*place) for body, _, *place in _rows(db, bodies) if place[0] is not None}


def _rows(db: sqlite3.Connection, bodies: Iterable[Known]) -> Iterator[Row]:
    """Yield (body, row of its content, file, offset, length) of the bodies that are kept."""
    for crawl, group in groupby(sorted(bodies), key=itemgetter(0)):
        digests = [digest for _, digest in group]
        for start in range(0, len(digests), 512):
            some = padded(digests[start : start + 512])
            sql = (
                "SELECT digest, content, file, offset, length FROM bodies "
                f"WHERE crawl = ? AND digest IN ({marks(len(some))})"
            )
            for digest, *place in db.execute(sql, (crawl, *some)).fetchall():
                yield ((crawl, digest), *place)


def count(
    db: sqlite3.Connection, uses: Mapping[Known, int], blobs: Mapping[Known, Blob]
) -> set[Known]:
    """Change how many pages have each body; the first page adds the body, the last one deletes it.

    Returns the bodies that were added. Raises Vanished if a new body is not among ``blobs``.
    """
    kept = {row[0] for row in _rows(db, uses)}
    new = [(body, change) for body, change in uses.items() if body not in kept and change > 0]
    if new:
        _insert(db, new, blobs)
    for crawl, group in groupby(sorted(kept), key=itemgetter(0)):
        digests = [digest for _, digest in group]
        for some in parts(digests):
            changes = chain.from_iterable((digest, uses[crawl, digest]) for digest in some)
            db.execute(_uses_sql(len(some)), [*changes, crawl])
        _drop(db, crawl, [digest for digest in digests if uses[crawl, digest] < 0])
    return {body for body, _ in new}


def without_bodies(
    db: sqlite3.Connection,
    codec: Codec,
    pages: Sequence[Row],
    blobs: Mapping[Known, Blob],
    brought: Set[Known],
) -> list[Row]:
    """Return rows without the last column: bodies are stored by now, ``brought`` ones from
    ``blobs``.

    A body that existed, or that several pages have, has the text of one page in its frame. If
    another page's text differs (another character set or hook), this text gets a frame of its own.
    """
    kept = {body: blobs[body] for body in brought}
    found = {(row[CRAWL], row[CONTENT]) for row in pages if isinstance(row[TEXT], int)} - brought
    for crawl, group in groupby(sorted(found), key=itemgetter(0)):
        digests = padded([digest for _, digest in group])
        sql = (
            "SELECT digest, contents.body FROM bodies JOIN contents ON contents.id = content "
            f"WHERE crawl = ? AND digest IN ({marks(len(digests))})"
        )
        for digest, blob in db.execute(sql, (crawl, *digests)).fetchall():
            kept[crawl, digest] = blob
    result = []
    for row in pages:
        text, mine = row[TEXT], row[BODY]
        if isinstance(text, int):
            theirs = kept.get((row[CRAWL], row[CONTENT]))
            if theirs is not mine and not _same(codec, theirs, mine):
                text = codec.pack(codec.unpack(mine)[:text])
        result.append((*row[:TEXT], text))
    return result


def _same(codec: Codec, theirs: Blob | None, mine: bytes) -> bool:
    """Return whether the kept frame is in the database and holds the same as a page's own frame."""
    if theirs is None or isinstance(theirs, Place):
        return False
    if bytes(theirs) == bytes(mine):
        return True
    try:
        return codec.unpack(theirs) == codec.unpack(mine)
    except zstandard.ZstdError:  # damage in ``theirs`` is no reason to refuse a commit
        return False


@lru_cache
def _uses_sql(count: int) -> str:
    return (
        f"WITH change (digest, number) AS (VALUES {values('digest, number', count)}) "
        "UPDATE bodies SET uses = uses + change.number FROM change "
        "WHERE bodies.crawl = ? AND bodies.digest = change.digest"
    )


def _insert(
    db: sqlite3.Connection, new: Sequence[tuple[Known, int]], blobs: Mapping[Known, Blob]
) -> None:
    (last,) = db.execute("SELECT max(id) FROM contents").fetchone()
    number = last or 0
    contents: list[Row] = []
    here: list[Row] = []
    in_files: list[Row] = []
    for body, uses in new:
        blob = blobs.get(body)
        if blob is None:
            raise Vanished
        if isinstance(blob, Place):
            in_files.append((*body, uses, *blob))
        else:
            number += 1
            contents.append((number, blob))
            here.append((*body, uses, number))
    for table, columns, found in (
        ("contents", "id, body", contents),
        ("bodies", "crawl, digest, uses, content", here),
        ("bodies", "crawl, digest, uses, file, offset, length", in_files),
    ):
        for some in parts(found):
            sql = f"INSERT INTO {table} ({columns}) VALUES {values(columns, len(some))}"
            db.execute(sql, list(chain.from_iterable(some)))


def _drop(db: sqlite3.Connection, crawl: int, digests: list[bytes]) -> None:
    """Delete the bodies with these ``digests`` that no page of the crawl has any more."""
    if digests:
        digests = padded(digests)
        some = f"FROM bodies WHERE crawl = ? AND digest IN ({marks(len(digests))}) AND uses <= 0"
        db.execute(f"DELETE FROM contents WHERE id IN (SELECT content {some})", (crawl, *digests))
        db.execute(f"DELETE {some}", (crawl, *digests))


def purge(db: sqlite3.Connection, crawl: int, rows: int) -> int:
    """Delete some bodies of a crawl; return how many."""
    found = db.execute(
        "SELECT crawl, digest, content FROM bodies WHERE crawl = ? LIMIT ?", (crawl, rows)
    ).fetchall()
    db.executemany(
        "DELETE FROM contents WHERE id = ?", [row[2:] for row in found if row[2] is not None]
    )
    db.executemany("DELETE FROM bodies WHERE crawl = ? AND digest = ?", [row[:2] for row in found])
    return len(found)
