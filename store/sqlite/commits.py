"""The worker's commit on SQLite: rows of many pages in few statements, many commits in one fsync.

Every step of a statement gives up the GIL. While the hub is busy, it can take 5 ms (the switch
interval) to get the GIL back. ``executemany`` makes a step for each row; here one statement has up
to :data:`greencrawl.store.sqlite.batches.ROWS` rows. In a trial beside a computing greenlet, this
wrote 25 times as many pages if the cores were free (1,400 a second instead of 56), and 1.3 times as
many if other processes loaded them.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from gevent.lock import BoundedSemaphore
from msgspec.structs import replace

from greencrawl.schema import crash_points
from greencrawl.schema.errors import DutyLost, GreencrawlError
from greencrawl.schema.records import Attempt, Check, Commit, Duty, Final, Stamp, StoredPage
from greencrawl.store import recrawl_calendar, rows
from greencrawl.store.bodies import Bodies, Place
from greencrawl.store.errors import Unstorable
from greencrawl.store.rows import Codec, Prepared, Row
from greencrawl.store.sqlite import page_limit
from greencrawl.store.sqlite.batches import ROWS, marks, padded, parts, values
from greencrawl.store.sqlite.connection import SqliteThread, transaction, translate
from greencrawl.store.sqlite.recrawl import calendar
from greencrawl.store.sqlite.tables import (
    contents,
    crawls,
    duties,
    hooks,
    overflow,
    parked,
)
from greencrawl.store.sqlite.tables.contents import Blob, Known, Vanished
from greencrawl.store.tables import plans
from greencrawl.store.tables.crawls import reopen_finished
from greencrawl.store.tables.nodes import clock, owe

BATCH = 512
"""A transaction has at most this many records, unless a single commit has more."""

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


@lru_cache
def _pages_sql(count: int) -> str:
    row = f"(?1, {marks(rows.PAGE.count(','))}, x'')"
    return (
        f"INSERT INTO pages (stamp, {rows.PAGE}) VALUES {', '.join([row] * count)} "
        f"ON CONFLICT (crawl, fingerprint) DO UPDATE SET {_NEWER_PAGE}, "
        "links = merge_links(pages.links, excluded.links) "
        "WHERE excluded.fetched_ms >= pages.fetched_ms"
    )


# A page that came late is left out, but its links are admitted: the replay log needs them.
_LATE_PAGE = (
    "UPDATE pages SET links = merge_links(links, ?), stamp = ? "
    "WHERE crawl = ? AND fingerprint = ? AND fetched_ms > ?"
)


@lru_cache
def _outlived_sql(count: int) -> str:
    # CROSS JOIN fixes the order: each page looks up its final, never the other way round.
    return (
        "WITH page (crawl, fingerprint, fetched_ms) AS "
        f"(VALUES {values('crawl, fingerprint, fetched_ms', count)}) "
        "DELETE FROM finals WHERE id IN (SELECT finals.id FROM page CROSS JOIN finals "
        "ON finals.crawl = page.crawl AND finals.fingerprint = page.fingerprint "
        "WHERE finals.at_ms <= page.fetched_ms OR finals.state = 'parked')"
    )


@lru_cache
def _finals_sql(count: int) -> str:
    return (
        f"WITH final (stamp, {rows.FINAL}) AS (VALUES {values(rows.FINAL, count, stamped=True)}) "
        f"INSERT INTO finals (stamp, {rows.FINAL}) SELECT stamp, {rows.FINAL} FROM final "
        "WHERE NOT EXISTS (SELECT 1 FROM pages WHERE pages.crawl = final.crawl "
        "AND pages.fingerprint = final.fingerprint "
        "AND (pages.fetched_ms >= final.at_ms OR final.state = 'parked')) "
        f"ON CONFLICT (crawl, fingerprint) DO UPDATE SET {_NEWER_FINAL} WHERE "
        "iif((excluded.state = 'parked') = (finals.state = 'parked'), "
        "excluded.at_ms >= finals.at_ms, finals.state = 'parked')"
    )


@lru_cache
def _attempts_sql(count: int) -> str:
    return (
        f"INSERT INTO attempts ({rows.ATTEMPT}) VALUES {values(rows.ATTEMPT, count)} "
        "ON CONFLICT (crawl, fingerprint, at_ms) DO NOTHING"
    )


def write(
    connection: sqlite3.Connection,
    codec: Codec,
    works: Sequence[Prepared],
    blobs: Mapping[Known, Blob],
    duty: Duty | None = None,
    owes: Collection[str] = (),
) -> Stamp:
    """Write ``works`` in one transaction and return its stamp. Raises sqlite3.Error.

    ``blobs`` are the bodies. Rows of a crawl that was deleted meanwhile are left out: its number is
    never used again, so nobody could ask for them. Parked URLs of a released shape are left out,
    too: the stamp names them as refused. Raises Vanished if a body that was known is not there any
    more, DutyLost if ``duty`` has passed to another.
    """
    with transaction(connection):
        if duty is not None:
            duties.check(connection, duty)
        now = clock(connection)
        stamp = now.clock
        alive = crawls.alive(connection)
        pages = [r for w in works for r in w.pages if r[0] in alive]
        finals = [r for w in works for r in w.finals if r[0] in alive]
        refused = page_limit.surplus(connection, pages)
        if refused:
            pages = [r for r in pages if r[:2] not in refused]
        if freed := parked.let_go(connection, finals):
            finals = [r for r in finals if r[:2] not in freed]
            refused |= freed
        if refused:
            now = replace(now, refused=refused)
        if any(alive.values()):
            reopen_finished(connection, {r[0] for r in pages if r[contents.LINKS]})
        for start in range(0, len(pages), ROWS):
            _write_pages(connection, codec, pages[start : start + ROWS], blobs, stamp)
        for some in parts(finals):
            connection.execute(_finals_sql(len(some)), [stamp, *chain.from_iterable(some)])
        for some in parts([r for w in works for r in w.attempts if r[0] in alive]):
            connection.execute(_attempts_sql(len(some)), list(chain.from_iterable(some)))
        checks = [one for w in works for one in w.checks if one.crawl in alive]
        if checks:
            _check(connection, checks, stamp)
        runs = [run for w in works for run in w.hooks if run.crawl in alive]
        if runs := [run for run in runs if (run.crawl, run.fingerprint) not in refused]:
            hooks.settle(connection, runs)
        overflow.settled(connection, (r[:2] for r in chain(pages, finals)))
        if retired := _plan(connection, works, alive, refused):
            now = replace(now, retired=retired)
        if owes:
            owe(connection, owes, stamp)
        crash_points.point("store.before_commit")
    crash_points.point("store.after_commit")
    return now


def _plan(
    connection: sqlite3.Connection,
    works: Sequence[Prepared],
    alive: Mapping[int, bool],
    refused: Collection[tuple[int, int]],
) -> frozenset[tuple[int, int]]:
    """Update the calendars with the found states; return the retired URLs."""
    crawls_ = set[int]().union(*(recrawl_calendar.named(one.work) for one in works)) & alive.keys()
    if not crawls_:
        return frozenset()
    known = plans.plans(connection, sorted(crawls_))
    found = (
        [seen for one in works for seen in recrawl_calendar.observed(one.work, known)]
        if known
        else []
    )
    found = [seen for seen in found if (seen.crawl, seen.fingerprint) not in refused]
    return calendar.settle(connection, found, known).retired if found else frozenset()


def _write_pages(
    connection: sqlite3.Connection,
    codec: Codec,
    pages: Sequence[Row],
    blobs: Mapping[Known, Blob],
    stamp: int,
) -> None:
    settled = contents.settle(connection, pages)
    brought = contents.count(connection, settled.uses, blobs)
    columns = contents.without_bodies(connection, codec, settled.newer, blobs, brought)
    for some in parts(columns):
        connection.execute(_pages_sql(len(some)), [stamp, *chain.from_iterable(some)])
    if settled.late:
        late = [(row[contents.LINKS], stamp, *row[:3]) for row in settled.late]
        connection.executemany(_LATE_PAGE, late)
    if settled.versions:
        contents.put_versions(connection, settled.versions)
    keys = padded([row[:3] for row in pages])
    connection.execute(_outlived_sql(len(keys)), list(chain.from_iterable(keys)))


def _check(connection: sqlite3.Connection, checks: Sequence[Check], stamp: int) -> None:
    """Give pages that were found unchanged this stamp in the replay log."""
    found = [(one.crawl, one.fingerprint, rows.bounded(one.at_ms)) for one in checks]
    connection.executemany(
        "UPDATE pages SET stamp = ? WHERE crawl = ? AND fingerprint = ?",
        [(stamp, *row[:2]) for row in found],
    )
    overflow.settled(connection, (row[:2] for row in found))
    for some in parts(found):
        connection.execute(_outlived_sql(len(some)), list(chain.from_iterable(some)))


class _Waiting:
    """A commit in the queue; ``outcome`` is its stamp or its error after it was tried."""

    def __init__(self, work: Commit, duty: Duty | None) -> None:
        self.work = work
        self.duty = duty
        self.size = len(work.pages) + len(work.attempts) + len(work.finals) + len(work.hooks)
        self.size += len(work.checks)
        self.rows: Prepared | None = None
        """Rows of pages, which have their bodies unless these go to files."""
        self.outcome: Stamp | BaseException | None = None


class Committer:
    """Group commit: the caller whose turn it is writes all that is queued in one transaction.

    Each caller gets the outcome of its own commit: one that cannot be stored does not fail the
    others of its group.
    """

    def __init__(self, path: Path, bodies: Bodies | None = None) -> None:
        self._path = path
        self._bodies = bodies
        self.codec = Codec()
        """Used by the lane's thread only."""
        self.lane = SqliteThread(path, self._prepare)
        """The lane of all writes of this process to ``path``, commits or not."""
        self._turn = BoundedSemaphore(1)
        self._queue: deque[_Waiting] = deque()

    def commit(self, work: Commit, duty: Duty | None = None) -> Stamp:
        """Write ``work``; return its stamp. Raises Unavailable, Damaged, Unstorable, Closed.

        A commit under a ``duty`` is written alone, and raises DutyLost if another broker has the
        duty.
        """
        mine = _Waiting(work, duty)
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
        while self._queue and (not group or size + self._queue[0].size <= BATCH):
            if group and (group[0].duty or self._queue[0].duty):
                break
            waiting = self._queue.popleft()
            size += waiting.size
            group.append(waiting)
        here = self._bodies is None
        for waiting in group:
            try:
                waiting.rows = rows.prepare(self.codec, waiting.work, bodies=here)
            except Exception as error:  # noqa: BLE001 - raised again in its caller
                waiting.outcome = error
        self._write(connection, [one for one in group if one.outcome is None])

    def _write(self, connection: sqlite3.Connection, group: Sequence[_Waiting]) -> None:
        if not group:
            return
        try:
            stamp = self._try(connection, group)
        except sqlite3.Error as error:
            ours = translate(error, self._path)
            if ours is not None:
                self._fail(group, ours, error)
                raise ours from error  # the lane opens its connection again
            if len(group) == 1:
                self._fail(group, _unstorable(group[0].work, error), error)
            # a row is at fault: find out in whose commit
            for waiting in group if len(group) > 1 else ():
                self._write(connection, [waiting])
        except DutyLost as error:
            self._fail(group, error, error)
        except BaseException as error:
            self._fail(group, error, error)
            raise
        else:
            for waiting in group:
                waiting.outcome = stamp

    def _try(self, connection: sqlite3.Connection, group: Sequence[_Waiting]) -> Stamp:
        works = [waiting.rows for waiting in group if waiting.rows]
        owes = frozenset[str]().union(*(waiting.work.owes for waiting in group))
        while True:
            blobs = self._blobs(connection, group)
            try:
                return write(connection, self.codec, works, blobs, group[0].duty, owes)
            except Vanished:  # another process removed a body that we had found
                continue

    def _blobs(
        self, connection: sqlite3.Connection, group: Sequence[_Waiting]
    ) -> dict[Known, Blob]:
        """Return bodies of ``group`` as they are kept; only the first of equal bodies. Raises
        Unavailable."""
        found: dict[Known, Blob] = {}
        pages = [row for waiting in group if waiting.rows for row in waiting.rows.pages]
        blobs: Iterable[Blob] = (row[contents.BODY] for row in pages)
        known: dict[Known, Place] = {}
        if self._bodies is not None:
            known = contents.places(connection, {(row[0], row[contents.CONTENT]) for row in pages})
            records = [page for waiting in group for page in waiting.work.pages]
            blobs = self._bodies.append(records, known)
        for row, blob in zip(pages, blobs, strict=True):
            body = row[0], row[contents.CONTENT]
            if row[contents.SIZE] and body not in known:  # a page may have a digest and no body
                found.setdefault(body, blob)
        return found

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
