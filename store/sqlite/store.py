"""The store on one SQLite file (WAL), shared by the processes of one machine.

There are three lanes (native threads with a connection each): for all writes, for queries, and for
scans, so that an export does not delay a query. Open one store per process, after any fork.
"""

from __future__ import annotations

import copy
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from gevent import monkey

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.log import logger
from greencrawl.schema.records import (
    Admission,
    Attempt,
    Commit,
    Duty,
    Final,
    Mark,
    Overflow,
    PageFilter,
    SeedBatch,
    Stamp,
    StoredPage,
    Validators,
    Version,
)
from greencrawl.store import declared, rows
from greencrawl.store.base import (
    EVERY,
    NEVER,
    STEP_ROWS,
    Detail,
    Step,
)
from greencrawl.store.bodies import Bodies, Place
from greencrawl.store.common import SqlStore
from greencrawl.store.errors import BodyAway
from greencrawl.store.lanes import drain, read, scan, write
from greencrawl.store.rows import Codec, Row
from greencrawl.store.sqlite.commits import Committer
from greencrawl.store.sqlite.connection import SqliteThread, transaction, translated
from greencrawl.store.sqlite.group_commit import Grouped
from greencrawl.store.sqlite.migrations import prepare, refuse_early
from greencrawl.store.sqlite.recrawl import calendar
from greencrawl.store.sqlite.system import orders as order_rows
from greencrawl.store.sqlite.tables import attempts as attempt_rows
from greencrawl.store.sqlite.tables import (
    contents,
    duties,
    lists,
    parked,
    replay_log,
    retention,
)
from greencrawl.store.sqlite.tables import crawls as crawl_rows
from greencrawl.store.sqlite.tables import overflow as overflow_rows
from greencrawl.store.sqlite.tables.contents import Known
from greencrawl.store.sqlite.tables.lists import CHUNK_ROWS
from greencrawl.store.tables.sql import LAST, beyond

told = logger("store")

T = TypeVar("T")


