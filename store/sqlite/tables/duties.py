"""Duties on SQLite; see ``Store.take_duties``. Each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greencrawl.schema.errors import DutyLost
from greencrawl.schema.records import Duty
from greencrawl.store.base import DUTY_SECONDS

DUTY_MS = round(DUTY_SECONDS * 1000)


def others(db: sqlite3.Connection, holder: str, names: Sequence[str], now_ms: int) -> set[str]:
    """Return the duties in ``names`` that another holder has now."""
    marks = ", ".join("?" * len(names))
    found = db.execute(
        f"SELECT name FROM duties WHERE name IN ({marks}) AND holder <> ? "
        "AND until_ms > ? AND until_ms <= ?",
        (*names, holder, now_ms, now_ms + DUTY_MS),
    )
    return {name for (name,) in found}


def holder(db: sqlite3.Connection, name: str, now_ms: int) -> str:
    """See ``Store.duty_holder``."""
    row = db.execute(
        "SELECT holder FROM duties WHERE name = ? AND until_ms > ? AND until_ms <= ?",
        (name, now_ms, now_ms + DUTY_MS),
    ).fetchone()
    return str(row[0]) if row else ""


def take(db: sqlite3.Connection, holder: str, names: Sequence[str], now_ms: int) -> dict[str, int]:
    """Take or renew the duties that no other holder has; return name → epoch."""
    held = {}
    for name in names:
        row = db.execute(
            "INSERT INTO duties (name, holder, epoch, until_ms) VALUES (:name, :holder, 1, :until) "
            "ON CONFLICT (name) DO UPDATE SET epoch = epoch + "
            "(holder <> :holder OR until_ms <= :now OR until_ms > :until), "
            "holder = :holder, until_ms = :until "
            "WHERE holder = :holder OR until_ms <= :now OR until_ms > :until RETURNING epoch",
            {"name": name, "holder": holder, "now": now_ms, "until": now_ms + DUTY_MS},
        ).fetchone()
        if row is not None:
            held[name] = int(row[0])
    return held


def release(db: sqlite3.Connection, holder: str, names: Sequence[str]) -> None:
    """See ``Store.release_duties``."""
    marks = ", ".join("?" * len(names))
    db.execute(
        f"UPDATE duties SET until_ms = 0 WHERE holder = ? AND name IN ({marks})", (holder, *names)
    )


def check(db: sqlite3.Connection, duty: Duty) -> None:
    """Raise DutyLost if another broker has taken the duty since."""
    row = db.execute("SELECT epoch FROM duties WHERE name = ?", (duty.name,)).fetchone()
    if row is None or row[0] != duty.epoch:
        raise DutyLost(f"another broker has taken the duty {duty.name}")
