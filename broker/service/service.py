"""The parts that every handler of the HTTP face uses: the frontier, the store, and what is going
on.

The frontier is seen through :class:`Queue`, which names exactly what the face needs of it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import gevent
import greenlet
from gevent.event import Event
from msgspec.structs import replace

from greencrawl.broker.frontier.admission import Admitted
from greencrawl.broker.frontier.coordination.activity import ActivityEvent
from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.coordination.members import Beats
from greencrawl.broker.frontier.coordination.outages import Outages
from greencrawl.broker.frontier.overflow import PartitionMemory
from greencrawl.broker.frontier.recovery.vitals import NodeVitals
from greencrawl.broker.frontier.scans import Counts
from greencrawl.broker.frontier.scripts.partition import Drain, Drained, Mode
from greencrawl.broker.logs.asking import Loggers
from greencrawl.broker.service.admission_batcher import AdmissionBatcher
from greencrawl.broker.service.hook_refusals import Refusals
from greencrawl.broker.service.lease_dedup import LeaseDedup
from greencrawl.broker.service.members import Members
from greencrawl.broker.service.pages import Reader
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.net.permits import OWN, Permits
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Crawl,
    CrawlStats,
    Due,
    Duty,
    ExtendItem,
    FinishItem,
    HostPatch,
    HostState,
    ItemStatus,
    LeaseReply,
    LeaseRequest,
    MemberReply,
    MemberRequest,
    NodeAway,
    NodeRepair,
    Purge,
    ReconcileReply,
    ReconcileRequest,
    ReleaseItem,
    Stamp,
    UrlState,
)
from greencrawl.schema.text.kernel_rules import own_code
from greencrawl.store.base import Store


class Sums(Protocol):
    """Totals of a crawl over all partitions, read in one scan; ``open`` tasks are still to do."""

    @property
    def open(self) -> int:
        """Tasks still to do: waiting, leased, due later or in the overflow."""

    @property
    def leased(self) -> int:
        """Tasks that some session holds."""

    @property
    def admitted(self) -> int:
        """URLs that were ever queued."""

    @property
    def finished(self) -> int:
        """Tasks that came to an end: stored, dead, excluded or parked."""

    @property
    def stored(self) -> int:
        """Pages in the store."""

    @property
    def bytes(self) -> int:
        """Bytes of the bodies that were stored."""


class Queue(Protocol):
    """The frontier as the HTTP face and the upkeep use it; every call may raise Unavailable."""

    activity: ActivityEvent
    """Set whenever something was admitted or finished, here or by another broker."""

    overflowing: ActivityEvent
    """Set when something waits in the overflow, as far as this process knows."""

    ordering: ActivityEvent
    """Set when another broker was told to order something, or may have been."""

    @property
    def beats(self) -> Beats:
        """What members have told lately."""

    @property
    def outages(self) -> Outages:
        """That the store takes no writes."""

    def holding(self, duty: Duty) -> Queue:
        """This queue for the holder of a duty: its calls raise DutyLost once that passed on."""

    def announce(self, what: bytes, crawls: Collection[int]) -> None:
        """Tell the other brokers ``what`` goes on in crawls; raises nothing.

        See ``greencrawl.broker.frontier.coordination.activity``.
        """

    def fingerprint(self, url: str) -> int:
        """Signed 64-bit fingerprint of a canonical URL."""

    def partition_of(self, host: str) -> int:
        """Number of the partition that a host belongs to."""

    def admit(
        self,
        crawl: int,
        items: Sequence[Admission],
        *,
        mode: Mode = Mode.NEW,
        batch: int = 0,
        stamp: Stamp | None = None,
        partial: bool = False,
    ) -> Admitted:
        """Queue what is new of ``items``: True for each URL that was not seen before.

        Idempotent; with ``Mode.FORCE`` only for a ``batch``, the number of its row.

        ``partial`` leaves out what belongs to nodes that are away, and names it in the answer.
        Raises UnknownCrawl.
        """

    def owed(self) -> bool:
        """Whether a node that answers is being given what it lost."""

    def nodes_away(self) -> Mapping[str, NodeAway]:
        """Node id → since when and why, of Redis nodes that do not answer."""

    def room(self, partition: int, most: int = 50, crawls: Sequence[int] = ()) -> PartitionMemory:
        """Bytes that a partition has room for, and up to ``most`` hosts that need some."""

    def under(self, partition: int) -> tuple[str, int]:
        """(node id, epoch) under which a partition is asked now."""

    def ask_again(
        self, crawl: int, partition: int, rows: Sequence[Due], items: Sequence[Admission]
    ) -> bytes:
        """Queue what is due in a calendar; a flag for each. Idempotent."""

    def refill(self, crawl: int, partition: int, host: str) -> int:
        """Bring tasks of a host back from the overflow; how many came. Idempotent."""

    def watch_memory(self) -> None:
        """Note at each node its budget in bytes, and whether it is near its limit."""

    @property
    def full(self) -> bool:
        """Whether some node is near its memory limit: no seeds are taken meanwhile."""

    def put_crawl(self, crawl: Crawl) -> None:
        """Tell every partition of a crawl; nodes that are away are owed it."""

    def drop_crawl(self, crawl: int) -> None:
        """Delete all that Redis has of a crawl, in bounded steps."""

    def drain(self, crawl: int, host: str, gone: Drain, at: int) -> Drained:
        """Let go of tasks of a host that were settled, and name the next. Raises UnknownCrawl."""

    def stop_leasing(self, crawl: Crawl) -> None:
        """No further session for a crawl, at any broker."""

    def shut(self, crawl: Crawl) -> None:
        """Take nothing in for a crawl any more; something new reopens it in the store."""

    def count(self, crawls: Sequence[Crawl]) -> Counts | None:
        """Counters of some dozens of crawls, for :meth:`look`; None if not every node answered."""

    def look(
        self, crawl: Crawl, counts: Counts | None = None
    ) -> tuple[Sums, frozenset[str]] | None:
        """Totals of a crawl, and the states that partitions have it in; None if that is void.

        It is void while a node does not answer or is owed something, and when a partition has the
        crawl at another version. ``counts`` are those that :meth:`count` has just found.
        """

    def stilled(self, within: float) -> tuple[Mapping[int, float], bool]:
        """Crawl → seconds since its last lease somewhere ended, if ``within`` so many; whether all
        nodes answered.
        """

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Open sessions, waiting up to ``request.wait`` seconds for the first."""

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        """Release what a worker does not hold; the answer names nodes that could not be asked."""

    def extend(self, items: Sequence[ExtendItem], ttl: float) -> list[ItemStatus]:
        """Keep sessions for another ``ttl`` seconds; a status for each."""

    def close_sessions(self, items: Sequence[CloseItem]) -> list[ItemStatus]:
        """Free hosts, and keep what was learnt of them; a status for each session."""

    def finish(self, items: Sequence[FinishItem]) -> list[ItemStatus]:
        """Settle tasks under their session's token; a status for each."""

    def release(self, items: Sequence[ReleaseItem]) -> list[ItemStatus]:
        """Hand back tasks that were not fetched, uncharged; a status for each session."""

    def stats(self, crawl: Crawl, counts: Counts | None = None) -> CrawlStats:
        """Counters of a crawl, as far as nodes answer; ``counts`` are what :meth:`count` found."""

    def stats_of(self, crawls: Sequence[Crawl]) -> list[CrawlStats]:
        """The same of some dozens of crawls at most; it costs little more."""

    def host(self, host: str) -> HostState:
        """What is known of a host, by its canonical name."""

    def patch_host(self, host: str, patch: HostPatch) -> HostState:
        """Set a host's least delay, or block it, in seconds; 0 lifts either."""

    def slowest(self, limit: int = 5) -> list[HostState]:
        """Hosts of recent sessions at this broker, the longest latency first."""

    def resting(self) -> tuple[int, float]:
        """(hosts that rest since a worker's process died, seconds until the last may go on)."""

    def workers(self) -> tuple[int, tuple[str, ...]]:
        """(worker processes at work, names that two of them claim)."""

    def where(self, crawl: Crawl, url: str) -> UrlState:
        """Where a canonical URL stands in Redis."""

    def tick(self, stamp: Stamp) -> None:
        """Write the store's clock to every node that answers. Raises DutyLost."""

    def repair(self, everything: bool) -> None:
        """Begin to give nodes what the replay log holds since their ticks, or all of it."""

    def repairs(self) -> list[NodeRepair]:
        """How far each node is refilled by this process."""

    def ready(self) -> str | None:
        """Why nothing can be served now, or None. Raises nothing."""

    @property
    def lease_calls_waiting(self) -> int:
        """Calls of workers that wait for a session at this process."""

    def vitals(self) -> list[NodeVitals]:
        """How each Redis node is. Raises nothing."""


