"""Samples of crawls' counters on SQLite. Each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple

from greencrawl.schema.records import Counted
from greencrawl.store import rows
from greencrawl.store.base import MINUTE_MS

COLUMNS = Counted.__struct_fields__
STEP = 2000
"""Rows that one step of retention deletes."""


def thinned(first: int, last: int, points: int) -> int:
    """Return the minutes between two points, so that there are at most ``points`` (2 or more)."""
    return max(1, -(-(last - first) // (points - 1)))


def put(db: sqlite3.Connection, samples: Sequence[Counted]) -> None:
    """See ``Store.put_samples``. Samples of a deleted crawl are left out."""
    marks = ", ".join("?" * len(COLUMNS))
    db.executemany(
        f"INSERT OR IGNORE INTO samples ({', '.join(COLUMNS)}) SELECT {marks} "
        "WHERE EXISTS (SELECT 1 FROM crawls WHERE id = ? AND deleted = 0)",
        [(*astuple(one), one.crawl) for one in samples],
    )


def some(
    db: sqlite3.Connection, crawl: int, since_ms: int = 0, points: int = 1000
) -> list[Counted]:
    """See ``Store.samples``."""
    crawl, since = rows.bounded(crawl), since_ms // MINUTE_MS
    (before,) = db.execute(
        "SELECT MAX(minute) FROM samples WHERE crawl = ? AND minute < ?", (crawl, since)
    ).fetchone()
    first, last = db.execute(
        "SELECT MIN(minute), MAX(minute) FROM samples WHERE crawl = ? AND minute >= ?",
        (crawl, since),
    ).fetchone()
    if first is None:
        return []
    step = thinned(first, last, points)
    found = db.execute(
        f"SELECT {', '.join(COLUMNS)} FROM samples WHERE crawl = :crawl AND minute IN ("
        "SELECT MAX(minute) FROM samples WHERE crawl = :crawl AND minute >= :first "
        "GROUP BY minute / :step UNION SELECT :before) ORDER BY minute",
        {"crawl": crawl, "first": first, "step": step, "before": before},
    )
    return [Counted(**dict(zip(COLUMNS, row, strict=True))) for row in found.fetchall()]


def drop(db: sqlite3.Connection, before_ms: int) -> int:
    """Delete some samples of minutes before ``before_ms``; return how many."""
    some_rows = f"SELECT crawl, minute FROM samples WHERE minute < ? LIMIT {STEP}"
    sql = f"DELETE FROM samples WHERE (crawl, minute) IN ({some_rows})"
    return db.execute(sql, (before_ms // MINUTE_MS,)).rowcount
