"""Counters of crawls for pages: read once a second, and kept for an hour for plots.

Samples are taken while a page is open, and for a quarter of an hour after that; plots go further
back with the coordinator's samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import gevent
from msgspec import Struct

from greencrawl.broker.service.service import Service
from greencrawl.broker.service.watching import points
from greencrawl.monitor.beside.counting import Counting
from greencrawl.monitor.beside.gently import breathe, gently
from greencrawl.monitor.shared import Shared
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, CrawlStats, HostState, Stats
from greencrawl.schema.records import Sample as Point

log = logger("monitor")

EVERY_SECONDS = 5.0
FIRST_SECONDS = (1.0, 2.0)
"""Seconds between the first samples, so that the first reader soon sees a rate."""
ACTIVE = "active"
KEPT = 720
"""Number of samples: an hour of them."""
LOOKED_SECONDS = 900.0
SPANS = {"hour": 3600, "day": 86_400, "month": 30 * 86_400}
"""How far plots go back, in seconds."""
STORED_SECONDS = 30.0
"""Seconds between two reads of the samples that are stored once a minute."""
ENDED_SECONDS = 10.0
"""How long counters of a crawl that is not running are kept."""
LEASED_MS = 300_000
"""After that the leases of a dead worker have ended, at usual settings."""
TOGETHER = 5
"""Number of crawls that are counted at once. Meanwhile nobody else is served."""


class Sample(Struct, frozen=True):
    """The stored pages of each running crawl at a moment (epoch)."""

    at_ms: int
    stored: dict[str, int]
    rates: dict[str, float] = {}
    """Pages a second since the sample before, of those that are in both."""


class Figures:
    """The figures of one broker; any number of pages read them."""

    def __init__(self, service: Service, shared: Shared) -> None:
        self._service = service
        self._shared = shared
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._looked = 0.0
        self._sampling: gevent.Greenlet[[], None] | None = None
        self.counting = Counting(service.store.counts)
        """Counts the stored rows of each crawl."""

    def crawls(self) -> list[Crawl]:
        """Return all crawls, oldest first. Raises Unavailable."""
        return self._shared.get("crawls", self._service.store.crawls)

    def crawl(self, name: str) -> Crawl:
        """Return one crawl. Raises UnknownCrawl and Unavailable."""
        return self._shared.get(("crawl", name), lambda: self._service.store.crawl(name))

    def stats(self, crawl: Crawl) -> CrawlStats:
        """Return its counters. Raises Unavailable."""
        seconds = 1.0 if _goes_on(crawl) else ENDED_SECONDS
        key = "stats", crawl.id, crawl.version
        return self._shared.get(key, lambda: self._service.stats(crawl), seconds)

    def counters(self, crawls: Sequence[Crawl]) -> dict[str, CrawlStats]:
        """Return counters of crawls by name, without periods, rounds and failures of hooks.

        Raises Unavailable.
        """
        going = [crawl for crawl in crawls if _goes_on(crawl)]
        ended = [crawl for crawl in crawls if not _goes_on(crawl)]
        return {**self._counters(going, 1.0), **self._counters(ended, ENDED_SECONDS)}

    def _counters(self, crawls: Sequence[Crawl], seconds: float) -> dict[str, CrawlStats]:
        def count() -> dict[str, CrawlStats]:
            found: list[CrawlStats] = []
            for at in range(0, len(crawls), TOGETHER):
                if at:
                    breathe()
                found += self._service.counters(crawls[at : at + TOGETHER])
            return {one.crawl: one for one in found}

        key = "counters", tuple((crawl.id, crawl.version) for crawl in crawls)
        return self._shared.get(key, count, seconds) if crawls else {}

    def host(self, name: str) -> HostState:
        """Return the state of a host. Raises Unavailable."""
        return self._shared.get(("host", name), lambda: self._service.frontier.host(name))

    def silent(self) -> list[str]:
        """Return the ids of silent workers, and of those that were lost a moment ago.

        Their tasks may still count as leased. Empty while Redis is away, since it keeps the beats.
        """

        def ask() -> list[str]:
            if self._service.frontier.nodes_away():
                return []
            since_ms = epoch_ms() - LEASED_MS
            return [
                one.id
                for one in self._service.members.list(gone=True)
                if one.kind == "worker"
                and (one.status == "silent" or (one.status == "lost" and one.left_ms > since_ms))
            ]

        return self._shared.get("silent", ask)

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
        """Take no more samples, and count nothing more."""
        self.counting.stop()
        if self._sampling is not None:
            self._sampling.kill()

    def rate(self, name: str) -> float | None:
        """Return the present pages a second of a crawl; None before there are two samples."""
        if len(self._samples) < 2:
            return None
        return self._samples[-1].rates.get(name, 0.0)

    def plot(self, crawls: Sequence[Crawl], span: str = "hour") -> tuple[list[int], list[float]]:
        """Return (seconds since 1970, pages a second) of these crawls together.

        They go back an hour, a day or a month: a broker notes them each minute, and this one also
        within the last hour. Raises Unavailable.
        """
        last = self._samples[-1].at_ms if self._samples else 0
        key = "plot", span, tuple(crawl.id for crawl in crawls), last
        return self._shared.get(key, lambda: self._plot(crawls, span), STORED_SECONDS)

    def _plot(self, crawls: Sequence[Crawl], span: str) -> tuple[list[int], list[float]]:
        found: dict[int, float] = {}
        since_ms = epoch_ms() - SPANS[span] * 1000
        for crawl in crawls:
            if crawl.state == "done" and 0 < crawl.finished_ms < since_ms:
                continue  # of a hundred crawls most are done for long
            for point in self._stored(crawl, span):
                at = point.at_ms // 1000
                found[at] = found.get(at, 0.0) + point.pages / max(point.seconds, 1)
        own = list(self._samples) if span == "hour" else []
        if len(own) > 1:
            began = own[0].at_ms // 1000
            found = {at: rate for at, rate in found.items() if at < began}
            names = {crawl.name for crawl in crawls}
            for one in gently(own[1:]):
                rates = [rate for name, rate in one.rates.items() if name in names]
                found[one.at_ms // 1000] = sum(rates)
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
                going = [crawl for crawl in self.crawls() if _goes_on(crawl)]
                found = self.counters(going)
                stored = {one.name: found[one.name].stored for one in going if one.state == ACTIVE}
                before = self._samples[-1] if self._samples else Sample(0, {})
                self._samples.append(_sample(before, epoch_ms(), stored))
            except GreencrawlError as error:
                log.info("no_sample", reason=str(error))
            gevent.sleep(first.pop(0) if first else EVERY_SECONDS)


def _sample(before: Sample, at_ms: int, stored: dict[str, int]) -> Sample:
    """Return a sample with its rates; a crawl that is in only one of them has none."""
    seconds = max(at_ms - before.at_ms, 1) / 1000
    rates = {
        name: max(pages - before.stored[name], 0) / seconds
        for name, pages in stored.items()
        if name in before.stored
    }
    return Sample(at_ms, stored, rates)


def _goes_on(crawl: Crawl) -> bool:
    return crawl.state == ACTIVE or crawl.stopping
