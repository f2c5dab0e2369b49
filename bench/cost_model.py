"""What a crawl of so many processes will do, from the CPU that each part spends: a cost model.

A closed queueing network, solved by exact mean value analysis (Reiser and Lavenberg, 1980). Its
customers are the sessions, as many as hosts are fetched from at once; each page of a session waits
out the host's latency and what batches cost it, and then queues for CPU at two stations:

* the worker processes, each of which runs on one core at a time: its threads (SQLite, packing)
  may use a second one, but they and the hub wait for the same interpreter lock;
* the machine, whose cores all parts share: workers, broker, Redis, and here also the web server.

A station of several servers is taken for one that is as much faster, and a delay that makes up for
it (Seidmann, 1987). CPU of a part is ``fixed`` cores plus ``per_page`` seconds times pages a
second, by least squares over the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Sample:
    """A measurement: ``busy`` are cores by part; ``latency`` in seconds."""

    processes: int
    sessions: int
    latency: float
    pages_s: float
    busy: dict[str, float]


class Part(NamedTuple):
    """CPU of a part: cores that it takes in any case, and seconds a page."""

    fixed: float
    per_page: float


@dataclass(frozen=True)
class Costs:
    """The fitted model. ``wait`` seconds a page are neither latency nor CPU: batches, leases."""

    parts: dict[str, Part]
    wait: float
    cores: float

    @property
    def page(self) -> float:
        """CPU seconds a page, over all parts."""
        return sum(part.per_page for part in self.parts.values())

    def machine_bound(self, processes: int) -> float:
        """Pages a second when all cores are busy."""
        fixed = sum(
            part.fixed * (processes if name == "worker" else 1) for name, part in self.parts.items()
        )
        return max(0.1, self.cores - fixed) / self.page

    def worker_bound(self, processes: int) -> float:
        """Pages a second when every worker process has its core busy."""
        worker = self.parts["worker"]
        return processes * max(0.1, 1 - worker.fixed) / worker.per_page

    def predict(self, processes: int, sessions: int, latency: float) -> float:
        """Pages a second of ``processes`` workers that fetch from ``sessions`` hosts at once."""
        demands, delay = [], latency + self.wait
        for bound, servers, demand in (
            (self.worker_bound(processes), processes, self.parts["worker"].per_page),
            (self.machine_bound(processes), self.cores, self.page),
        ):
            demands.append(1 / bound)
            delay += demand * (1 - 1 / servers) if servers > 1 else 0.0
        return throughput(demands, delay, sessions)


def throughput(demands: Sequence[float], delay: float, customers: int) -> float:
    """Pages a second of a closed network: seconds a page at each station, and ``delay`` beside."""
    queues = [0.0] * len(demands)
    rate = 0.0
    for count in range(1, customers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        rate = count / (delay + sum(times))
        queues = [rate * time for time in times]
    return rate


class Line(NamedTuple):
    """y = intercept + slope · x; ``r2`` is the share of the variance that it explains."""

    slope: float
    intercept: float
    r2: float


def line(points: Sequence[tuple[float, float]]) -> Line:
    """The straight line of least squares. Raises ValueError for less than two different x."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / max(1, count)
    mean_y = sum(y for _, y in points) / max(1, count)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        raise ValueError("a line needs two different x")
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    intercept = mean_y - slope * mean_x
    left = sum((y - intercept - slope * x) ** 2 for x, y in points)
    total = sum((y - mean_y) ** 2 for _, y in points)
    return Line(slope, intercept, 1 - left / total if total else 1.0)


def fit_part(points: Sequence[tuple[float, float]]) -> Part:
    """From (pages a second, cores): no part spends less than nothing at rest."""
    found = line(points)
    if found.intercept >= 0 and found.slope >= 0:
        return Part(found.intercept, found.slope)
    squares = sum(x * x for x, _ in points)
    return Part(0.0, sum(x * y for x, y in points) / squares)


def fit(samples: Sequence[Sample], cores: float) -> Costs:
    """Costs from samples of small runs; ``cores`` of the machine that ours may use.

    Raises ValueError when all samples have the same rate.
    """
    parts = {}
    for name in samples[0].busy:
        each = [one.processes if name == "worker" else 1 for one in samples]
        points = [
            (one.pages_s / many, one.busy[name] / many)
            for one, many in zip(samples, each, strict=True)
        ]
        parts[name] = fit_part(points)

    def error(wait: float) -> float:
        costs = Costs(parts, wait, cores)
        return sum(
            (costs.predict(one.processes, one.sessions, one.latency) / one.pages_s - 1) ** 2
            for one in samples
        )

    return Costs(parts, _least(error, 0.0, 0.5), cores)


def _least(error: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one value with one minimum is least, by thirds."""
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if error(left) <= error(right):
            high = right
        else:
            low = left
    return (low + high) / 2
