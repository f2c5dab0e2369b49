"""The frontier: what waits to be fetched, and who holds which host.

Workers use :meth:`Frontier.admit` and the robots cache directly; leasing, finishing and seeding go
through the broker, which calls the rest. Every method raises Unavailable when Redis is away or
closed. Calling again loses nothing: scripts are idempotent under their fingerprints and tokens.

Its parts do the work, one module each; this module connects them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gevent

from greencrawl.broker.frontier.addresses import Addresses
from greencrawl.broker.frontier.admission import Admitting, Spill
from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.coordination.activity import (
    ACTIVITY,
    ORDERS,
    OVERFLOW,
    ActivityEvent,
    announce,
)
from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.coordination.fence import CONTACT_SECONDS, StoreContact
from greencrawl.broker.frontier.coordination.members import MemberBeats
from greencrawl.broker.frontier.coordination.outages import StoreOutages
from greencrawl.broker.frontier.coordination.quotas import Quotas
from greencrawl.broker.frontier.coordination.wake_ups import WakeUps
from greencrawl.broker.frontier.coordination.workers import WorkerRegistry
from greencrawl.broker.frontier.crawls import Crawls, KnownCrawls
from greencrawl.broker.frontier.hosts import Hosts
from greencrawl.broker.frontier.leasing import MAINTAIN_MOST, Leasing
from greencrawl.broker.frontier.logins import Logins
from greencrawl.broker.frontier.nodes import memory
from greencrawl.broker.frontier.nodes.memory import Memory
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.nodes.ring import assemble
from greencrawl.broker.frontier.overflow import Refilling
from greencrawl.broker.frontier.recovery.debts import Debts
from greencrawl.broker.frontier.recovery.opening import Recovery, settled
from greencrawl.broker.frontier.recovery.owner import mark_clean
from greencrawl.broker.frontier.recovery.replay import Parts
from greencrawl.broker.frontier.recovery.vitals import NodeVitals, look, near_limit
from greencrawl.broker.frontier.robots import Robots
from greencrawl.broker.frontier.scans import Scans
from greencrawl.broker.frontier.scripts.calls import Scripts
from greencrawl.broker.frontier.sessions import Sessions, Slowest
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Duty, NodeFull, Stamp
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store


class Frontier:
    """One process's view of the frontier on one or several Redis nodes.

    ``create`` is for brokers: it makes the frontier if there is none, and reopens nodes that were
    restarted. A worker joins an existing frontier. Raises FrontierMismatch, Unavailable.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        store: Store,
        *,
        partitions: int = 64,
        lease_seconds: float = 60.0,
        request_seconds: float = 60.0,
        host_bytes: int = memory.HOST_BYTES,
        create: bool = False,
        duties: Duties | None = None,
        contact_seconds: float = CONTACT_SECONDS,
    ) -> None:
        """Open the frontier. ``duties`` (by default its own) start and stop with it."""
        self._create = create
        self._request_ms = round(request_seconds * 1000)
        self.duties = duties or Duties(store)
        nodes = [Node(address) for address in addresses]
        self.identity, self.nodes = assemble(nodes, store, partitions, create=create)
        self._placement = placement = Placement(self.identity, self.nodes)
        self.activity = ActivityEvent()
        """Set when something was admitted, leased or finished, here or by another broker."""
        self.overflowing = ActivityEvent()
        """Set when something waits in the overflow, as far as this process knows."""
        self.ordering = ActivityEvent()
        """Set when another broker received orders, or may have."""
        self.announce = partial(announce, self.nodes)
        self.beats = MemberBeats(self.nodes)
        self.outages = StoreOutages(self.nodes)
        self._memory = Memory(placement, host_bytes)
        self._store_contact = StoreContact(
            store.clock, lambda stamp: self.recovery.compare_all(stamp), contact_seconds
        )
        lease_ms = round(lease_seconds * 1000)
        self.recovery = Recovery(
            placement,
            store,
            self._memory,
            lambda: self.parts,
            rest_ms=lease_ms + self._request_ms + self._store_contact.margin_ms,
            gap_ms=round(min(15.0, lease_seconds / 2) * 1000),
        )
        calls = Scripts(placement, self.recovery, self._store_contact, create=create)
        self._known = KnownCrawls(store)
        self._slowest = Slowest(placement)
        self.worker_registry = WorkerRegistry(self.nodes)
        self.leasing = Leasing(
            calls,
            placement.now_ms,
            self._known.get,
            lambda crawl: self._wake_ups.opened(crawl),
            request_seconds,
            placement.left_out,
        )
        self._quotas = Quotas(calls, store, self.duties, placement.partitions)
        self._wake_ups = WakeUps(
            calls,
            calls.run,
            self.leasing,
            store,
            self.nodes,
            self.recovery.reopen,
            self._quotas.want,
            self.duties,
            {ACTIVITY: self.activity, OVERFLOW: self.overflowing, ORDERS: self.ordering},
        )
        self._put_together(calls, store)
        self._debts = Debts(self.parts, store, self.duties, self.recovery.nodes_away, self.activity)
        self._greenlets: list[gevent.Greenlet[..., Any]] = []
        if create:
            self._meet()

    def _put_together(self, calls: Scripts, store: Store) -> None:
        """Connect the parts that call scripts and write to the store."""
        self._calls, self._store = calls, store
        placement, leasing, activity = self._placement, self.leasing, self.activity
        self.partitions = placement.partitions
        self.partitions_on = placement.partitions_on
        self.partition_of = placement.partition_of
        self.fingerprint = placement.fingerprint
        self.under = placement.under
        self.away_of, self.nodes_of = placement.away_of, placement.nodes_of

        crawls = Crawls(calls, placement, store, leasing, self._quotas, self._known, activity)
        self.put_crawl, self.drop_crawl = crawls.put_crawl, crawls.drop_crawl
        self.tell, self.tell_node, self.shut = crawls.tell, crawls.tell_node, crawls.shut
        self.stop_leasing, self.known_crawls = crawls.stop_leasing, crawls.known_crawls

        spill = Spill(calls, placement, store, crawls, self.overflowing)
        note = leasing.note if self._create else None
        admitting = Admitting(calls, placement, crawls, spill, activity, note)
        self.admit = admitting.admit
        refilling = Refilling(calls, placement, store, admitting, activity)
        self.partition_memory, self.refill = refilling.partition_memory, refilling.refill
        self.drain, self.ask_again = refilling.drain, refilling.ask_again

        sessions = Sessions(
            calls, placement, store, leasing, self.worker_registry, self._store_contact,
            self._slowest, activity, self._request_ms,
        )  # fmt: skip
        self.lease, self.reconcile = sessions.lease, sessions.reconcile
        self.extend, self.finish = sessions.extend, sessions.finish
        self.close_sessions, self.release = sessions.close_sessions, sessions.release
        self.workers, self.slowest = self.worker_registry.summary, self._slowest.slowest

        hosts = Hosts(calls, placement, store)
        self.host, self.patch_host = hosts.host, hosts.patch_host
        self.find_url, self.resting = hosts.find_url, hosts.resting

        reopen = self.recovery.reopen if self._create else None
        scans = Scans(
            calls, placement, store, crawls, self._wake_ups, self._quotas, self.duties,
            self.overflowing, reopen,
        )  # fmt: skip
        self.count, self.look, self.scan = scans.count, scans.look, scans.scan
        self.idle_crawls, self.ready = scans.idle_crawls, scans.ready
        self.stats, self.stats_of = scans.stats, scans.stats_of

        self.shares = Addresses(calls, placement).shares
        robots, logins = Robots(calls, placement), Logins(calls, placement)
        self.robots_get, self.robots_put = robots.robots_get, robots.robots_put
        self.login_get, self.login_claim = logins.login_get, logins.login_claim
        self.login_put, self.login_drop = logins.login_put, logins.login_drop
        self.errand_put, self.errand_take = logins.errand_put, logins.errand_take
        self.errand_answer, self.errand_answered = logins.errand_answer, logins.errand_answered
        self.errand_withdraw, self.errand_drop = logins.errand_withdraw, logins.errand_drop

        self.nodes_away = self.recovery.nodes_away
        self.repair, self.repairs = self.recovery.repair_all, self.recovery.report_all
        self.owed = self.recovery.owed
        self.parts = Parts(placement, crawls, spill, admitting, hosts)
        """The parts that a replay uses to give a node what it lacks."""

    def _meet(self) -> None:
        """Open the nodes; some may be away while others serve."""
        for node in self.nodes:
            self.duties.want(names.clock(node.id))
            node.clock.duty = partial(self.duties.take, names.clock(node.id))
            node.clock.may_set = True
            try:
                self.recovery.meet(node)
            except Unavailable:
                if not self._placement.spared(node):
                    raise
        self.watch_memory()

    # -- duties

    def holding(self, duty: Duty) -> Frontier:
        """Return this frontier for the holder of a duty: its calls raise DutyLost once another
        broker has the duty."""
        held = copy.copy(self)
        held._put_together(self._calls.under(duty), self._store.under(duty))
        return held

    # -- memory

    def watch_memory(self) -> None:
        """Write each node's budget into its owner record, and whether it is near its limit."""
        self._memory.watch(self._calls.duty)

    @property
    def full(self) -> bool:
        """Return whether some node is near its memory limit: then no further seeds are taken."""
        return self._memory.full

    def nodes_full(self) -> tuple[NodeFull, ...]:
        """Return the nodes near their limit; nodes are asked only if one is. Raises nothing."""
        return near_limit(self.vitals()) if self.full else ()

    # -- life

    def start(self) -> None:
        """Begin leasing: tell nodes of the crawls, look at all partitions, listen for wake-ups."""
        self.duties.start()
        self._debts.start()
        for node in self.nodes:
            if self.recovery.closed(node):  # a replay gives it the crawls
                continue
            try:
                settled(node, partial(self._begin, node))
            except Unavailable:
                if not self._placement.spared(node):
                    raise
        self._greenlets = [gevent.spawn(self.leasing.run), gevent.spawn(self._quotas.run)]
        for node in self.nodes:
            self._greenlets += [
                gevent.spawn(self._wake_ups.listen, node, self.partitions_on(node)),
                gevent.spawn(self._wake_ups.heartbeats, node, self.partitions_on(node)),
            ]

    def _begin(self, node: Node) -> None:
        """Tell a node of the crawls, and read what is due there."""
        for crawl in self._store.crawls():
            self.tell(crawl, node)
        calls = dict.fromkeys(self.partitions_on(node), to_msgpack([MAINTAIN_MOST]))
        for p, (_, _, _, maintain_at) in self._calls("maintain", calls).items():
            self.leasing.note(p, 0, maintain_at)

    def stop(self, *, clean: bool = False) -> None:
        """End. ``clean``: this process is about to shut Redis down, which is noted there."""
        gevent.killall(self._greenlets)
        self._store_contact.stop()
        self.recovery.stop()
        self._debts.stop()
        self.duties.stop()
        for node in self.nodes:
            if clean:
                with suppress(Unavailable):  # then the node has no such note
                    mark_clean(node)
            node.breaker.stop()
            node.close()

    def tick(self, stamp: Stamp) -> None:
        """Write the store's clock, just read, to every node as its tick, and follow the epochs.

        A node that does not answer is left out. Raises DutyLost, Unavailable.
        """
        debts = self._store.debts()  # read after the clock: a new debt begins there or later
        for node in self.nodes:
            on, debt = self.partitions_on(node), debts.get(node.id)
            self._wake_ups.tick(node, on, stamp, debt, self.recovery.compare, self._calls.duty)

    @property
    def lease_calls_waiting(self) -> int:
        """Return how many calls of workers wait here for a session."""
        return self.leasing.waiting

    def vitals(self) -> list[NodeVitals]:
        """Return the state of each Redis node; asks those that answer. Raises nothing."""
        return [look(node, self.recovery) for node in self.nodes]
