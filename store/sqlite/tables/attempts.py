"""Old rows of the journal on SQLite.

They are deleted some rows at a time. A table for each month would be no quicker. SQLite visits
every page of a table that it drops, in one transaction, with the write lock held. A look-up of a
URL's last tries would go through all these tables. There is no index on the time, since every
commit would pay for it: rows come nearly in the order of time, so the oldest are the first ones.
"""

from __future__ import annotations

import sqlite3

from greencrawl.store import months

STEP = 2000
"""Rows that one step reads."""

DELETED = 400
"""A step deletes at most this many rows: it takes some milliseconds, because each is in an
index."""

PATIENCE = 50_000
"""After this many young rows in a row the search for older ones ends.

An old row behind so many young rows is deleted with the next month, or the next day.
"""


class Sweep:
    """One pass over the journal from its start; call :meth:`step` until it returns None.

    It deletes rows that are older than ``before_ms`` and meet the SQL condition ``only``.
    """

    def __init__(self, before_ms: int, only: str = "TRUE") -> None:
        self._before_ms = before_ms
        self._only = only
        self._after = -(2**63)
        self._young = 0

    def step(self, db: sqlite3.Connection) -> list[int] | None:
        """Read some rows and delete old ones; return their times (ms), None at the end."""
        if self._young >= PATIENCE:
            return None
        found = db.execute(
            f"SELECT id, at_ms, {self._only} FROM attempts WHERE id > ? ORDER BY id LIMIT ?",
            (self._after, STEP),
        ).fetchall()
        if not found:
            return None
        old = [at_ms for _, at_ms, _ in found if at_ms < self._before_ms]
        goes = [row for row in found if row[1] < self._before_ms and row[2]][:DELETED]
        self._after = goes[-1][0] if len(goes) == DELETED else found[-1][0]
        self._young = 0 if old else self._young + len(found)
        if goes:
            db.execute(
                f"DELETE FROM attempts WHERE id BETWEEN ? AND ? AND at_ms < ? AND {self._only}",
                (goes[0][0], goes[-1][0], self._before_ms),
            )
        return [at_ms for _, at_ms, _ in goes]


class Months:
    """One pass over the journal for whole months; call :meth:`step` until it returns None."""

    def __init__(self, before_ms: int) -> None:
        self._sweep = Sweep(months.start_ms(months.month_of(before_ms)))
        self._met: set[int] = set()

    def step(self, db: sqlite3.Connection) -> int | None:
        """Read some rows and delete the old ones; return how many months were new to the pass, or
        None."""
        dropped = self._sweep.step(db)
        if dropped is None:
            return None
        found = {months.month_of(at_ms) for at_ms in dropped} - self._met
        self._met |= found
        return len(found)
