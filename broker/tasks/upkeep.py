"""The upkeep that one broker does: pending seeds, the store's clock, limits, and the end of a
crawl.

It has the duty; each of its writes is checked against the duty's epoch. The other brokers announce
their activity, at most every :data:`BUSY_SECONDS`. A crawl is scanned when there was activity in
it, otherwise seldom. So an idle system costs Redis almost nothing, however many crawls and brokers
there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

import gevent
from gevent import Greenlet

from greencrawl.broker.frontier.coordination.activity import ACTIVITY, ANY
from greencrawl.broker.frontier.coordination.duties import UPKEEP
from greencrawl.broker.frontier.coordination.quotas import pages_stored
from greencrawl.broker.frontier.scans import Counts
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks import periods, rounds
from greencrawl.broker.tasks.duty_timeout import DutyTimeout
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import DutyLost, Unavailable, UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.records import FINISHED, STOPPED, Crawl, Duty, SeedBatch, Totals

log = logger("upkeep")

BUSY_SECONDS = 0.25
"""Least time between two scans of the crawls, however much happens."""
SCANNING_SHARE, MOST_REST_SECONDS = 0.1, 1.0
"""The share of time that scans may take, and the longest pause after a scan: a scan may just have
waited for other work, and a crawl ends only after two scans."""
QUIET_SECONDS = 5.0
"""Seconds between two reads of the store, or of a crawl, without activity."""
SELDOM_SECONDS = 120.0
"""Seconds between two scans of a crawl with nothing leased. Brokers announce activity before the
crawl can end. If the broker that took the last finish died before that, Redis has a note of it."""
NOTED_SLACK_SECONDS = 0.5
"""A note counts as older than a scan only if it is older by more than this."""
CUT_LOOK_SECONDS = 1.0
"""Seconds between two checks whether a node that gave no answer answers again."""
CUT_SECONDS = 3.0
"""If nodes still give no answer, the duty is left to others for this long."""
TICK_SECONDS = 1.0
"""Seconds between two steps of the store's clock while the frontier is in use."""
BATCH = 32
"""Crawls that are counted in one call: some 0.15 ms of a script."""
HELD_SECONDS = 60.0
"""Seconds between two reads of all pending batches while they wait for a node that is away."""


@dataclass(frozen=True)
class _Quiet:
    """The result of the last scan of a crawl in which nothing was left to do."""

    admitted: int
    finished: int


