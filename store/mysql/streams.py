"""Streams of pages and final states, in chunks of bounded rows and bytes.

The narrow rows say which pages come next and how large they are; then as many wide rows as fit are
read at a time. No transaction stays open between two chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from greencrawl.schema.records import PageFilter
from greencrawl.store import rows as common
from greencrawl.store.base import STEP_ROWS, Detail
from greencrawl.store.mysql import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.statements import numbers, raw
from greencrawl.store.rows import Row

CHUNK_ROWS = 500
CHUNK_BYTES = 8 * 1024 * 1024
"""A streamed chunk has at most this many stored bytes; its rows are limited, too."""
WINDOW = STEP_ROWS
"""Rows that a filtered step reads."""

At = tuple[int, int, int]
"""The position of a page in a stream: stamp, place, fingerprint."""
START: At = (-1, 0, 0)
END: At = (2**63 - 1, 0, 0)
"""After the newest page."""

_NUMBER = r"(-?[0-9]{1,19})"


def page_cursor(at: At) -> str:
    """Return the cursor of a page."""
    return ".".join(map(str, at))


def after_page(cursor: str, start: At = START) -> At:
    """Return the place that a cursor names, ``start`` without one. Raises ValueError."""
    if not cursor:
        return start
    found = re.fullmatch(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}", cursor)
    if not found:
        raise ValueError(f"no cursor: {cursor[:80]!r}")
    stamp, place, fingerprint = map(int, found.groups())
    return stamp, place, fingerprint


def after_number(cursor: str) -> int | None:
    """Return the fingerprint that a cursor names, None without a cursor. Raises ValueError."""
    if not cursor:
        return None
    if not re.fullmatch(_NUMBER, cursor):
        raise ValueError(f"no cursor: {cursor[:80]!r}")
    return int(cursor)


class Chunk(NamedTuple):
    """(place in the stream, row) of some pages, the place reached, and how many rows were read."""

    rows: list[tuple[At, Row]]
    at: At
    looked_at: int


def _chosen(wanted: PageFilter) -> tuple[str, str, str]:
    """Return the index to read, and two conditions: the first uses the index, the second filters
    rows."""
    index = "pages_by_stamp"
    host = more = ""
    if wanted.host:
        index, host = "pages_by_host", f"AND p.host = {rows.host_hash(wanted.host)} "
    low, high = wanted.status
    if (low, high) != (0, 999):
        more += f"AND p.status BETWEEN {common.bounded(low)} AND {common.bounded(high)} "
    if wanted.since_ms > 0:
        more += f"AND p.fetched_ms >= {common.bounded(wanted.since_ms)} "
    return index, host, more


_MIRROR = str.maketrans("<>", "><")
_ORDER = "ORDER BY p.stamp, p.place, p.fingerprint"
_NEWEST = "ORDER BY p.stamp DESC, p.place DESC, p.fingerprint DESC"


def _ranges(
    after: At, end: At | None, *, newest: bool = False
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield conditions that, in order, select the places after ``after`` up to ``end``.

    A comparison of rows would read the index from its start, an OR perhaps to its end. With
    ``newest`` they select the places before ``after`` down to ``end``.
    """
    if newest:
        for condition, values in _ranges(after, end):
            yield condition.translate(_MIRROR), values
        return
    begun = "p.stamp = %s AND p.place >= %s AND (p.place > %s OR p.fingerprint > %s)"
    ended = "p.place <= %s AND (p.place < %s OR p.fingerprint <= %s)"
    stamp, place, fingerprint = after
    begin = (stamp, place, place, fingerprint)
    if end is not None and stamp == end[0]:
        yield f"{begun} AND {ended}", (*begin, end[1], end[1], end[2])
        return
    if stamp >= 0:
        yield begun, begin
    if end is None:
        yield "p.stamp > %s", (stamp,)
    else:
        yield "p.stamp > %s AND p.stamp < %s", (stamp, end[0])
        yield f"p.stamp = %s AND {ended}", (end[0], end[1], end[1], end[2])


def window(
    db: Db, crawl: int, wanted: PageFilter, after: At, most: int, newest: bool = False
) -> tuple[At | None, int]:
    """Return where the next rows end (``most`` rows at most), None if there are none; and how many
    rows there are."""
    index, host, _ = _chosen(wanted)
    end, left = None, most
    order = _NEWEST if newest else _ORDER
    for condition, values in _ranges(after, None, newest=newest):
        where = f"pages p FORCE INDEX ({index}) WHERE p.crawl = %s {host}AND {condition} {order}"
        last, found = None, left
        while found and last is None:  # rows may move past the range between the two queries
            db.execute(
                f"SELECT COUNT(*) FROM (SELECT 1 FROM {where} LIMIT %s) some",
                (crawl, *values, left),
            )
            (found,) = db.fetchone() or (0,)
            db.execute(
                f"SELECT p.stamp, p.place, p.fingerprint FROM {where} LIMIT 1 OFFSET %s",
                (crawl, *values, max(found - 1, 0)),
            )
            last = db.fetchone()
        if found:
            end, left = last, left - found
        if not left:
            break
    return end, most - left


