"""The coordinator: one broker that watches all; nothing that must be correct depends on it.

It keeps the samples for plots, notes silent members as lost, and drops old rows of all that. It
also finds what people should know (:mod:`greencrawl.broker.tasks.coordinator.alerts`). It holds a
duty, and each of its writes is checked against the duty's epoch in its own transaction. The duty is
taken only when no broker has it: by the broker with the highest id at once, by the next one a
second later, and so on. So a holder keeps it when a broker with a higher id comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

import gevent
from gevent import Greenlet
from msgspec.structs import replace

from greencrawl.broker.frontier.coordination.duties import COORDINATOR
from greencrawl.broker.service.members import LOST
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.coordinator import alerts
from greencrawl.broker.tasks.coordinator.alerts import Alerts, CrawlWatch
from greencrawl.broker.tasks.coordinator.outage import OutageWatch
from greencrawl.broker.tasks.coordinator.samples import Samples, counted
from greencrawl.broker.tasks.coordinator.webhook import AlertSender, Webhook
from greencrawl.broker.tasks.duty_timeout import DutyTimeout
from greencrawl.broker.tasks.throttle import rested
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.log import Trouble, logger
from greencrawl.schema.records import BEAT_SECONDS, Crawl, CrawlStats, Duty, Member
from greencrawl.store.base import MINUTE_MS, Store

log = logger("coordinator")

LOOK_SECONDS = 0.5
"""Seconds between two checks whether the duty is free, a read of one row.

The broker that should have it sees that before the next one has waited for a second.
"""
RANK_SECONDS = 1.0
"""How much longer each broker waits than the one before it."""
RANKS = 8
"""A broker waits for at most this many others."""
CHECK_SECONDS = 15.0
"""Seconds between two checks of the members, and of possible alerts."""
LOST_SECONDS = 60.0
"""A silent member counts as lost after this long."""
CUT_SECONDS = 10.0
"""How long the duty is left to others if Redis nodes do not answer here."""
HOUR_SECONDS = 3600.0
DAY_MS = 86_400_000
BATCH = 32
"""Crawls that are counted in one call."""
STILL_MINUTES = 5
"""After this many minutes a crawl without changes is counted again.

