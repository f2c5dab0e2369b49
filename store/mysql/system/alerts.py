"""Alerts on MySQL. Each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from greencrawl.schema.records import Alert
from greencrawl.store.mysql.connection import Db
from greencrawl.store.sqlite.system.alerts import COLUMNS, KEY, STEP, alert


def some(db: Db, where: str) -> list[Alert]:
    """Return alerts that meet a condition, in the order in which they were first seen."""
    db.execute(
        f"SELECT {', '.join(COLUMNS)} FROM alerts WHERE {where} ORDER BY since_ms, kind, subject"
    )
    return list(map(alert, db.fetchall()))


def put(db: Db, alerts: Sequence[Alert]) -> None:
    """See ``Store.put_alerts``."""
    marks = ", ".join(["%s"] * len(COLUMNS))
    for one in alerts:
        db.execute(
            f"INSERT INTO alerts ({', '.join(COLUMNS)}) VALUES ({marks}) "
            "ON DUPLICATE KEY UPDATE text = VALUES(text), began_ms = VALUES(began_ms), "
            "over_ms = VALUES(over_ms)",
            astuple(one),
        )


def told(db: Db, alert: Alert) -> None:
    """See ``Store.note_told``."""
    db.execute(
        "UPDATE alerts SET told = %s WHERE kind = %s AND subject = %s AND since_ms = %s",
        (alert.told, alert.kind, alert.subject, alert.since_ms),
    )


def forget(db: Db, alerts: Sequence[Alert]) -> None:
    """See ``Store.forget_alerts``."""
    for one in alerts:
        db.execute(
            "DELETE FROM alerts WHERE kind = %s AND subject = %s AND since_ms = %s",
            (one.kind, one.subject, one.since_ms),
        )


def drop(db: Db, before_ms: int) -> int:
    """Delete some alerts that ended before; return how many."""
    return db.execute(
        f"DELETE FROM alerts WHERE over_ms BETWEEN 1 AND %s ORDER BY {', '.join(KEY)} LIMIT {STEP}",
        (before_ms - 1,),
    )
