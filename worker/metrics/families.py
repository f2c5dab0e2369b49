"""Makes Prometheus' metrics from the numbers of a worker's processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from greencrawl import __version__
from greencrawl.schema.settings import Settings
from greencrawl.worker.metrics.table import FAMILIES, PREFIX, SLOT, Family
from greencrawl.worker.metrics.tallies import Tallies, attach, files_of

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROCESS_ID = SLOT["process_id"]


class WorkerCollector(Collector):
    """The metrics of one worker: read from its processes' files at each scrape."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        """See ``prometheus_client``."""
        files = files_of(self._folder, self._settings.worker_id)
        found = {str(n): tallies for n, path in files.items() if (tallies := attach(path))}
        try:
            yield from self._worker(found)
            for family in FAMILIES:
                yield _metric(family, found)
        finally:
            for tallies in found.values():
                tallies.close()

    def _worker(self, found: Mapping[str, Tallies]) -> Iterator[Metric]:
        memory = GaugeMetricFamily(
            PREFIX + "resident_memory_bytes", "Memory of a process", labels=["process"]
        )
        alive = 0
        for number, tallies in found.items():
            size = _resident_bytes(int(tallies.get(_PROCESS_ID)))
            alive += size is not None
            memory.add_metric([number], size or 0.0)
        yield memory
        yield GaugeMetricFamily(PREFIX + "processes", "Live processes", value=alive)
        about = GaugeMetricFamily(
            PREFIX + "info", "1; the labels tell who serves this", labels=["worker", "version"]
        )
        about.add_metric([self._settings.worker_id, __version__], 1.0)
        yield about
        place = os.statvfs(self._settings.data)
        yield GaugeMetricFamily(
            PREFIX + "data_size_bytes", "Size of the file system with the data folder",
            value=place.f_blocks * place.f_frsize,
        )  # fmt: skip
        yield GaugeMetricFamily(
            PREFIX + "data_free_bytes", "Free space of that file system",
            value=place.f_bavail * place.f_frsize,
        )  # fmt: skip


def _metric(family: Family, found: Mapping[str, Tallies]) -> Metric:
    first, name = SLOT[family.name], PREFIX + family.name
    if family.kind == "histogram":
        numbers = [
            sum(tallies.get(first + at) for tallies in found.values())
            for at in range(family.slots)
        ]  # fmt: skip
        bounds = [*map(str, family.buckets), "+Inf"]
        counts = accumulate(numbers[:-1])
        histogram = HistogramMetricFamily(name, family.help)
        histogram.add_metric([], list(zip(bounds, counts, strict=True)), numbers[-1])
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    made = kind(name, family.help, labels=[family.label or "process"])
    if family.label:
        for at, value in enumerate(family.values):
            made.add_metric([value], sum(tallies.get(first + at) for tallies in found.values()))
    else:
        for number, tallies in found.items():
            made.add_metric([number], tallies.get(first))
    return made


def _resident_bytes(pid: int) -> int | None:
    """Return the resident bytes of a process; None if it is not there."""
    with suppress(OSError):
        if pid:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return None


def exposition(collector: Collector, accept: str) -> tuple[bytes, str]:
    """Return the answer to a scrape, and its media type: OpenMetrics for clients that ask for
    it."""
    encode, media_type = choose_encoder(accept)
    return encode(collector), media_type
