"""What nodes missed while they were away: links of pages that were committed then, and crawls.

A page may be finished although a node cannot be told of its links: they are in the replay log, and
the node is owed them (``Store.owe``). Once the node answers, the holder of the duty sends it the
crawls, and offers it all links since the debt began. This is idempotent. If the replay is cut off,
the broker that takes the duty starts again. Links that are added meanwhile keep the debt open. A
node that came back under another run_id gets all this from its recovery.

While a debt is replayed, the node's tick stays where the debt began. So a node that loses these
data meanwhile gets them again. Until the replay ends, its scans do not count. Sessions go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import gevent

from greencrawl.broker.frontier.coordination.activity import ActivityEvent
from greencrawl.broker.frontier.coordination.duties import REPLAY, Duties
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.recovery.replay import Parts, Replay, ReplaySender
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Debt, Duty
from greencrawl.store.base import Store

log = logger("debts")

LOOK_SECONDS = 1.0
"""Seconds between two checks of what is owed."""
GIVE_UP_SECONDS = 2.0
"""For how long another broker may try what fails here."""

_MARK = f"""
redis.call('DEL', '{keys.NIL}')
local o = redis.call('HMGET', KEYS[1], 'state', 'run', 'epoch', 'tick')
if o[1] ~= 'open' or o[2] ~= ARGV[1] or o[3] ~= ARGV[2] then return 0 end
local field, duty = 'duty:' .. ARGV[4], tonumber(ARGV[5])
if duty < tonumber(redis.call('HGET', KEYS[1], field) or 0) then return -1 end
redis.call('HSET', KEYS[1], field, duty)
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], 'debt') return 1 end
redis.call('HSET', KEYS[1], 'debt', 1, 'tick', math.min(tonumber(o[4]), tonumber(ARGV[3])))
return 1
"""
"""Notes that a debt's replay begins, or is complete.

ARGV: run_id, epoch, since or '', the duty's name, its epoch. 0: the node has changed; -1: another
broker has taken the duty.
"""


class _DebtReplay:
    """The progress of a debt's replay; see ``replay.ReplayProgress``. It ends with its duty."""

    def __init__(self, node: Node, duties: Duties, duty: Duty) -> None:
        self._node = node
        self._duties = duties
        self._duty = duty
        self.phase: Any = "links"
        self.done = self.total = 0
        self._began = self._said = monotonic()

    def hold(self) -> None:
        if self._duties.get(self._duty.name) != self._duty:
            raise DutyLost(f"another broker has taken the duty {self._duty.name}")
        if monotonic() - self._said > 5.0:
            self._said = monotonic()
            log.info(
                "debt_replay_continued",
                node=self._node.shown,
                pages=self.done,
                seconds=self.seconds,
            )

    @property
    def seconds(self) -> float:
        return round(monotonic() - self._began, 3)


class Debts:
    """One broker's work on debts: a greenlet. ``start()`` it, ``stop()`` it."""

    def __init__(
        self,
        parts: Parts,
        store: Store,
        duties: Duties,
        nodes_away: Callable[[], Collection[str]],
        activity: ActivityEvent,
    ) -> None:
        """Build the object; ``nodes_away`` names nodes that must not be asked."""
        self._parts = parts
        self._nodes_away = nodes_away
        self._activity = activity
        self._store = store
        self._duties = duties
        self._greenlet: gevent.Greenlet[..., None] | None = None

    def start(self) -> None:
        """Begin with debts from before."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End at once; the next holder starts again."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except Unavailable as error:
                log.info("debts_delayed", reason=str(error))
            except Exception:  # a bug must not keep a crawl from its end for good
                log.exception("debts_failed")
            gevent.sleep(LOOK_SECONDS)

    def step(self) -> None:
        """Replay what is owed to nodes that answer, as far as this broker has the duty.

        Raises Unavailable after the others if something could not be done.
        """
        owed = self._store.debts()
        failed: Unavailable | None = None
        for node in self._parts.placement.nodes:
            if node.id not in owed:
                continue
            name = f"{REPLAY}:{node.id}"
            if node.id in self._nodes_away():
                if self._duties.get(name) is not None:  # another broker may reach it
                    self._duties.give_up(name, GIVE_UP_SECONDS)
                continue
            try:
                duty = self._duties.take(name)
                if duty is not None:
                    self._replay(node, duty)
            except DutyLost:
                self._duties.lost(name)
            except Unavailable as error:
                self._duties.give_up(name, GIVE_UP_SECONDS)
                failed = error
        if failed is not None:
            raise failed

    def _replay(self, node: Node, duty: Duty) -> None:
        if node.command("HEXISTS", keys.OWNER, "owed"):
            return  # its recovery is under way, and replays this as well
        store = self._store.under(duty)
        debt = store.begin_replay(node.id)
        if debt is None:
            return
        run, epoch = node.run_id(), node.epoch
        self._mark(node, run, epoch, str(debt.since), duty)
        progress = _DebtReplay(node, self._duties, duty)
        log.info("debt_replay_started", node=node.shown, since=debt.since)
        crawls = self._store.crawls()
        replay = Replay(self._parts, self._store, node, debt.since, progress)
        replay.tell(crawls)
        replay.links(ReplaySender(self._parts, node, progress, {crawl.id for crawl in crawls}))
        self._mark(node, run, epoch, "", duty)  # first: up to here the node's tick has not moved
        done = store.end_replay(node.id, debt.serial)
        self._activity.set()
        pages, seconds = progress.done, progress.seconds
        log.info("debt_replay_ended", node=node.shown, all=done, pages=pages, seconds=seconds)

    @staticmethod
    def _mark(node: Node, run: str, epoch: str, since: str, duty: Duty) -> None:
        what = (run, epoch, since, duty.name, duty.epoch)
        done = node.command("EVAL", _MARK, 1, keys.OWNER, *what)
        if done < 0:
            raise DutyLost(f"another broker has taken the duty {duty.name}")
        if not done:
            raise Unavailable(f"Redis at {node.shown} was restarted, or taken over")


def begin(store: Store, node: Node, since: int) -> Debt | None:
    """Return the debt of a node if a recovery that gives the node all ``since`` pays it, too;
    otherwise None."""
    owed = store.debts().get(node.id)
    return store.begin_replay(node.id) if owed is not None and owed.since >= since else None
