"""One replay of a node: its window, and its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.memory import Memory
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.recovery import debts, owner
from greencrawl.broker.frontier.recovery.replay import Parts, Replay
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import NodeRepair
from greencrawl.store.base import MARGIN, Store

log = logger("recovery")

SAY_SECONDS = 5.0
"""Seconds between two log lines about a replay."""


class Superseded(Unavailable):
    """Raised in a replay when its node was restarted, or claimed by another broker."""


class Job:
    """One replay: its window, its progress, and its greenlet."""

    def __init__(self, node: Node, run: str, *, emptying: bool = False) -> None:
        self.node = node
        self.run = run
        self.epoch = node.epoch
        self.emptying = emptying
        self.everything = emptying
        self.phase: Any = "emptying" if emptying else "marks"
        self.done = self.total = 0
        self.began = monotonic()
        self.seconds = 0.0
        self.detail = ""
        self.greenlet: gevent.Greenlet[..., Any] | None = None
        self._said = self.began

    @property
    def running(self) -> bool:
        """Return whether the replay is under way. Work after its end does not keep the node from
        opening."""
        return self.phase != "done" and self.greenlet is not None and not self.greenlet.ready()

    def hold(self, what: int | str = "") -> None:
        """Keep the node owed for a while, or for ``what`` ms; "done" ends this. Raises
        Unavailable."""
        if not owner.hold(self.node, self.run, self.epoch, what):
            raise Superseded(f"Redis at {self.node.shown} was restarted again, or taken over")
        self.seconds = monotonic() - self.began
        if monotonic() - self._said > SAY_SECONDS:
            self._said = monotonic()
            rate = round(self.done / max(self.seconds, 0.001))
            log.info(
                "replay_continued", node=self.node.shown, phase=self.phase, done=self.done,
                total=self.total, per_second=rate,
            )  # fmt: skip

    def report(self) -> NodeRepair:
        """Return the replay's progress, as the API tells it."""
        return NodeRepair(
            node=self.node.shown, phase=self.phase, everything=self.everything, done=self.done,
            total=self.total, seconds=self.seconds, detail=self.detail,
        )  # fmt: skip

    def refill(self, store: Store, memory: Memory, parts: Callable[[], Parts]) -> None:
        """Empty the node if need be, and replay, until it is done or another broker does it."""
        pause = 0.5
        while True:
            try:
                if self.emptying:
                    self._empty()
                self._replay(store, memory, parts)
            except Superseded as error:
                self.phase, self.detail = "none", str(error)
                log.info("replay_superseded", node=self.node.shown, reason=str(error))
                return
            except Unavailable as error:
                self.detail = str(error)
                log.warning("replay_delayed", node=self.node.shown, reason=str(error))
            except Exception as error:  # a bug here must not end the replay for good
                self.detail = repr(error)
                log.exception("replay_failed", node=self.node.shown)
            else:
                return
            gevent.sleep(pause)
            pause = min(pause * 2, owner.STALLED_MS / 2000)

    def _empty(self) -> None:
        """Delete the frontier's keys in bounded steps, then open the node."""
        cursor = b"0"
        while True:
            cursor, found = self.node.command("SCAN", cursor, "MATCH", "gc:{*", "COUNT", 1000)
            if found:
                self.done += self.node.command("UNLINK", *found)
            self.hold()
            if cursor == b"0":
                break
        if not owner.open_emptied(self.node, self.run, self.epoch):
            raise Superseded(f"Redis at {self.node.shown} was restarted again, or taken over")
        self.emptying = False

    def _replay(self, store: Store, memory: Memory, parts_of: Callable[[], Parts]) -> None:
        node = self.node
        self.detail = ""
        self.hold()
        tick = int(node.command("HGET", keys.OWNER, "tick") or 0)
        since = max(tick - MARGIN, 0)
        self.everything = tick == 0
        memory.watch()  # budgets are in the owner record, which was deleted
        debt = debts.begin(store, node, since)
        parts = parts_of()
        replay = Replay(parts, store, node, since, self, everything=self.everything)
        crawls = replay.run()
        # A worker may have died between a page's commit and the admission of its links. The page's
        # task would have brought them, but the node may have forgotten it, and counts the page as
        # settled now. So the other nodes may miss links that were committed since, too.
        if others := {other.id for other in parts.placement.nodes} - {node.id}:
            store.owe(others, since)
        self.hold("done")
        if debt is not None:
            store.end_replay(node.id, debt.serial)
        self.phase, self.done = "done", self.total
        log.info(
            "node_refilled", node=node.shown, since=since, rows=self.total,
            seconds=round(self.seconds, 3),
        )  # fmt: skip
        try:
            parts.crawls.tell_node([c for c in crawls if c.state == "active"], node)
            if not self.everything:
                replay.respill()
        except Unavailable as error:  # no caller waits for this; due work is done later
            log.info("node_not_told", node=node.shown, reason=str(error))