class _HeldUp:
    """Pending batches that wait only for nodes which are away. These are all batches up to
    ``after``; they are not read and admitted again meanwhile."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.after = 0
        self.nodes: frozenset[str] = frozenset()
        self.crawls: set[int] = set()

    def add(self, batch: SeedBatch, away: frozenset[str]) -> None:
        self.after = batch.id
        self.nodes |= away
        self.crawls.add(batch.crawl)


class Upkeep:
    """The upkeep's greenlet, one in each broker. ``start()`` it, ``stop()`` it."""

    def __init__(self, service: Service) -> None:
        self._own = self._service = service
        """The service; within a step, as the holder of the duty."""
        self._next: dict[int, float] = {}
        """Crawl → when it is scanned again without activity."""
        self._duty: Duty | None = None
        self._looked: dict[int, float] = {}
        """Crawl → when its last scan began."""
        self._idle_read = service.clock()
        self._void_since: float | None = None
        self._cut_since: float | None = None
        self._timeout = DutyTimeout(service.clock)
        self._walked = 0.0
        """Seconds of this step that belonged to a round, not to a scan."""
        self._quiet: dict[int, _Quiet] = {}
        self._ticked = -TICK_SECONDS
        self._held = _HeldUp(service.clock())
        self._greenlet: Greenlet[[], None] | None = None

    def start(self) -> None:
        """Begin; batches that are pending from before are admitted at once."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End after the current step."""
        self._own.stopping.set()
        self._own.frontier.activity.set()
        if self._greenlet is not None:
            self._greenlet.join()

    def _run(self) -> None:
        own = self._own
        activity, stopping, wait = own.frontier.activity, own.stopping, 0.0
        while not stopping.is_set():
            if not own.duties.wait(UPKEEP, BUSY_SECONDS, stopping.is_set):
                if crawls := activity.take_own():  # the holder cannot know of it
                    own.frontier.announce(ACTIVITY, crawls)
                wait = 0.0
                continue
            activity.wait(wait)
            heard = activity.take()
            if stopping.is_set():
                return
            began, self._walked = own.clock(), 0.0
            try:
                wait = self.step(heard)
            except DutyLost as error:
                log.info("upkeep_superseded", reason=str(error))
                own.duties.lost(UPKEEP)
            except Unavailable as error:
                log.warning("upkeep_delayed", error=str(error))
                wait = self._again(heard)
            except Exception:
                log.exception("upkeep_failed")
                wait = self._again(heard)
            took = own.clock() - began - self._walked
            stopping.wait(max(BUSY_SECONDS, min(took / SCANNING_SHARE, MOST_REST_SECONDS)))

    def _again(self, heard: Collection[int]) -> float:
        """Scan the crawls with activity again: the step was cut short."""
        if ANY in heard:
            self._next.clear()
        self._next.update(dict.fromkeys(heard, 0.0))
        return QUIET_SECONDS

    def step(self, heard: Collection[int] = (ANY,)) -> float:
        """Do what is due; return the seconds until the next step if nothing happens before.
        ``heard`` are the crawls with activity. Nothing is done if another broker has the duty.
        Raises DutyLost if one has taken it meanwhile."""
        duty = self._own.duties.take(UPKEEP)
        if duty is None:
            return QUIET_SECONDS
        if duty != self._duty:
            self._begin(duty)
        self._service = self._own.holding(duty)
        self._tick(in_use=bool(heard))
        pending = self._admit_pending()
        crawls = self._service.store.crawls()
        rests = periods.wake(self._service, crawls)
        active = [c for c in crawls if c.state == "active" or c.stopping]
        known = {crawl.id for crawl in active}
        self._quiet = {id_: seen for id_, seen in self._quiet.items() if id_ in known}
        self._next = {id_: at for id_, at in self._next.items() if id_ in known}
        self._looked = {id_: at for id_, at in self._looked.items() if id_ in known}
        now = self._service.clock()
        changed = {*heard, *pending, *(self._unheard(now) if active else ())}
        due = [
            crawl for crawl in active
            if not {ANY, crawl.id}.isdisjoint(changed) or now >= self._next.get(crawl.id, now)
        ]  # fmt: skip
        # A crawl stays due until its scan is complete: the note of its end is read only once.
        self._next.update((crawl.id, 0.0) for crawl in due)
        for start in range(0, len(due), BATCH):
            some = due[start : start + BATCH]
            counts = self._service.frontier.count(some) if len(some) > 1 else None
            for crawl in some:
                self._looked[crawl.id] = now
                self._next[crawl.id] = now + self._look_at(crawl, crawl.id in pending, counts)
        self._give_up_if_cut_off()
        until = min((at - now for at in self._next.values()), default=QUIET_SECONDS)
        return min(until, rests, QUIET_SECONDS if self._cut_since is None else CUT_LOOK_SECONDS)

    def _begin(self, duty: Duty) -> None:
        """Forget all: another broker had the duty in between, and knows what we do not."""
        now = self._own.clock()
        self._duty = duty
        self._next.clear()
        self._looked.clear()
        self._quiet.clear()
        self._held = _HeldUp(now)
        self._void_since = self._cut_since = None
        self._timeout.hold(duty)

    def _unheard(self, now: float) -> set[int]:
        """Return crawls that may have ended without an announcement since their last scan, by notes
        in Redis. This is no sign that the frontier is in use: the store's clock is not raised for
        it."""
        since = now - self._idle_read
        often = QUIET_SECONDS if self._cut_since is None else CUT_LOOK_SECONDS
        if since < often - NOTED_SLACK_SECONDS:
            return set()
        idle, answered = self._service.frontier.idle_crawls(since + 2 * NOTED_SLACK_SECONDS)
        if answered:
            self._idle_read, self._cut_since = now, None
        elif self._cut_since is None:
            self._cut_since = now
        return {
            crawl
            for crawl, ago in idle.items()
            if now - ago + NOTED_SLACK_SECONDS > self._looked.get(crawl, 0.0)
        }

    def _give_up_if_cut_off(self) -> None:
        """Leave the duty to others if nodes give no answer for a while: they may reach more.

        The same holds if every scan has been void.
        """
        since = [at for at in (self._void_since, self._cut_since) if at is not None]
        if since and self._timeout.spent(min(since)):
            self._own.duties.give_up(UPKEEP, CUT_SECONDS)

    def _tick(self, in_use: bool) -> None:
        """Write the store's clock to the nodes, then raise it: so no later row falls behind a
        tick."""
        now = self._service.clock()
        if in_use and now - self._ticked >= TICK_SECONDS:
            self._service.frontier.tick(self._service.store.clock())
            self._service.store.tick()
            self._service.frontier.watch_memory()
            self._ticked = now

    def _admit_pending(self) -> set[int]:
        """Settle batches that a crash or an outage left; return crawls that still have some."""
        held, now = self._held, self._service.clock()
        back = not held.nodes <= self._service.frontier.nodes_away().keys()
        if back or now - held.since > HELD_SECONDS:
            held = self._held = _HeldUp(now)
        waiting, between = set(held.crawls), False
        for batch in self._pending(held.after):
            # Its caller wants to know which URLs were new. A node that was just opened takes
            # fetched URLs for new, until it has been given the pages.
            if batch.id in self._service.admitting or self._service.frontier.owed():
                waiting.add(batch.crawl)
                between = True
                continue
            try:
                away = seeding.settle(self._service, batch).away
            except Unavailable as error:
                log.warning("seeds_delayed", batch=batch.id, error=str(error))
                waiting.add(batch.crawl)
                between = True
                continue
            if not away:
                log.info("seeds_admitted", batch=batch.id)
                continue
            waiting.add(batch.crawl)
            if not between:  # otherwise an earlier batch must be read again
                held.add(batch, away)
        return waiting

    def _pending(self, after: int) -> Iterator[SeedBatch]:
        """Yield pending batches, oldest first, some at a time: one that waits delays no other."""
        while found := self._service.store.pending_seeds(after=after):
            yield from found
            after = found[-1].id

    def _look_at(self, crawl: Crawl, pending: bool, counts: Counts | None) -> float:
        """Scan one crawl; return the seconds until it is worth another scan."""
        try:
            return self._scan(crawl, pending, counts)
        except UnknownCrawl:  # it was deleted meanwhile
            return QUIET_SECONDS

    def _scan(self, crawl: Crawl, pending: bool, counts: Counts | None) -> float:
        scan = self._service.frontier.look(crawl, counts)
        if scan is None:
            self._quiet.pop(crawl.id, None)
            if self._void_since is None:
                self._void_since = self._service.clock()
            self._stop_at_limit(crawl)
            return BUSY_SECONDS
        self._void_since = None
        self._timeout.helped()
        sums, states = scan
        if crawl.stopping:  # no partition leases it, and none can without a later version
            self._quiet.pop(crawl.id, None)
            if not sums.leased:
                self._done(crawl, STOPPED)
            return QUIET_SECONDS
        if "done" in states:  # the broker that was about to end it died
            self._service.frontier.put_crawl(self._service.store.reopen(crawl.id, crawl.version))
            self._quiet.pop(crawl.id, None)
            return BUSY_SECONDS
        spent = self._spent_seconds(crawl)
        stored = pages_stored(self._service.store, crawl, sums.requeued)
        limit = limit_reached(crawl, sums, spent, stored)
        if limit:
            return self._end_at_limit(crawl, sums, states, limit)
        if states != {"active"}:  # the limit was raised
            self._service.frontier.put_crawl(crawl)
            self._quiet.pop(crawl.id, None)
            return BUSY_SECONDS
        began = self._service.clock()
        goes_on = rounds.go_on(self._service, crawl, sums)
        self._walked += self._service.clock() - began
        if goes_on:
            self._quiet.pop(crawl.id, None)
            return BUSY_SECONDS
        if sums.open or pending:
            self._quiet.pop(crawl.id, None)
            return self._until_limit(crawl, spent, sums)
        seen, now = self._quiet.get(crawl.id), _seen(sums)
        self._quiet[crawl.id] = now
        if seen == now:
            self._finish(crawl, now)
        return BUSY_SECONDS

    def _stop_at_limit(self, crawl: Crawl) -> None:
        """Stop a crawl at its limit if some nodes do not answer, but the counters of the others
        have reached the limit."""
        if crawl.stopping or not (crawl.options.max_bytes or crawl.options.max_seconds):
            return
        frontier = self._service.frontier
        with suppress(Unavailable):
            if limit_reached(crawl, frontier.stats(crawl), self._spent_seconds(crawl)):
                frontier.stop_leasing(crawl)

    def _end_at_limit(self, crawl: Crawl, sums: Totals, states: frozenset[str], why: str) -> float:
        """Stop leasing; set the crawl done when nothing is leased: no lease can begin after
        that."""
        if states != {"stop"}:
            log.info("limit_reached", crawl=crawl.name, limit=why)
            self._service.frontier.stop_leasing(crawl)
        elif not sums.leased:
            self._done(crawl, why)
        return BUSY_SECONDS

    def _spent_seconds(self, crawl: Crawl) -> float:
        """Return the seconds that the crawl was under way, counted only if they are limited."""
        if not crawl.options.max_seconds:
            return 0.0
        most = round(2 * QUIET_SECONDS * 1000)
        return self._service.store.count_time(crawl.id, epoch_ms(), most) / 1000

    def _until_limit(self, crawl: Crawl, spent: float, sums: Totals) -> float:
        """Return the seconds until ``max_seconds``: only time itself announces this limit."""
        if not crawl.options.max_seconds:
            return QUIET_SECONDS if sums.leased else SELDOM_SECONDS
        return min(QUIET_SECONDS, max(BUSY_SECONDS, crawl.options.max_seconds - spent))

    def _finish(self, crawl: Crawl, quiet: _Quiet) -> None:
        """Shut the crawl, check that nothing came before it was shut, and set it done.

        If something new comes meanwhile, its sender finds the crawl shut, and raises the version of
        the crawl in the store, so that it is not set done.
        """
        frontier = self._service.frontier
        frontier.shut(crawl)
        if not (self._is_still(crawl, quiet) and self._done(crawl, FINISHED)):
            frontier.put_crawl(self._service.store.reopen(crawl.id, crawl.version))

    def _is_still(self, crawl: Crawl, quiet: _Quiet) -> bool:
        """Return whether every partition has shut the crawl, and saw nothing since ``quiet``."""
        scan = self._service.frontier.look(crawl)
        if scan is None:
            return False
        sums, states = scan
        return states == {"done"} and not sums.open and _seen(sums) == quiet

    def _done(self, crawl: Crawl, reason: str) -> bool:
        """Set the crawl done, unless something changed since it was read, or a batch is pending."""
        changed = periods.end(self._service, crawl, reason)
        if not changed.ended:
            return False
        self._service.frontier.put_crawl(changed)
        log.info("crawl_done", crawl=crawl.name, reason=changed.reason, wakes_ms=changed.wakes_ms)
        return True


def _seen(sums: Totals) -> _Quiet:
    return _Quiet(sums.admitted, sums.finished)


def limit_reached(crawl: Crawl, sums: Totals, spent_seconds: float, stored: int = 0) -> str:
    """Return the limit that the crawl has reached, or "". ``stored`` are pages by the store: it
    takes no more than the limit, and counts a page once, however often it was fetched."""
    options = crawl.options
    pages = stored if sums.requeued else max(sums.stored, stored)
    if options.max_pages and pages >= options.max_pages:
        return "max_pages"
    if options.max_bytes and sums.bytes >= options.max_bytes:
        return "max_bytes"
    if options.max_seconds and spent_seconds >= options.max_seconds:
        return "max_seconds"
    return ""
