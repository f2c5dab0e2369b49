"""Calls scripts: on many partitions at once, under a duty, and without nodes that are away.

The calls to one node go in one round trip, and all nodes are called at the same time. Before each
call it is checked that the node is the one that the store knows. Afterwards a node that was
restarted is opened again.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import gevent

from greencrawl.broker.frontier.coordination.fence import StoreContact
from greencrawl.broker.frontier.nodes.failures import Fenced, Moved, Restarted
from greencrawl.broker.frontier.nodes.lua_scripts import NO_SIGN
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.schema.errors import DutyLost, GreencrawlError, Unavailable
from greencrawl.schema.records import Duty

BATCH = 128
"""URLs or tasks of a script call: some 10 µs of the server each, so no call stalls it for long."""
FEW = 32
"""Sessions and hosts of a script call, which may bring dozens of tasks each."""
PIPELINED = 512
"""A round trip to a node has at most this many calls."""
NEED_STORE = frozenset({"open", "extend", "maintain", "heartbeat"})
"""Scripts that are not run unless the store answered lately."""


class Guard(Protocol):
    """Opens nodes, and knows which must not be asked."""

    def check(self, node: Node) -> None:
        """Raise Unavailable while the node must not be asked."""

    def reopen(self, node: Node) -> None:
        """Open a node that was restarted. Raises Unavailable."""


class Scripts:
    """Runs scripts for a process, or for the holder of a duty (:meth:`under`)."""

    def __init__(
        self, placement: Placement, guard: Guard, store_contact: StoreContact, *, create: bool
    ) -> None:
        """Build the object; ``create`` is for a broker, which opens nodes; a worker waits until one
        has."""
        self.duty: Duty | None = None
        """Calls have this duty unless they name another."""
        self._placement = placement
        self._node_numbers = placement.identity.placement
        self._nodes = placement.nodes
        self._guard = guard
        self._store_contact = store_contact
        self._create = create

    def under(self, duty: Duty) -> Scripts:
        """Return the same scripts for the holder of a duty: calls raise DutyLost once another
        broker has the duty."""
        held = copy.copy(self)
        held.duty = duty
        return held

    def __call__(
        self,
        script: str,
        calls: dict[int, bytes],
        *,
        partial: bool = False,
        duty: Duty | None = None,
        failed: dict[int, Unavailable] | None = None,
    ) -> dict[int, list[Any]]:
        """Run a script on several partitions: one round trip a node, all nodes at the same time.

        ``partial``: see :class:`greencrawl.broker.frontier.leasing.Calls`; ``failed`` gets the
        reason for each node that was left out. Raises DutyLost if another broker has taken
        ``duty``.
        """
        by_node: dict[int, list[int]] = {}
        for p in calls:
            by_node.setdefault(self._node_numbers[p], []).append(p)

        def ask(index: int) -> dict[int, list[Any]] | Exception:
            on = by_node[index]
            try:
                replies = self.run(self._nodes[index], script, [(p, calls[p]) for p in on], duty)
            except (GreencrawlError, RuntimeError) as error:  # gevent prints what a greenlet raises
                return error
            return dict(zip(on, replies, strict=True))

        if len(by_node) == 1:
            answers = [ask(next(iter(by_node)))]
        else:
            jobs = [gevent.spawn(ask, index) for index in by_node]
            try:
                gevent.joinall(jobs)
            finally:
                gevent.killall(jobs)
            answers = [job.get() for job in jobs]
        found: dict[int, list[Any]] = {}
        errors: dict[int, Exception] = {}
        for index, answer in zip(by_node, answers, strict=True):
            if isinstance(answer, Exception):
                errors[index] = answer
            else:
                found |= answer
        for index, error in errors.items():
            away = isinstance(error, Unavailable) and not isinstance(error, DutyLost)
            if not (partial and away and (found or self._placement.others_serve(by_node))):
                raise error
            if failed is not None and isinstance(error, Unavailable):
                failed[index] = error
        return found

    def run(
        self,
        node: Node,
        script: str,
        calls: list[tuple[int, bytes]],
        duty: Duty | None = None,
    ) -> list[list[Any]]:
        """Run a script on partitions of one node; return replies in their order. See
        :meth:`Node.run`.

        Raises Unavailable, DutyLost.
        """
        self._guard.check(node)
        duty = duty or self.duty
        heartbeat = script not in NO_SIGN
        if heartbeat and self._create:
            if script in NEED_STORE:
                self._fenced(node)
            else:
                heartbeat = self._store_contact.heard()
        try:
            return node.run(script, calls, duty, heartbeat=heartbeat)
        except Moved:  # another broker has reopened it, or it was away at our start
            if self._create and not node.epoch:
                self._guard.reopen(node)
            else:
                node.adopt(node.owner())
            raise
        except Restarted:
            if self._create:
                self._guard.reopen(node)
            else:
                node.adopt(node.owner())
            raise

    def _fenced(self, node: Node) -> None:
        """Raise Unavailable unless the store confirmed lately that this is the node it knows."""
        try:
            node.follow(self._store_contact.epoch(node.id))
        except Fenced:
            self._guard.reopen(node)
            raise
