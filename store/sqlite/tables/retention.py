"""Rows that a SQLite store drops by itself, a step at a time; each step runs in a caller's
transaction.

As for the journal's months (:mod:`greencrawl.store.sqlite.tables.attempts`) there is no index on
times, because every commit would pay for it. Attempts come nearly in the order of time; other
tables are searched.
"""

from __future__ import annotations

import sqlite3

from greencrawl.store.rows import Row
from greencrawl.store.sqlite.tables import attempts, contents
from greencrawl.store.sqlite.tables.attempts import STEP


class Successes:
    """One pass over the journal for attempts that brought a page; call :meth:`step` until it
    returns None."""

    def __init__(self, before_ms: int) -> None:
        self._sweep = attempts.Sweep(before_ms, "kind = 'ok'")

    def step(self, db: sqlite3.Connection) -> int | None:
        """Read some rows and delete the old ones; return how many, None at the end."""
        dropped = self._sweep.step(db)
        return None if dropped is None else len(dropped)


class Versions:
    """One pass over the histories of pages; call :meth:`step` until it returns None."""

    def __init__(self, before_ms: int) -> None:
        self._before_ms = before_ms
        self._after: Row = (-1, 0, 0)

    def step(self, db: sqlite3.Connection) -> int | None:
        """See :meth:`Successes.step`."""
        key = "(crawl, fingerprint, fetched_ms)"
        found = db.execute(
            f"SELECT {key.strip('()')} FROM versions WHERE {key} > (?, ?, ?) ORDER BY {key[1:-1]} "
            "LIMIT ?",
            (*self._after, STEP),
        ).fetchall()
        if not found:
            return None
        first, self._after = self._after, found[-1]
        if all(row[2] >= self._before_ms for row in found):
            return 0
        old = f"{key} > (?, ?, ?) AND {key} <= (?, ?, ?) AND fetched_ms < ?"
        values = (*first, *self._after, self._before_ms)
        kept = f"SELECT crawl, digest FROM versions WHERE {old} AND kept = 1"
        contents.let_go(db, db.execute(kept, values).fetchall())
        return db.execute(f"DELETE FROM versions WHERE {old}", values).rowcount
