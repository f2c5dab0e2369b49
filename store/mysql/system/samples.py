"""Samples of crawls' counters on MySQL. Each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from greencrawl.schema.records import Counted
from greencrawl.store import rows
from greencrawl.store.base import MINUTE_MS
from greencrawl.store.mysql.connection import Db
from greencrawl.store.sqlite.system.samples import COLUMNS, thinned

STEP = 1000
"""Rows that one step of retention deletes; a replica repeats a step as one transaction."""


def put(db: Db, samples: Sequence[Counted]) -> None:
    """See ``Store.put_samples``. Samples of a deleted crawl are left out."""
    marks = ", ".join(["%s"] * len(COLUMNS))
    for one in sorted(samples, key=lambda one: one.crawl):
        known = "SELECT 1 FROM crawls WHERE id = %s AND deleted = 0 LOCK IN SHARE MODE"
        if db.execute(known, (one.crawl,)):
            db.execute(
                f"INSERT INTO samples ({', '.join(COLUMNS)}) VALUES ({marks}) "
                "ON DUPLICATE KEY UPDATE minute = VALUES(minute)",
                astuple(one),
            )


def some(db: Db, crawl: int, since_ms: int = 0, points: int = 1000) -> list[Counted]:
    """See ``Store.samples``."""
    crawl, since = rows.bounded(crawl), since_ms // MINUTE_MS
    db.execute("SELECT MAX(minute) FROM samples WHERE crawl = %s AND minute < %s", (crawl, since))
    ((before,),) = db.fetchall()
    db.execute(
        "SELECT MIN(minute), MAX(minute) FROM samples WHERE crawl = %s AND minute >= %s",
        (crawl, since),
    )
    ((first, last),) = db.fetchall()
    if first is None:
        return []
    db.execute(
        f"SELECT {', '.join(COLUMNS)} FROM samples JOIN ("
        "SELECT MAX(minute) AS minute FROM samples WHERE crawl = %s AND minute >= %s "
        "GROUP BY minute DIV %s UNION SELECT %s) AS points USING (minute) "
        "WHERE crawl = %s ORDER BY minute",
        (crawl, first, thinned(first, last, points), before, crawl),
    )
    return [Counted(**dict(zip(COLUMNS, row, strict=True))) for row in db.fetchall()]


def drop(db: Db, before_ms: int) -> int:
    """Delete some samples of minutes before ``before_ms``; return how many."""
    sql = f"DELETE FROM samples WHERE minute < %s ORDER BY minute, crawl LIMIT {STEP}"
    return db.execute(sql, (before_ms // MINUTE_MS,))
