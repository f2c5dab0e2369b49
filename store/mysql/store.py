"""The store on MySQL or MariaDB, shared by processes of many machines.

Each call takes a connection from a pool and waits for the server as a greenlet. Queries that decide
anything go to the server that takes writes; a replica may answer streams and sums.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import pymysql
from gevent.threadpool import ThreadPool

from greencrawl.schema import crash_points
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
from greencrawl.store import declared
from greencrawl.store import rows as common
from greencrawl.store.base import (
    EVERY,
    NEVER,
    STEP_ROWS,
    Detail,
    Step,
)
from greencrawl.store.bodies import Bodies, Place
from greencrawl.store.common import SqlStore
from greencrawl.store.errors import BodyAway, Unstorable
from greencrawl.store.lanes import drain, read, scan, write
from greencrawl.store.mysql import commits, migrations, rows, streams
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.topology import Topology
from greencrawl.store.mysql.connection import LONG_SECONDS, Db
from greencrawl.store.mysql.group_commit import Grouped
from greencrawl.store.mysql.recrawl import calendar
from greencrawl.store.mysql.system import orders as order_rows
from greencrawl.store.mysql.tables import (
    bodies,
    duties,
    months,
    parked,
    replay_log,
    retention,
)
from greencrawl.store.mysql.tables import crawls as crawl_rows
from greencrawl.store.mysql.tables import overflow as overflow_rows
from greencrawl.store.mysql.tables import pages as page_rows
from greencrawl.store.mysql.tables.bodies import Body
from greencrawl.store.rows import Codec, Row

T = TypeVar("T")


class MysqlStore(SqlStore):
    """:class:`greencrawl.store.base.Store` on a cluster; an empty database is set up at opening.

    ``files`` keep the bodies; without them they are in the database. Raises InvalidConfig for a
    database of another version or program, Unavailable when no server takes writes.
    """

    def __init__(self, topology: Topology, files: Bodies | None = None) -> None:
        self._cluster = Cluster(topology)
        self._seeds = Grouped(self._cluster)
        self._codec = Codec()
        self._bodies = files
        self._files = ThreadPool(1) if files is not None else None
        try:
            migrations.prepare(self._cluster)
        except BaseException:
            self.close()
            raise

    def _read(self, work: Callable[[Db], T]) -> T:
        return self._cluster.read(work)

    def _write(self, work: Callable[[Db], T]) -> T:
        return self._cluster.write(work)

    def _scan(self, work: Callable[[Db], T]) -> T:
        return self._cluster.scan(work)

    def _stream(self) -> Callable[[Callable[[Db], T]], T]:
        return self._cluster.stream()

    def _together(self, work: Callable[[Db], T]) -> T:
        return self._seeds.run(work)

    def _purge_rows(self, db: Db, crawl: int) -> int | None:
        return crawl_rows.purge_step(db, crawl)

    # -- duties

    def take_duties(self, holder: str, names: Sequence[str]) -> dict[str, int]:
        """See :class:`greencrawl.store.base.Store`.

        Duties of other holders are read without a lock.
        """
        known = self._cluster.read(lambda db: duties.others(db, holder, names))
        free = [name for name in names if name not in known]
        if not free:
            return {}
        return self._cluster.write(lambda db: duties.take(db, holder, free))

    release_duties = write(duties.release)
    duty_holder = read(duties.holder)

    def under(self, duty: Duty) -> MysqlStore:
        """See :class:`greencrawl.store.base.Store`."""
        fenced = copy.copy(self)
        fenced._cluster = self._cluster.checking(lambda db: duties.check(db, duty))
        fenced._seeds = Grouped(fenced._cluster)
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
        return self._cluster.write(
            lambda db: crawl_rows.requeue_dead(db, self._codec, crawl, limit, before)
        )

    def release_parked(
        self, crawl: int, shape: str | None = None, *, limit: int = 10_000, before: int = NEVER
    ) -> SeedBatch | None:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        return self._cluster.write(
            lambda db: parked.release(db, self._codec, crawl, shape, limit, before)
        )

    # -- the replay log decides what a Redis node knows, so the server that takes writes is asked

    def replay_size(self, since: int) -> tuple[int, int, int]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.read(lambda db: replay_log.size(db, since), seconds=LONG_SECONDS)

    _stamped = read(replay_log.stamped)

    def replay_marks(self, since: int) -> Iterator[list[Mark]]:
        """See :class:`greencrawl.store.base.Store`; crawl by crawl."""
        sql = f"SELECT p.fingerprint, c.url, p.status, p.body_bytes {rows.PAGE_FROM}"
        for crawl in self._stamped("pages", since):
            for chunk in self._window(crawl, sql, EVERY, "row", (since - 1, 2**63 - 1, 2**63 - 1)):
                yield [
                    Mark(crawl, url, common.mark_kind(status), size)
                    for _, (_, url, status, size) in chunk.rows
                ]
        for crawl in self._stamped("finals", since):
            at = (-1, 0)
            while found := self._cluster.read(
                partial(streams.final_marks, crawl=crawl, since=since, after=at)
            ):
                yield [
                    Mark(crawl, url, common.mark_kind(state.decode()), 0)
                    for _, _, url, state in found
                ]
                at = found[-1][:2]

    def replay_links(self, since: int) -> Iterator[list[tuple[int, list[Admission]]]]:
        """See :class:`greencrawl.store.base.Store`; crawl by crawl."""
        sql = f"SELECT p.fingerprint, c.links {rows.PAGE_FROM}"
        for crawl in self._stamped("pages", since):
            for chunk in self._window(crawl, sql, EVERY, "text", (since - 1, 2**63 - 1, 2**63 - 1)):
                for some in common.few([blob for _, (_, blob) in chunk.rows if blob]):
                    yield [(crawl, self._codec.links(blob)) for blob in some]

    def _window(
        self, crawl: int, sql: str, wanted: PageFilter, detail: Detail, after: streams.At
    ) -> Iterator[streams.Chunk]:
        return streams.stream(self._cluster.read, crawl, sql, wanted, detail, after)

    def replay_seeds(self, since: int, *, force: bool) -> Iterator[SeedBatch]:
        """See :class:`greencrawl.store.base.Store`."""
        at = (-1, 0)
        while found := self._cluster.read(
            partial(replay_log.seeds, forced=force, since=since, after=at)
        ):
            for row in found:
                yield self._batch(*row)
            at = (found[-1][4], found[-1][0])

    def stamps(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, int]:
        """See :class:`greencrawl.store.base.Store`."""
        latest: dict[int, int] = {}
        for number, stamp in self._cluster.read(
            lambda db: replay_log.stamps(db, crawl, fingerprints)
        ):
            latest[number] = max(stamp, latest.get(number, stamp))
        return latest

    # -- the overflow

    put_overflow = write(overflow_rows.put)
    overflow = read(overflow_rows.best)
    overflow_taken = write(overflow_rows.taken)
    overflow_hosts = read(overflow_rows.hosts)
    overflow_places = read(overflow_rows.places)

    def overflow_of(self, partition: int) -> Iterator[tuple[int, list[Overflow]]]:
        """See :class:`greencrawl.store.base.Store`."""
        after = 0
        while found := self._cluster.read(
            partial(overflow_rows.page, partition=partition, after=after, limit=streams.CHUNK_ROWS)
        ):
            yield from common.by_crawl(found)
            after = found[-1][1].id

    def overflow_since(self, partition: int, since: int) -> Iterator[tuple[int, list[Overflow]]]:
        """See :class:`greencrawl.store.base.Store`."""
        after = (since, -1)
        while found := self._cluster.read(
            partial(overflow_rows.begun, partition=partition, after=after, limit=streams.CHUNK_ROWS)
        ):
            yield from common.by_crawl((crawl, row) for _, crawl, row in found)
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

        A page does not remove a newer final state, except a parked one. Records of a deleted crawl
        are left out. Raises Unstorable for a record that no second try would store, naming its URL.
        """
        prepared = rows.prepare(self._codec, work)
        write = self._writing(work, prepared)
        try:
            stamp = self._cluster.write(lambda db: write.run(db, prepared))
        except pymysql.MySQLError as error:
            raise self._unstorable(work, error) from error
        crash_points.point("store.after_commit")
        return stamp

    def _writing(self, work: Commit, prepared: rows.Prepared) -> commits.Write:
        """Make the writer of ``work``; it compresses new bodies now, or puts them into files.

        Raises Unavailable.
        """
        named = {(page.crawl, page.digest) for page in prepared.pages if page.digest}
        known: dict[Body, int] = {}
        if named:
            known = self._cluster.read(lambda db: bodies.known(db, named))
        if self._bodies is None or not work.pages:
            new = {
                page.digest: page
                for page in prepared.pages
                if page.plain and (page.crawl, page.digest) not in known
            }
            rows.pack_bodies(self._codec, list(new.values()))
            return commits.Write(self._codec, known.keys(), {})
        files = self._cluster.read(lambda db: bodies.files(db, known)) if known else {}
        placed = self._off_hub(partial(self._bodies.append, work.pages, files))
        for page, place in zip(prepared.pages, placed, strict=True):
            if page.plain and place.file:
                files.setdefault((page.crawl, page.digest), place)
        return commits.Write(self._codec, known.keys(), files)

    def _off_hub(self, work: Callable[[], T]) -> T:
        """Run ``work`` in the thread of the files; errors return as values, so that none is
        printed."""

        def attempt() -> T | _Failed:
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - raised again in the caller's greenlet
                return _Failed(error)

        assert self._files is not None
        outcome: T | _Failed = self._files.apply(attempt)
        if isinstance(outcome, _Failed):
            raise outcome.error
        return outcome

    def _unstorable(self, work: Commit, error: pymysql.MySQLError) -> Exception:
        """Find the record that ``error`` is about: each record is tried alone, and undone."""
        single = [
            *((page.url, Commit(pages=[page])) for page in work.pages),
            *((tried.url, Commit(attempts=[tried])) for tried in work.attempts),
            *((last.url, Commit(finals=[last])) for last in work.finals),
        ]
        for url, one in single:
            if len(single) == 1:
                return Unstorable(url, str(error))
            prepared = rows.prepare(self._codec, one)
            write = commits.Write(self._codec, frozenset(), {})

            def probe(
                db: Db, prepared: rows.Prepared = prepared, write: commits.Write = write
            ) -> None:
                write.run(db, prepared)
                raise _Undo

            try:
                self._cluster.write(probe)
            except _Undo:
                continue
            except pymysql.MySQLError as its_own:
                return Unstorable(url, str(its_own))
        return error

    # -- queries

    def page(self, crawl: int, fingerprint: int, *, detail: Detail = "body") -> StoredPage | None:
        """See :class:`greencrawl.store.base.Store`."""
        sql = f"{rows.READS[detail]} WHERE p.crawl = %s AND p.fingerprint = %s"
        found = self._cluster.read(lambda db: _all(db, sql, (crawl, fingerprint)))
        return self._page(crawl, found[0]) if found else None

    def _page(self, crawl: int, row: Row) -> StoredPage:
        page, where = rows.page(self._codec, crawl, row)
        if where:
            body, file, start, length = where
            if file and self._bodies is not None:
                place = Place(file.decode(), start, length)
                page.body = self._off_hub(partial(self._bodies.read, place))
            elif file:
                raise BodyAway(file.decode(), "GREENCRAWL_BODIES names no folder of files")
            else:
                page.body = self._codec.unpack(body)
        return page

    def validators(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, Validators]:
        """See :class:`greencrawl.store.base.Store`."""
        found = self._cluster.read(lambda db: page_rows.validators(db, crawl, fingerprints))
        return {number: declared.validators_of(headers) for number, headers in found}

    def history(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Version]:
        """See :class:`greencrawl.store.base.Store`."""
        columns = "fetched_ms, status, digest, body_bytes"
        where = "WHERE crawl = %s AND fingerprint = %s"
        sql = (
            f"SELECT {columns} FROM pages {where} UNION ALL "
            f"(SELECT {columns} FROM versions {where} ORDER BY fetched_ms DESC LIMIT %s) "
            "ORDER BY fetched_ms DESC"
        )
        key = (crawl, fingerprint)
        found = self._cluster.read(lambda db: _all(db, sql, (*key, *key, limit)))
        before = [*(row[2] for row in found[1:]), None] if found else []
        return [
            Version(
                fetched_ms=fetched_ms, status=status, digest=digest, body_bytes=size,
                changed=digest != older, first=older is None,
            )
            for (fetched_ms, status, digest, size), older in zip(found, before, strict=True)
        ][:limit]  # fmt: skip

    def body(self, crawl: int, digest: bytes, size: int) -> bytes | None:
        """See :class:`greencrawl.store.base.Store`. All bodies are kept as long as the crawl."""
        sql = (
            "SELECT b.body, b.file, b.start, b.length FROM digests d JOIN bodies b "
            "ON b.crawl = d.crawl AND b.place = d.place AND b.digest = d.digest "
            "WHERE d.crawl = %s AND d.digest = %s"
        )
        found = self._cluster.read(lambda db: _all(db, sql, (crawl, digest)))
        if not found:
            return None
        body, file, start, length = found[0]
        if not file:
            return self._codec.unpack(body)
        if self._bodies is None:
            raise BodyAway(file.decode(), "GREENCRAWL_BODIES names no folder of files")
        place = Place(file.decode(), start, length)
        return self._off_hub(partial(self._bodies.read, place))

    def final(self, crawl: int, fingerprint: int) -> Final | None:
        """Return the final state of a URL, or None."""
        sql = f"SELECT {rows.FINAL_READ} FROM finals WHERE crawl = %s AND fingerprint = %s"
        found = self._cluster.read(lambda db: _all(db, sql, (crawl, fingerprint)))
        return rows.final(found[0]) if found else None

    def attempts(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Attempt]:
        """See :class:`greencrawl.store.base.Store`."""
        sql = (
            f"SELECT {rows.ATTEMPTS} FROM attempts WHERE crawl = %s AND fingerprint = %s "
            "ORDER BY at_ms DESC LIMIT %s"
        )
        found = self._cluster.read(lambda db: _all(db, sql, (crawl, fingerprint, limit)))
        return [rows.attempt(row) for row in found]

    def dead(self, crawl: int, limit: int = 100, after: str = "") -> list[tuple[str, Final]]:
        """See :class:`greencrawl.store.base.Store`; ordered by fingerprint."""
        at = streams.after_number(after)
        found = self._cluster.read(lambda db: crawl_rows.dead_rows(db, crawl, limit, at))
        return [(str(row[1]), rows.final(row)) for row in found]

    counts = read(crawl_rows.counts)

    # -- streams

    def pages(
        self,
        crawl: int,
        wanted: PageFilter = EVERY,
        *,
        detail: Detail = "text",
        after: str = "",
    ) -> Iterator[tuple[str, StoredPage]]:
        """See :class:`greencrawl.store.base.Store`; in order of stamps, then of storing."""
        most = streams.WINDOW
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
        at = streams.after_page(after, streams.END if newest else streams.START)
        scan, sql = self._cluster.stream(), rows.READS[detail]
        for chunk in streams.stream(scan, crawl, sql, wanted, detail, at, window, newest):
            some = self._pages(crawl, chunk, wanted.host)
            yield Step(some, streams.page_cursor(chunk.at), chunk.looked_at)

    def _pages(
        self, crawl: int, chunk: streams.Chunk, host: str
    ) -> Iterator[tuple[str, StoredPage]]:
        for at, row in chunk.rows:
            page = self._page(crawl, row)
            # two hosts may have the same hash
            if not host or rows.host_key(page.url) == host.encode():
                yield streams.page_cursor(at), page

    def finals(
        self, crawl: int, since_ms: int = 0, *, after: str = ""
    ) -> Iterator[tuple[str, Final]]:
        """See :class:`greencrawl.store.base.Store`; ordered by fingerprint."""
        at = streams.after_number(after)
        scan = self._cluster.stream()
        while True:
            found, at = scan(partial(streams.finals, crawl=crawl, since_ms=since_ms, after=at))
            for row in found:
                yield str(row[1]), rows.final(row)
            if at is None:
                return

    # -- the journal by months

    def prepare_months(self, now_ms: int) -> None:
        """See :class:`greencrawl.store.base.Store`."""
        self._cluster.write(lambda db: months.prepare(db, now_ms), seconds=LONG_SECONDS)

    def drop_months(self, before_ms: int) -> Iterator[int]:
        """See :class:`greencrawl.store.base.Store`."""
        while self._cluster.write(lambda db: months.drop(db, before_ms), seconds=LONG_SECONDS):
            yield 1

    # -- retention

    def drop_successes(self, before_ms: int) -> Iterator[int]:
        """See :class:`greencrawl.store.base.Store`; crawl by crawl, and month by month."""
        crawls = [crawl.id for crawl in self.crawls()]
        for name in self._cluster.read(lambda db: retention.old_months(db, before_ms)):
            for crawl in crawls:
                where = f"attempts PARTITION ({name})"
                yield from self._steps(retention.Pass(where, crawl, "kind = 'ok'"))

    def drop_versions(self, before_ms: int) -> Iterator[int]:
        """See :class:`greencrawl.store.base.Store`; crawl by crawl."""
        for crawl in [crawl.id for crawl in self.crawls()]:
            old = f"fetched_ms < {before_ms:d}"
            yield from self._steps(retention.Pass("versions", crawl, old))

    def _steps(self, run: retention.Pass) -> Iterator[int]:
        first = common.LEAST
        while (done := self._cluster.write(partial(run.step, first=first))) is not None:
            dropped, first = done
            yield dropped

    # -- monitoring

    def size(self) -> int:
        """See :class:`greencrawl.store.base.Store`. It is the server's estimate."""
        sql = (
            "SELECT COALESCE(SUM(data_length + index_length), 0) "
            "FROM information_schema.tables WHERE table_schema = DATABASE()"
        )
        return int(self._cluster.read(lambda db: _all(db, sql))[0][0])

    def lags(self) -> dict[str, float | None]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.lags()

    def close(self) -> None:
        """Close connections and files. Idempotent."""
        self._cluster.close()
        if self._bodies is not None and self._files is not None:
            files, self._bodies = self._bodies, None
            self._files.apply(files.close)
            self._files.kill()


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = error


class _Undo(Exception):
    """Raised to roll back a trial."""


def _all(db: Db, sql: str, values: Sequence[object] | None = None) -> list[Row]:
    db.execute(sql, values)
    return list(db.fetchall())
