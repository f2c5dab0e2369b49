"""The metrics that Prometheus reads at ``/metrics``: requests of this process, and the state of
frontier and store.

Names follow Prometheus' conventions. Labels have few values: operations, statuses, crawls (the
first :data:`MOST_CRAWLS`), functions of hooks, Redis nodes, duties, replicas. docs/metrics.md has
the table; a test compares it with what is served.
"""

from __future__ import annotations

from collections import Counter as Sums
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from greencrawl import __version__
from greencrawl.broker.api.messages import Text
from greencrawl.broker.api.vitals import VitalsCollector
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, CrawlStats

log = logger("metrics")

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0)
"""Bounds in seconds; the upper ones are for long polls."""

MOST_CRAWLS = 100
"""The counters of at most this many crawls are served: the active ones first, then the latest."""

COUNTERS = {
    "admitted": ("admitted_urls", "URLs that were ever queued"),
    "finished": ("finished_tasks", "Tasks that came to an end"),
    "stored": ("stored_pages", "Pages that were stored, each as often as it was"),
    "bytes": ("received_bytes", "Bytes of bodies, as they were transferred"),
    "dead": ("dead_urls", "URLs that were given up"),
    "retries": ("retries", "Attempts that failed and are repeated"),
    "unchanged": ("unchanged_pages", "Pages that were asked for again and had not changed"),
}
"""Counter of a crawl → its metric's name, and what it counts."""
GAUGES = {
    "waiting": "URLs that wait in Redis",
    "leased": "URLs that workers hold",
    "later": "URLs that are tried again, not yet due",
    "overflow": "URLs that wait in the store, beyond the budget of memory",
    "parked": "URLs that are parked, or were parked and are released now",
}
BATCH = 25
"""Crawls in one call to the nodes."""
STATES = ("active", "paused", "resting", "done")


class Metrics:
    """The metrics of one broker process, in a registry of its own.

    ``data`` is a folder; the used share of its file system is reported.
    """

    def __init__(self, service: Service, data: Path | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "greencrawl_http_requests",
            "Requests answered, by operation and status",
            ["operation", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "greencrawl_http_seconds",
            "Time until the answer was ready, long polls included",
            ["operation"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "greencrawl_http_in_flight", "Requests being answered now", registry=registry
        )
        about = Gauge(
            "greencrawl_broker_info", "1; the label tells the version", ["version"],
            registry=registry,
        )  # fmt: skip
        about.labels(__version__).set(1)
        ProcessCollector(registry=registry)
        registry.register(_CrawlCollector(service))
        registry.register(VitalsCollector(service, data))

    def text(self, accept: str = "") -> Text:
        """Return the metrics: in OpenMetrics if ``accept`` names it, else in Prometheus' text
        format."""
        encode, media_type = choose_encoder(accept)
        return Text(media_type, encode(self._registry), {"Vary": "Accept"})


class _CrawlCollector(Collector):
    """Asks the frontier at each scrape; if the frontier is away, this shows as ``up 0``, not as a
    503."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Return nothing: otherwise registering would scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See ``prometheus_client``."""
        up = GaugeMetricFamily("greencrawl_frontier_up", "1 when Redis and the store answer")
        yield GaugeMetricFamily(
            "greencrawl_lease_calls_waiting", "Calls of workers that wait here for a session",
            value=self._service.frontier.lease_calls_waiting,
        )  # fmt: skip
        try:
            found = list(self._crawls())
        except Unavailable as error:
            log.warning("frontier_not_reached", error=str(error))
            up.add_metric([], 0.0)
            yield up
            return
        up.add_metric([], 1.0)
        yield up
        yield from found

    def _crawls(self) -> Iterator[Metric]:
        service = self._service
        processes, _ = service.frontier.workers()
        yield GaugeMetricFamily(
            "greencrawl_worker_processes_heard", "Worker processes that reported within the last "
                                                 "minute",
            value=processes,
        )  # fmt: skip
        crawls = service.store.crawls()
        states = Sums[str](crawl.state for crawl in crawls)
        by_state = GaugeMetricFamily("greencrawl_crawls", "Crawls", labels=["state"])
        for state in STATES:
            by_state.add_metric([state], states[state])
        yield by_state
        counters = {
            field: CounterMetricFamily(f"greencrawl_crawl_{name}", meaning, labels=["crawl"])
            for field, (name, meaning) in COUNTERS.items()
        }
        gauges = {
            field: GaugeMetricFamily(f"greencrawl_crawl_{field}_urls", meaning, labels=["crawl"])
            for field, meaning in GAUGES.items()
        }
        hooks = GaugeMetricFamily(
            "greencrawl_crawl_hook_failed_pages",
            "Pages on which a function of the crawl's hook failed, and has not run well since",
            labels=["crawl", "function"],
        )
        active = GaugeMetricFamily(
            "greencrawl_crawl_active", "1 for a crawl that is active", labels=["crawl"]
        )
        whole = self._whole()
        for crawl, stats in self._stats(_first(crawls)):
            active.add_metric([crawl.name], crawl.state == "active")
            for field, family in gauges.items():
                family.add_metric([crawl.name], getattr(stats, field))
            for field, counter in counters.items():
                counter.add_metric([crawl.name], getattr(stats, field))
            failed = Sums[str]()
            for one in service.store.hook_counts(crawl.id) if crawl.options.hook else ():
                failed[one.function] += one.pages
            for function, pages in failed.items():
                hooks.add_metric([crawl.name, function], pages)
        yield from (active, *gauges.values(), hooks)
        if whole and self._whole():
            yield from counters.values()

    def _stats(self, crawls: list[Crawl]) -> Iterator[tuple[Crawl, CrawlStats]]:
        for at in range(0, len(crawls), BATCH):
            some = crawls[at : at + BATCH]
            yield from zip(some, self._service.frontier.stats_of(some), strict=True)

    def _whole(self) -> bool:
        """Return whether all nodes are counted.

        A sum without a node, or with one that is being refilled, would look like a counter that
        started again, and the next sum like a jump.
        """
        frontier = self._service.frontier
        return not (frontier.nodes_away() or frontier.owed())


def _first(crawls: list[Crawl]) -> list[Crawl]:
    """Return the crawls whose counters are served."""
    return sorted(crawls, key=lambda crawl: (crawl.state != "active", -crawl.id))[:MOST_CRAWLS]
