"""A cost model: it predicts a crawl of so many processes from the CPU that each part spends.

First the CPU. A part – worker, broker, Redis, and here also the web server – spends

* ``rest`` cores as long as a crawl goes on, whatever it does (for the worker: in each process);
* ``batch`` seconds for each batch: a worker stores what it has gathered in one commit, and then
  admits the links and posts the outcomes together. A nearly idle worker gathers a page or two, and
  a busy worker gathers dozens: so a page costs an idle worker several times as much;
* ``page`` seconds for each page.

These three costs are found by least squares over small runs, in which batches and pages are
counted. CPU seconds are the same on a busy machine; rates are not.

Then the rates. A crawl is a closed queueing network, solved by exact mean value analysis (Reiser
and Lavenberg, 1980). Its customers are the sessions, as many as there are hosts that are fetched
from at once. For each page a session waits for the host's latency and for the batches, and then
queues for CPU at two stations:

* the worker processes: each has one interpreter, and can use ``reach`` cores, a little more than
  one, since its threads pack and write while the interpreter goes on;
* the machine, whose cores all parts share.

If pages queue, commits queue too, and the batches behind them grow until they are full. A station
with several servers is replaced by a faster one and an additional delay (Seidmann, 1987).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from greencrawl.worker.delivery.writer import BATCH_PAGES, BATCHES, LINGER_SECONDS

FULL = BATCH_PAGES * BATCHES
"""A batch has at most this many pages: all pages that a worker has under way at once are sent in
one commit."""
SMALL_CORES = 0.01
"""Below this CPU the absolute error of a sample counts, above it the relative error."""
SCARCE = 3.0
"""CPU counts as scarce if it takes this many times as long as alone; then a run says nothing about
the wait."""


@dataclass(frozen=True)
class Sample:
    """A measurement: ``busy`` are cores by part; ``latency`` in seconds.

    ``batches_s`` are those of all worker processes; ``cores`` what others left us of the machine.
    """

    processes: int
    sessions: int
    latency: float
    pages_s: float
    batches_s: float
    busy: dict[str, float]
    cores: float


class Part(NamedTuple):
    """CPU of a part: cores at rest, seconds a batch and a page."""

    rest: float
    batch: float
    page: float

    @property
    def full(self) -> float:
        """Return the seconds of CPU a page when batches are full."""
        return self.page + self.batch / FULL


class Forecast(NamedTuple):
    """Pages and batches a second, and cores by part; a page's CPU takes ``slower`` times as long
    as it would alone.
    """

    pages_s: float
    slower: float
    batches_s: float
    busy: dict[str, float]


@dataclass(frozen=True)
class Costs:
    """The fitted model. ``wait`` seconds a page go to batches and leases, not to latency or CPU.

    Where nothing queues, the time between two batches of a worker is ``gather`` seconds plus the
    time to its next page. A worker process can use ``reach`` cores.
    """

    parts: dict[str, Part]
    wait: float
    gather: float
    reach: float

    def machine_bound(self, processes: int, cores: float) -> float:
        """Return pages a second when all cores are busy."""
        rest = sum(part.rest * _times(name, processes) for name, part in self.parts.items())
        return max(0.1, cores - rest) / sum(part.full for part in self.parts.values())

    def worker_bound(self, processes: int) -> float:
        """Return pages a second when every worker process uses all that it can."""
        worker = self.parts["worker"]
        return processes * max(0.1, self.reach - worker.rest) / worker.full

    def predict(self, processes: int, sessions: int, latency: float, cores: float) -> Forecast:
        """Predict workers that fetch from ``sessions`` hosts at once on ``cores`` of a machine."""
        demands, delay = [], latency + self.wait
        for bound, servers in (
            (self.worker_bound(processes), processes),
            (self.machine_bound(processes, cores), cores),
        ):
            demands.append(1 / bound)
            delay += (servers - 1) / bound if servers > 1 else 0.0
        rate, slower = throughput(demands, delay, sessions)
        batches = self._batches(processes, rate, slower)
        busy = {
            name: part.rest * _times(name, processes) + part.batch * batches + part.page * rate
            for name, part in self.parts.items()
        }
        return Forecast(rate, slower, batches, busy)

    def _batches(self, processes: int, pages_s: float, slower: float) -> float:
        """Return batches a second; their commits take ``slower`` times as long as alone."""
        each = pages_s / processes
        commit = max(0.0, self.gather - LINGER_SECONDS)
        gather = self.gather + commit * (slower - 1)
        return processes * max(each / (1 + gather * each), each / FULL)


def _times(name: str, processes: int) -> int:
    """Return how many processes a part has."""
    return processes if name == "worker" else 1


def throughput(demands: Sequence[float], delay: float, customers: int) -> tuple[float, float]:
    """Return pages a second of a closed network: seconds a page at each station, and ``delay`` in
    addition.

    The second value says how many times as long as alone a page stays at the stations.
    """
    queues = [0.0] * len(demands)
    times: list[float] = list(demands)
    rate = 0.0
    for count in range(1, customers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues, strict=True)]
        rate = count / (delay + sum(times))
        queues = [rate * time for time in times]
    return rate, sum(times) / sum(demands)


class Line(NamedTuple):
    """y = intercept + slope · x; ``r2`` is the share of the variance that it explains."""

    slope: float
    intercept: float
    r2: float


def line(points: Sequence[tuple[float, float]]) -> Line:
    """Return the straight line of least squares. Raises ValueError for less than two different
    x."""
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


def least_squares(
    rows: Sequence[Sequence[float]], values: Sequence[float], rounds: int = 5000
) -> list[float]:
    """Return non-negative factors with which ``rows`` come closest to ``values``.

    One factor after the other is set to its best value, which leads to the one minimum.
    """
    width = range(len(rows[0]))
    squares = [[sum(row[i] * row[j] for row in rows) for j in width] for i in width]
    wanted = [sum(row[i] * value for row, value in zip(rows, values, strict=True)) for i in width]
    factors = [0.0 for _ in width]
    for _ in range(rounds):
        for i in width:
            rest = sum(squares[i][j] * factors[j] for j in width if j != i)
            factors[i] = max(0.0, (wanted[i] - rest) / squares[i][i]) if squares[i][i] else 0.0
    return factors


def fit(samples: Sequence[Sample]) -> Costs:
    """Return costs from samples of small runs, of which some must be short of CPU and others of
    pages."""
    parts = {name: _fit_part(name, samples) for name in samples[0].busy}
    gather = _undisturbed(
        [one.processes / one.batches_s - one.processes / one.pages_s for one in samples]
    )
    reach = max(1.0, *(one.busy["worker"] / one.processes for one in samples))
    costs = Costs(parts, 0.0, gather, reach)
    waits = []
    for one in samples:
        at_best = costs.predict(one.processes, one.sessions, one.latency, one.cores)
        if at_best.slower < SCARCE:
            waits.append(one.sessions / one.pages_s - one.sessions / at_best.pages_s)
    return replace(costs, wait=_undisturbed(waits))


def _undisturbed(seconds: Sequence[float]) -> float:
    """Return the median of the lower half, or 0: disturbances, and waits for scarce CPU, only make
    it larger."""
    least = sorted(seconds)[: (len(seconds) + 1) // 2]
    return max(0.0, statistics.median(least)) if least else 0.0


def _fit_part(name: str, samples: Sequence[Sample]) -> Part:
    """Fit a part.

    A sample weighs less if it used more CPU, so that a run of few pages counts as much as a run of
    many pages.
    """
    rows, values = [], []
    for one in samples:
        weight = 1 / (one.busy[name] + SMALL_CORES)
        rows.append(
            [_times(name, one.processes) * weight, one.batches_s * weight, one.pages_s * weight]
        )
        values.append(one.busy[name] * weight)
    return Part(*least_squares(rows, values))
