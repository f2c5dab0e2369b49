"""Wake-ups and signs of life: what became due earlier, lost messages, and outages.

Scripts publish when a partition becomes due earlier. Messages can be lost. So after a reconnect,
and every few seconds while a call waits, the number of published messages is compared with the
number received. While sessions are open, a broker calls each node three times within the longest
pause that is no outage. From this a node recognises an outage (``lua/shared/clock.lua``). If no
session is open, no such call is needed; in an idle system Redis serves only the cheap checks of
waiting calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gevent

from greencrawl.broker.frontier.coordination.activity import ACTIVITY, QUOTA, ActivityEvent
from greencrawl.broker.frontier.coordination.duties import QUOTAS, Duties, clock
from greencrawl.broker.frontier.leasing import Calls, Leasing
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.clock import DOUBT
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.log import Trouble, logger
from greencrawl.schema.records import Debt, Duty, Stamp
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store

log = logger("frontier")

LOOK_SECONDS = 5.0
HEARTBEATS = 3
"""Calls within the longest pause that is no outage."""
CUT_SECONDS = 5.0
"""How long a broker that cannot reach a node leaves the node's clock to others."""
SAME_SECONDS = 1.0
"""Two brokers that learnt the time at most this far apart have known it equally long."""
LEFT_SECONDS = 60.0
"""A node's clock is left to another broker at most once in this time. If that broker could not take
the duty, the holder confirms the time."""
OUT_MOST = 1000
"""At most this many crawls with open sessions are counted separately."""
UNKNOWN = 0
"""Stands for the crawls of sessions that were open before this process started."""

Run = Callable[[Node, str, list[tuple[int, bytes]], Duty | None], list[list[Any]]]


