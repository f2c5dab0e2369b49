"""Opens a node: of a new frontier, after a clean stop, or after Redis came back otherwise.

If a server runs under another run_id than its owner record has, it may have lost its last writes.
First the epoch of the node is raised in the store. So every later commit knows that an older server
of this node does not count any more, and the replay reads all that was committed before. Then the
node is claimed under that epoch. It gets what the replay log holds since MARGIN before its *tick*:
this is a value of the store's clock that the node kept. A node without a tick gets all
(``greencrawl.broker.frontier.recovery.replay``).

During this the node is *owed*: admitting and finishing go on, but no session opens, no scan counts,
and no tick is written. So a replay that is cut short starts again at the same place. If no broker
has worked on the replay for a while, another broker continues it. Sessions that the node forgot may
still be fetching: it opens no new one until the longest lease and the longest request are over.

A tick ahead of the store's clock means that the store lost data. Such a node is refused until a
person runs ``greencrawl repair --all``, which empties the node and gives it what the store still
holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import gevent

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.failures import Fenced
from greencrawl.broker.frontier.nodes.memory import Memory
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.nodes.ring import close_outdated, outdated, settle
from greencrawl.broker.frontier.recovery.job import Job
from greencrawl.broker.frontier.recovery.owner import (
    claim,
    close_to_empty,
    hold,
)
from greencrawl.broker.frontier.recovery.replay import Parts
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import FrontierMismatch, InvalidConfig, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import NodeAway, NodeRepair, Stamp
from greencrawl.store.base import Store

log = logger("recovery")

FENCED_SECONDS = 30.0
"""How long a raised epoch may stay without a node that was claimed under it."""
START_SECONDS = 10.0
"""How long a starting broker tries again while others work on its nodes."""
LOOK_SECONDS = 5.0
"""Seconds between two checks of a node that is refused."""


def settled(node: Node, call: Callable[[], None]) -> None:
    """Repeat a call that other starting brokers have interrupted.

    Raises Unavailable: at once if the node does not answer, otherwise after some seconds of
    attempts.
    """
    limit = monotonic() + START_SECONDS
    while True:
        try:
            return call()
        except (StoreLostData, Fenced):
            raise
        except Unavailable as error:
            if node.breaker.since_ms or monotonic() > limit:
                raise
            log.info("opening_repeated", node=node.shown, reason=str(error))
        gevent.sleep(random.uniform(0.05, 0.2))


class StoreLostData(Unavailable):
    """Raised when a node's tick is ahead of the replay log: the store lost data."""


