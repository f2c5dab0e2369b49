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
from msgspec.structs import replace

from greencrawl.broker.service.service import Service
from greencrawl.broker.service.watching import points
from greencrawl.monitor.background.counting import Counting
from greencrawl.monitor.background.yielding import yield_now, yielding
from greencrawl.monitor.shared import Shared
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, CrawlStats, HostState, Stats
from greencrawl.schema.records import Sample as Point

log = logger("monitor")

EVERY_SECONDS = 5.0
FIRST_SECONDS = (1.0, 2.0)
"""Seconds between the first samples: they are short, so that the first reader soon sees a rate."""
ACTIVE = "active"
KEPT = 720
"""Number of samples: an hour of them."""
LOOKED_SECONDS = 900.0
SPANS = {"hour": 3600, "day": 86_400, "month": 30 * 86_400}
"""How far plots go back, in seconds."""
MOST_POINTS = 1000
"""A plot has at most this many points of one crawl."""
STORED_SECONDS = 30.0
"""Seconds between two reads of the samples that are stored once a minute."""
SETTLED_SECONDS = 30.0
"""This long after a minute began, all crawls have their sample of the minute."""
RATE_SECONDS = 30.0
"""The span of a rate: workers store pages in batches, so over a shorter span a rate would jump."""
STEADY_SECONDS = 5.0
"""A rate over a shorter time is drawn only if there is no other."""
GAP_MS = 60_000
"""If two samples are further apart, no page was open between them."""
ENDED_SECONDS = 10.0
"""How long counters of a crawl that is not running are kept."""
LEASED_MS = 300_000
"""After this time the leases of a dead worker have ended, with the usual settings."""
BATCH = 5
"""At most this many crawls are counted at once: no other greenlet runs meanwhile."""