class WakeUps:
    """Tells ``leasing`` what became due; for each node a greenlet runs ``listen``, and
    another ``heartbeats``."""

    def __init__(
        self,
        calls: Calls,
        run: Run,
        leasing: Leasing,
        store: Store,
        nodes: Sequence[Node],
        owed: Callable[[Node], None],
        quota_needed: Callable[[int], None],
        duties: Duties,
        events: Mapping[bytes, ActivityEvent],
    ) -> None:
        """Build the object.

        ``owed`` is called with a node whose replay is not complete, ``quota_needed`` with a crawl
        that runs out of quota in a partition; messages set ``events``.
        """
        self._quota_needed = quota_needed
        self._duties = duties
        self._events = events
        self._calls = calls
        self._run = run
        self._leasing = leasing
        self._store = store
        self._nodes = nodes
        self._owed = owed
        self._heard: dict[str, int] = {}
        self._looked: dict[str, float] = {}
        self._out = {UNKNOWN}
        """Crawls that may have open sessions."""
        self._opened = 0
        self._left: dict[str, float] = {}
        """Node → when its clock was left to a broker that has known its time for longer."""
        self._none_at: dict[str, int] = {}
        """Node → how many sessions this broker had opened when the node last had none open."""

    # -- sessions out

    def opened(self, crawl: int) -> None:
        """Note that a session was opened through this process."""
        self._out.add(crawl)
        if len(self._out) > OUT_MOST:
            self._out = {UNKNOWN}
        self._opened += 1

    def scanned(self, crawl: int, leased: int) -> None:
        """Note how many tasks of the crawl a scan found leased."""
        (self._out.add if leased else self._out.discard)(crawl)

    def heartbeat(
        self,
        node: Node,
        partition: int,
        tick: int = 0,
        *,
        duty: Duty | None = None,
        vouch: bool = False,
    ) -> int:
        """Send a heartbeat to a node, with its tick, if one is given; return its count of wake-ups.

        With ``vouch`` the heartbeat confirms the node's time; ``duty`` is then the duty of setting
        the node's clock. Raises Unavailable.
        """
        opened = self._opened
        args = to_msgpack([tick, int(vouch)])
        replies = self._run(node, "heartbeat", [(partition, args)], duty)
        ((_, published, out, node.tick, owed),) = replies
        self._none_at[node.id] = -1 if out else opened
        if all(self._none_at.get(one.id) == self._opened for one in self._nodes):
            self._out.clear()
        node.owed = bool(owed)
        if owed:
            self._owed(node)
        return int(published)

    def tick(
        self,
        node: Node,
        on: list[int],
        stamp: Stamp,
        debt: Debt | None,
        compare: Callable[[Node, Stamp], None],
        duty: Duty | None,
    ) -> None:
        """Call ``compare`` with the store's epochs, then send a heartbeat with the store's clock.

        If the node is owed something, the tick stays before that ``debt``: otherwise a copy of the
        node that comes back would not get what it missed. Raises DutyLost; if the node does not
        answer, this is only logged.
        """
        at = stamp.clock if debt is None else min(stamp.clock, debt.since)
        try:
            compare(node, stamp)
            self.heartbeat(node, on[0] if on else 0, at, duty=duty)
        except DutyLost:
            raise
        except Unavailable as error:
            log.info("tick_not_written", node=node.shown, reason=str(error))

    def heartbeats(self, node: Node, on: list[int]) -> None:
        """Send heartbeats for ever, and look for lost messages; a greenlet runs this."""
        trouble = Trouble(log, "heartbeat_not_sent", "heartbeat_sent", level="info")
        while True:
            try:
                self._heartbeat_or_look(node, on)
                trouble.done(node=node.shown)
            except Unavailable as error:
                trouble.failed(node=node.shown, reason=str(error))
                self._cut_off(node)
            except Exception:  # a bug must not look like an outage
                log.exception("heartbeat_failed")
            gevent.sleep(node.gap_seconds / HEARTBEATS)

    def _heartbeat_or_look(self, node: Node, on: list[int]) -> None:
        heard = self._heard.get(node.id, 0)
        due = monotonic() - self._looked.get(node.id, 0.0) >= LOOK_SECONDS - 0.1
        if self._out or node.owed:
            published = self._heartbeat(node, on)
        else:
            node.clock.prepare()
            if not (self._leasing.waiting and due):
                return
            published = int(node.command("GET", keys.WAKE) or 0)
        if not (self._leasing.waiting and due):
            return
        self._looked[node.id] = monotonic()
        gevent.sleep(0.05)  # messages may be on their way
        now = self._heard.get(node.id, 0)
        if published > now or published < heard:  # a lower count: Redis was emptied
            log.info("wake_ups_missed", node=node.shown, missed=published - now)
            self._heard[node.id] = published
            self._look(node, on)

    def _heartbeat(self, node: Node, on: list[int], *, vouch: bool = False) -> int:
        """Send a heartbeat; if this broker has the duty of setting the node's clock, send it under
        that duty."""
        duty = self._duties.get(clock(node.id))
        try:
            vouch = vouch and duty is not None
            return self.heartbeat(node, on[0] if on else 0, duty=duty, vouch=vouch)
        except DutyLost:
            self._duties.lost(clock(node.id))
            raise

    def _asked(self, node: Node, on: list[int], seconds: float = 0.0) -> None:
        """Confirm a node's time, if that is our duty, to a broker that has known another time for
        ``seconds``.

        If that broker has known the time for longer than we have, the duty is left to that broker,
        unless it was left to such a broker lately.
        """
        if not self._duties.get(clock(node.id)):
            return
        lately = monotonic() - self._left.get(node.id, -LEFT_SECONDS) < LEFT_SECONDS
        if node.clock.known_seconds < seconds - SAME_SECONDS and not lately:
            self._left[node.id] = monotonic()
            self._duties.give_up(clock(node.id), CUT_SECONDS)
            return
        try:
            node.clock.settle()  # a heartbeat alone would miss a short jump
            self._heartbeat(node, on, vouch=True)
        except Unavailable as error:
            log.info("clock_not_confirmed", node=node.shown, reason=str(error))

    def _cut_off(self, node: Node) -> None:
        """Leave the node's clock to a broker that reaches the node; leave the quotas, too, if we
        reach no node."""
        left = [clock(node.id)]
        if all(one.breaker.since_ms for one in self._nodes):
            left.append(QUOTAS)  # nobody could tell us which crawls need quota
        for name in left:
            if self._duties.get(name):
                self._duties.give_up(name, CUT_SECONDS)

    # -- messages

    def _look(self, node: Node, on: list[int]) -> None:
        """Read all due times of a node again."""
        for crawl in self._store.crawls():
            if crawl.state != "active":
                continue
            replies = self._calls("count", dict.fromkeys(on, to_msgpack([crawl.id])))
            for p, (_, _, due, maintain_at, *_) in replies.items():
                self._leasing.note(p, crawl.id, due)
                self._leasing.note(p, 0, maintain_at)

    def listen(self, node: Node, on: list[int]) -> None:
        """Listen to a node's wake-ups; after a lost connection look at everything."""
        pause, trouble = 0.1, Trouble(log, "subscription_lost", "subscription_regained")
        while True:
            try:
                for message in node.subscribe(keys.WAKE):
                    if not message:
                        trouble.done(node=node.shown)
                        self._heard[node.id] = int(node.command("GET", keys.WAKE) or 0)
                        self._look(node, on)
                        for event in self._events.values():
                            # something may have happened: nothing was received lately
                            event.hear()
                        pause = 0.1
                        continue
                    what, *of = message.split()
                    if what == QUOTA:
                        for crawl in of:
                            self._quota_needed(int(crawl))
                        continue
                    if what in self._events:
                        self._events[what].hear(map(int, of))
                        continue
                    if what == DOUBT:
                        self._asked(node, on, *map(float, of))
                        continue
                    p, crawl, ms = message.split()
                    self._heard[node.id] = self._heard.get(node.id, 0) + 1
                    if float(ms):
                        self._leasing.note(int(p), int(crawl), float(ms))
                    else:
                        self._quota_needed(int(crawl))
                    if int(crawl):
                        self._events[ACTIVITY].hear((int(crawl),))
            except Unavailable as error:
                trouble.failed(node=node.shown, reason=str(error))
                self._cut_off(node)
            except Exception:  # a bug must not leave this broker without messages
                log.exception("wake_ups_failed")
            gevent.sleep(pause)
            pause = min(pause * 2, 5.0)