class Service:
    """One broker process: its frontier and store, and what is going on in it."""

    def __init__(
        self,
        frontier: Queue,
        store: Store,
        clock: Clock = monotonic,
        *,
        duties: Duties | None = None,
        permits: Permits = OWN,
    ) -> None:
        self.permits = permits
        self.frontier = frontier
        self.store = store
        self.duties = duties or Duties(store)
        self.clock = clock
        self.admissions = AdmissionBatcher(partial(frontier.admit, partial=True))
        self.reader = Reader(store)
        self.stopping = Event()
        self.purging = Event()
        """Set whenever something was asked to be deleted here."""
        self.admitting: set[int] = set()
        """Seed batches that a request is admitting right now."""
        self.refusals = Refusals(store, clock)
        self.members = Members(store, frontier.beats, frontier.ordering, frontier.announce, clock)
        self.loggers = Loggers(lambda: store.members(), clock=clock)
        self.members.loggers = self.loggers.of
        self._leases = LeaseDedup(clock)
        self._polls: set[greenlet.greenlet] = set()

    def holding(self, duty: Duty) -> Service:
        """This service, for what is done under a duty: it raises DutyLost once that passed on."""
        held = copy.copy(self)
        held.frontier, held.store = self.frontier.holding(duty), self.store.under(duty)
        return held

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Lease, once for each number; a call that waits is ended by :meth:`end_polls`."""
        self.refusals.note(request)
        with self._poll():
            return self._leases.once(request, self.frontier.lease)

    def follow(self, request: MemberRequest) -> MemberReply:
        """Hear of a member, and tell it its orders; ended as a lease by :meth:`end_polls`."""
        with self._poll():
            return self.members.follow(request)

    @contextmanager
    def _poll(self) -> Iterator[None]:
        """The caller may wait for long in the block."""
        poll = gevent.getcurrent()
        self._polls.add(poll)
        try:
            yield
        finally:
            self._polls.discard(poll)

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        """Release what a worker's process does not hold; see ``Frontier.reconcile``."""
        reply = self.frontier.reconcile(request)
        if not reply.superseded:
            self._leases.current(request.worker, request.incarnation)
        return reply

    def end_polls(self) -> None:
        """End all that wait with Unavailable, so that their workers ask another broker."""
        for poll in list(self._polls):
            gevent.kill(poll, Unavailable("this broker is stopping"))

    def stats(self, crawl: Crawl) -> CrawlStats:
        """Its counters, its period and rounds, and what became of its hook. Raises Unavailable."""
        found = replace(
            self.frontier.stats(crawl),
            period=next(iter(self.store.periods(crawl.id, 1)), None),
            rounds=tuple(one for one in self.store.rounds(crawl.id) if not one.ended_ms),
        )
        return self.with_hook(crawl, found)

    def with_hook(self, crawl: Crawl, found: CrawlStats) -> CrawlStats:
        """Its counters, and what became of its hook. Raises Unavailable."""
        if not own_code(crawl.options):
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
