"""Old months of the journal on SQLite.

They are deleted some rows at a time. A table a month would be no quicker: SQLite visits every page
of a table that it drops, in one transaction, with the write lock held; and it would have to be
looked up in as many tables what a URL's last tries were. Nor is there an index on the time, which
every commit would pay for: rows come nearly in its order, so the oldest are the first ones.
"""

from __future__ import annotations

import sqlite3

from store import months

STEP = 2000
"""Rows of one step."""

PATIENCE = 50_000
"""Rows in succession that are young enough, after which no older one is looked for. One that came
so late goes with the next month."""


class Sweep:
    """One pass over the journal from its beginning; call :meth:`step` until it is over."""

    def __init__(self, before_ms: int) -> None:
        self._limit_ms = months.start_ms(months.month_of(before_ms))
        self._after = -(2**63)
        self._kept = 0
        self.months: set[int] = set()
        """Those that rows were deleted of."""

    def step(self, db: sqlite3.Connection) -> bool:
        """Look at some rows and delete the old ones; False when it is over."""
        sql = "SELECT id, at_ms FROM attempts WHERE id > ? ORDER BY id LIMIT ?"
        found = db.execute(sql, (self._after, STEP)).fetchall()
        old = [row for row in found if row[1] < self._limit_ms]
        if old:
            inside = f"id BETWEEN {old[0][0]} AND {old[-1][0]}"
            db.execute(f"DELETE FROM attempts WHERE {inside} AND at_ms < ?", (self._limit_ms,))
            self.months.update(months.month_of(at_ms) for _, at_ms in old)
            self._kept = 0
        self._kept += len(found) - len(old)
        if len(found) < STEP or self._kept >= PATIENCE:
            return False
        self._after = found[-1][0]
        return True
