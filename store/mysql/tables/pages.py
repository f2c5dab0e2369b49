"""Pages on MySQL: which version is current, and the rows that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from greencrawl.schema.records import Check
from greencrawl.store.mysql import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.ids import NUMBERS
from greencrawl.store.mysql.rows import Page
from greencrawl.store.mysql.statements import chunks, keys, literal, raw
from greencrawl.store.mysql.transaction import Key, Transaction, by_crawl, replacing
from greencrawl.store.rows import Row, bounded

PAGES = "crawl, fingerprint, stamp, place, fetched_ms, status, body_bytes, digest, host, wide"
VERSIONS = "crawl, fingerprint, fetched_ms, status, body_bytes, digest"


class Known(Struct):
    """The narrow row of a page."""

    stamp: int
    place: int
    fetched_ms: int
    status: int
    body_bytes: int
    digest: bytes


class Settled(Struct):
    """The changes that arriving pages make to the stored page of a URL."""

    winner: Page | None
    """The new current version; None if the existing one stays."""
    links: bytes
    versions: dict[int, Row]
    """Fetch time → (status, bytes, digest) of versions that are not current."""


def settle(
    old: Known | None,
    arrived: Sequence[Page],
    links: bytes,
    merge: Callable[[bytes, bytes], bytes],
) -> Settled:
    """Choose the newest version; if several are equally new, the last that arrived.

    Versions are distinguished by their fetch times. Links of all of them are admitted.
    """
    settled = Settled(None, links, {})
    at = None if old is None else old.fetched_ms
    for page in sorted(arrived, key=lambda page: page.fetched_ms):
        settled.links = merge(settled.links, page.links)
        if at is not None and page.fetched_ms < at:
            settled.versions[page.fetched_ms] = _version(page)
            continue
        if settled.winner is not None and page.fetched_ms > settled.winner.fetched_ms:
            settled.versions[settled.winner.fetched_ms] = _version(settled.winner)
        settled.winner, at = page, page.fetched_ms
    if old is not None and settled.winner is not None and old.fetched_ms != at:
        settled.versions[old.fetched_ms] = (old.status, old.body_bytes, old.digest)
    return settled


def _version(page: Page) -> Row:
    return page.status, len(page.plain), page.digest


def validators(db: Db, crawl: int, fingerprints: Sequence[int]) -> list[Row]:
    """Return (fingerprint, headers) of whole pages with a 2xx status."""
    sql = f"SELECT p.fingerprint, c.headers {rows.PAGE_FROM} WHERE p.crawl = %s AND "
    wanted = f"p.fingerprint IN ({', '.join(['%s'] * len(fingerprints))})"
    whole = " AND p.status BETWEEN 200 AND 299 AND c.truncated = 0"
    db.execute(sql + wanted + whole, (crawl, *fingerprints))
    return list(db.fetchall())


def check(
    transaction: Transaction,
    checks: Sequence[Check],
    known: Mapping[Key, Known],
    current: dict[Key, int],
) -> None:
    """Give pages that were found unchanged this stamp in the replay log.

    ``current`` gets the time when each was found unchanged, if that is later.
    """
    for one in checks:
        key = one.crawl, one.fingerprint
        if key in known:
            stamp = max(known[key].stamp, transaction.now.clock)
            sql = b"UPDATE pages SET stamp = %d WHERE crawl = %d AND fingerprint = %d"
            raw(transaction.db, sql % (stamp, *key))
            current[key] = max(current[key], bounded(one.at_ms))


def lock(transaction: Transaction, wanted: Sequence[Key]) -> dict[Key, Known]:
    """Lock the pages in ``wanted`` (in order), and return those pages that exist."""
    columns = "fingerprint, stamp, place, fetched_ms, status, body_bytes, digest"
    sql = f"SELECT {columns} FROM pages WHERE"
    return {
        (crawl, number): Known(*rest)
        for crawl, some in by_crawl(wanted)
        for number, *rest in keys(
            transaction.db, sql, crawl, some, "ORDER BY fingerprint FOR UPDATE"
        )
    }


def write(
    transaction: Transaction, pages: Mapping[Key, Sequence[Page]], known: Mapping[Key, Known]
) -> dict[Key, int]:
    """Write each URL's newest page and its versions; return the fetch time of each current one.

    Raises Unstorable.
    """
    old_links = _links(transaction, {key: known[key] for key in pages if key in known})
    unchanged = _unchanged(transaction, pages, known)
    current = {key: old.fetched_ms for key, old in known.items()}
    winners: dict[Key, Page] = {}
    versions: list[tuple[Row, str]] = []
    for key, arrived in pages.items():
        links = old_links.get(key, b"")
        settled = settle(known.get(key), arrived, links, transaction.codec.merge_links)
        for fetched_ms, rest in settled.versions.items():
            versions.append(((*key, fetched_ms, *rest), arrived[0].url))
        if settled.winner is None or key in unchanged:
            _stays(transaction, key, known[key], links, settled.links)
        else:
            settled.winner.links = settled.links
            winners[key] = settled.winner
            current[key] = settled.winner.fetched_ms
    _write_winners(transaction, winners, known)
    versions.sort()
    tail = replacing(VERSIONS, 3)
    transaction.insert("versions", VERSIONS, *_apart(versions), tail=tail)
    return current


def _write_winners(
    transaction: Transaction, winners: Mapping[Key, Page], known: Mapping[Key, Known]
) -> None:
    """Append each winner to the wide table, in the order in which they came."""
    first = NUMBERS.take(len(winners) or 1)
    narrow: dict[bool, list[tuple[Row, str]]] = {False: [], True: []}
    wide: list[tuple[Row, str]] = []
    for place, (key, page) in enumerate(winners.items(), start=first):
        old = known.get(key)
        stamp = transaction.now.clock if old is None else max(old.stamp, transaction.now.clock)
        size = len(page.plain)
        row = (
            *key, stamp, place, page.fetched_ms, page.status, size, page.digest, page.host,
            page.wide_bytes,
        )  # fmt: skip
        narrow[old is not None].append((row, page.url))
        wide.append(((key[0], place, key[1], *page.wide, page.links, page.text), page.url))
        transaction.sums.page(key[0], 1, page.status, size)
        if old is not None:
            transaction.sums.page(key[0], -1, old.status, old.body_bytes)
    transaction.insert("pages", PAGES, *_apart(sorted(narrow[False])))
    transaction.insert("pages", PAGES, *_apart(sorted(narrow[True])), tail=replacing(PAGES, 2))
    for crawl, where in _where({key: known[key] for key in winners if key in known}):
        raw(transaction.db, b"DELETE FROM contents WHERE crawl = %d AND (%b)" % (crawl, where))
    transaction.insert("contents", rows.CONTENTS, *_apart(wide))


def _apart(found: Sequence[tuple[Row, str]]) -> tuple[list[Row], list[str]]:
    return [row for row, _ in found], [url for _, url in found]


def _stays(transaction: Transaction, key: Key, old: Known, links: bytes, merged: bytes) -> None:
    """Give a late or unchanged page this stamp in the replay log, with its links."""
    crawl, number = key
    if merged != links:
        sql = b"UPDATE contents SET links = %b WHERE crawl = %d AND place = %d AND fingerprint = %d"
        raw(transaction.db, sql % (literal(merged), crawl, old.place, number))
    sql = b"UPDATE pages SET stamp = %d, wide = wide + %d WHERE crawl = %d AND fingerprint = %d"
    stamp = max(old.stamp, transaction.now.clock)
    raw(transaction.db, sql % (stamp, len(merged) - len(links), crawl, number))


def _unchanged(
    transaction: Transaction, pages: Mapping[Key, Sequence[Page]], known: Mapping[Key, Known]
) -> set[Key]:
    """Return pages that are the same as before except for links.

    They do not move to the end of the wide table: a round that reads them would meet them again.
    """
    same: dict[Key, Page] = {}
    for key, arrived in pages.items():
        old, page = known.get(key), arrived[0]
        now = page.fetched_ms, page.status, len(page.plain), page.digest
        is_same = old and (old.fetched_ms, old.status, old.body_bytes, old.digest) == now
        if is_same and len(arrived) == 1:
            same[key] = page
    found: set[Key] = set()
    columns = rows.CONTENTS.replace("crawl, place, ", "").replace("links, ", "").encode()
    for crawl, where in _where({key: known[key] for key in same}):
        sql = b"SELECT %b FROM contents WHERE crawl = %d AND (%b)"
        raw(transaction.db, sql % (columns, crawl, where))
        for number, *wide, text in transaction.db.fetchall():
            page = same[crawl, number]
            if (*wide, text) == (*page.wide, page.text):
                found.add((crawl, number))
    return found


def _links(transaction: Transaction, known: Mapping[Key, Known]) -> dict[Key, bytes]:
    """Return the links that the replay log has of these pages."""
    found: dict[Key, bytes] = {}
    for crawl, where in _where(known):
        sql = b"SELECT fingerprint, links FROM contents WHERE crawl = %d AND (%b)"
        raw(transaction.db, sql % (crawl, where))
        found.update(((crawl, number), blob) for number, blob in transaction.db.fetchall())
    return found


def _where(known: Mapping[Key, Known]) -> Iterator[tuple[int, bytes]]:
    """Yield (crawl, condition) that selects the wide rows of these pages, some at a time."""
    one = b"place = %d AND fingerprint = %d"
    for crawl, some in by_crawl(sorted(known)):
        for part in chunks(some):
            named = [one % (known[crawl, number].place, number) for number in part]
            yield crawl, b" OR ".join(named)
