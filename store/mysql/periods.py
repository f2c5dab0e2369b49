"""Periods of crawls on MySQL; each function runs in a caller's transaction."""

from __future__ import annotations

from greencrawl.schema.records import FINISHED, Crawl, Period
from greencrawl.store.base import PERIODS
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.ids import Numbers
from greencrawl.store.mysql.tables import crawls


def rest(db: Db, crawl: int, every_ms: int, version: int, now_ms: int) -> Crawl:
    """See ``Store.rest``."""
    changed = crawls.set_state(db, crawl, "done", FINISHED, version, now_ms)
    if not changed.finished or changed.version == version:
        return changed
    last, started_ms = _last_period(db, crawl)
    if last:
        end = "UPDATE periods SET ended_ms = %s WHERE crawl = %s AND number = %s AND ended_ms = 0"
        db.execute(end, (now_ms, crawl, last))
    else:  # the crawl before it began again
        started_ms = changed.started_ms
        first = "INSERT INTO periods (crawl, number, started_ms, ended_ms) VALUES (%s, 1, %s, %s)"
        db.execute(first, (crawl, started_ms, now_ms))
    wakes_ms = max(now_ms, started_ms + every_ms)
    db.execute("UPDATE crawls SET wakes_ms = %s WHERE id = %s", (wakes_ms, crawl))
    return crawls.get(db, crawl)


def begin_period(db: Db, ids: Numbers, crawl: int, blob: bytes, now_ms: int) -> Crawl:
    """See ``Store.begin_period``; ``blob`` is the packed batch."""
    known = crawls.get(db, crawl, " FOR UPDATE")
    if not known.wakes(now_ms):
        return known
    last, _ = _last_period(db, crawl)
    begin = "INSERT INTO periods (crawl, number, started_ms) VALUES (%s, %s, %s)"
    db.execute(begin, (crawl, last + 1, now_ms))
    db.execute("DELETE FROM periods WHERE crawl = %s AND number <= %s", (crawl, last + 1 - PERIODS))
    crawls.add_seeds(db, ids, crawl, blob, force=True)
    return crawls.get(db, crawl)


def _last_period(db: Db, crawl: int) -> tuple[int, int]:
    """Its number and when it began; 0 if there was none."""
    sql = "SELECT number, started_ms FROM periods WHERE crawl = %s ORDER BY number DESC LIMIT 1"
    db.execute(sql, (crawl,))
    found = db.fetchone()
    return tuple(found) if found else (0, 0)


def periods(db: Db, crawl: int, limit: int) -> list[Period]:
    """See ``Store.periods``."""
    sql = "SELECT number, started_ms, ended_ms FROM periods WHERE crawl = %s"
    db.execute(f"{sql} ORDER BY number DESC LIMIT %s", (crawl, limit))
    return [Period(*row) for row in db.fetchall()]
