"""Counters of crawls for pages: read once a second, and kept for an hour for plots.

Samples are taken while a page is open, and for a quarter of an hour after that; plots go further
back with the coordinator's samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import gevent
from msgspec import Struct

from greencrawl.broker.service.service import Service
from greencrawl.broker.service.watching import points
from greencrawl.monitor.shared import Shared
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, CrawlStats, Stats
from greencrawl.schema.records import Sample as Point

log = logger("monitor")

EVERY_SECONDS = 5.0
FIRST_SECONDS = (1.0, 2.0)
"""Seconds between the first samples, so that the first reader soon sees a rate."""
KEPT = 720
"""Number of samples: an hour of them."""
LOOKED_SECONDS = 900.0
SPANS = {"hour": 3600, "day": 86_400, "month": 30 * 86_400}
"""How far plots go back, in seconds."""
STORED_SECONDS = 30.0
"""Seconds between two reads of the samples that are stored once a minute."""
ENDED_SECONDS = 10.0
"""How long counters of a crawl that is not running are kept."""


class Sample(Struct, frozen=True):
    """The stored pages of each running crawl at a moment (epoch)."""

    at_ms: int
    stored: dict[str, int]


class Figures:
    """The figures of one broker; any number of pages read them."""

    def __init__(self, service: Service, shared: Shared) -> None:
        self._service = service
        self._shared = shared
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._looked = 0.0
        self._sampling: gevent.Greenlet[[], None] | None = None

    def crawls(self) -> list[Crawl]:
        """Return all crawls, oldest first. Raises Unavailable."""
        return self._shared.get("crawls", self._service.store.crawls)

    def crawl(self, name: str) -> Crawl:
        """Return one crawl. Raises UnknownCrawl and Unavailable."""
        return self._shared.get(("crawl", name), lambda: self._service.store.crawl(name))

    def stats(self, crawl: Crawl) -> CrawlStats:
        """Return its counters. Raises Unavailable."""
        seconds = 1.0 if crawl.state == "active" or crawl.stopping else ENDED_SECONDS
        key = "stats", crawl.id, crawl.version
        return self._shared.get(key, lambda: self._service.stats(crawl), seconds)

    def system(self) -> Stats:
        """Return the part of ``/v1/stats`` that is not about crawls. Raises Unavailable."""

        def ask() -> Stats:
            frontier = self._service.frontier
            workers, twice = frontier.workers()
            rest = frontier.resting()
            away = tuple(frontier.nodes_away().values())
            return Stats((), tuple(frontier.slowest()), *rest, away, workers, twice)

        return self._shared.get("system", ask)

    # -- rates

    def look(self) -> None:
        """Note that a page is open: take samples from now on."""
        self._looked = monotonic()
        if not self._sampling:
            self._sampling = gevent.spawn(self._sample)

    def stop(self) -> None:
        """Take no more samples."""
        if self._sampling is not None:
            self._sampling.kill()

    def rate(self, name: str) -> float | None:
        """Return the present pages a second of a crawl; None before there are two samples."""
        if len(self._samples) < 2:
            return None
        return _rate(self._samples[-2], self._samples[-1], [name])

    def plot(self, crawls: Sequence[Crawl], span: str = "hour") -> tuple[list[int], list[float]]:
        """Return (seconds since 1970, pages a second) of these crawls together.

        They go back an hour, a day or a month: a broker notes them each minute, and this one also
        within the last hour. Raises Unavailable.
        """
        found: dict[int, float] = {}
        for crawl in crawls:
            for point in self._stored(crawl, span):
                at = point.at_ms // 1000
                found[at] = found.get(at, 0.0) + point.pages / max(point.seconds, 1)
        own = list(pairwise(self._samples)) if span == "hour" else []
        if own:
            began = own[0][0].at_ms // 1000
            found = {at: rate for at, rate in found.items() if at < began}
            names = [crawl.name for crawl in crawls]
            found |= {after.at_ms // 1000: _rate(before, after, names) for before, after in own}
        moments = sorted(found)
        return moments, [round(found[one], 2) for one in moments]

    def _stored(self, crawl: Crawl, span: str) -> list[Point]:
        since_ms = epoch_ms() - SPANS[span] * 1000

        def read() -> list[Point]:
            return points(self._service.store.samples(crawl.id, since_ms))

        return self._shared.get(("samples", crawl.id, span), read, STORED_SECONDS)

    def _sample(self) -> None:
        first = list(FIRST_SECONDS)
        while monotonic() - self._looked < LOOKED_SECONDS:
            try:
                going = [crawl for crawl in self.crawls() if crawl.state == "active"]
                stored = {crawl.name: self.stats(crawl).stored for crawl in going}
                self._samples.append(Sample(epoch_ms(), stored))
            except GreencrawlError as error:
                log.info("no_sample", reason=str(error))
            gevent.sleep(first.pop(0) if first else EVERY_SECONDS)


def _rate(before: Sample, after: Sample, names: Sequence[str]) -> float:
    """Return the pages a second between two samples; a crawl that is in only one counts nothing."""
    both = [name for name in names if name in before.stored and name in after.stored]
    pages = sum(after.stored[name] - before.stored[name] for name in both)
    return max(pages, 0) * 1000 / max(after.at_ms - before.at_ms, 1)
