"""Duties on MySQL; see ``Store.take_duties``. Each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema.errors import DutyLost
from greencrawl.schema.records import Duty
from greencrawl.store.mysql.connection import Db
from greencrawl.store.rows import Row
from greencrawl.store.sqlite.tables.duties import DUTY_MS

_NOW = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"
"""Unix ms of the server, in any time zone of the session."""


def _now_ms(db: Db) -> int:
    db.execute(_NOW)
    ((now,),) = db.fetchall()
    return int(now)


def _rows(db: Db, names: Sequence[str], lock: str = "") -> Sequence[Row]:
    marks = ", ".join(["%s"] * len(names))
    db.execute(
        f"SELECT name, holder, epoch, until_ms FROM duties WHERE name IN ({marks}) "
        f"ORDER BY name {lock}",
        [name.encode() for name in names],
    )
    return db.fetchall()


def others(db: Db, holder: str, names: Sequence[str]) -> set[str]:
    """Return the duties in ``names`` that another holder has now."""
    found, now = _rows(db, names), _now_ms(db)
    return {row[0].decode() for row in found if _others(row, holder, now)}


def _others(row: Row, holder: str, now_ms: int) -> bool:
    _, known, _, until = row
    return bool(known != holder.encode() and now_ms < until <= now_ms + DUTY_MS)


def holder(db: Db, name: str) -> str:
    """See ``Store.duty_holder``."""
    found, now = _rows(db, [name]), _now_ms(db)
    return "".join(row[1].decode() for row in found if _others(row, "", now))


def take(db: Db, holder: str, names: Sequence[str]) -> dict[str, int]:
    """Take or renew the duties that no other holder has; return name → epoch."""
    there = {row[0].decode() for row in _rows(db, names)}
    for name in sorted(set(names) - there):  # so that there is a row to lock
        db.execute(
            "INSERT INTO duties (name, holder, epoch, until_ms) VALUES (%s, '', 0, 0) "
            "ON DUPLICATE KEY UPDATE epoch = epoch",
            (name.encode(),),
        )
    found = _rows(db, names, "FOR UPDATE")
    now = _now_ms(db)  # read when all rows are locked, which may have taken a while
    held = {}
    for row in found:
        if _others(row, holder, now):
            continue
        name, known, epoch, until = row
        epoch += known != holder.encode() or not now < until <= now + DUTY_MS
        db.execute(
            "UPDATE duties SET holder = %s, epoch = %s, until_ms = %s WHERE name = %s",
            (holder.encode(), epoch, now + DUTY_MS, name),
        )
        held[name.decode()] = int(epoch)
    return held


def release(db: Db, holder: str, names: Sequence[str]) -> None:
    """See ``Store.release_duties``."""
    marks = ", ".join(["%s"] * len(names))
    db.execute(
        f"UPDATE duties SET until_ms = 0 WHERE holder = %s AND name IN ({marks})",
        [holder.encode(), *(name.encode() for name in names)],
    )


def check(db: Db, duty: Duty) -> None:
    """Raise DutyLost if another broker has taken the duty since; from now on no broker takes it
    before the commit."""
    db.execute("SELECT epoch FROM duties WHERE name = %s LOCK IN SHARE MODE", (duty.name.encode(),))
    row = db.fetchone()
    if row is None or row[0] != duty.epoch:
        raise DutyLost(f"another broker has taken the duty {duty.name}")
