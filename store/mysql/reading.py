"""Streams of pages and final states, in chunks of bounded rows and bytes.

The narrow rows say which pages come next and how large they are; the wide ones are then read for as
many at a time as fit. No transaction stays open between two chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from schema.records import PageFilter
from store import rows as common
from store.base import Detail
from store.mysql import rows
from store.mysql.connection import Db
from store.mysql.sql import numbers, raw
from store.rows import Row

T = TypeVar("T")

CHUNK_ROWS = 500
CHUNK_BYTES = 8 * 1024 * 1024
"""A streamed chunk ends at so many rows or so many (stored) bytes, whichever comes first."""

At = tuple[int, int, int]
"""Where a page stands in a stream: stamp, place, fingerprint."""
START: At = (-1, 0, 0)
Scan = Callable[[Callable[[Db], T]], T]

_NUMBER = r"(-?[0-9]{1,19})"


def page_cursor(at: At) -> str:
    """The cursor of a page."""
    return ".".join(map(str, at))


def after_page(cursor: str) -> At:
    """The place that a cursor names. Raises ValueError."""
    if not cursor:
        return START
    found = re.fullmatch(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}", cursor)
    if not found:
        raise ValueError(f"no cursor: {cursor[:80]!r}")
    stamp, place, fingerprint = map(int, found.groups())
    return stamp, place, fingerprint


def after_number(cursor: str) -> int | None:
    """The fingerprint that a cursor names, None for none. Raises ValueError."""
    if not cursor:
        return None
    if not re.fullmatch(_NUMBER, cursor):
        raise ValueError(f"no cursor: {cursor[:80]!r}")
    return int(cursor)


def narrow(
    db: Db, crawl: int, wanted: PageFilter, detail: Detail, after: At, limit: int = CHUNK_ROWS
) -> list[tuple[At, int]]:
    """(place in the stream, stored bytes) of the next pages."""
    index, host = "pages_by_stamp", ""
    if wanted.host:
        index, host = "pages_by_host", f"AND p.host = {rows.host_hash(wanted.host)} "
    low, high = wanted.status
    if (low, high) != (0, 999):
        host += f"AND p.status BETWEEN {common.bounded(low)} AND {common.bounded(high)} "
    if wanted.since_ms > 0:
        host += f"AND p.fetched_ms >= {common.bounded(wanted.since_ms)} "
    size = {"row": "1000", "text": "p.wide", "body": "p.wide + COALESCE(d.bytes, 0)"}[detail]
    joined = ""
    if detail == "body":
        joined = (
            "LEFT JOIN digests d ON p.body_bytes > 0 AND d.crawl = p.crawl AND d.digest = p.digest"
        )
    sql = (
        f"SELECT p.stamp, p.place, p.fingerprint, {size} FROM pages p FORCE INDEX ({index}) "
        f"{joined} WHERE p.crawl = %s {host}AND "
    )
    stamp, place, fingerprint = after
    found: list[Row] = []
    if stamp >= 0:
        # A comparison of rows would read the index from its beginning.
        db.execute(
            f"{sql} p.stamp = %s AND p.place >= %s AND (p.place > %s OR p.fingerprint > %s) "
            "ORDER BY p.place, p.fingerprint LIMIT %s",
            (crawl, stamp, place, place, fingerprint, limit),
        )
        found += db.fetchall()
    if len(found) < limit:
        db.execute(
            f"{sql} p.stamp > %s ORDER BY p.stamp, p.place, p.fingerprint LIMIT %s",
            (crawl, stamp, limit - len(found)),
        )
        found += db.fetchall()
    return [((row[0], row[1], row[2]), int(row[3])) for row in found]


def parts(found: Sequence[tuple[At, int]]) -> Iterator[list[At]]:
    """``found`` in parts of up to :data:`CHUNK_BYTES`."""
    part: list[At] = []
    size = 0
    for at, more in found:
        if part and size + more > CHUNK_BYTES:
            yield part
            part, size = [], 0
        part.append(at)
        size += more
    if part:
        yield part


def wide(db: Db, sql: str, crawl: int, part: Sequence[At]) -> dict[int, Row]:
    """Fingerprint → row of ``sql`` (which begins with it), of pages as they are now."""
    some = numbers(at[2] for at in part)
    condition = b"%b WHERE p.crawl = %d AND p.fingerprint IN (%b)"
    raw(db, condition % (sql.encode(), crawl, some))
    return {row[0]: row for row in db.fetchall()}


def stream(
    scan: Scan[list[tuple[At, Row | None]]],
    crawl: int,
    sql: str,
    wanted: PageFilter,
    detail: Detail,
    after: At,
) -> Iterator[list[tuple[At, Row]]]:
    """Chunks of (place in the stream, row of ``sql``), each chunk from one server."""
    at = after
    while found := scan(partial(_chunk, crawl=crawl, sql=sql, wanted=wanted, detail=detail, at=at)):
        yield [(one, row) for one, row in found if row is not None]
        at = found[-1][0]


def _chunk(
    db: Db, crawl: int, sql: str, wanted: PageFilter, detail: Detail, at: At
) -> list[tuple[At, Row | None]]:
    """The next pages; None for one that went between the two looks."""
    for part in parts(narrow(db, crawl, wanted, detail, at)):
        read = wide(db, sql, crawl, part)
        return [(one, read.get(one[2])) for one in part]
    return []


def finals(db: Db, crawl: int, since_ms: int, after: int | None) -> list[Row]:
    """Rows of ``rows.FINAL_READ`` in order of fingerprints."""
    at = -(2**64) if after is None else after
    db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals WHERE crawl = %s AND fingerprint > %s "
        "AND at_ms >= %s ORDER BY fingerprint LIMIT %s",
        (crawl, at, since_ms if since_ms > 0 else -(2**63), CHUNK_ROWS),
    )
    return list(db.fetchall())


def final_marks(db: Db, crawl: int, since: int, after: tuple[int, int]) -> list[Row]:
    """(stamp, fingerprint, url, state) of final states stamped ``since`` or later."""
    found: list[Row] = []
    sql = (
        "SELECT stamp, fingerprint, url, state FROM finals FORCE INDEX (finals_by_stamp) "
        "WHERE crawl = %s AND "
    )
    if after[0] >= since:
        db.execute(
            f"{sql} stamp = %s AND fingerprint > %s ORDER BY fingerprint LIMIT %s",
            (crawl, *after, CHUNK_ROWS),
        )
        found += db.fetchall()
        since = after[0] + 1
    if len(found) < CHUNK_ROWS:
        db.execute(
            f"{sql} stamp >= %s ORDER BY stamp, fingerprint LIMIT %s",
            (crawl, since, CHUNK_ROWS - len(found)),
        )
        found += db.fetchall()
    return found