class _InTurn:
    """Files with bodies that the threads of several lanes use, one at a time."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._turn: threading.Lock = monkey.get_original("threading", "Lock")()

    def append(self, pages: Sequence[StoredPage], known: Mapping[Known, Place]) -> list[Place]:
        with self._turn:
            return self._bodies.append(pages, known)

    def read(self, place: Place) -> bytes:
        with self._turn:
            return self._bodies.read(place)

    def close(self) -> None:
        with self._turn:
            self._bodies.close()


class SqliteStore(SqlStore):
    """:class:`greencrawl.store.base.Store` on a file, which is made or migrated at opening.

    Without ``upgrade`` its schema is left alone, and a version that is too old to be read is
    refused.

    Bodies are kept in the file, or in ``bodies``, which is closed with the store; existing bodies
    are found in either. Raises InvalidConfig for a file of a newer version or of another program,
    Unavailable when it cannot be opened, Damaged when it is no database.
    """

    def __init__(self, path: Path, bodies: Bodies | None = None, *, upgrade: bool = True) -> None:
        self.path = path.absolute()
        if upgrade:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with translated(self.path):
            if upgrade:
                prepare(self.path)
            else:
                refuse_early(self.path)
        self._bodies = None if bodies is None else _InTurn(bodies)
        self._commits = Committer(self.path, self._bodies)
        self._seeds = Grouped(self._commits.lane, self.path)
        self._questions = SqliteThread(self.path)
        self._scans = SqliteThread(self.path)
        self._codec = Codec()  # of the calling thread; the lane of writes has its own
        self._asking = Codec()  # of the lane of queries
        self._duty: Duty | None = None

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._questions.run(work)

    def _scan(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._scans.run(work)

    def _stream(self) -> Callable[[Callable[[sqlite3.Connection], T]], T]:
        return self._scans.run

    def _together(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._seeds.run(lambda db: self._checked(db, work))

    def _purge_rows(self, db: sqlite3.Connection, crawl: int) -> int | None:
        return crawl_rows.purge_step(db, crawl)

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def write(connection: sqlite3.Connection) -> T:
            with transaction(connection):
                return self._checked(connection, work)

        return self._commits.lane.run(write)

    def _checked(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        """Run ``work`` if the duty under which it is done is still held. Raises DutyLost."""
        if self._duty is not None:
            duties.check(connection, self._duty)
        return work(connection)

    # -- duties

    def take_duties(self, holder: str, names: Sequence[str]) -> dict[str, int]:
        """See :class:`greencrawl.store.base.Store`.

        Duties of other holders are read without a lock.
        """
        known = self._questions.run(lambda db: duties.others(db, holder, names, epoch_ms()))
        free = [name for name in names if name not in known]
        if not free:
            return {}
        return self._write(lambda db: duties.take(db, holder, free, epoch_ms()))

    release_duties = write(duties.release)

    def duty_holder(self, name: str) -> str:
        """See :class:`greencrawl.store.base.Store`."""
        return self._questions.run(lambda db: duties.holder(db, name, epoch_ms()))

    def under(self, duty: Duty) -> SqliteStore:
        """See :class:`greencrawl.store.base.Store`."""
        fenced = copy.copy(self)
        fenced._duty = duty
        return fenced

    # -- members and orders

    forget_node = write(order_rows.forget)
    put_orders = write(order_rows.put)
    note_crawl_change = write(order_rows.note_crawl)
    orders = read(order_rows.every)
    orders_revision = read(order_rows.revision)
    orders_log = read(order_rows.log)
    drop_orders_log = write(order_rows.drop_log)

    # -- crawls

    count_time = write(crawl_rows.count_time)

    # -- deletions in the background

    purge_size = scan(crawl_rows.purge_size)

    # -- stored seeds

    def requeue_dead(
        self, crawl: int, limit: int = 10_000, *, before: int = NEVER
    ) -> SeedBatch | None:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        codec = self._commits.codec
        return self._write(lambda db: crawl_rows.requeue_dead(db, codec, crawl, limit, before))

    def release_parked(
        self, crawl: int, shape: str | None = None, *, limit: int = 10_000, before: int = NEVER
    ) -> SeedBatch | None:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        codec = self._commits.codec
        return self._write(lambda db: parked.release(db, codec, crawl, shape, limit, before))

    # -- reading the replay log

    replay_size = scan(replay_log.size)

    def _window(self, sql: str, since: int) -> Iterator[list[Row]]:
        """Yield chunks of rows that begin with (stamp, id)."""
        at = (since, -1)
        while found := self._scans.run(partial(lists.chunk, sql=sql, values=at)):
            yield found
            at = found[-1][:2]

    def replay_marks(self, since: int) -> Iterator[list[Mark]]:
        """See :class:`greencrawl.store.base.Store`."""
        for sql in replay_log.MARKS.values():
            for chunk in self._window(sql, since):
                yield [
                    Mark(crawl, url, rows.mark_kind(word), size)
                    for _, _, crawl, url, word, size in chunk
                ]

    def replay_links(self, since: int) -> Iterator[list[tuple[int, list[Admission]]]]:
        """See :class:`greencrawl.store.base.Store`."""
        for chunk in self._window(replay_log.LINKS, since):
            for some in rows.few(chunk):
                yield [(crawl, self._codec.links(blob)) for _, _, crawl, blob in some]

    def replay_seeds(self, since: int, *, force: bool) -> Iterator[SeedBatch]:
        """See :class:`greencrawl.store.base.Store`."""
        for chunk in self._window(replay_log.SEEDS.format(forced=force), since):
            for stamp, number, crawl, forced, blob in chunk:
                yield self._batch(number, crawl, forced, blob, stamp)

    def stamps(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, int]:
        """See :class:`greencrawl.store.base.Store`."""
        latest: dict[int, int] = {}
        for start in range(0, len(fingerprints), replay_log.BATCH):
            some = fingerprints[start : start + replay_log.BATCH]
            ask = partial(replay_log.stamps, crawl=crawl, fingerprints=some)
            for number, stamp in self._scans.run(ask):
                latest[number] = max(stamp, latest.get(number, stamp))
        return latest

    # -- the overflow

    put_overflow = write(overflow_rows.put)
    overflow = read(overflow_rows.best)
    overflow_taken = write(overflow_rows.taken)
    overflow_hosts = read(overflow_rows.hosts)

    def overflow_places(self) -> list[tuple[int, int]]:
        """See :class:`greencrawl.store.base.Store`."""

        def places(db: sqlite3.Connection) -> list[tuple[int, int]]:
            return [
                (crawl, partition)
                for crawl in overflow_rows.waiting_crawls(db)
                for partition in overflow_rows.waiting_partitions(db, crawl)
            ]

        return self._questions.run(places)

    def overflow_of(self, partition: int) -> Iterator[tuple[int, list[Overflow]]]:
        """See :class:`greencrawl.store.base.Store`."""
        after = 0
        while found := self._scans.run(
            partial(overflow_rows.page, partition=partition, after=after, limit=CHUNK_ROWS)
        ):
            yield from rows.by_crawl(found)
            after = found[-1][1].id

    def overflow_since(self, partition: int, since: int) -> Iterator[tuple[int, list[Overflow]]]:
        """See :class:`greencrawl.store.base.Store`."""
        after = (since, -1)
        while found := self._scans.run(
            partial(overflow_rows.begun, partition=partition, after=after, limit=CHUNK_ROWS)
        ):
            yield from rows.by_crawl((crawl, row) for _, crawl, row in found)
            after = (found[-1][0], found[-1][2].id)

    free_overflow = drain(overflow_rows.free, overflow_rows.FREED_ROWS)

    # -- the calendar

    add_calendar = write(calendar.add)
    calendar_due = read(calendar.due)
    calendar_taken = write(calendar.taken)
    postpone_calendar = drain(calendar.postpone, calendar.FREED_ROWS)
    free_calendar = drain(calendar.free, calendar.FREED_ROWS)

    # -- the worker's commit

    def commit(self, work: Commit) -> Stamp:
        """See :class:`greencrawl.store.base.Store`.

        A page does not remove a newer final state, except a parked one. Commits of several
        greenlets share a transaction. Records of a deleted crawl are left out. Raises Unstorable
        for a record that no second try would store, naming its URL.
        """
        return self._commits.commit(work, self._duty)

    # -- queries

    def page(self, crawl: int, fingerprint: int, *, detail: Detail = "body") -> StoredPage | None:
        """See :class:`greencrawl.store.base.Store`."""
        sql = f"{lists.page_sql(detail)} WHERE pages.crawl = ? AND pages.fingerprint = ?"
        row = self._questions.run(lambda db: db.execute(sql, (crawl, fingerprint)).fetchone())
        return self._page(row, detail, self._questions) if row else None

    def _page(self, row: Row, detail: Detail, lane: SqliteThread) -> StoredPage:
        """Return the page of a row of ``lists.page_sql``. Raises BodyAway."""
        if detail in ("row", "items"):
            return self._codec.page(row, body=False)
        if detail == "text":
            *columns, content = row
            page = self._codec.page(columns, content, body=False)
            if isinstance(columns[-1], int) and not page.text:
                told.warning("text lost", url=page.url, reason="frame missing or damaged")
            return page
        *columns, size, content, file, offset, length = row
        page = self._codec.page(columns, content, body=True)
        if file is not None:
            if self._bodies is None:
                raise BodyAway(file, "GREENCRAWL_BODIES names no folder of files")
            place, read = Place(file, offset, length), self._bodies.read
            page.body = lane.run(lambda _: read(place))
        elif size and not page.body:
            raise BodyAway(page.url, "the store does not have it, or damaged")
        return page

    def validators(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, Validators]:
        """See :class:`greencrawl.store.base.Store`."""
        found = self._questions.run(lambda db: lists.validators(db, crawl, fingerprints))
        return {number: declared.validators_of(headers) for number, headers in found}

    def history(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Version]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._questions.run(lambda db: contents.history(db, crawl, fingerprint, limit))

    def body(self, crawl: int, digest: bytes, size: int) -> bytes | None:
        """See :class:`greencrawl.store.base.Store`."""
        row = self._questions.run(lambda db: contents.body_row(db, crawl, digest))
        if row is None or not size:
            return None if row is None else b""
        frame, file, offset, length = row
        if file is None:
            return self._asking.unpack(frame)[-size:]
        if self._bodies is None:
            raise BodyAway(file, "GREENCRAWL_BODIES names no folder of files")
        place, read = Place(file, offset, length), self._bodies.read
        return self._questions.run(lambda _: read(place))

    def final(self, crawl: int, fingerprint: int) -> Final | None:
        """Return the final state of a URL, or None."""
        sql = f"SELECT {rows.FINAL_READ} FROM finals WHERE crawl = ? AND fingerprint = ?"
        row = self._questions.run(lambda db: db.execute(sql, (crawl, fingerprint)).fetchone())
        return rows.final(row) if row else None

    def attempts(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Attempt]:
        """See :class:`greencrawl.store.base.Store`."""
        sql = (
            f"SELECT {rows.ATTEMPT} FROM attempts WHERE crawl = ? AND fingerprint = ? "
            "ORDER BY at_ms DESC LIMIT ?"
        )
        found = self._questions.run(
            lambda db: db.execute(sql, (crawl, fingerprint, limit)).fetchall()
        )
        return [rows.attempt(row) for row in found]

    def dead(self, crawl: int, limit: int = 100, after: str = "") -> list[tuple[str, Final]]:
        """See :class:`greencrawl.store.base.Store`."""
        first = beyond(after)
        if first > LAST:
            return []
        found = self._questions.run(lambda db: crawl_rows.dead_rows(db, crawl, limit, first))
        return [(str(row[0]), rows.final(row)) for row in found]

    counts = scan(crawl_rows.counts)

    def pages(
        self,
        crawl: int,
        wanted: PageFilter = EVERY,
        *,
        detail: Detail = "text",
        after: str = "",
    ) -> Iterator[tuple[str, StoredPage]]:
        """See :class:`greencrawl.store.base.Store`. Each chunk is a transaction."""
        most = lists.WINDOW
        for step in self.page_steps(crawl, wanted, detail=detail, after=after, window=most):
            yield from step.pages

    def page_steps(
        self,
        crawl: int,
        wanted: PageFilter = EVERY,
        *,
        detail: Detail = "text",
        after: str = "",
        window: int = STEP_ROWS,
        newest: bool = False,
    ) -> Iterator[Step]:
        """See :class:`greencrawl.store.base.Store`."""
        first = beyond(after)
        if newest:
            first = first - 2 if after else LAST
        steps = lists.pages(self._scans.run, crawl, wanted, detail, first, window, newest=newest)
        for found in steps:
            some = ((str(row[0]), self._page(row, detail, self._scans)) for row in found.rows)
            yield Step(some, str(found.last), found.looked_at)

    def finals(
        self, crawl: int, since_ms: int = 0, *, after: str = ""
    ) -> Iterator[tuple[str, Final]]:
        """See :class:`greencrawl.store.base.Store`; ordered by fingerprint."""
        first = beyond(after, -(2**63))
        for found in lists.finals(self._scans.run, crawl, since_ms, first):
            for row in found.rows:
                yield str(row[2]), rows.final(row)

    # -- the journal by months

    def prepare_months(self, now_ms: int) -> None:
        """Do nothing: one table holds all months."""

    # -- retention

    def drop_months(self, before_ms: int) -> Iterator[int]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._steps(attempt_rows.Months(before_ms).step)

    def drop_successes(self, before_ms: int) -> Iterator[int]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._steps(retention.Successes(before_ms).step)

    def drop_versions(self, before_ms: int) -> Iterator[int]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._steps(retention.Versions(before_ms).step)

    def _steps(self, step: Callable[[sqlite3.Connection], int | None]) -> Iterator[int]:
        while (dropped := self._write(step)) is not None:
            yield dropped

    # -- monitoring

    def size(self) -> int:
        """See :class:`greencrawl.store.base.Store`."""
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(path.stat().st_size for path in files if path.exists())

    def lags(self) -> dict[str, float | None]:
        """Return nothing: there are no replicas."""
        return {}

    def close(self) -> None:
        """Finish what is under way, and free threads and files. Idempotent."""
        for lane in (self._commits.lane, self._questions, self._scans):
            lane.close()
        if self._bodies is not None:
            self._bodies.close()
