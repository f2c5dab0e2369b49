"""The store on MySQL or MariaDB, shared by processes of many machines.

Each call takes a connection from a pool and waits for the server as a greenlet. Queries that decide
anything go to the server that takes writes; a replica may answer streams and sums.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pymysql
from gevent.threadpool import ThreadPool
from msgspec.structs import replace

from greencrawl.schema import crash_points, wire
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.records import (
    Admission,
    Alert,
    Attempt,
    Commit,
    Crawl,
    CrawlOptions,
    CrawlState,
    Due,
    Duty,
    Final,
    FrontierIdentity,
    HookFailure,
    Mark,
    Overflow,
    PageFilter,
    Planned,
    Purge,
    Round,
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
    MARGIN,
    NEVER,
    STEP_ROWS,
    Detail,
    Step,
)
from greencrawl.store.bodies import Bodies, Place
from greencrawl.store.errors import BodyAway, Unstorable
from greencrawl.store.lanes import read, scan, steps, write
from greencrawl.store.mysql import commits, migrations, page_limit, rows, streams
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.topology import Topology
from greencrawl.store.mysql.connection import LONG_SECONDS, Db
from greencrawl.store.mysql.group_commit import Grouped
from greencrawl.store.mysql.ids import Numbers
from greencrawl.store.mysql.recrawl import calendar
from greencrawl.store.mysql.recrawl import periods as period_rows
from greencrawl.store.mysql.system import alerts as alert_rows
from greencrawl.store.mysql.system import members as member_rows
from greencrawl.store.mysql.system import orders as order_rows
from greencrawl.store.mysql.system import samples as sample_rows
from greencrawl.store.mysql.tables import (
    bodies,
    duties,
    hooks,
    parked,
    partitions,
    replay_log,
    retention,
)
from greencrawl.store.mysql.tables import crawls as crawl_rows
from greencrawl.store.mysql.tables import debts as debt_rows
from greencrawl.store.mysql.tables import overflow as overflow_rows
from greencrawl.store.mysql.tables import pages as page_rows
from greencrawl.store.mysql.tables import purges as purge_rows
from greencrawl.store.mysql.tables.bodies import Body
from greencrawl.store.rows import Codec, Row
from greencrawl.store.sqlite.system.alerts import UNTOLD

T = TypeVar("T")


class MysqlStore:
    """:class:`greencrawl.store.base.Store` on a cluster; opening it sets up an empty database.

    ``files`` keep the bodies; without them they are in the database. Raises InvalidConfig for a
    database of another version or program, Unavailable when no server takes writes.
    """

    def __init__(self, topology: Topology, files: Bodies | None = None) -> None:
        self._cluster = Cluster(topology)
        self._seeds = Grouped(self._cluster)
        self._codec = Codec()
        self._ids = Numbers()
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

    # -- the frontier's identity and the store's clock

    def frontier(self) -> FrontierIdentity | None:
        """See :class:`greencrawl.store.base.Store`."""
        found = self._cluster.read(lambda db: _all(db, "SELECT identity FROM frontier"))
        return wire.from_json(found[0][0], FrontierIdentity) if found else None

    def create_frontier(self, identity: FrontierIdentity) -> FrontierIdentity:
        """See :class:`greencrawl.store.base.Store`."""

        def create(db: Db) -> str:
            db.execute(
                "INSERT INTO frontier (only_row, identity) VALUES (1, %s) "
                "ON DUPLICATE KEY UPDATE only_row = 1",
                (wire.to_json(identity).decode(),),
            )
            text: str = _all(db, "SELECT identity FROM frontier")[0][0]
            return text

        return wire.from_json(self._cluster.write(create), FrontierIdentity)

    def put_layout(self, layout: int) -> FrontierIdentity:
        """See :class:`greencrawl.store.base.Store`."""

        def put(db: Db) -> FrontierIdentity:
            text: str = _all(db, "SELECT identity FROM frontier FOR UPDATE")[0][0]
            identity = replace(wire.from_json(text, FrontierIdentity), layout=layout)
            db.execute("UPDATE frontier SET identity = %s", (wire.to_json(identity).decode(),))
            return identity

        return self._cluster.write(put)

    tick = write(replay_log.tick)
    clock = read(replay_log.clock)
    raise_epoch = write(replay_log.raise_epoch)

    # -- debts

    def owe(self, nodes: Collection[str], since: int | None = None) -> int:
        """See :class:`greencrawl.store.base.Store`."""

        def note(db: Db) -> int:
            clock = replay_log.clock(db).clock
            debt_rows.owe(db, nodes, clock if since is None else since)
            return clock

        return self._cluster.write(note)

    debts = read(debt_rows.every)
    begin_replay = write(debt_rows.begin)
    end_replay = write(debt_rows.end)

    def addresses(self) -> dict[str, str]:
        """See :class:`greencrawl.store.base.Store`."""

        def read(db: Db) -> dict[str, str]:
            db.execute("SELECT node, address FROM addresses")
            return {node.decode(): address.decode() for node, address in db.fetchall()}

        return self._cluster.read(read)

    def put_addresses(self, addresses: Mapping[str, str]) -> None:
        """See :class:`greencrawl.store.base.Store`."""

        def put(db: Db) -> None:
            for node, address in sorted(addresses.items()):
                known = (node.encode(), address.encode())
                db.execute("DELETE FROM addresses WHERE address = %s", known[1:])
                db.execute("REPLACE INTO addresses (node, address) VALUES (%s, %s)", known)

        self._cluster.write(put)

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

    put_member = write(member_rows.put)
    member_left = write(member_rows.left)
    members = read(member_rows.every)
    drop_members = write(member_rows.drop)
    forget_node = write(order_rows.forget)
    put_orders = write(order_rows.put)
    note_crawl_change = write(order_rows.note_crawl)
    orders = read(order_rows.every)
    orders_revision = read(order_rows.revision)
    orders_log = read(order_rows.log)
    drop_orders_log = write(order_rows.drop_log)

    # -- crawls

    def put_crawl(
        self, name: str, options: CrawlOptions, roots: Sequence[str], *, revision: int = 0
    ) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.write(
            lambda db: period_rows.put_crawl(db, name, options, roots, epoch_ms(), revision)
        )

    crawls = read(crawl_rows.every)
    crawl = read(crawl_rows.get)
    add_roots = write(crawl_rows.add_roots)
    add_released = write(parked.add_released)

    def set_state(
        self, crawl: int, state: CrawlState, reason: str = "", *, version: int = 0
    ) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.write(
            lambda db: crawl_rows.set_state(db, crawl, state, reason, version, epoch_ms())
        )

    def rest(self, crawl: int, every_ms: int, *, version: int) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.write(
            lambda db: period_rows.rest(db, crawl, every_ms, version, epoch_ms())
        )

    def begin_period(self, crawl: int, urls: Sequence[Admission]) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        ids, blob = self._ids, self._codec.pack_links(urls)
        return self._cluster.write(
            lambda db: period_rows.begin_period(db, ids, crawl, blob, epoch_ms())
        )

    periods = read(period_rows.periods)

    def begin_round(self, crawl: int, why: str) -> Round:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.write(lambda db: period_rows.begin_round(db, crawl, why, epoch_ms()))

    rounds = read(period_rows.rounds)

    def count_round(self, crawl: int, known: Round) -> Round:
        """See :class:`greencrawl.store.base.Store`."""
        total = self._cluster.read(lambda db: period_rows.count_round(db, crawl, known))
        self._cluster.write(lambda db: period_rows.note_total(db, crawl, known, total))
        return replace(known, total=total)

    def queue_round(
        self, crawl: int, known: Round, cursor: str, urls: Sequence[Admission], *, end: bool
    ) -> bool:
        """See :class:`greencrawl.store.base.Store`."""
        packed = len(urls), self._codec.pack_links(urls)
        return self._cluster.write(
            lambda db: period_rows.queue_round(
                db, self._ids, crawl, known, cursor, packed, end=end, now_ms=epoch_ms()
            )
        )

    reopen = write(crawl_rows.reopen)
    stored = read(page_limit.stored)
    count_time = write(crawl_rows.count_time)

    def delete_crawl(self, crawl: int) -> None:
        """See :class:`greencrawl.store.base.Store`. Its rows are deleted in steps."""
        self._cluster.write(lambda db: crawl_rows.mark_deleted(db, crawl))
        while self._cluster.write(lambda db: crawl_rows.purge_step(db, crawl)) is not None:
            pass

    # -- deletions in the background

    purges = read(purge_rows.every)

    def add_purge(self, crawl: int, host: str = "") -> Purge:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        return self._cluster.write(
            lambda db: purge_rows.add(db, self._ids, crawl, host, epoch_ms())
        )

    purge_size = scan(purge_rows.size)
    note_purge = write(purge_rows.note)
    purge_step = write(purge_rows.step)
    end_purge = write(purge_rows.end)

    # -- logged seeds

    def add_seeds(
        self,
        crawl: int,
        urls: Sequence[Admission],
        *,
        force: bool = False,
        claim: Callable[[int], None] | None = None,
    ) -> int:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        blob = self._codec.pack_links(urls)

        def add(db: Db) -> int:
            batch = crawl_rows.add_seeds(db, self._ids, crawl, blob, force)
            if claim is not None:
                claim(batch)
            return batch

        return self._seeds.run(add)

    def seeds_admitted(
        self, batch: int, tick: int = 0, epochs: Mapping[str, int] | None = None
    ) -> bool:
        """See :class:`greencrawl.store.base.Store`."""
        return self._seeds.run(
            lambda db: replay_log.settle_seeds(db, batch, tick - MARGIN, epochs or {})
        )

    restamp_seeds = write(replay_log.restamp_seeds)

    def pending_seeds(self, limit: int = 100, after: int = 0) -> list[SeedBatch]:
        """See :class:`greencrawl.store.base.Store`."""
        found = self._cluster.read(lambda db: crawl_rows.pending_rows(db, limit, after))
        return [self._batch(*row) for row in found]

    def _batch(self, number: int, crawl: int, forced: int, blob: bytes, stamp: int) -> SeedBatch:
        urls = tuple(self._codec.links(blob))
        return SeedBatch(id=number, crawl=crawl, urls=urls, force=bool(forced), stamp=stamp)

    def seeds(self, crawl: int) -> Iterator[SeedBatch]:
        """See :class:`greencrawl.store.base.Store`."""
        after = 0
        scan = self._cluster.stream()
        while found := scan(partial(crawl_rows.seed_rows, crawl=crawl, after=after)):
            for row in found:
                yield self._batch(*row)
            after = found[-1][0]

    def requeue_dead(
        self, crawl: int, limit: int = 10_000, *, before: int = NEVER
    ) -> SeedBatch | None:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        return self._cluster.write(
            lambda db: crawl_rows.requeue_dead(db, self._codec, self._ids, crawl, limit, before)
        )

    def release_parked(
        self, crawl: int, shape: str | None = None, *, limit: int = 10_000, before: int = NEVER
    ) -> SeedBatch | None:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        codec, ids = self._codec, self._ids
        return self._cluster.write(
            lambda db: parked.release(db, codec, ids, crawl, shape, limit, before)
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
            for chunk in self._stream(crawl, sql, EVERY, "row", (since - 1, 2**63 - 1, 2**63 - 1)):
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
            for chunk in self._stream(crawl, sql, EVERY, "text", (since - 1, 2**63 - 1, 2**63 - 1)):
                for some in common.few([blob for _, (_, blob) in chunk.rows if blob]):
                    yield [(crawl, self._codec.links(blob)) for blob in some]

    def _stream(
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

    def put_overflow(self, crawl: int, items: Sequence[Overflow]) -> None:
        """See :class:`greencrawl.store.base.Store`."""
        self._cluster.write(lambda db: overflow_rows.put(db, self._ids, crawl, items))

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

    def free_overflow(self, partition: int, since: int = 0) -> None:
        """See :class:`greencrawl.store.base.Store`. In bounded steps."""
        while (
            self._cluster.write(lambda db: overflow_rows.free(db, partition, since))
            == overflow_rows.FREED_ROWS
        ):
            pass

    # -- the calendar

    add_calendar = write(calendar.add)
    calendar_places = read(calendar.places)
    calendar_due = read(calendar.due)
    calendar_taken = write(calendar.taken)
    drop_calendar = write(calendar.drop)

    def postpone_calendar(self, crawl: int, partition: int, row: Due) -> None:
        """See :class:`greencrawl.store.base.Store`. In bounded steps."""
        step = partial(calendar.postpone, crawl=crawl, partition=partition, row=row)
        while self._cluster.write(step) == calendar.FREED_ROWS:
            pass

    def free_calendar(self, partition: int, epoch: int) -> None:
        """See :class:`greencrawl.store.base.Store`. In bounded steps."""
        step = partial(calendar.free, partition=partition, epoch=epoch)
        while self._cluster.write(step) == calendar.FREED_ROWS:
            pass

    def planned(self, crawl: int, fingerprint: int) -> Planned | None:
        """See :class:`greencrawl.store.base.Store`."""
        row = self._cluster.read(lambda db: calendar.row_of(db, crawl, fingerprint))
        return row.planned if row else None

    # -- the worker's commit

    def commit(self, work: Commit) -> Stamp:
        """See :class:`greencrawl.store.base.Store`.

        "Newer" is also compared between a page and a final state. Records of a deleted crawl are
        left out. Raises Unstorable for a record that no second try would store, naming its URL.
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
            return commits.Write(self._codec, self._ids, known.keys(), {})
        files = self._cluster.read(lambda db: bodies.files(db, known)) if known else {}
        placed = self._off_hub(partial(self._bodies.append, work.pages, files))
        for page, place in zip(prepared.pages, placed, strict=True):
            if page.plain and place.file:
                files.setdefault((page.crawl, page.digest), place)
        return commits.Write(self._codec, self._ids, known.keys(), files)

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
            write = commits.Write(self._codec, self._ids, frozenset(), {})

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

    # -- pages whose hook failed

    hook_counts = read(hooks.counts)

    def hook_failures(
        self, crawl: int, function: str, message: str, *, after: str = "", limit: int = 100
    ) -> list[tuple[str, HookFailure]]:
        """See :class:`greencrawl.store.base.Store`."""
        at = streams.after_number(after)
        first = common.LEAST if at is None else at + 1
        found = self._cluster.read(
            lambda db: hooks.failures(db, crawl, function, message, first, limit)
        )
        return [(str(number), failure) for number, failure in found]

    def hook_pages(
        self, crawl: int, functions: Sequence[str], *, after: int | None = None, limit: int = 100
    ) -> list[int]:
        """See :class:`greencrawl.store.base.Store`."""
        first = common.LEAST if after is None else after + 1
        return self._cluster.read(lambda db: hooks.pages(db, crawl, functions, first, limit))

    # -- workers that cannot import a crawl's hook

    put_refusals = write(hooks.put_refusals)
    refusals = read(hooks.refusals)

    # -- blocks of hosts

    def put_block(self, host: str, until_ms: int, reason: str) -> None:
        """See :class:`greencrawl.store.base.Store`."""
        row = (common.clean(host).encode(), common.bounded(until_ms), common.clean(reason))
        sql = (
            "INSERT INTO blocks (host, until_ms, reason) VALUES (%s, %s, %s) "
            "ON DUPLICATE KEY UPDATE "
            "reason = IF(VALUES(until_ms) > until_ms, VALUES(reason), reason), "
            "until_ms = GREATEST(until_ms, VALUES(until_ms))"
        )
        self._cluster.write(lambda db: db.execute(sql, row))

    def lift_block(self, host: str) -> None:
        """See :class:`greencrawl.store.base.Store`."""
        sql = "DELETE FROM blocks WHERE host = %s"
        self._cluster.write(lambda db: db.execute(sql, (common.clean(host).encode(),)))

    def blocks(self, now_ms: int) -> list[tuple[str, int, str]]:
        """See :class:`greencrawl.store.base.Store`."""
        sql = "SELECT host, until_ms, reason FROM blocks WHERE until_ms > %s ORDER BY host"
        found = self._cluster.read(lambda db: _all(db, sql, (now_ms,)))
        return [(host.decode(), until_ms, reason) for host, until_ms, reason in found]

    # -- operators' delays of hosts

    def put_delay(self, host: str, delay_ms: int) -> None:
        """See :class:`greencrawl.store.base.Store`."""
        row = (common.clean(host).encode(), common.bounded(delay_ms))
        if delay_ms:
            sql = (
                "INSERT INTO delays (host, delay_ms) VALUES (%s, %s) "
                "ON DUPLICATE KEY UPDATE delay_ms = VALUES(delay_ms)"
            )
            self._cluster.write(lambda db: db.execute(sql, row))
        else:
            sql = "DELETE FROM delays WHERE host = %s"
            self._cluster.write(lambda db: db.execute(sql, row[:1]))

    def delay(self, host: str) -> int:
        """See :class:`greencrawl.store.base.Store`."""
        sql, key = "SELECT delay_ms FROM delays WHERE host = %s", common.clean(host).encode()
        found = self._cluster.read(lambda db: _all(db, sql, (key,)))
        return int(found[0][0]) if found else 0

    def delays(self) -> dict[str, int]:
        """See :class:`greencrawl.store.base.Store`."""
        found = self._cluster.read(lambda db: _all(db, "SELECT host, delay_ms FROM delays"))
        return {host.decode(): delay_ms for host, delay_ms in found}

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
                changed=digest != older,
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

    parked_shapes = scan(parked.shapes)
    counts = read(crawl_rows.counts)
    slowest_hosts = read(crawl_rows.slowest)

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
    ) -> Iterator[Step]:
        """See :class:`greencrawl.store.base.Store`."""
        at, sql = streams.after_page(after), rows.READS[detail]
        scan = self._cluster.stream()
        for chunk in streams.stream(scan, crawl, sql, wanted, detail, at, window):
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
        self._cluster.write(lambda db: partitions.prepare(db, now_ms), seconds=LONG_SECONDS)

    def drop_months(self, before_ms: int) -> Iterator[int]:
        """See :class:`greencrawl.store.base.Store`."""
        while self._cluster.write(lambda db: partitions.drop(db, before_ms), seconds=LONG_SECONDS):
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

    drop_expired = steps(retention.drop_expired)
    drop_seeds = write(retention.drop_seeds)

    # -- what the coordinator keeps

    put_samples = write(sample_rows.put)

    samples = scan(sample_rows.some)
    drop_samples = steps(sample_rows.drop)

    def alerts(self) -> list[Alert]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.read(lambda db: alert_rows.some(db, "over_ms = 0"))

    def untold_alerts(self) -> list[Alert]:
        """See :class:`greencrawl.store.base.Store`."""
        return self._cluster.read(lambda db: alert_rows.some(db, UNTOLD))

    put_alerts = write(alert_rows.put)
    note_told = write(alert_rows.told)
    forget_alerts = write(alert_rows.forget)

    drop_alerts = steps(alert_rows.drop)

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
