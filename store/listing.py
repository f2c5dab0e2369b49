"""Lists of pages and final states on SQLite: which rows, from which cursor, in bounded steps.

A statement reads a chunk and ends, so that no transaction stays open between two; one that looks
for few rows among many looks at :data:`WINDOW` of them at most.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
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

HOST = (
    "replace(replace(substr(url, instr(url, '://') + 3, "
    "instr(substr(url, instr(url, '://') + 3), '/')), ':80/', '/'), ':443/', '/')"
)
"""The host of a row with a "/" behind it: the expression of the index ``pages_by_host``."""

Run = Callable[[Callable[[sqlite3.Connection], list[Row]]], list[Row]]


def number(cursor: str, least: int = 0) -> int:
    """The number that a cursor is. Raises ValueError."""
    if len(cursor) > 20 or not re.fullmatch(r"-?[0-9]+", cursor):
        raise ValueError(f"no cursor: {cursor[:40]!r}")
    found = int(cursor)
    if not least <= found < 2**63:
        raise ValueError(f"no cursor: {cursor!r}")
    return found


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


def pages(run: Run, crawl: int, wanted: PageFilter, detail: Detail, after: int) -> Iterator[Row]:
    """Rows of :func:`page_sql` in the order of storing, beyond row ``after``."""
    where, values = "pages.crawl = ?", [crawl]
    some = where + (f" AND {HOST} = ?" if wanted.host else "") + " AND pages.id > ?"
    bounds = f"SELECT pages.id FROM pages WHERE {some} ORDER BY pages.id LIMIT 1 OFFSET {WINDOW}"
    low, high = wanted.status
    picky = wanted.since_ms > 0 or low > 0 or high < 999
    more = " AND status BETWEEN ? AND ? AND fetched_ms >= ?" if picky else ""
    sql = f"{page_sql(detail)} WHERE {some} AND pages.id <= ?{more} ORDER BY pages.id"
    host = (rows.clean(wanted.host) + "/",) if wanted.host else ()
    least = (rows.bounded(low), rows.bounded(high), rows.bounded(wanted.since_ms))
    upper: list[int | None] = [None]

    def window(db: sqlite3.Connection) -> list[Row]:
        found = db.execute(bounds, (*values, *host, after)).fetchone() if picky else None
        upper[0] = found[0] if found else None
        return read(db)

    def read(db: sqlite3.Connection) -> list[Row]:
        top = 2**63 - 1 if upper[0] is None else upper[0]
        return chunk(db, sql, (*values, *host, after, top, *(least if picky else ())))

    while True:
        found = run(window)
        while found:
            for row in found:
                after = row[0]
                yield row
            found = run(read)
        if upper[0] is None:
            return
        after = upper[0]


def finals(run: Run, crawl: int, since_ms: int, after: str) -> Iterator[Row]:
    """Rows of ``rows.FINAL_READ`` by fingerprint, beyond fingerprint ``after``."""
    last = number(after, -(2**63)) if after else -(2**63)
    beyond = ">" if after else ">="
    some = "crawl = ? AND fingerprint {} ?"
    order = "ORDER BY fingerprint"
    upper: list[int | None] = [None]
    bounds = f"SELECT fingerprint FROM finals WHERE {some} {order} LIMIT 1 OFFSET {WINDOW}"
    sql = (
        f"SELECT {rows.FINAL_READ} FROM finals WHERE {some} AND fingerprint <= ? "
        f"AND at_ms >= ? {order}"
    )

    def window(db: sqlite3.Connection) -> list[Row]:
        found = None
        if since_ms > 0:
            found = db.execute(bounds.format(beyond), (crawl, last)).fetchone()
        upper[0] = found[0] if found else None
        return read(db)

    def read(db: sqlite3.Connection) -> list[Row]:
        top = 2**63 - 1 if upper[0] is None else upper[0]
        since = rows.bounded(since_ms) if since_ms > 0 else -(2**63)
        return chunk(db, sql.format(beyond), (crawl, last, top, since))

    while True:
        found = run(window)
        while found:
            for row in found:
                last, beyond = row[2], ">"
                yield row
            found = run(read)
        if upper[0] is None:
            return
        last, beyond = upper[0], ">"
