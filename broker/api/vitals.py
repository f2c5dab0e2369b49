"""Metrics of what brokers depend on: Redis nodes, the store, duties, and the disk.

If something cannot be asked, its metric is left out, and its ``_up`` or ``_writable`` shows that; a
scrape never fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from greencrawl.broker.frontier.recovery.vitals import NodeVitals
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.store.base import DUTY_SECONDS

log = logger("metrics")

SIZE_SECONDS = 60.0
"""Seconds between two queries for the store's size, which MySQL sums over its tables."""

T = TypeVar("T")

_NODE: dict[str, tuple[str, Callable[[NodeVitals], float]]] = {
    "memory_used_bytes": ("Memory of a Redis node's data", lambda one: one.used_bytes),
    "memory_limit_bytes": ("The most that these data may take", lambda one: one.limit_bytes),
    "full": ("1 while a node is near its limit and takes no seeds", lambda one: one.full),
    "replaying": (
        "1 while any broker gives a node what it lost",
        lambda one: one.repair is not None and one.repair.phase not in ("none", "done"),
    ),
    "replay_done_rows": (
        "Rows that a node got in this broker's present or last replay",
        lambda one: one.repair.done if one.repair is not None else 0,
    ),
    "replay_rows": (
        "Rows of that replay in all",
        lambda one: one.repair.total if one.repair is not None else 0,
    ),
}


class VitalsCollector(Collector):
    """Asks Redis and the store at each scrape."""

    def __init__(self, service: Service, data: Path | None = None) -> None:
        self._service = service
        self._data = data
        self._size = 0
        self._sized = -inf

    def describe(self) -> list[Metric]:
        """Return nothing: otherwise registering would scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """See ``prometheus_client``."""
        yield from self._redis()
        yield from self._store()
        yield from self._duties()
        if self._data is not None:
            place = os.statvfs(self._data)
            size, free = place.f_blocks * place.f_frsize, place.f_bavail * place.f_frsize
            name = "greencrawl_broker_data_"
            yield GaugeMetricFamily(
                name + "size_bytes", "Size of the file system with the data folder", value=size
            )
            yield GaugeMetricFamily(
                name + "free_bytes", "Free space of that file system", value=free
            )

    def _redis(self) -> Iterator[Metric]:
        nodes = self._service.frontier.vitals()
        up = _by("redis_up", "1 while a Redis node answers and serves", "node")
        epoch = _by("redis_epoch", "Epoch of a node; it rises when the node lost something", "node")
        for one in nodes:
            up.add_metric([one.node], one.up)
            epoch.add_metric([one.node], one.epoch)
        yield from (up, epoch)
        for name, (meaning, value) in _NODE.items():
            family = _by(f"redis_{name}", meaning, "node")
            for one in nodes:
                if one.up:
                    family.add_metric([one.node], float(value(one)))
            yield family
        owed = self._asked(self._service.store.debts)
        if owed is not None:
            family = _by("redis_owed", "1 while a node is owed what it missed when away", "node")
            for one in nodes:
                family.add_metric([one.node], one.id in owed)
            yield family

    def _store(self) -> Iterator[Metric]:
        duties, store = self._service.duties, self._service.store
        yield GaugeMetricFamily(
            "greencrawl_store_writable",
            "1 while this broker can write to the store to keep its duties, every 2 s",
            value=duties.renewed_ago < DUTY_SECONDS,
        )
        yield SummaryMetricFamily(
            "greencrawl_store_renewal_seconds",
            "Time of these transactions",
            count_value=duties.renewals,
            sum_value=duties.renewal_seconds,
        )
        now = self._service.clock()
        if now - self._sized >= SIZE_SECONDS:
            size = self._asked(store.size)
            if size is not None:
                self._size, self._sized = size, now
        if self._sized > -inf:
            yield GaugeMetricFamily(
                "greencrawl_store_size_bytes", "Size of the store, without files of bodies",
                value=self._size,
            )  # fmt: skip
        up = _by("store_replica_up", "1 while a replica answers and follows", "replica")
        lags = _by(
            "store_replica_lag_seconds",
            "How far the replica is behind the writer, at most",
            "replica",
        )
        for replica, lag in (self._asked(store.lags) or {}).items():
            up.add_metric([replica], lag is not None)
            if lag is not None:
                lags.add_metric([replica], lag)
        yield from (up, lags)

    def _duties(self) -> Iterator[Metric]:
        held = _by("duty_held", "1 for a duty that this broker has", "duty")
        epoch = _by("duty_epoch", "Epoch of the duty, reported by the broker that has it", "duty")
        for name, number in sorted(self._service.duties.held().items()):
            held.add_metric([name], 1)
            epoch.add_metric([name], number)
        yield from (held, epoch)

    @staticmethod
    def _asked(question: Callable[[], T]) -> T | None:
        """Return the answer; None if no answer comes."""
        try:
            return question()
        except Unavailable as error:
            log.info("metrics_omitted", reason=str(error))
            return None


def _by(name: str, meaning: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"greencrawl_{name}", meaning, labels=[label])
