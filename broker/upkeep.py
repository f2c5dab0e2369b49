"""What a broker does by itself: pending seeds, the log's clock, limits, and the end of a crawl.

Any number of brokers may do this at once, since every step is idempotent. While no crawl is
active only the store is asked, every few seconds: an idle system costs Redis nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gevent
from gevent import Greenlet

from broker import seeding
from broker.service import Service, Sums
from schema.clock import epoch_ms
from schema.errors import Unavailable, UnknownCrawl
from schema.log import logger
from schema.records import FINISHED, Crawl, SeedBatch

log = logger("upkeep")

BUSY_SECONDS = 0.25
"""Least time between two scans of the crawls, however much is going on."""
SCANNING_SHARE = 0.1
"""Of the time that scans may take: with many crawls they come less often."""
QUIET_SECONDS = 5.0
"""Time between two looks when nothing was heard: others may have changed what we cannot hear."""
TICK_SECONDS = 1.0
"""Time between two steps of the log's clock while the frontier is in use."""
HELD_SECONDS = 60.0
"""Between two looks at all pending batches while they wait for a node that is away."""


@dataclass(frozen=True)
class _Quiet:
    """What the last scan of a crawl saw when nothing was left to do in it."""

    admitted: int
    finished: int


class _HeldUp:
    """Pending batches that wait for nodes which are away, and for nothing else.

    All up to ``after`` do: they are not read and admitted again and again meanwhile.
    """

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
    """One greenlet a broker. ``start()`` it, ``stop()`` it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._quiet: dict[int, _Quiet] = {}
        self._ticked = -TICK_SECONDS
        self._held = _HeldUp(service.clock())
        self._clock = 0
        """The log's clock as this broker has last seen or left it; 0: not yet."""
        self._greenlet: Greenlet[[], None] | None = None

    def start(self) -> None:
        """Begin; what is pending from before is admitted at once."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End after the step that is going on."""
        self._service.stopping.set()
        self._service.frontier.activity.set()
        if self._greenlet is not None:
            self._greenlet.join()

    def _run(self) -> None:
        activity = self._service.frontier.activity
        stopping = self._service.stopping
        wait = 0.0
        while not stopping.is_set():
            heard = activity.wait(wait)
            activity.clear()
            if stopping.is_set():
                return
            began = self._service.clock()
            try:
                wait = self.step(in_use=bool(heard))
            except Unavailable as error:
                log.warning("upkeep waits", error=str(error))
                wait = QUIET_SECONDS
            except Exception:
                log.exception("upkeep failed")
                wait = QUIET_SECONDS
            took = self._service.clock() - began
            stopping.wait(max(BUSY_SECONDS, min(took / SCANNING_SHARE, QUIET_SECONDS)))

    def step(self, in_use: bool = True) -> float:
        """Do what is due; returns the seconds until the next look if nothing is heard before."""
        self._tick(in_use)
        pending = self._admit_pending()
        crawls = self._service.store.crawls()
        active = [c for c in crawls if c.state == "active"]
        known = {crawl.id for crawl in active}
        self._quiet = {id_: seen for id_, seen in self._quiet.items() if id_ in known}
        waits = [self._look_at(crawl, crawl.id in pending) for crawl in active]
        return min(waits, default=QUIET_SECONDS)

    def _tick(self, in_use: bool) -> None:
        now = self._service.clock()
        if in_use and now - self._ticked >= TICK_SECONDS:
            self._raise_clock()
            self._service.frontier.watch_memory()
            self._ticked = now

    def _raise_clock(self) -> None:
        """Write the log's clock to the nodes, then raise it; one of several brokers does.

        In this order a tick is a value that no later row falls behind. Who finds that the clock
        rose by itself since the last look leaves it to the others.
        """
        stamp = self._service.store.clock()
        self._service.frontier.tick(stamp)
        if self._clock and stamp.clock > self._clock:
            self._clock = stamp.clock
        else:
            self._clock = self._service.store.tick()

    def _admit_pending(self) -> set[int]:
        """Settle batches that a crash or an outage left; returns crawls that still have some."""
        held, now = self._held, self._service.clock()
        back = not held.nodes <= self._service.frontier.nodes_away().keys()
        if back or now - held.since > HELD_SECONDS:
            held = self._held = _HeldUp(now)
        waiting, between = set(held.crawls), False
        for batch in self._pending(held.after):
            if batch.id in self._service.admitting:  # its caller wants to know what was new
                waiting.add(batch.crawl)
                between = True
                continue
            try:
                away = seeding.settle(self._service, batch).away
            except Unavailable as error:
                log.warning("a batch of seeds waits", batch=batch.id, error=str(error))
                waiting.add(batch.crawl)
                between = True
                continue
            if not away:
                log.info("a pending batch of seeds was admitted", batch=batch.id)
                continue
            waiting.add(batch.crawl)
            if not between:  # else one before it is to be read again
                held.add(batch, away)
        return waiting

    def _pending(self, after: int) -> Iterator[SeedBatch]:
        """Pending batches, oldest first, some at a time: one that waits holds up no other."""
        while found := self._service.store.pending_seeds(after=after):
            yield from found
            after = found[-1].id

    def _look_at(self, crawl: Crawl, pending: bool) -> float:
        """Scan one crawl; returns the seconds until it is worth another look."""
        try:
            return self._scan(crawl, pending)
        except UnknownCrawl:  # it was deleted meanwhile
            return QUIET_SECONDS

    def _scan(self, crawl: Crawl, pending: bool) -> float:
        scan = self._service.frontier.look(crawl)
        if scan is None:
            self._quiet.pop(crawl.id, None)
            return BUSY_SECONDS
        sums, states = scan
        spent = self._spent_seconds(crawl)
        stored = self._service.store.stored(crawl.id) if crawl.options.max_pages else 0
        limit = limit_reached(crawl, sums, spent, stored)
        if limit:
            return self._end_at_limit(crawl, sums, states, limit)
        if states != {"active"}:  # the limit was raised, or who was about to end it died
            self._service.frontier.put_crawl(crawl)
            self._quiet.pop(crawl.id, None)
            return BUSY_SECONDS
        if sums.open or pending:
            self._quiet.pop(crawl.id, None)
            return self._until_limit(crawl, spent)
        seen, now = self._quiet.get(crawl.id), _seen(sums)
        self._quiet[crawl.id] = now
        if seen == now:
            self._finish(crawl, now)
        return BUSY_SECONDS

    def _end_at_limit(self, crawl: Crawl, sums: Sums, states: frozenset[str], limit: str) -> float:
        """Stop leasing, and set it done when nothing is leased: then nothing can be any more."""
        if states != {"stop"}:
            log.info("limit reached", crawl=crawl.name, limit=limit)
            self._service.frontier.stop_leasing(crawl)
        elif not sums.leased:
            self._done(crawl, limit)
        return BUSY_SECONDS

    def _spent_seconds(self, crawl: Crawl) -> float:
        """Seconds that the crawl was under way, counted only where there is a limit to them."""
        if not crawl.options.max_seconds:
            return 0.0
        most = round(2 * QUIET_SECONDS * 1000)
        return self._service.store.count_time(crawl.id, epoch_ms(), most) / 1000

    def _until_limit(self, crawl: Crawl, spent: float) -> float:
        """Nothing but time itself announces ``max_seconds``."""
        if not crawl.options.max_seconds:
            return QUIET_SECONDS
        return min(QUIET_SECONDS, max(BUSY_SECONDS, crawl.options.max_seconds - spent))

    def _finish(self, crawl: Crawl, quiet: _Quiet) -> None:
        """Shut the crawl, see that nothing came before it was shut, and set it done.

        Whoever comes with something new meanwhile finds it shut and raises its version in the
        store, so that it is not set done.
        """
        frontier = self._service.frontier
        frontier.shut(crawl)
        if not (self._is_still(crawl, quiet) and self._done(crawl, FINISHED)):
            frontier.put_crawl(self._service.store.crawl(crawl.id))

    def _is_still(self, crawl: Crawl, quiet: _Quiet) -> bool:
        """Whether every partition has shut the crawl, and saw nothing since ``quiet``."""
        scan = self._service.frontier.look(crawl)
        if scan is None:
            return False
        sums, states = scan
        return states == {"done"} and not sums.open and _seen(sums) == quiet

    def _done(self, crawl: Crawl, reason: str) -> bool:
        """Set it done, unless something changed since it was read, or a batch is pending."""
        changed = self._service.store.set_state(crawl.id, "done", reason, version=crawl.version)
        if changed.state != "done":
            return False
        self._service.frontier.put_crawl(changed)
        log.info("crawl done", crawl=crawl.name, reason=changed.reason)
        return True


def _seen(sums: Sums) -> _Quiet:
    return _Quiet(sums.admitted, sums.finished)


def limit_reached(crawl: Crawl, sums: Sums, spent_seconds: float, stored: int = 0) -> str:
    """The name of the limit that the crawl has reached, or "".

    ``stored``: pages by the store, which takes in no more than the limit, whatever Redis counts.
    """
    options = crawl.options
    if options.max_pages and max(sums.stored, stored) >= options.max_pages:
        return "max_pages"
    if options.max_bytes and sums.bytes >= options.max_bytes:
        return "max_bytes"
    if options.max_seconds and spent_seconds >= options.max_seconds:
        return "max_seconds"
    return ""
