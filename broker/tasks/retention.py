"""Drops old rows from the store, so that it does not grow for ever.

This is a duty, so that one broker does it; its writes are checked against the duty's epoch. Each
hour it drops the journal's months, and expired rows. Once a day it drops attempts that brought a
page, earlier fetches, and batches of seeds that are no longer needed. All of it is done in steps of
some milliseconds with equal pauses between them, and may end anywhere: the next pass starts again
and finds less.

A batch of seeds is kept to be queued again in a Redis that lost it. Once each of its URLs has a
page or a final state, a replay marks them as settled by these, and the batch is not needed any
more. Any action that makes such a URL wait again (a dead letter that is requeued, a shape that is
released) logs a batch of its own. For a forced batch each URL must have been settled after the
batch was stored: a replay of everything requires that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import gevent
from gevent import Greenlet

from greencrawl.broker.frontier.coordination.duties import RETENTION
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.throttle import rested
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, Duty, SeedBatch
from greencrawl.store import months
from greencrawl.store.base import Store

log = logger("retention")

HOUR_SECONDS = 3600.0
DAY_SECONDS = 86_400.0
LOOK_SECONDS = 10.0
"""Seconds between two checks whether the duty is ours and something is due."""
FIRST_SECONDS = 30.0
"""Seconds between the start of a broker and its first daily sweep."""
BATCH = 500
"""Fingerprints of seeds that are looked up in one statement."""
DAY_MS = 86_400_000
MEMBER_DAYS = 30
"""How long a member that left is remembered."""
ORDER_DAYS = 1000
"""How long the log of orders is kept."""


@dataclass(frozen=True)
class Limits:
    """How long rows are kept: in days, and in whole months beside the present one; 0: for ever."""

    journal_months: int = 0
    journal_days: int = 0
    version_days: int = 0


class Retention:
    """The greenlet of retention, one in each broker. ``start()`` it, ``stop()`` it."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._limits = limits
        self._hourly = service.clock()
        self._daily = service.clock() + FIRST_SECONDS
        self._greenlet: Greenlet[[], None] | None = None

    def start(self) -> None:
        """Begin to check."""
        self._service.duties.want(RETENTION)
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End at once: what is under way is undone, and the next broker continues."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def _run(self) -> None:
        stopping = self._service.stopping
        while not stopping.is_set():
            try:
                self.look(epoch_ms())
            except DutyLost:
                self._service.duties.lost(RETENTION)
            except Unavailable as error:
                log.warning("retention_delayed", error=str(error))
            except Exception:
                log.exception("retention_failed")
            stopping.wait(LOOK_SECONDS)

    def look(self, now_ms: int) -> None:
        """Do what is due if the duty is ours. ``now_ms`` is Unix milliseconds.

        Raises Unavailable, and DutyLost if another broker has taken it meanwhile.
        """
        now = self._service.clock()
        if now < self._hourly and now < self._daily:
            return
        duty = self._service.duties.take(RETENTION)
        if duty is None:
            return
        if now >= self._hourly:
            self._hour(self._service.store.under(duty), now_ms)
            self._hourly = now + HOUR_SECONDS
        if now >= self._daily:
            self.sweep(duty, now_ms)
            self._daily = now + DAY_SECONDS

    def _hour(self, store: Store, now_ms: int) -> None:
        store.prepare_months(now_ms)
        if self._limits.journal_months:
            oldest = months.start_ms(months.month_of(now_ms) - self._limits.journal_months)
            oldest = min(
                oldest, now_ms - self._limits.journal_days * DAY_MS
            )  # months differ in length
            self._told("months of the journal", self._rested(store.drop_months(oldest)))
        self._told("what has expired", self._rested(store.drop_expired(now_ms)))

    def sweep(self, duty: Duty, now_ms: int) -> None:
        """Run one daily pass. Raises Unavailable and DutyLost."""
        store, limits = self._service.store.under(duty), self._limits
        if limits.journal_days:
            steps = store.drop_successes(now_ms - limits.journal_days * DAY_MS)
            self._told("attempts that brought a page", self._rested(steps))
        if limits.version_days:
            steps = store.drop_versions(now_ms - limits.version_days * DAY_MS)
            self._told("earlier fetches", self._rested(steps))
        self._told("batches of seeds", self._rested(self._seeds(store)))
        self._told("members that left", store.drop_members(now_ms - MEMBER_DAYS * DAY_MS))
        self._told("orders of old", store.drop_orders_log(now_ms - ORDER_DAYS * DAY_MS))

    def _rested(self, steps: Iterable[int]) -> int:
        return sum(rested(steps, self._service.clock))

    @staticmethod
    def _told(what: str, dropped: int) -> None:
        if dropped:
            log.info("rows_dropped", what=what, count=dropped)

    # -- batches of seeds

    def _seeds(self, store: Store) -> Iterator[int]:
        for crawl in store.crawls():
            for batch in store.seeds(crawl.id):
                done = self._settled(store, crawl, batch)
                yield store.drop_seeds([(batch.id, batch.stamp)]) if done else 0

    def _settled(self, store: Store, crawl: Crawl, batch: SeedBatch) -> bool:
        """Return whether each URL of a batch has a page or a final state; in a forced batch, a
        later one."""
        for start in range(0, len(batch.urls), BATCH):
            some: Sequence[int] = [
                self._service.frontier.fingerprint(item.url)
                for item in batch.urls[start : start + BATCH]
            ]
            stamps = store.stamps(crawl.id, some)
            least = batch.stamp + 1 if batch.force else 0
            if any(stamps.get(number, -1) < least for number in some):
                return False
        return True
