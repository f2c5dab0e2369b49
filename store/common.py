"""Methods that are the same in both stores, in the lanes of each: the tables of ``tables/`` as
methods.

:class:`greencrawl.store.base.Store` says what each method does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.records import (
    Admission,
    Crawl,
    CrawlOptions,
    CrawlState,
    HookFailure,
    Planned,
    Purge,
    Round,
    SeedBatch,
)
from greencrawl.store.base import MARGIN
from greencrawl.store.lanes import read, scan, steps, write
from greencrawl.store.rows import LEAST, Codec
from greencrawl.store.tables import crawls as crawl_rows
from greencrawl.store.tables import hooks, hosts, nodes, parked, plans, watching
from greencrawl.store.tables import members as member_rows
from greencrawl.store.tables import periods as period_rows
from greencrawl.store.tables import purges as purge_rows
from greencrawl.store.tables.sql import beyond

T = TypeVar("T")


class SqlStore(ABC):
    """The lanes, and the methods that only need them. Errors that a lane raises are passed on."""

    _codec: Codec
    """Packs links and bodies for columns."""

    @abstractmethod
    def _read(self, work: Callable[[Any], T]) -> T:
        """Answer a question on the server that takes the writes."""

    @abstractmethod
    def _write(self, work: Callable[[Any], T]) -> T:
        """Run a transaction; durable on return."""

    @abstractmethod
    def _scan(self, work: Callable[[Any], T]) -> T:
        """Answer a question that reads many rows, perhaps by a replica."""

    @abstractmethod
    def _together(self, work: Callable[[Any], T]) -> T:
        """Run a small write; one transaction may hold the writes of several callers."""

    @abstractmethod
    def _purge_rows(self, db: Any, crawl: int) -> int | None:
        """Delete some rows of a deleted crawl; return how many, None if nothing is left."""

    # -- the frontier: its identity, the clock, its nodes

    frontier = read(nodes.frontier)
    create_frontier = write(nodes.create_frontier)
    put_layout = write(nodes.put_layout)
    tick = write(nodes.tick)
    clock = read(nodes.clock)
    raise_epoch = write(nodes.raise_epoch)
    owe = write(nodes.owe_now)
    debts = read(nodes.debts)
    begin_replay = write(nodes.begin_replay)
    end_replay = write(nodes.end_replay)
    addresses = read(nodes.addresses)
    put_addresses = write(nodes.put_addresses)

    # -- members, and what the coordinator keeps

    put_member = write(member_rows.put)
    member_left = write(member_rows.left)
    members = read(member_rows.every)
    drop_members = write(member_rows.drop)
    put_samples = write(watching.put_samples)
    samples = scan(watching.samples)
    drop_samples = steps(watching.drop_samples)
    alerts = read(watching.alerts)
    untold_alerts = read(watching.untold)
    put_alerts = write(watching.put_alerts)
    note_told = write(watching.note_told)
    forget_alerts = write(watching.forget)
    drop_alerts = steps(watching.drop_alerts)

    # -- crawls

    crawls = read(crawl_rows.every)
    crawl = read(crawl_rows.get)
    add_roots = write(crawl_rows.add_roots)
    add_released = write(crawl_rows.add_released)
    reopen = write(crawl_rows.reopen)
    stored = read(crawl_rows.stored)

    def put_crawl(
        self, name: str, options: CrawlOptions, roots: Sequence[str], *, revision: int = 0
    ) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        return self._write(
            lambda db: period_rows.put_crawl(db, name, options, roots, epoch_ms(), revision)
        )

    def set_state(
        self, crawl: int, state: CrawlState, reason: str = "", *, version: int = 0
    ) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        return self._write(
            lambda db: crawl_rows.set_state(db, crawl, state, reason, version, epoch_ms())
        )

    def delete_crawl(self, crawl: int) -> None:
        """See :class:`greencrawl.store.base.Store`. Its rows are deleted in steps."""
        self._write(lambda db: crawl_rows.mark_deleted(db, crawl))
        while self._write(lambda db: self._purge_rows(db, crawl)) is not None:
            pass

    # -- periods, rounds and the calendar

    periods = read(period_rows.periods)
    rounds = read(period_rows.rounds)
    calendar_places = read(plans.places)
    drop_calendar = write(plans.drop)

    def rest(self, crawl: int, every_ms: int, *, version: int) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        return self._write(lambda db: period_rows.rest(db, crawl, every_ms, version, epoch_ms()))

    def begin_period(self, crawl: int, urls: Sequence[Admission]) -> Crawl:
        """See :class:`greencrawl.store.base.Store`."""
        blob = self._codec.pack_links(urls)
        return self._write(lambda db: period_rows.begin_period(db, crawl, blob, epoch_ms()))

    def begin_round(self, crawl: int, why: str) -> Round:
        """See :class:`greencrawl.store.base.Store`."""
        return self._write(lambda db: period_rows.begin_round(db, crawl, why, epoch_ms()))

    def count_round(self, crawl: int, known: Round) -> Round:
        """See :class:`greencrawl.store.base.Store`."""
        total = self._read(lambda db: period_rows.count_round(db, crawl, known))
        self._write(lambda db: period_rows.note_total(db, crawl, known, total))
        return replace(known, total=total)

    def queue_round(
        self, crawl: int, known: Round, cursor: str, urls: Sequence[Admission], *, end: bool
    ) -> bool:
        """See :class:`greencrawl.store.base.Store`."""
        packed = len(urls), self._codec.pack_links(urls)
        return self._write(
            lambda db: period_rows.queue_round(
                db, crawl, known, cursor, packed, end=end, now_ms=epoch_ms()
            )
        )

    def planned(self, crawl: int, fingerprint: int) -> Planned | None:
        """See :class:`greencrawl.store.base.Store`."""
        row = self._read(lambda db: plans.row_of(db, crawl, fingerprint))
        return row.planned if row else None

    # -- deletions in the background

    purges = read(purge_rows.every)
    note_purge = write(purge_rows.note)
    end_purge = write(purge_rows.end)

    def add_purge(self, crawl: int, host: str = "") -> Purge:
        """See :class:`greencrawl.store.base.Store`. Raises UnknownCrawl."""
        return self._write(lambda db: purge_rows.begin(db, crawl, host, epoch_ms()))

    def purge_step(self, purge: Purge) -> bool:
        """See :class:`greencrawl.store.base.Store`."""
        return self._write(lambda db: purge_rows.step(db, purge, self._purge_rows))

    # -- stored seeds

    restamp_seeds = write(crawl_rows.restamp_seeds)
    drop_seeds = write(crawl_rows.drop_seeds)

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

        def add(db: Any) -> int:
            batch = crawl_rows.add_seeds(db, crawl, blob, force)
            if claim is not None:
                claim(batch)
            return batch

        return self._together(add)

    def seeds_admitted(
        self, batch: int, tick: int = 0, epochs: Mapping[str, int] | None = None
    ) -> bool:
        """See :class:`greencrawl.store.base.Store`."""
        return self._together(
            lambda db: crawl_rows.settle_seeds(db, batch, tick - MARGIN, epochs or {})
        )

    def pending_seeds(self, limit: int = 100, after: int = 0) -> list[SeedBatch]:
        """See :class:`greencrawl.store.base.Store`."""
        found = self._read(lambda db: crawl_rows.pending_rows(db, limit, after))
        return [self._batch(*row) for row in found]

    def _batch(self, number: int, crawl: int, forced: int, blob: bytes, stamp: int) -> SeedBatch:
        urls = tuple(self._codec.links(blob))
        return SeedBatch(id=number, crawl=crawl, urls=urls, force=bool(forced), stamp=stamp)

    def seeds(self, crawl: int) -> Iterator[SeedBatch]:
        """See :class:`greencrawl.store.base.Store`."""
        after, scan = 0, self._stream()
        while found := scan(partial(crawl_rows.seed_rows, crawl=crawl, after=after)):
            for row in found:
                yield self._batch(*row)
            after = found[-1][0]

    @abstractmethod
    def _stream(self) -> Callable[[Callable[[Any], T]], T]:
        """Return a lane for consecutive scans: each sees everything that the one before has
        seen."""

    # -- hooks that failed, parked URLs, hosts

    hook_counts = read(hooks.counts)
    hook_failed_since = read(hooks.failed_since)

    def hook_failures(
        self, crawl: int, function: str, message: str, *, after: str = "", limit: int = 100
    ) -> list[tuple[str, HookFailure]]:
        """See :class:`greencrawl.store.base.Store`."""
        first = beyond(after, LEAST)
        found = self._read(lambda db: hooks.failures(db, crawl, function, message, first, limit))
        return [(str(number), failure) for number, failure in found]

    def hook_pages(
        self, crawl: int, functions: Sequence[str], *, after: int | None = None, limit: int = 100
    ) -> list[int]:
        """See :class:`greencrawl.store.base.Store`."""
        first = LEAST if after is None else after + 1
        return self._read(lambda db: hooks.pages(db, crawl, functions, first, limit))

    put_refusals = write(hooks.put_refusals)
    refusals = read(hooks.refusals)
    parked_shapes = scan(parked.shapes)
    with_page = read(parked.with_page)
    put_block = write(hosts.put_block)
    lift_block = write(hosts.lift_block)
    blocks = read(hosts.blocks)
    put_delay = write(hosts.put_delay)
    delay = read(hosts.delay)
    delays = read(hosts.delays)
    slowest_hosts = scan(hosts.slowest)
    drop_expired = steps(hosts.drop_expired)
