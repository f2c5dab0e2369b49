"""Lists of pages and final states on SQLite: rows from a cursor, in bounded steps.

A statement reads a chunk and ends, so that no transaction stays open between two. A statement that
searches for few rows among many reads :data:`WINDOW` of them at most.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from greencrawl.schema.records import PageFilter
from greencrawl.store import rows
from greencrawl.store.base import STEP_ROWS, Detail
from greencrawl.store.rows import Row
from greencrawl.store.sqlite.batches import marks, padded
from greencrawl.store.sqlite.tables import contents
from greencrawl.store.tables.sql import LAST

CHUNK_ROWS = 500
CHUNK_BYTES = 8 * 1024 * 1024
"""A streamed chunk has at most this many compressed bytes; its rows are limited, too."""

WINDOW = STEP_ROWS
"""Rows that a filtered step reads."""


HOST = (
    "replace(replace(substr(url, instr(url, '://') + 3, "
    "instr(substr(url, instr(url, '://') + 3), '/')), ':80/', '/'), ':443/', '/')"
)
"""The host of a row with a "/" behind it: the expression of the index ``pages_by_host``."""

Run = Callable[[Callable[[sqlite3.Connection], list[Row]]], list[Row]]


def validators(db: sqlite3.Connection, crawl: int, fingerprints: Sequence[int]) -> list[Row]:
    """Return (fingerprint, headers) of whole pages with a 2xx status."""
    numbers = padded(list(fingerprints))
    return db.execute(
        "SELECT fingerprint, headers FROM pages WHERE crawl = ? AND truncated = 0 "
        f"AND status BETWEEN 200 AND 299 AND fingerprint IN ({marks(len(numbers))})",
        (crawl, *numbers),
    ).fetchall()


def chunk(db: sqlite3.Connection, sql: str, values: tuple[object, ...]) -> list[Row]:
    """Return the next rows, up to the limits of a chunk: memory does not grow with the crawl."""
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
    """Return the start of a statement that reads pages.

    Their columns are followed by ``contents.PLACE`` if bodies are wanted, and by ``contents.body``
    if texts are.
    """
    columns = {"row": rows.PAGE_ROW, "items": rows.PAGE_ITEMS}.get(detail, rows.PAGE_READ)
    named = re.sub(r"\b(?=[a-z_]+(?:,|$))", "pages.", columns)
    if detail == "body":
        return f"SELECT {named}, {contents.PLACE} FROM pages {contents.WHERE}"
    if detail == "text":
        return f"SELECT {named}, contents.body FROM pages {contents.BESIDE}"
    return f"SELECT {named} FROM pages"


class Found(NamedTuple):
    """Rows of a step, the number that it reached, and how many rows it read."""

    rows: list[Row]
    last: int
    looked_at: int


def pages(
    run: Run,
    crawl: int,
    wanted: PageFilter,
    detail: Detail,
    first: int,
    window: int,
    *,
    newest: bool = False,
) -> Iterator[Found]:
    """Yield rows of :func:`page_sql` in the order of storing, from row ``first`` on.

    A step reads ``window`` rows; ``newest``: in the opposite order.
    """
    some = "pages.crawl = ?"
    more = ""
    given: list[object] = [crawl]
    least: list[object] = []
    if wanted.host:
        some += f" AND {HOST} = ?"
        given.append(rows.clean(wanted.host) + "/")
    low, high = wanted.status
    if wanted.since_ms > 0 or low > 0 or high < 999:
        more += "AND status BETWEEN ? AND ? AND fetched_ms >= ?"
        least += [rows.bounded(low), rows.bounded(high), rows.bounded(wanted.since_ms)]
    onward, order = ("<=", "pages.id DESC") if newest else (">=", "pages.id")
    numbers = (
        f"SELECT pages.id AS n FROM pages WHERE {some} AND pages.id {onward} ? ORDER BY {order}"
    )
    sql = f"{page_sql(detail)} WHERE {some} AND pages.id BETWEEN ? AND ? {more} ORDER BY {order}"
    bound = (numbers if more else "", window)
    return _windows(run, bound, sql, (given, least), first, 0, newest=newest)


def finals(run: Run, crawl: int, since_ms: int, first: int) -> Iterator[Found]:
    """Yield rows of ``rows.FINAL_READ`` by fingerprint, from ``first`` on."""
    numbers = more = ""
    least: list[object] = []
    if since_ms > 0:
        numbers = (
            "SELECT fingerprint AS n FROM finals WHERE crawl = ? AND fingerprint >= ? "
            "ORDER BY fingerprint"
        )
        more, least = "AND at_ms >= ?", [rows.bounded(since_ms)]
    sql = (
        f"SELECT {rows.FINAL_READ} FROM finals WHERE crawl = ? AND fingerprint BETWEEN ? AND ? "
        f"{more} ORDER BY fingerprint"
    )
    return _windows(run, (numbers, WINDOW), sql, ([crawl], least), first, 2)


def _windows(
    run: Run,
    bound: tuple[str, int],
    sql: str,
    given: tuple[Sequence[object], Sequence[object]],
    first: int,
    column: int,
    *,
    newest: bool = False,
) -> Iterator[Found]:
    """Yield rows of ``sql`` from the number ``first`` on; the number is in ``column``.

    With ``newest`` the numbers fall, down to 1. ``sql`` takes the first of ``given``, the two ends
    of a window, and the second of ``given``. ``bound`` limits the rows that a step reads: it has a
    query for their numbers ("": no limit), and how many rows a step may read. The query takes the
    first of ``given`` and a start.
    """
    numbers, most = bound
    end, step = (1, -1) if newest else (LAST, 1)
    farthest = "min(n)" if newest else "max(n)"
    sought = f"SELECT coalesce({farthest}, 0), count(*) FROM ({numbers} LIMIT ?)"
    last, left = end, 0

    def window(db: sqlite3.Connection) -> list[Row]:
        nonlocal last, left
        if numbers:
            last, left = db.execute(sought, (*given[0], first, most)).fetchone()
        return read(db)

    def read(db: sqlite3.Connection) -> list[Row]:
        ends = (last, first) if newest else (first, last)
        return chunk(db, sql, (*given[0], *ends, *given[1]))

    while first * step <= end * step:
        found = run(window)
        if numbers and not left:
            return
        while found:
            first = found[-1][column] + step
            yield Found(found, first - step, len(found))
            left -= len(found)
            found = run(read) if first * step <= last * step else []
        if left > 0:
            yield Found([], last, left)
        first = last + step
