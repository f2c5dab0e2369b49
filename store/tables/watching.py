"""The rows of the coordinator: samples of crawls' counters, and alerts.

Each function runs in a caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from greencrawl.schema.records import Alert, Counted
from greencrawl.store import rows
from greencrawl.store.base import MINUTE_MS
from greencrawl.store.tables.sql import SHARE_LOCK, Db, change, drop, first, found

STEP = 1000
"""Rows that one step of retention deletes; a replica repeats a step as one transaction."""
_SAMPLE = ", ".join(Counted.__struct_fields__)
_ALERT = ", ".join(Alert.__struct_fields__)
_KEY = "kind, subject, since_ms"
_THIS = "WHERE kind = ? AND subject = ? AND since_ms = ?"
_UNTOLD = "began_ms > 0 AND told < 1 + (over_ms > 0)"


def put_samples(db: Db, samples: Sequence[Counted]) -> None:
    """See ``Store.put_samples``. Samples of a deleted crawl are left out."""
    known = f"SELECT 1 FROM crawls WHERE id = ? AND deleted = 0{SHARE_LOCK}"
    marks = ", ".join("?" * len(Counted.__struct_fields__))
    for one in sorted(samples, key=lambda one: one.crawl):
        if first(db, known, (one.crawl,)):
            sql = f"INSERT INTO samples ({_SAMPLE}) VALUES ({marks}) ON CONFLICT DO NOTHING"
            change(db, sql, astuple(one))


def samples(db: Db, crawl: int, since_ms: int = 0, points: int = 1000) -> list[Counted]:
    """See ``Store.samples``."""
    crawl, since = rows.bounded(crawl), since_ms // MINUTE_MS
    sql = "FROM samples WHERE crawl = ? AND minute"
    ((before,),) = found(db, f"SELECT MAX(minute) {sql} < ?", (crawl, since))
    ((least, last),) = found(db, f"SELECT MIN(minute), MAX(minute) {sql} >= ?", (crawl, since))
    if least is None:
        return []
    step = max(1, -(-(last - least) // (points - 1)))  # so that no more than ``points`` are shown
    some = found(
        db,
        f"SELECT {_SAMPLE} FROM samples JOIN (SELECT MAX(minute) AS minute {sql} >= ? "
        "GROUP BY minute - minute % ? UNION SELECT ?) AS points USING (minute) "
        "WHERE crawl = ? ORDER BY minute",
        (crawl, least, step, before, crawl),
    )
    return [Counted(**dict(zip(Counted.__struct_fields__, row, strict=True))) for row in some]


def drop_samples(db: Db, before_ms: int) -> int:
    """Delete some samples of minutes before ``before_ms``; return how many."""
    return drop(db, "samples", "minute, crawl", "minute < ?", (before_ms // MINUTE_MS,), STEP)


def alerts(db: Db, where: str = "over_ms = 0") -> list[Alert]:
    """Return the alerts for which a condition is true, in the order in which they were first
    seen."""
    sql = f"SELECT {_ALERT} FROM alerts WHERE {where} ORDER BY since_ms, kind, subject"
    return [Alert(**dict(zip(Alert.__struct_fields__, row, strict=True))) for row in found(db, sql)]


def untold(db: Db) -> list[Alert]:
    """See ``Store.untold_alerts``."""
    return alerts(db, _UNTOLD)


def put_alerts(db: Db, alerts: Sequence[Alert]) -> None:
    """See ``Store.put_alerts``."""
    marks = ", ".join("?" * len(Alert.__struct_fields__))
    for one in alerts:
        change(
            db,
            f"INSERT INTO alerts ({_ALERT}) VALUES ({marks}) ON CONFLICT ({_KEY}) DO UPDATE SET "
            "text = excluded.text, began_ms = excluded.began_ms, over_ms = excluded.over_ms",
            astuple(one),
        )


def note_told(db: Db, alert: Alert) -> None:
    """See ``Store.note_told``."""
    key = (alert.kind, alert.subject, alert.since_ms)
    change(db, f"UPDATE alerts SET told = ? {_THIS}", (alert.told, *key))


def forget(db: Db, alerts: Sequence[Alert]) -> None:
    """See ``Store.forget_alerts``."""
    for one in alerts:
        change(db, f"DELETE FROM alerts {_THIS}", (one.kind, one.subject, one.since_ms))


def drop_alerts(db: Db, before_ms: int) -> int:
    """Delete some alerts that ended before ``before_ms``; return how many."""
    return drop(db, "alerts", _KEY, "over_ms BETWEEN 1 AND ?", (before_ms - 1,), STEP)
