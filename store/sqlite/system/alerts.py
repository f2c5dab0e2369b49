"""Alerts on SQLite. Each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple

from greencrawl.schema.records import Alert

COLUMNS = Alert.__struct_fields__
STEP = 1000
"""Rows that one step of retention deletes."""
KEY = ("kind", "subject", "since_ms")
UNTOLD = "began_ms > 0 AND told < 1 + (over_ms > 0)"
"""Condition for an alert with a message that was not delivered."""


def alert(row: Sequence[object]) -> Alert:
    """Return the alert of a row of :data:`COLUMNS`."""
    return Alert(**dict(zip(COLUMNS, row, strict=True)))  # type: ignore[arg-type]


def some(db: sqlite3.Connection, where: str) -> list[Alert]:
    """Return alerts that meet a condition, in the order in which they were first seen."""
    found = db.execute(
        f"SELECT {', '.join(COLUMNS)} FROM alerts WHERE {where} ORDER BY since_ms, kind, subject"
    )
    return list(map(alert, found.fetchall()))


def put(db: sqlite3.Connection, alerts: Sequence[Alert]) -> None:
    """See ``Store.put_alerts``."""
    marks = ", ".join("?" * len(COLUMNS))
    db.executemany(
        f"INSERT INTO alerts ({', '.join(COLUMNS)}) VALUES ({marks}) "
        f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET text = excluded.text, "
        "began_ms = excluded.began_ms, over_ms = excluded.over_ms",
        list(map(astuple, alerts)),
    )


def told(db: sqlite3.Connection, alert: Alert) -> None:
    """See ``Store.note_told``."""
    db.execute(
        "UPDATE alerts SET told = ? WHERE kind = ? AND subject = ? AND since_ms = ?",
        (alert.told, alert.kind, alert.subject, alert.since_ms),
    )


def forget(db: sqlite3.Connection, alerts: Sequence[Alert]) -> None:
    """See ``Store.forget_alerts``."""
    db.executemany(
        "DELETE FROM alerts WHERE kind = ? AND subject = ? AND since_ms = ?",
        [(one.kind, one.subject, one.since_ms) for one in alerts],
    )


def drop(db: sqlite3.Connection, before_ms: int) -> int:
    """Delete some alerts that ended before; return how many."""
    old = f"SELECT {', '.join(KEY)} FROM alerts WHERE over_ms BETWEEN 1 AND ? LIMIT {STEP}"
    sql = f"DELETE FROM alerts WHERE ({', '.join(KEY)}) IN ({old})"
    return db.execute(sql, (before_ms - 1,)).rowcount
