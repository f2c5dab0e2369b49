"""Parts that all handlers of the HTTP API share: the frontier, the store, and running work."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import gevent
import greenlet
from gevent.event import Event
from msgspec.structs import replace

from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.frontier import Frontier
from greencrawl.broker.loggers import Loggers
from greencrawl.broker.service.admission_batcher import AdmissionBatcher
from greencrawl.broker.service.hook_refusals import Refusals
from greencrawl.broker.service.lease_dedup import LeaseDedup
from greencrawl.broker.service.members import Members
from greencrawl.broker.service.pages import Reader
from greencrawl.broker.service.shared.stored_counts import StoredCounts
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.net.permits import OWN, Permits
from greencrawl.schema.records import (
    Crawl,
    CrawlStats,
    Duty,
    LeaseReply,
    LeaseRequest,
    MemberReply,
    MemberRequest,
    NodeAway,
    Purge,
    ReconcileReply,
    ReconcileRequest,
)
from greencrawl.schema.text.kernel_rules import own_code
from greencrawl.store.base import Store
from greencrawl.store.steward import Ring


class Service:
    """One broker process: its frontier and store, and its work under way."""

    def __init__(
        self,
        frontier: Frontier,
        store: Store,
        clock: Clock = monotonic,
        *,
        duties: Duties | None = None,
        permits: Permits = OWN,
        ring: Callable[[], Ring | None] = lambda: None,
    ) -> None:
        """Build the object; ``ring`` returns the state of the store's servers, if it is a ring of
        masters."""
        self.permits = permits
        self.ring = ring
        self.frontier = frontier
        self.store = store
        self.duties = duties or Duties(store)
        self.clock = clock
        self.admissions = AdmissionBatcher(partial(frontier.admit, partial=True))
        self.reader = Reader(store)
        self.stopping = Event()
        self.purging = Event()
        """Set when a deletion was asked for here."""
        self.admitting: set[int] = set()
        """Seed batches that a request is admitting now."""
        self.refusals = Refusals(store, clock)
        self.members = Members(store, frontier.beats, frontier.ordering, frontier.announce, clock)
        self.loggers = Loggers(lambda: store.members(), clock=clock)
        self.members.loggers = self.loggers.of
        self._leases = LeaseDedup(clock)
        self.stored_counts = StoredCounts(store, clock)
        self._polls: set[greenlet.greenlet] = set()

    def holding(self, duty: Duty) -> Service:
        """Return this service for work under a duty: it raises DutyLost once another broker has the
        duty."""
        held = copy.copy(self)
        held.frontier, held.store = self.frontier.holding(duty), self.store.under(duty)
        return held

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Lease, once for each number; :meth:`end_polls` ends a waiting call."""
        self.refusals.note(request)
        with self._poll():
            return self._leases.once(request, self.frontier.lease)

    def follow(self, request: MemberRequest) -> MemberReply:
        """Note a member's report, and return its orders; :meth:`end_polls` ends a waiting call."""
        with self._poll():
            return self.members.follow(request)

    @contextmanager
    def _poll(self) -> Iterator[None]:
        """Register a call that may wait for long in the block."""
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
        """End all waiting calls with Unavailable, so that their workers ask another broker."""
        for poll in list(self._polls):
            gevent.kill(poll, Unavailable("this broker is stopping"))

    def stats(self, crawl: Crawl) -> CrawlStats:
        """Return a crawl's counters, its period and rounds, and the state of its hook.

        Raises Unavailable.
        """
        found = replace(
            self.stored_counts.of(crawl, self.frontier.stats(crawl)),
            period=next(iter(self.store.periods(crawl.id, 1)), None),
            rounds=tuple(one for one in self.store.rounds(crawl.id) if not one.ended_ms),
        )
        return self.with_hook(crawl, found)

    def counters(self, crawls: Sequence[Crawl]) -> list[CrawlStats]:
        """Return counters of some dozens of crawls at most, and which of them are stuck.

        Periods, rounds and failures of hooks are left out. Raises Unavailable.
        """
        found = self.frontier.stats_of(crawls) if crawls else []
        pairs = zip(crawls, found, strict=True)
        return [self._with_stuck(crawl, self.stored_counts.of(crawl, one)) for crawl, one in pairs]

    def _with_stuck(self, crawl: Crawl, found: CrawlStats) -> CrawlStats:
        if crawl.state != "active" or not own_code(crawl.options):
            return found
        refused = self.refusals.of(crawl)
        return replace(found, stuck=self.refusals.stuck(crawl, found, refused))

    def with_hook(self, crawl: Crawl, found: CrawlStats) -> CrawlStats:
        """Return a crawl's counters with the state of its hook. Raises Unavailable."""
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
        """Delete the crawl, or what waits of a host in it, in the background. Idempotent.

        A deleted crawl is unknown from now on. Raises UnknownCrawl and Unavailable.
        """
        asked = self.store.add_purge(crawl.id, host)
        self.purging.set()
        return asked

    def purges(self) -> list[Purge]:
        """Return the deletions under way, each with the nodes that it waits for.

        Raises Unavailable.
        """
        found = self.store.purges()
        if found:
            self.frontier.ready()  # this asks each node: one that nobody has called may be away
        return [replace(one, away=self.away_of(one)) for one in found]

    def away_of(self, purge: Purge) -> tuple[NodeAway, ...]:
        """Return the nodes that are away and have something to delete; for a host only its own
        node."""
        away = self.frontier.nodes_away()
        if not purge.host:
            return tuple(away.values())
        node, _ = self.frontier.under(self.frontier.partition_of(purge.host))
        return (away[node],) if node in away else ()

    def stop(self) -> None:
        """Tell background work to end; the next broker continues what is not complete."""
        self.stopping.set()
        self.purging.set()
