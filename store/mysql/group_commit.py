"""Group commit: small writes of many greenlets in one transaction, which shares the cost of an
fsync."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gevent
import pymysql
from gevent.lock import BoundedSemaphore

from greencrawl.schema.errors import Unavailable
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.connection import Db

T = TypeVar("T")

BATCH = 256
"""A transaction has at most this many writes."""


class _Write:
    def __init__(self, work: Callable[[Db], Any]) -> None:
        self.work = work
        self.tried = False
        self.dropped = False
        self.result: Any = None
        self.error: BaseException | None = None


class Grouped:
    """Groups writes: the caller whose turn it is writes all that is queued; each caller gets the
    outcome of its own write.

    A write that raises is undone alone (a savepoint) and fails no other. A failure of the server,
    or of the commit, fails all writes of the group. After a deadlock all writes run again.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turn = BoundedSemaphore(1)
        self._queue: deque[_Write] = deque()

    def run(self, work: Callable[[Db], T]) -> T:
        """Return ``work``'s result once it is durable. Raises what ``work`` raises, and
        Unavailable."""
        mine = _Write(work)
        self._queue.append(mine)
        try:
            with self._turn:
                while not mine.tried:
                    self._write()
        finally:
            mine.dropped = True  # in case it was not tried: this greenlet was killed
        if mine.error is not None:
            raise mine.error
        result: T = mine.result
        return result

    def _write(self) -> None:
        # Let greenlets that are ready join the group: if the server answers at once, none of them
        # runs meanwhile.
        gevent.sleep(0)
        group: list[_Write] = []
        while self._queue and len(group) < BATCH:
            one = self._queue.popleft()
            if not one.dropped:
                group.append(one)
        try:
            self._cluster.write(lambda db: _attempt(db, group))
        except Exception as error:  # noqa: BLE001 - raised again in its callers
            for one in group:
                one.result, one.error = None, error
        except BaseException:  # the caller whose turn it was is killed: the others try again
            for one in group:
                one.result, one.error = None, Unavailable("interrupted")
            raise
        finally:
            for one in group:
                one.tried = True


def _attempt(db: Db, group: Sequence[_Write]) -> None:
    """Run each write under a savepoint. Raises MySQLError if the server, not a write, fails."""
    for one in group:
        one.result = one.error = None
        db.execute("SAVEPOINT one")
        try:
            one.result = one.work(db)
        except (pymysql.MySQLError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - raised again in its caller
            one.error = error
            db.execute("ROLLBACK TO SAVEPOINT one")
        db.execute("RELEASE SAVEPOINT one")
