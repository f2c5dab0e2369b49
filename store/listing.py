"""Lists of pages and final states on SQLite: which rows, from which cursor, in bounded steps.

A statement reads a chunk and ends, so that no transaction stays open between two; one that looks
for few rows among many looks at :data:`WINDOW` of them at most.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from schema.records import PageFilter
from store import contents, rows
from store.base import Detail
from store.rows import Row

CHUNK_ROWS = 500
CHUNK_BYTES = 8 * 1024 * 1024
"""A streamed chunk ends at so many rows or so many (compressed) bytes, whichever comes first."""

WINDOW = 20_000
"""Rows that a filtered step looks at."""

LAST = 2**63 - 1

HOST = (
    "replace(replace(substr(url, instr(url, '://') + 3, "
    "instr(substr(url, instr(url, '://') + 3), '/')), ':80/', '/'), ':443/', '/')"
)
"""The host of a row with a "/" behind it: the expression of the index ``pages_by_host``."""

Run = Callable[[Callable[[sqlite3.Connection], list[Row]]], list[Row]]


def beyond(cursor: str, least: int = 0) -> int:
    """The first number beyond a cursor; ``least`` is the first of all. Raises ValueError."""
    if not cursor:
        return least
    if len(cursor) > 20 or not re.fullmatch(r"-?[0-9]+", cursor):
        raise ValueError(f"no cursor: {cursor[:40]!r}")
    found = int(cursor)
    if not least <= found <= LAST:
        raise ValueError(f"no cursor: {cursor!r}")
    return found + 1


def chunk(db: sqlite3.Connection, sql: str, values: tuple[object, ...]) -> list[Row]:
    """The next rows, up to the limits of a chunk: memory does not grow with the crawl."""
    found: list[Row] = []
    size = 0
    cursor = db.execute(sql + " LIMIT ?", (*values, CHUNK_ROWS))
    for row in cursor:
        found.append(row)
        size += sum(len(value) for value in chain(row) if isinstance(value, bytes | str))
        if size >= CHUNK_BYTES:
            break
    cursor.close()
    return found


def page_sql(detail: Detail) -> str:
    """The beginning of a statement that reads pages; with bodies ``contents.PLACE`` follows."""
    columns = rows.PAGE_ROW if detail == "row" else rows.PAGE_READ
    named = re.sub(r"\b(?=[a-z_]+(?:,|$))", "pages.", columns)
    if detail == "body":
        return f"SELECT {named}, {contents.PLACE} FROM pages {contents.WHERE}"
    return f"SELECT {named} FROM pages"


def pages(
    run: Run, crawl: int, wanted: PageFilter, detail: Detail, first: int, *, indexed: bool
) -> Iterator[Row]:
    """Rows of :func:`page_sql` in the order of storing, from row ``first`` on.

    ``indexed``: whether there is an index by host.
    """
    some = "pages.crawl = ?"
    more = ""
    given: list[object] = [crawl]
    least: list[object] = []
    if wanted.host and indexed:
        some += f" AND {HOST} = ?"
        given.append(rows.clean(wanted.host) + "/")
    elif wanted.host:
        more = f"AND {HOST} = ? "
        least.append(rows.clean(wanted.host) + "/")
    low, high = wanted.status
    if wanted.since_ms > 0 or low > 0 or high < 999:
        more += "AND status BETWEEN ? AND ? AND fetched_ms >= ?"
        least += [rows.bounded(low), rows.bounded(high), rows.bounded(wanted.since_ms)]
    bounds = f"SELECT pages.id FROM pages WHERE {some} AND pages.id >= ? ORDER BY pages.id"
    sql = f"{page_sql(detail)} WHERE {some} AND pages.id BETWEEN ? AND ? {more} ORDER BY pages.id"
    return _windows(run, bounds if more else "", sql, (given, least), first, 0)


def finals(run: Run, crawl: int, since_ms: int, first: int) -> Iterator[Row]:
    """Rows of ``rows.FINAL_READ`` by fingerprint, from ``first`` on."""
    bounds = more = ""
    least: list[object] = []
    if since_ms > 0:
        bounds = (
            "SELECT fingerprint FROM finals WHERE crawl = ? AND fingerprint >= ? "
            "ORDER BY fingerprint"
        )
        more, least = "AND at_ms >= ?", [rows.bounded(since_ms)]
    sql = (
        f"SELECT {rows.FINAL_READ} FROM finals WHERE crawl = ? AND fingerprint BETWEEN ? AND ? "
        f"{more} ORDER BY fingerprint"
    )
    return _windows(run, bounds, sql, ([crawl], least), first, 2)


def _windows(
    run: Run,
    bounds: str,
    sql: str,
    given: tuple[Sequence[object], Sequence[object]],
    first: int,
    column: int,
) -> Iterator[Row]:
    """Rows of ``sql`` from the number ``first`` on; the number is in ``column``.

    ``sql`` takes the first of ``given``, the two ends of a window, and the second. Where it is to
    look at :data:`WINDOW` rows at most ``bounds`` lists their numbers; it takes the first of
    ``given`` and a beginning.
    """
    last = LAST

    def window(db: sqlite3.Connection) -> list[Row]:
        nonlocal last
        found = None
        if bounds:
            sought = f"{bounds} LIMIT 1 OFFSET {WINDOW}"
            found = db.execute(sought, (*given[0], first)).fetchone()
        last = found[0] if found else LAST
        return read(db)

    def read(db: sqlite3.Connection) -> list[Row]:
        return chunk(db, sql, (*given[0], first, last, *given[1]))

    while first <= LAST:
        found = run(window)
        while found:
            yield from found
            first = found[-1][column] + 1
            found = run(read) if first <= last else []
        first = last + 1
