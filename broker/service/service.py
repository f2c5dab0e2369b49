"""What every handler of the HTTP face works with: the frontier, the store, and what is going on.

The frontier is seen through :class:`Queue`, which names exactly what the face needs of it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

import gevent
import greenlet
from gevent.event import Event
from msgspec.structs import replace

from greencrawl.broker.frontier.brokers.duties import Duties
from greencrawl.broker.frontier.brokers.news import Stirring
from greencrawl.broker.frontier.frontier import Admitted, Counts, Room
from greencrawl.broker.frontier.partition import Drain, Drained, Mode
from greencrawl.broker.service.admission_batcher import Gathering
from greencrawl.broker.service.hook_refusals import Refusals
from greencrawl.broker.service.lease_dedup import Leases
from greencrawl.broker.service.pages import Reader
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Crawl,
    CrawlStats,
    Duty,
    ExtendItem,
    FinishItem,
    HostPatch,
    HostState,
    ItemStatus,
    LeaseReply,
    LeaseRequest,
    NodeAway,
    NodeRepair,
    Purge,
    ReconcileReply,
    ReconcileRequest,
    ReleaseItem,
    Stamp,
    UrlState,
)
from greencrawl.store.base import Store


class Sums(Protocol):
    """Totals of a crawl over all partitions, read in one scan; ``open`` tasks are still to do."""

    @property
    def open(self) -> int: ...
    @property
    def leased(self) -> int: ...
    @property
    def admitted(self) -> int: ...
    @property
    def finished(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def bytes(self) -> int: ...


class Queue(Protocol):
    """The frontier as the HTTP face and the upkeep use it; every call may raise Unavailable."""

    activity: Stirring
    """Set whenever something was admitted or finished, here or by another broker."""

    overflowing: Stirring
    """Set when something waits in the overflow, as far as this process knows."""

    def holding(self, duty: Duty) -> Queue: ...
    def announce(self, what: bytes, crawls: Collection[int]) -> None: ...
    def fingerprint(self, url: str) -> int: ...
    def partition_of(self, host: str) -> int: ...
    def admit(
        self,
        crawl: int,
        items: Sequence[Admission],
        *,
        mode: Mode = Mode.NEW,
        batch: int = 0,
        stamp: Stamp | None = None,
        partial: bool = False,
    ) -> Admitted: ...
    def nodes_away(self) -> Mapping[str, NodeAway]: ...
    def room(self, partition: int, most: int = 50, crawls: Sequence[int] = ()) -> Room: ...
    def under(self, partition: int) -> tuple[str, int]: ...
    def refill(self, crawl: int, partition: int, host: str) -> int: ...
    def watch_memory(self) -> None: ...
    @property
    def full(self) -> bool: ...
    def put_crawl(self, crawl: Crawl) -> None: ...
    def drop_crawl(self, crawl: int) -> None: ...
    def drain(self, crawl: int, host: str, gone: Drain, at: int) -> Drained: ...
    def stop_leasing(self, crawl: Crawl) -> None: ...
    def shut(self, crawl: Crawl) -> None: ...
    def count(self, crawls: Sequence[Crawl]) -> Counts | None: ...
    def look(
        self, crawl: Crawl, counts: Counts | None = None
    ) -> tuple[Sums, frozenset[str]] | None: ...
    def stilled(self, within: float) -> tuple[Mapping[int, float], bool]: ...
    def lease(self, request: LeaseRequest) -> LeaseReply: ...
    def reconcile(self, request: ReconcileRequest) -> ReconcileReply: ...
    def extend(self, items: Sequence[ExtendItem], ttl: float) -> list[ItemStatus]: ...
    def close_sessions(self, items: Sequence[CloseItem]) -> list[ItemStatus]: ...
    def finish(self, items: Sequence[FinishItem]) -> list[ItemStatus]: ...
    def release(self, items: Sequence[ReleaseItem]) -> list[ItemStatus]: ...
    def stats(self, crawl: Crawl) -> CrawlStats: ...
    def host(self, host: str) -> HostState: ...
    def patch_host(self, host: str, patch: HostPatch) -> HostState: ...
    def slowest(self, limit: int = 5) -> list[HostState]: ...
    def resting(self) -> tuple[int, float]: ...
    def workers(self) -> tuple[int, tuple[str, ...]]: ...
    def where(self, crawl: Crawl, url: str) -> UrlState: ...
    def tick(self, stamp: Stamp) -> None: ...
    def repair(self, everything: bool) -> None: ...
    def repairs(self) -> list[NodeRepair]: ...
    def ready(self) -> str | None: ...
    def metrics(self) -> dict[str, float]: ...


class Service:
    """One broker process: its frontier and store, and what is going on in it."""

    def __init__(
        self,
        frontier: Queue,
        store: Store,
        clock: Clock = monotonic,
        *,
        duties: Duties | None = None,
    ) -> None:
        self.frontier = frontier
        self.store = store
        self.duties = duties or Duties(store)
        self.clock = clock
        self.gathering = Gathering(partial(frontier.admit, partial=True))
        self.reader = Reader(store)
        self.stopping = Event()
        self.purging = Event()
        """Set whenever something was asked to be deleted here."""
        self.admitting: set[int] = set()
        """Seed batches that a request is admitting right now."""
        self.refusals = Refusals(store, clock)
        self._leases = Leases(clock)
        self._polls: set[greenlet.greenlet] = set()

    def holding(self, duty: Duty) -> Service:
        """This service, for what is done under a duty: it raises DutyLost once that passed on."""
        held = copy.copy(self)
        held.frontier, held.store = self.frontier.holding(duty), self.store.under(duty)
        return held

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Lease, once for each number; a call that waits is ended by :meth:`end_polls`."""
        self.refusals.note(request)
        poll = gevent.getcurrent()
        self._polls.add(poll)
        try:
            return self._leases.once(request, self.frontier.lease)
        finally:
            self._polls.discard(poll)

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        """Release what the worker does not hold; see ``Frontier.reconcile``."""
        reply = self.frontier.reconcile(request)
        if not reply.superseded:
            self._leases.current(request.worker, request.incarnation)
        return reply

    def end_polls(self) -> None:
        """End every waiting lease with Unavailable, so that its worker asks another broker."""
        for poll in list(self._polls):
            gevent.kill(poll, Unavailable("this broker is stopping"))

    def stats(self, crawl: Crawl) -> CrawlStats:
        """Its counters, and what became of its hook. Raises Unavailable."""
        found = self.frontier.stats(crawl)
        if not crawl.options.hook:
            return found
        refused = self.refusals.of(crawl)
        return replace(
            found,
            hooks=tuple(self.store.hook_counts(crawl.id)),
            refused=refused,
            stuck=self.refusals.stuck(crawl, found, refused),
        )

    def purge(self, crawl: Crawl, host: str = "") -> Purge:
        """Have the crawl, or what waits of a host in it, deleted in the background. Idempotent.

        From now on the crawl is unknown. Raises UnknownCrawl and Unavailable.
        """
        asked = self.store.add_purge(crawl.id, host)
        self.purging.set()
        return asked

    def purges(self) -> list[Purge]:
        """Deletions under way, each with the nodes that it waits for. Raises Unavailable."""
        found = self.store.purges()
        if found:
            self.frontier.ready()  # asks each node: one that nobody has called may be away
        return [replace(one, away=self.away_of(one)) for one in found]

    def away_of(self, purge: Purge) -> tuple[NodeAway, ...]:
        """The nodes that are away and have something to delete: that of its host, or any."""
        away = self.frontier.nodes_away()
        if not purge.host:
            return tuple(away.values())
        node, _ = self.frontier.under(self.frontier.partition_of(purge.host))
        return (away[node],) if node in away else ()

    def stop(self) -> None:
        """Background work is to end; what is not through is for the next broker."""
        self.stopping.set()
        self.purging.set()