def narrow(
    db: Db,
    crawl: int,
    wanted: PageFilter,
    detail: Detail,
    after: At,
    end: At | None = None,
    newest: bool = False,
) -> list[tuple[At, int]]:
    """Return (place in the stream, stored bytes) of the next pages, up to ``end``."""
    index, host, more = _chosen(wanted)
    size = {"row": "1000", "body": "p.wide + COALESCE(d.bytes, 0)"}.get(detail, "p.wide")
    joined = ""
    if detail == "body":
        joined = (
            "LEFT JOIN digests d ON p.body_bytes > 0 AND d.crawl = p.crawl AND d.digest = p.digest"
        )
    sql = (
        f"SELECT p.stamp, p.place, p.fingerprint, {size} FROM pages p FORCE INDEX ({index}) "
        f"{joined} WHERE p.crawl = %s {host}{more}AND "
    )
    found: list[Row] = []
    order = _NEWEST if newest else _ORDER
    for condition, values in _ranges(after, end, newest=newest):
        if len(found) < CHUNK_ROWS:
            limit = CHUNK_ROWS - len(found)
            db.execute(f"{sql}{condition} {order} LIMIT %s", (crawl, *values, limit))
            found += db.fetchall()
    return [((row[0], row[1], row[2]), int(row[3])) for row in found]


def parts(found: Sequence[tuple[At, int]]) -> Iterator[list[At]]:
    """Yield ``found`` in parts of up to :data:`CHUNK_BYTES`."""
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
    """Return fingerprint → row of ``sql``, which begins with the fingerprint, as pages are now."""
    some = numbers(at[2] for at in part)
    condition = b"%b WHERE p.crawl = %d AND p.fingerprint IN (%b)"
    raw(db, condition % (sql.encode(), crawl, some))
    return {row[0]: row for row in db.fetchall()}


def stream(
    scan: Callable[[Callable[[Db], Any]], Any],
    crawl: int,
    sql: str,
    wanted: PageFilter,
    detail: Detail,
    after: At,
    most: int = WINDOW,
    newest: bool = False,
) -> Iterator[Chunk]:
    """Yield chunks of (place in the stream, row of ``sql``), each chunk from one server.

    If ``wanted`` filters rows, a statement reads ``most`` of them. With ``newest`` the order is the
    opposite one.
    """
    at, end, left = after, None, 0
    passing = bool(_chosen(wanted)[2])
    look = partial(window, crawl=crawl, wanted=wanted, most=most, newest=newest)
    read = partial(_chunk, crawl=crawl, sql=sql, wanted=wanted, detail=detail, newest=newest)
    while True:
        if passing:
            end, left = scan(partial(look, after=at))
            if end is None:
                return
        while found := scan(partial(read, at=at, end=end)):
            at = found[-1][0]
            left -= len(found)
            yield Chunk([(one, row) for one, row in found if row is not None], at, len(found))
        if end is None:
            return
        at = end
        if left > 0:
            yield Chunk([], at, left)


def _chunk(
    db: Db,
    crawl: int,
    sql: str,
    wanted: PageFilter,
    detail: Detail,
    at: At,
    end: At | None,
    newest: bool,
) -> list[tuple[At, Row | None]]:
    """Return the next pages; None for a page that was removed between the two queries."""
    for part in parts(narrow(db, crawl, wanted, detail, at, end, newest)):
        read = wide(db, sql, crawl, part)
        return [(one, read.get(one[2])) for one in part]
    return []


def finals(db: Db, crawl: int, since_ms: int, after: int | None) -> tuple[list[Row], int | None]:
    """Return rows of ``rows.FINAL_READ`` by fingerprint, and the last fingerprint that was read,
    None at the end.

    It reads :data:`WINDOW` rows at most, and so may find none.
    """
    at = -(2**64) if after is None else after
    last = 2**63 - 1
    if since_ms > 0:
        db.execute(
            "SELECT fingerprint FROM finals WHERE crawl = %s AND fingerprint > %s "
            "ORDER BY fingerprint LIMIT 1 OFFSET %s",
            (crawl, at, WINDOW - 1),
        )
        (last,) = db.fetchone() or (last,)
    db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals WHERE crawl = %s AND fingerprint > %s "
        "AND fingerprint <= %s AND at_ms >= %s ORDER BY fingerprint LIMIT %s",
        (crawl, at, last, since_ms if since_ms > 0 else -(2**63), CHUNK_ROWS),
    )
    found = list(db.fetchall())
    if len(found) == CHUNK_ROWS:
        last = found[-1][1]
    return found, None if last == 2**63 - 1 else last


def final_marks(db: Db, crawl: int, since: int, after: tuple[int, int]) -> list[Row]:
    """Return (stamp, fingerprint, url, state) of final states stamped ``since`` or later."""
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