class Recovery:
    """The opening and refilling of one broker's nodes."""

    def __init__(
        self,
        placement: Placement,
        store: Store,
        memory: Memory,
        parts: Callable[[], Parts],
        rest_ms: int,
        gap_ms: int,
    ) -> None:
        """Build the object; ``gap_ms`` is the longest pause between two calls that is no outage.

        ``parts`` is called when a replay begins. It returns parts that are made after this object,
        since this object guards their calls.
        """
        self._placement = placement
        self._store = store
        self._memory = memory
        self._parts = parts
        self.rest_ms = rest_ms
        """How long a node may not open sessions after it was taken over."""
        self._gap_ms = gap_ms
        self._jobs: dict[str, Job] = {}
        self._opening: set[str] = set()
        self._fenced: dict[str, float] = {}
        self._looked = 0.0
        self.refused: dict[str, str] = {}
        """Node → why it must not be asked."""

    # -- opening

    def meet(self, node: Node) -> None:
        """Open a node at the start of a broker; a person may have to repair something first.

        Raises Unavailable; InvalidConfig if the server would evict keys; FrontierMismatch if
        another server has this address now.
        """
        try:
            settled(node, lambda: self._open(node))
        except (StoreLostData, Fenced) as error:
            log.warning("node_refused", node=node.shown, reason=str(error))

    def reopen(self, node: Node) -> None:
        """Open a node that was restarted, or continue a replay that was cut short.

        Raises Unavailable, also if a person has to repair something first.
        """
        try:
            self._open(node)
        except (InvalidConfig, FrontierMismatch) as error:
            raise Unavailable(str(error)) from error

    def check(self, node: Node) -> None:
        """Raise Unavailable while a node is refused; check now and then whether it still is."""
        if node.id in self.refused:
            if monotonic() - self._looked > LOOK_SECONDS:
                self._looked = monotonic()
                self.reopen(node)
            if node.id in self.refused:
                raise Unavailable(self.refused[node.id])

    def closed(self, node: Node) -> bool:
        """Return whether a node must not be asked yet: it is refused, or being emptied."""
        job = self._jobs.get(node.id)
        return node.id in self.refused or (job is not None and job.running and job.emptying)

    def compare(self, node: Node, stamp: Stamp) -> None:
        """Compare a node with the store's clock and the epochs just read. Raises Unavailable."""
        if node.tick > stamp.clock:
            self._refuse_older_store(node, node.owner())  # this order matters
        try:
            node.follow(stamp.epochs.get(node.id, 0))
        except Fenced:
            self.reopen(node)

    def compare_all(self, stamp: Stamp) -> None:
        """:meth:`compare` each node with what the store has just returned. Raises nothing."""
        for node in self._placement.nodes:
            try:
                self.compare(node, stamp)
            except Unavailable as error:
                log.info("node_not_compared", node=node.shown, reason=str(error))

    def nodes_away(self) -> dict[str, NodeAway]:
        """Return by their ids the nodes that do not answer, or that must not be asked."""
        found = {}
        for node in self._placement.nodes:
            if node.breaker.since_ms:
                found[node.id] = NodeAway(node.shown, node.breaker.since_ms, node.breaker.why)
            elif why := self.refused.get(node.id):
                found[node.id] = NodeAway(node.shown, 0, why)
        return found

    @contextmanager
    def _exclusively(self, node: Node) -> Iterator[None]:
        if node.id in self._opening:
            raise Unavailable(f"Redis at {node.shown} is being opened")
        self._opening.add(node.id)
        try:
            yield
        finally:
            self._opening.discard(node.id)

    def _await_turn(self, node: Node) -> None:
        limit = monotonic() + LOOK_SECONDS
        while node.id in self._opening and monotonic() < limit:
            gevent.sleep(0.02)

    def _open(self, node: Node) -> None:
        with self._exclusively(node):
            _refuse_eviction(node)
            run = node.run_id()
            owner = self._owner(node)
            self._refuse_older_store(node, owner)
            epoch = self._store.clock().epochs.get(node.id, 0)
            owner = self._owner(node)  # read again: a broker that claims it raises the epoch first
            if owner["run"] == run and owner["state"] in ("open", "emptying"):
                if int(owner["epoch"]) < epoch:
                    self._refuse_fenced(node, epoch)
                elif owner["state"] == "open":
                    self._take(node)
                    if node.id not in self._jobs or not self._jobs[node.id].running:
                        self._go_on(node, owner, run)
                    return
            self._refuse_emptied(node, owner)
            how = self._claim(node, run, epoch, max(epoch, int(owner["epoch"])) + 1)
            self._take(node)
            log.info("node_opened", node=node.shown, after=how, epoch=node.epoch)
            if how not in ("clean", "taken"):
                self._start(Job(node, run, emptying=how == "emptying"))

    def _owner(self, node: Node) -> dict[str, str]:
        identity = self._placement.identity
        owner = node.owner() or settle(node, identity.id, node.id, "lost")
        if owner.get("frontier") != identity.id or owner.get("id") != node.id:
            raise FrontierMismatch(f"Redis at {node.shown} is not the node that stood there before")
        if outdated(owner):  # after an upgrade, or if the server was restored to a state before it
            log.warning("layout_outdated", node=node.shown, layout=owner.get("layout", "1"))
            close_outdated(node)
            owner = node.owner()
        return owner

    def _take(self, node: Node) -> None:
        node.adopt(node.owner())
        self.refused.pop(node.id, None)
        self._fenced.pop(node.id, None)

    def _refuse_older_store(self, node: Node, owner: dict[str, str]) -> None:
        """Refuse a node whose tick is ahead of the store's clock.

        The owner record was read before the clock, so its tick is ahead only if the store lost
        data.
        """
        tick, clock = int(owner["tick"]), self._store.clock().clock
        if tick > clock:
            why = (
                f"the store has lost what Redis at {node.shown} has seen of it (clock {clock}, "
                f"tick {tick}): was an older copy restored? Give the right store, or go on with "
                "this one by `greencrawl repair --all`"
            )
            self.refused[node.id] = why
            raise StoreLostData(why)

    def _refuse_emptied(self, node: Node, owner: dict[str, str]) -> None:
        """Leave a node to the broker that empties it: its epoch must not be raised meanwhile."""
        if owner["state"] == "emptying" and float(owner.get("owed", 0)) > node.now_ms():
            why = f"another broker is emptying Redis at {node.shown}"
            self.refused[node.id] = why
            raise Fenced(why)

    def _refuse_fenced(self, node: Node, epoch: int) -> None:
        """Leave a node for a while to the broker that raised the epoch to claim it."""
        if monotonic() - self._fenced.setdefault(node.id, monotonic()) < FENCED_SECONDS:
            why = f"Redis at {node.shown} is not the one of epoch {epoch} (yet)"
            self.refused[node.id] = why
            raise Fenced(why)

    def _claim(self, node: Node, run: str, known: int, epoch: int) -> str:
        if not self._store.raise_epoch(node.id, known, epoch):
            raise Unavailable(f"another broker is opening Redis at {node.shown}")
        partitions = self._placement.identity.partitions
        how = claim(node, run, epoch, known, self.rest_ms, self._gap_ms, partitions)
        if how in ("moved", "busy"):
            raise Unavailable(f"another broker is at Redis at {node.shown}")
        return how

    def _go_on(self, node: Node, owner: dict[str, str], run: str) -> None:
        """Take over a replay that no broker has worked on for a while."""
        if "owed" in owner and float(owner["owed"]) <= node.now_ms():
            self._start(Job(node, run))

    # -- on demand

    def repair(self, node: Node, everything: bool) -> None:
        """Begin a replay of the window, or of everything, unless such a replay is under way.

        A node that is ahead of the store is emptied first, if everything is asked for. Raises
        Unavailable, StoreLostData, InvalidConfig, FrontierMismatch.
        """
        owner = self._owner(node)
        stamp = self._store.clock()
        self._await_turn(node)
        if int(owner["tick"]) > stamp.clock and everything:
            with self._exclusively(node):
                self._begin_emptying(node, owner, stamp)
            return
        self._open(node)
        job = self._jobs.get(node.id)
        if job is not None and job.running:
            if job.everything or not everything:
                return
            job.greenlet.kill()  # type: ignore[union-attr]
        job = Job(node, node.run_id())
        if not hold(node, job.run, job.epoch, everything=everything):
            raise Unavailable(f"Redis at {node.shown} was restarted")
        self._start(job)

    def _begin_emptying(self, node: Node, owner: dict[str, str], stamp: Stamp) -> None:
        known, run = stamp.epochs.get(node.id, 0), node.run_id()
        epoch = max(known, int(owner["epoch"])) + 1
        if not self._store.raise_epoch(node.id, known, epoch):
            raise Unavailable(f"another broker is opening Redis at {node.shown}")
        if not close_to_empty(node, run, epoch, self.rest_ms):
            raise Unavailable(f"another broker is at Redis at {node.shown}")
        self._take(node)
        self._start(Job(node, run, emptying=True))

    def repair_all(self, everything: bool) -> None:
        """Give the nodes again what the replay log holds since their ticks, or all of it.

        It goes on in the background; see :meth:`report_all`. Raises Unavailable after the others if
        it could not begin at a node.
        """
        failed: Unavailable | None = None
        for node in self._placement.nodes:
            try:
                self.repair(node, everything)
            except Unavailable as error:
                failed = error
        if failed is not None:
            raise failed

    def report_all(self) -> list[NodeRepair]:
        """Return what this process does or did to refill each node."""
        return [self.report(node) for node in self._placement.nodes]

    def report(self, node: Node) -> NodeRepair:
        """Return the state of a node. Raises nothing."""
        if node.id in self.refused:
            return NodeRepair(node=node.shown, phase="none", detail=self.refused[node.id])
        job = self._jobs.get(node.id)
        if job is not None and job.phase != "done":
            return job.report()
        try:
            if node.command("HEXISTS", keys.OWNER, "owed"):
                return NodeRepair(node=node.shown, phase="elsewhere")
        except Unavailable as error:
            return NodeRepair(node=node.shown, phase="none", detail=str(error))
        return job.report() if job is not None else NodeRepair(node=node.shown, phase="none")

    def owed(self) -> bool:
        """Return whether a replay of a node that answers is under way, at any broker.

        Raises nothing.
        """
        phases = {self.report(node).phase for node in self._placement.nodes}
        return not phases <= {"none", "done"}

    def stop(self) -> None:
        """End what is under way; the next broker starts it again."""
        for job in self._jobs.values():
            running = job.running
            if job.greenlet is not None:
                job.greenlet.kill()
            if running:
                with suppress(Unavailable):
                    job.hold(0)

    # -- the replay

    def _start(self, job: Job) -> None:
        """Refill in the background, unless there is nothing yet."""
        self._jobs[job.node.id] = job
        if not job.emptying and not self._store.crawls():
            job.hold("done")
            job.phase = "done"
            return
        job.greenlet = gevent.spawn(job.refill, self._store, self._memory, self._parts)


def _refuse_eviction(node: Node) -> None:
    policy = node.command("CONFIG", "GET", "maxmemory-policy")
    if policy and policy[1] != b"noeviction":
        raise InvalidConfig(
            [
                (
                    "GREENCRAWL_REDIS",
                    f"{node.shown} evicts keys by {policy[1].decode()}: "
                    "set its maxmemory-policy to noeviction",
                )
            ]
        )
