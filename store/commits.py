"""The worker's commit on SQLite: rows of many pages in few statements, many commits in one fsync.

Every step of a statement gives up the GIL, and beside a busy hub getting it back can take the
switch interval (5 ms). ``executemany`` steps once a row; here one statement carries up to
:data:`ROWS` rows. Beside a computing greenlet a trial wrote between 1.3 (cores loaded by
others) and 25 times (cores free: 1,400 a second against 56) as many pages this way.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from gevent.lock import BoundedSemaphore

from schema import faults
from schema.errors import GreencrawlError
from schema.records import Attempt, Commit, Final, Stamp, StoredPage
from store import log, overflow, rows
from store.connection import Lane, transaction, translate
from store.errors import Unstorable
from store.rows import Codec, Prepared, Row

ROWS = 64
"""Rows a statement; each number of rows up to it is a text of its own in the statement cache."""

TOGETHER = 512
"""Records that one transaction holds at most, unless a single commit brings more."""

_NEWER_PAGE = ", ".join(
    f"{column} = excluded.{column}"
    for column in ("stamp", *rows.PAGE.split(", "))
    if column not in ("crawl", "fingerprint", "links")
)
_NEWER_FINAL = ", ".join(
    f"{column} = excluded.{column}"
    for column in ("stamp", *rows.FINAL.split(", "))
    if column not in ("crawl", "fingerprint")
)


@lru_cache(maxsize=1024)
def _values(columns: str, count: int, stamped: bool) -> str:
    row = ", ".join("?" * (columns.count(",") + 1))
    row = f"(?1, {row})" if stamped else f"({row})"
    return ", ".join([row] * count)


def _pages_sql(count: int) -> str:
    return (
        f"INSERT INTO pages (stamp, {rows.PAGE}) VALUES {_values(rows.PAGE, count, True)} "
        f"ON CONFLICT (crawl, fingerprint) DO UPDATE SET {_NEWER_PAGE}, "
        "links = merge_links(pages.links, excluded.links) "
        "WHERE excluded.fetched_ms >= pages.fetched_ms"
    )


# A page that came late is left out, but its links are admitted all the same: the log needs them.
_LATE_PAGE = (
    "UPDATE pages SET links = merge_links(links, ?), stamp = ? "
    "WHERE crawl = ? AND fingerprint = ? AND fetched_ms > ?"
)
_LINKS = rows.PAGE.split(", ").index("links")


def _outlived_sql(count: int) -> str:
    # CROSS JOIN fixes the order: each page looks up its final, never the other way round.
    return (
        "WITH page (crawl, fingerprint, fetched_ms) AS "
        f"(VALUES {_values('crawl, fingerprint, fetched_ms', count, False)}) "
        "DELETE FROM finals WHERE id IN (SELECT finals.id FROM page CROSS JOIN finals "
        "ON finals.crawl = page.crawl AND finals.fingerprint = page.fingerprint "
        "WHERE finals.at_ms <= page.fetched_ms)"
    )


def _finals_sql(count: int) -> str:
    return (
        f"WITH final (stamp, {rows.FINAL}) AS (VALUES {_values(rows.FINAL, count, True)}) "
        f"INSERT INTO finals (stamp, {rows.FINAL}) SELECT stamp, {rows.FINAL} FROM final "
        "WHERE NOT EXISTS (SELECT 1 FROM pages WHERE pages.crawl = final.crawl "
        "AND pages.fingerprint = final.fingerprint AND pages.fetched_ms >= final.at_ms) "
        f"ON CONFLICT (crawl, fingerprint) DO UPDATE SET {_NEWER_FINAL} "
        "WHERE excluded.at_ms >= finals.at_ms"
    )


def _attempts_sql(count: int) -> str:
    return (
        f"INSERT INTO attempts ({rows.ATTEMPT}) VALUES {_values(rows.ATTEMPT, count, False)} "
        "ON CONFLICT (crawl, fingerprint, at_ms) DO NOTHING"
    )


def _chunks(items: Sequence[Row]) -> Iterable[Sequence[Row]]:
    return (items[start : start + ROWS] for start in range(0, len(items), ROWS))


def write(connection: sqlite3.Connection, works: Sequence[Prepared]) -> Stamp:
    """Write ``works`` in one transaction and return its stamp. Raises sqlite3.Error.

    Rows of a crawl that was deleted meanwhile are left out: its number is never used again, so
    nobody could ask for them.
    """
    with transaction(connection):
        now = log.clock(connection)
        stamp = now.clock
        alive = {row[0] for row in connection.execute("SELECT id FROM crawls WHERE deleted = 0")}
        _write_pages(connection, [r for w in works for r in w.pages if r[0] in alive], stamp)
        for chunk in _chunks([r for w in works for r in w.finals if r[0] in alive]):
            connection.execute(_finals_sql(len(chunk)), [stamp, *chain.from_iterable(chunk)])
        for chunk in _chunks([r for w in works for r in w.attempts if r[0] in alive]):
            connection.execute(_attempts_sql(len(chunk)), list(chain.from_iterable(chunk)))
        overflow.settled(connection, (r[:2] for w in works for r in chain(w.pages, w.finals)))
        faults.point("store.before_commit")
    faults.point("store.after_commit")
    return now


def _write_pages(connection: sqlite3.Connection, pages: Sequence[Row], stamp: int) -> None:
    for chunk in _chunks(pages):
        found = connection.execute(_pages_sql(len(chunk)), [stamp, *chain.from_iterable(chunk)])
        if found.rowcount < len(chunk):  # some page there is newer
            connection.executemany(_LATE_PAGE, [(row[_LINKS], stamp, *row[:3]) for row in chunk])
        keys = chain.from_iterable(row[:3] for row in chunk)
        connection.execute(_outlived_sql(len(chunk)), list(keys))


class _Waiting:
    """A commit in the queue; ``outcome`` is its stamp or its error once it was tried."""

    def __init__(self, work: Commit) -> None:
        self.work = work
        self.size = len(work.pages) + len(work.attempts) + len(work.finals)
        self.rows: Prepared | None = None
        self.outcome: Stamp | BaseException | None = None


class Committer:
    """Group commit: whoever's turn it is writes all that is queued in one transaction.

    Each caller gets the outcome of its own commit: one that cannot be stored does not fail those
    that happen to travel with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.codec = Codec()
        """Of the lane's thread."""
        self.lane = Lane(path, self._prepare)
        """Where all writes of this process to ``path`` belong, commits or not."""
        self._turn = BoundedSemaphore(1)
        self._queue: deque[_Waiting] = deque()

    def commit(self, work: Commit) -> Stamp:
        """Write ``work``; returns its stamp. Raises Unavailable, Damaged, Unstorable, Closed."""
        mine = _Waiting(work)
        self._queue.append(mine)
        try:
            with self._turn:
                while mine.outcome is None:
                    self.lane.run(self._write_queued)
        finally:
            if mine.outcome is None and mine in self._queue:  # closed, or this greenlet was killed
                self._queue.remove(mine)
        if isinstance(mine.outcome, BaseException):
            raise mine.outcome
        return mine.outcome

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.create_function("merge_links", 2, self.codec.merge_links, deterministic=True)

    def _write_queued(self, connection: sqlite3.Connection) -> None:
        group: list[_Waiting] = []
        size = 0
        while self._queue and (not group or size + self._queue[0].size <= TOGETHER):
            waiting = self._queue.popleft()
            size += waiting.size
            group.append(waiting)
        for waiting in group:
            try:
                waiting.rows = rows.prepare(self.codec, waiting.work)
            except Exception as error:  # noqa: BLE001 - raised again in its caller
                waiting.outcome = error
        self._write(connection, [waiting for waiting in group if waiting.outcome is None])

    def _write(self, connection: sqlite3.Connection, group: Sequence[_Waiting]) -> None:
        if not group:
            return
        try:
            stamp = write(connection, [waiting.rows for waiting in group if waiting.rows])
        except sqlite3.Error as error:
            ours = translate(error, self._path)
            if ours is not None:
                self._fail(group, ours, error)
                raise ours from error  # the lane opens its connection anew
            if len(group) == 1:
                self._fail(group, _unstorable(group[0].work, error), error)
            for waiting in group if len(group) > 1 else ():  # a row at fault: find out whose
                self._write(connection, [waiting])
        except BaseException as error:
            self._fail(group, error, error)
            raise
        else:
            for waiting in group:
                waiting.outcome = stamp

    @staticmethod
    def _fail(group: Sequence[_Waiting], ours: BaseException, cause: BaseException) -> None:
        if ours is not cause:
            ours.__cause__ = cause
        for waiting in group:
            waiting.outcome = ours


def _unstorable(work: Commit, error: sqlite3.Error) -> GreencrawlError:
    records: list[StoredPage | Attempt | Final] = [*work.pages, *work.attempts, *work.finals]
    return Unstorable(
        records[0].url if len(records) == 1 else f"{len(records)} records", str(error)
    )
