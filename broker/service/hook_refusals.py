"""Knows which workers cannot import a crawl's hook or kernels, as their requests for leases say.

The store has these refusals, so that every broker knows them. A refusal is written when it changes,
and once in :data:`LIFE_SECONDS` / 2 while it lasts. Only this broker knows which workers there are.
"""

from __future__ import annotations

from greencrawl.schema.clock import Clock, epoch_ms, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, CrawlStats, HookRefusal, LeaseRequest, Refusal
from greencrawl.schema.text.kernel_rules import own_code
from greencrawl.store.base import Store

LIFE_SECONDS = 120.0
"""How long a refusal counts after a worker has repeated it; each lease does, all 20 s or so."""

log = logger("refusals")


class Refusals:
    """The refusals that one broker knows."""

    def __init__(self, store: Store, clock: Clock = monotonic) -> None:
        self._store = store
        self._clock = clock
        self._workers: dict[str, tuple[float, tuple[Refusal, ...]]] = {}
        """Worker → when it last asked for a lease, and what it refused."""
        self._written: dict[str, float] = {}
        """Worker → when its refusals were last written."""
        self._forgot = clock()

    def note(self, request: LeaseRequest) -> None:
        """Note what a worker refuses. If the store is away, the refusals are written later."""
        now, worker = self._clock(), request.worker
        _, before = self._workers.get(worker, (0.0, ()))
        if now - self._forgot > LIFE_SECONDS:
            self._forget()
        self._workers[worker] = now, request.refuses
        old = now - self._written.get(worker, -LIFE_SECONDS) >= LIFE_SECONDS / 2
        if before == request.refuses and not (request.refuses and old):
            return
        until_ms = epoch_ms() + round(LIFE_SECONDS * 1000)
        try:
            self._store.put_refusals(worker, request.host, request.refuses, until_ms)
        except Unavailable as error:
            log.warning("refusals_not_noted", worker=worker, error=str(error))
            self._workers[worker] = now, before
            return
        self._written[worker] = now

    def _forget(self) -> None:
        now = self._forgot = self._clock()
        for worker, (at, _) in list(self._workers.items()):
            if now - at > LIFE_SECONDS:
                del self._workers[worker]
                self._written.pop(worker, None)

    def of(self, crawl: Crawl) -> tuple[HookRefusal, ...]:
        """Return workers that refuse the crawl for its present code. Raises Unavailable."""
        hook = own_code(crawl.options)
        found = self._store.refusals(epoch_ms())
        return tuple(one for number, one in found if (number, one.hook) == (crawl.id, hook))

    def stuck(self, crawl: Crawl, stats: CrawlStats, refused: tuple[HookRefusal, ...]) -> bool:
        """Return whether no known worker takes the crawl: no task is leased, and all refuse."""
        if not refused or stats.leased or crawl.state != "active":
            return False
        names = {one.worker for one in refused}
        self._forget()
        return all(worker in names for worker in self._workers)