Such a crawl is still: nothing is leased, and nothing has changed since the last count. To count a
hundred still crawls every minute would cost Redis as much as everything else in an idle system.
"""
ENDED_MS = 2 * MINUTE_MS
"""A crawl is counted once more if it ended since the last look, or up to this long before it,
because clocks differ."""
NEW_MS = 60 * MINUTE_MS
"""A crawl that was made longer ago does not count as one that nobody has counted."""
STEPS = 20
"""Steps of dropping old rows, between two checks."""


@dataclass(frozen=True)
class Watched:
    """The settings of one broker's coordinator: its own id, the webhook, and how long samples
    stay."""

    member: str
    webhook: Webhook | None = None
    sample_days: int = 90


class Coordinator:
    """The coordinator's greenlet, one in each broker.

    ``start()`` it, ``stop()`` it before its duties.
    """

    def __init__(self, service: Service, watched: Watched) -> None:
        self._service = service
        self._watched = watched
        self._alerts = Alerts()
        self._outage = OutageWatch(service, watched.webhook)
        self._timeout = DutyTimeout(service.clock)
        self._vacant_since: float | None = None
        self._not_before = 0.0
        self._trouble = Trouble(log, "sample_not_taken", "sample_taken", level="info")
        self._greenlet: Greenlet[[], None] | None = None
        self._alert_sender = (
            AlertSender(watched.webhook, self._held) if watched.webhook is not None else None
        )
        self._silent: dict[str, float] = {}
        """Member → since when it is silent, by our clock."""
        self._away: frozenset[str] = frozenset()
        self._judged_at = 0.0
        service.duties.stand_for(COORDINATOR)
        self._begin(None)

    def start(self) -> None:
        """Begin to watch."""
        self._greenlet = gevent.spawn(self._run)
        self._outage.start()
        if self._alert_sender is not None:
            self._alert_sender.start()

    def stop(self) -> None:
        """End at once: what is under way is undone, and the next one continues."""
        if self._greenlet is not None:
            self._greenlet.kill()
        if self._alert_sender is not None:
            self._alert_sender.stop()
        self._outage.stop()

    def _run(self) -> None:
        stopping = self._service.stopping
        trouble = Trouble(log, "coordinator_delayed", "coordinator_resumed", level="info")
        while not stopping.is_set():
            try:
                self.look(epoch_ms())
                trouble.done()
            except DutyLost as error:
                log.info("coordinator_superseded", reason=str(error))
                self._service.duties.lost(COORDINATOR)
            except Unavailable as error:
                trouble.failed(reason=str(error))
            except Exception:
                log.exception("coordinator_failed")
            stopping.wait(LOOK_SECONDS)

    def _held(self) -> Store | None:
        duty = self._service.duties.get(COORDINATOR)
        return None if duty is None else self._service.store.under(duty)

    # -- the election

    def look(self, now_ms: int) -> None:
        """Do what is due if the duty is ours, or take it if it is our turn. ``now_ms``: epoch.

        Raises Unavailable, and DutyLost if another broker has taken it meanwhile.
        """
        duty = self._service.duties.get(COORDINATOR) or self._stand()
        if duty is None:
            return
        if duty != self._duty:
            self._begin(duty)
            if self._alert_sender is not None:
                self._alert_sender.wake()
        self.step(duty, now_ms)

    def _stand(self) -> Duty | None:
        """Take the duty if no broker has it, and none with a higher id is there to take it."""
        now, duties = self._service.clock(), self._service.duties
        if now < self._not_before:
            return None
        holder = self._service.store.duty_holder(COORDINATOR)
        if holder not in ("", duties.holder):
            self._vacant_since = None
            return None
        if self._vacant_since is None:
            self._vacant_since = now
        if not holder and now - self._vacant_since < RANK_SECONDS * self._rank():
            return None
        self._vacant_since = None
        return duties.take(COORDINATOR)

    def _rank(self) -> int:
        """Return how many brokers with a higher id are there, as far as that is known."""
        known = [one for one in self._service.store.members() if one.kind == "broker"]
        heard = self._service.frontier.beats.heard(one.id for one in known)
        higher = [one for one in known if not one.left_ms and one.id > self._watched.member]
        return min(len([one for one in higher if not heard or one.id in heard]), RANKS)

    def _begin(self, duty: Duty | None) -> None:
        """Forget all but silent members: another broker may have had the duty in between."""
        self._duty = duty
        self._minute = 0
        self._check_at = self._sweep_at = 0.0
        self._watch = CrawlWatch()
        self._active: frozenset[int] = frozenset()
        self._samples = Samples()
        self._count_at: dict[int, int] = {}
        """Crawl → the minute in which it is counted again."""
        self._looked_ms = 0
        self._ends: dict[int, int] = {}
        """Crawl → the time of its end (epoch ms) for which it was counted again."""
        if self._service.clock() - self._judged_at > BEAT_SECONDS:
            # Reports that came in between have expired, unseen by this broker.
            self._silent.clear()
            self._away = frozenset()
        self._alerts.begin()
        if duty is not None:
            self._timeout.hold(duty)

    # -- under the duty

    def step(self, duty: Duty, now_ms: int) -> None:
        """Do what is due, under the duty. Raises Unavailable and DutyLost."""
        now, store = self._service.clock(), self._service.store.under(duty)
        if self._left_as_cut_off() or now < self._check_at:
            return
        self._check_at = now + CHECK_SECONDS
        tell = False
        try:
            if now_ms // MINUTE_MS != self._minute:
                self._sample(store, now_ms)
                self._minute = now_ms // MINUTE_MS
            tell = self._outage.over(store, now_ms)
            self._trouble.done()
        except DutyLost:
            raise
        except Unavailable as error:  # if it is the store, the other steps fail, too
            self._trouble.failed(reason=str(error))
        members = self._members(store, now, now_ms)
        found: alerts.Found = {
            "node_lost": alerts.lost_nodes(members, now_ms),
            "links_owed": alerts.owed(store.debts(), store.addresses()),
            "crawl_stuck": self._watch.stuck,
            "hook_failing": self._watch.failing,
            "disk_full": alerts.full_disks(members),
        }
        tell = self._alerts.look(store, found, now, now_ms) or tell
        if tell and self._alert_sender is not None:
            self._alert_sender.wake()
        if now >= self._sweep_at and self._sweep(store, now_ms):
            self._sweep_at = now + HOUR_SECONDS

    def _left_as_cut_off(self) -> bool:
        """Leave the duty to others if nodes give no answer here for a while; return whether it was
        left.

        Every look asks this, so that another broker has the duty soon after the time-out.
        """
        if not self._service.frontier.nodes_away():
            self._timeout.helped()
            return False
        if not self._timeout.hindered():
            return False
        self._not_before = self._service.clock() + CUT_SECONDS
        self._service.duties.give_up(COORDINATOR, CUT_SECONDS)
        return True

    # -- samples

    def _sample(self, store: Store, now_ms: int) -> None:
        """Count all crawls that are under way, or were under way since the last time."""
        every, ended_ms = store.crawls(), (self._looked_ms or now_ms) - ENDED_MS
        ended = {
            crawl.id: crawl.finished_ms for crawl in every
            if crawl.ended and crawl.finished_ms > ended_ms
        }  # fmt: skip
        over = {id_ for id_, at_ms in ended.items() if self._ends.get(id_) != at_ms}
        crawls = [
            crawl for crawl in every
            if crawl.state == "active" or crawl.stopping or crawl.id in self._active | over
        ]  # fmt: skip
        minute, frontier = now_ms // MINUTE_MS, self._service.frontier
        due = [
            crawl for crawl in crawls
            if crawl.id in over or minute >= self._count_at.get(crawl.id, 0)
        ]  # fmt: skip
        seen = list[tuple[Crawl, CrawlStats]]()
        for start in range(0, len(due), BATCH):
            some = due[start : start + BATCH]
            counts = frontier.count(some)
            if counts is None or frontier.nodes_away():
                return  # only some are counted: sums would fall, and rise again
            for crawl in some:
                stats = frontier.stats(crawl, counts)
                now = self._service.stored_counts.of(crawl, stats)
                stats = replace(stats, dead=now.dead, parked=now.parked)
                seen.append((crawl, self._service.with_hook(crawl, stats)))
        first = {one.id for one, stats in seen if stats.hooks and self._is_new(store, one, now_ms)}
        known = {crawl.id for crawl in crawls}
        self._samples.write(store, [counted(*one, minute) for one in seen], known)
        for crawl, stats in seen:
            still = crawl.id in self._samples.still and not stats.leased
            self._count_at[crawl.id] = minute + STILL_MINUTES if still else 0
        self._count_at = {id_: at for id_, at in self._count_at.items() if id_ in known}
        self._active = frozenset(crawl.id for crawl in crawls if crawl.state == "active")
        self._looked_ms, self._ends = now_ms, ended
        watched = [one for one in seen if one[0].state == "active" or one[0].ended]
        unmended = self._unmended(store, every)
        self._watch.look(watched, every, store.hook_failed_since, first, unmended)

    def _unmended(self, store: Store, crawls: Sequence[Crawl]) -> set[str]:
        """Return crawls that have ended and are reported, and that still have pages on which their
        hook failed."""
        told = {one.subject for one in store.alerts() if one.kind == "hook_failing"}
        return {
            crawl.name for crawl in crawls
            if crawl.ended and crawl.name in told and store.hook_counts(crawl.id)
        }  # fmt: skip

    def _is_new(self, store: Store, crawl: Crawl, now_ms: int) -> bool:
        """Return whether the crawl is young, and no coordinator has counted it yet, as far as
        samples show."""
        if crawl.id in self._count_at or now_ms - crawl.created_ms > NEW_MS:
            return False
        return not store.samples(crawl.id, crawl.created_ms)

    # -- members

    def _members(self, store: Store, now: float, now_ms: int) -> list[Member]:
        """Note members that are lost, and those that are there again; return all of them.

        A beat is on the first node that answered its broker. So when a node begins to answer
        here, or no longer answers, all members have a while to report again. No member is
        lost while even our own beat is missing.
        """
        rows = store.members()
        heard = self._service.frontier.beats.heard(one.id for one in rows)
        away = frozenset(self._service.frontier.nodes_away())
        judging = self._watched.member in heard
        self._judged_at = now
        if away != self._away or not judging:
            self._away = away
            self._silent.clear()
        found = []
        for one in rows:
            beat = heard.get(one.id)
            if beat is not None and beat.incarnation >= one.incarnation:
                self._silent.pop(one.id, None)
                if one.left_ms and one.why == LOST:
                    store.put_member(replace(one, facts=beat.facts))
                    one = replace(one, left_ms=0, why="")
                one = replace(one, facts=beat.facts)
            elif judging and not one.left_ms:
                since = self._silent.setdefault(one.id, now)
                if now - since >= LOST_SECONDS - BEAT_SECONDS:
                    if store.member_left(one.id, one.incarnation, LOST, now_ms):
                        log.warning("member_lost", member=one.id, node=one.node)
                    one = replace(one, left_ms=now_ms, why=LOST)
                    del self._silent[one.id]
            found.append(one)
        return found

    # -- retention

    def _sweep(self, store: Store, now_ms: int) -> bool:
        """Drop some old rows that only people read; return whether that was all."""
        before = now_ms - self._watched.sample_days * DAY_MS
        steps = chain(store.drop_samples(before), store.drop_alerts(before))
        dropped = list(rested(islice(steps, STEPS), self._service.clock))
        if count := sum(dropped):
            log.info("rows_dropped", what="samples and alerts", count=count)
        return len(dropped) < STEPS
