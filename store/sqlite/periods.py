"""Periods of crawls on SQLite; each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3

from greencrawl.schema.records import FINISHED, Crawl, Period
from greencrawl.store.base import PERIODS
from greencrawl.store.sqlite.tables import crawls


def rest(db: sqlite3.Connection, crawl: int, every_ms: int, version: int, now_ms: int) -> Crawl:
    """See ``Store.rest``."""
    changed = crawls.set_state(db, crawl, "done", FINISHED, version, now_ms)
    if not changed.finished or changed.version == version:
        return changed
    last, started_ms = _last_period(db, crawl)
    if last:
        end = "UPDATE periods SET ended_ms = ? WHERE crawl = ? AND number = ? AND ended_ms = 0"
        db.execute(end, (now_ms, crawl, last))
    else:  # the crawl before it began again
        started_ms = changed.started_ms
        first = "INSERT INTO periods (crawl, number, started_ms, ended_ms) VALUES (?, 1, ?, ?)"
        db.execute(first, (crawl, started_ms, now_ms))
    wakes_ms = max(now_ms, started_ms + every_ms)
    db.execute("UPDATE crawls SET wakes_ms = ? WHERE id = ?", (wakes_ms, crawl))
    return crawls.get(db, crawl)


def begin_period(db: sqlite3.Connection, crawl: int, blob: bytes, now_ms: int) -> Crawl:
    """See ``Store.begin_period``; ``blob`` is the packed batch."""
    known = crawls.get(db, crawl)
    if not known.wakes(now_ms):
        return known
    last, _ = _last_period(db, crawl)
    begin = "INSERT INTO periods (crawl, number, started_ms) VALUES (?, ?, ?)"
    db.execute(begin, (crawl, last + 1, now_ms))
    db.execute("DELETE FROM periods WHERE crawl = ? AND number <= ?", (crawl, last + 1 - PERIODS))
    crawls.add_seeds(db, crawl, blob, force=True)
    return crawls.get(db, crawl)


def _last_period(db: sqlite3.Connection, crawl: int) -> tuple[int, int]:
    """Its number and when it began; 0 if there was none."""
    sql = "SELECT number, started_ms FROM periods WHERE crawl = ? ORDER BY number DESC LIMIT 1"
    return db.execute(sql, (crawl,)).fetchone() or (0, 0)


def periods(db: sqlite3.Connection, crawl: int, limit: int) -> list[Period]:
    """See ``Store.periods``."""
    sql = "SELECT number, started_ms, ended_ms FROM periods WHERE crawl = ?"
    found = db.execute(f"{sql} ORDER BY number DESC LIMIT ?", (crawl, limit)).fetchall()
    return [Period(*row) for row in found]