class Sample(Struct, frozen=True):
    """How often pages of each running crawl were stored, at a moment (Unix time)."""

    at_ms: int
    stored: dict[str, int]
    rates: dict[str, float] = {}
    """Pages a second of each crawl that is in an earlier sample as well."""
    seconds: float = 0.0
    """The span of the rates, ``RATE_SECONDS`` at most while somebody looks."""


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
        """Return the crawl's counters. Raises Unavailable."""
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
            for at in range(0, len(crawls), BATCH):
                if at:
                    yield_now()
                found += self._service.counters(crawls[at : at + BATCH])
            return {one.crawl: one for one in found}

        key = "counters", tuple((crawl.id, crawl.version) for crawl in crawls)
        return self._shared.get(key, count, seconds) if crawls else {}

    def host(self, name: str) -> HostState:
        """Return the state of a host. Raises Unavailable."""
        return self._shared.get(("host", name), lambda: self._service.frontier.host(name))

    def silent(self) -> list[str]:
        """Return the ids of silent workers, and of those that were lost a moment ago.

        Their tasks may still count as leased. The list is empty while Redis is away, since Redis
        keeps the beats.
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
            full = frontier.nodes_full()
            return Stats((), tuple(frontier.slowest()), *rest, away, workers, twice, full=full)

        return self._shared.get("system", ask)

    # -- rates

    def note_reader(self) -> None:
        """Note that a page is open: take samples from now on."""
        self._looked = monotonic()
        if not self._sampling:
            self._sampling = gevent.spawn(self._sample)

    def stop(self) -> None:
        """Stop sampling and counting."""
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

        The points go back an hour, a day or a month. One broker stores a sample each minute; for
        the last hour this broker also uses its own samples. Raises Unavailable.
        """
        last = self._samples[-1].at_ms if self._samples and span == "hour" else 0
        key = "plot", span, tuple(crawl.id for crawl in crawls), last
        return self._shared.get(key, lambda: self._plot(crawls, span), STORED_SECONDS)

    def _plot(self, crawls: Sequence[Crawl], span: str) -> tuple[list[int], list[float]]:
        now_ms = epoch_ms()
        since_ms = now_ms - SPANS[span] * 1000
        until_ms = now_ms - (SETTLED_SECONDS + STORED_SECONDS) * 1000  # later ones may lack crawls
        noted: dict[int, float] = {}
        for crawl in crawls:
            if crawl.state == "done" and 0 < crawl.finished_ms < since_ms:
                continue  # most crawls ended long ago
            for point in self._stored(crawl, span):
                if point.at_ms <= until_ms:
                    at, rate = point.at_ms // 1000, point.pages / max(point.seconds, 1)
                    back = min(point.seconds, at - since_ms // 1000) if span == "hour" else 1
                    for moment in range(at, at - max(back, 1), -60):  # usually one minute
                        noted[moment] = noted.get(moment, 0.0) + rate
        names = {crawl.name for crawl in crawls}
        found = dict(noted)
        own = list(self._samples) if span == "hour" else []
        for before, after in yielding(pairwise(own)):
            if after.at_ms - before.at_ms > GAP_MS:
                continue
            for at in range(before.at_ms // 1000 + 1, after.at_ms // 1000 + 1):
                found.pop(at, None)
            if after.seconds >= STEADY_SECONDS or not noted:
                rates = [rate for name, rate in after.rates.items() if name in names]
                found[after.at_ms // 1000] = sum(rates)
        moments = sorted(found)
        return moments, [float(f"{found[one]:.3g}") for one in moments]

    def _stored(self, crawl: Crawl, span: str) -> list[Point]:
        since_ms = epoch_ms() - SPANS[span] * 1000

        def read() -> list[Point]:
            rows = self._service.store.samples(crawl.id, since_ms, MOST_POINTS)
            found = points(crawl, rows, since_ms)
            return joined(found, SPANS[span] / MOST_POINTS / 2)

        return self._shared.get(("samples", crawl.id, span), read, STORED_SECONDS)

    def _sample(self) -> None:
        first = list(FIRST_SECONDS)
        while monotonic() - self._looked < LOOKED_SECONDS:
            try:
                going = [crawl for crawl in self.crawls() if _goes_on(crawl)]
                found = self.counters(going)
                stored = {one.name: found[one.name].fetched for one in going if one.state == ACTIVE}
                self._samples.append(sampled(list(self._samples), epoch_ms(), stored))
            except GreencrawlError as error:
                log.info("sample_not_taken", reason=str(error))
            gevent.sleep(first.pop(0) if first else EVERY_SECONDS)


def joined(found: list[Point], least_seconds: float) -> list[Point]:
    """Return the points; if the last one spans less than ``least_seconds``, join the last two.

    A store thins its samples, so the last point may span a few minutes while all other points span
    hours. The curve would jump at the last point.
    """
    if len(found) < 2 or found[-1].seconds >= least_seconds:
        return found
    *rest, before, last = found
    pages, seconds = before.pages + last.pages, before.seconds + last.seconds
    return [*rest, replace(last, pages=pages, seconds=seconds)]


def sampled(before: Sequence[Sample], at_ms: int, stored: dict[str, int]) -> Sample:
    """Return a sample with its rates since the samples of the last ``RATE_SECONDS``.

    If there are no such samples, the rates are those since the last sample. A crawl that is in no
    earlier sample has no rate.
    """
    recent = [one for one in before if at_ms - one.at_ms <= RATE_SECONDS * 1000] or before[-1:]
    first = {name: one for one in reversed(recent) for name in one.stored}
    rates = {
        name: max(pages - first[name].stored[name], 0) / _seconds(first[name], at_ms)
        for name, pages in stored.items()
        if name in first
    }
    return Sample(at_ms, stored, rates, _seconds(recent[0], at_ms) if recent else 0.0)


def _seconds(since: Sample, at_ms: int) -> float:
    return max(at_ms - since.at_ms, 1) / 1000


def _goes_on(crawl: Crawl) -> bool:
    return crawl.state == ACTIVE or crawl.stopping
