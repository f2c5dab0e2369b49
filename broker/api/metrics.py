"""What Prometheus reads at ``/metrics``: requests of this process, and the frontier's counters."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from greencrawl.broker.api.messages import Text
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger

log = logger("metrics")

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0)
"""Seconds; the upper ones are long polls."""

CRAWL_FIELDS = (
    "waiting", "leased", "later", "admitted", "finished", "stored", "dead", "parked", "bytes",
    "unchanged",
)  # fmt: skip


class Metrics:
    """The metrics of one broker process, in a registry of its own."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "greencrawl_http_requests",
            "Requests answered, by operation and status",
            ["operation", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "greencrawl_http_seconds",
            "Time until the answer was ready, long polls included",
            ["operation"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "greencrawl_http_in_flight", "Requests being answered now", registry=self._registry
        )
        self._registry.register(_FrontierCollector(service))

    def text(self) -> Text:
        """The exposition in Prometheus' text format."""
        return Text(CONTENT_TYPE_LATEST, generate_latest(self._registry))


class _FrontierCollector(Collector):
    """Asks the frontier at each scrape; a frontier that is away shows as ``up 0``, not as a 503."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        return []  # else registering would scrape

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("greencrawl_frontier_up", "1 when Redis and the store answer")
        try:
            found = list(self._frontier()) + self._crawls()
        except Unavailable as error:
            log.warning("frontier_away", error=str(error))
            up.add_metric([], 0.0)
            yield up
            return
        up.add_metric([], 1.0)
        yield up
        yield from found

    def _frontier(self) -> Iterator[Metric]:
        for name, value in sorted(self._service.frontier.metrics().items()):
            yield GaugeMetricFamily(f"greencrawl_frontier_{name}", "From the frontier", value=value)

    def _crawls(self) -> list[Metric]:
        families = {
            field: GaugeMetricFamily(
                f"greencrawl_crawl_{field}", f"Counter `{field}` of a crawl", labels=["crawl"]
            )
            for field in CRAWL_FIELDS
        }
        hooks = GaugeMetricFamily(
            "greencrawl_crawl_hook_failures",
            "Pages on which a function of the crawl's hook failed, by what it said",
            labels=["crawl", "function", "message"],
        )
        for crawl in self._service.store.crawls():
            stats = self._service.stats(crawl)
            for field, family in families.items():
                family.add_metric([crawl.name], float(getattr(stats, field)))
            for one in stats.hooks:
                hooks.add_metric([crawl.name, one.function, one.message], float(one.pages))
        return [*families.values(), hooks]
