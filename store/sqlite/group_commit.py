"""Group commit: small writes of many greenlets in one transaction, which shares the cost of an
fsync."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gevent.lock import BoundedSemaphore

from greencrawl.store.sqlite.connection import SqliteThread, transaction, translate

T = TypeVar("T")

BATCH = 256
"""A transaction has at most this many writes."""


class _Write:
    def __init__(self, work: Callable[[sqlite3.Connection], Any]) -> None:
        self.work = work
        self.tried = False
        self.dropped = False
        self.result: Any = None
        self.error: BaseException | None = None


class Grouped:
    """Groups writes: the caller whose turn it is writes all that is queued; each caller gets the
    outcome of its own write.

    A write that raises is undone alone (a savepoint) and fails no other. A failure of SQLite
    itself, or of the commit, fails all writes of the group.
    """

    def __init__(self, lane: SqliteThread, path: Path) -> None:
        self._lane = lane
        self._path = path
        self._turn = BoundedSemaphore(1)
        self._queue: deque[_Write] = deque()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return ``work``'s result once it is durable. Raises what ``work`` raises, and
        Unavailable, Damaged."""
        mine = _Write(work)
        self._queue.append(mine)
        try:
            with self._turn:
                while not mine.tried:
                    self._lane.run(self._write)
        finally:
            mine.dropped = True  # in case it was not tried: closed, or this greenlet was killed
        if mine.error is not None:
            raise mine.error
        result: T = mine.result
        return result

    def _write(self, connection: sqlite3.Connection) -> None:
        group: list[_Write] = []
        while self._queue and len(group) < BATCH:
            one = self._queue.popleft()
            if not one.dropped:
                group.append(one)
        if not group:
            return
        try:
            with transaction(connection):
                for one in group:
                    _attempt(connection, one)
        except sqlite3.Error as error:
            ours = translate(error, self._path)
            for one in group:
                one.result, one.error = None, one.error or ours or error
            raise
        except BaseException as error:
            for one in group:
                one.result, one.error = None, one.error or error
            raise
        finally:
            for one in group:
                one.tried = True


def _attempt(connection: sqlite3.Connection, one: _Write) -> None:
    """Run one write under a savepoint. Raises sqlite3.Error if SQLite, not the write, fails."""
    connection.execute("SAVEPOINT one")
    try:
        one.result = one.work(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - raised again in its caller
        one.error = error
        connection.execute("ROLLBACK TO one")
    connection.execute("RELEASE one")
