"""More processes and longer latencies: pages a second, CPU by process, and a model that foretells.

``python -m bench.scale [--short]``. Three questions:

1. pages a second and CPU a page of each part, against worker processes and latency (10, 100 and
   1000 ms); of two processes on this machine, what share of what the CPU of all processes allows;
2. a cost model (``bench.cost_model``), fitted on small runs – one process, few sessions –, against
   larger runs that it has not seen;
3. source B's straight line: one node more brings its own sessions; pages a second against nodes,
   and CPU a node.

What follows for a hundred workers and a billion URLs is written to ``docs/scaling.md``.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench import cost_model, scaling
from bench.cost_model import Costs, Sample
from bench.record import Record, draw, spread
from bench.web import Spec, Web
from bench.window import Window, unquiet
from tests.support.redis_server import RedisServer
from tests.support.system import System

NAME = "scale"
WITHIN = 0.15
"""What a prediction may be off by."""
HOSTS = 400
SMALL_SESSIONS = 64
"""Up to here a run is small: the model is fitted on it if it has one process."""
REST_SECONDS = 120.0
NODE_SESSIONS = 20
NODE_LATENCY = 1.0
PARTS = ("worker", "broker", "redis", "server")

Point = tuple[int, int, float]
"""Processes, sessions, latency in seconds."""


def grid(short: bool) -> list[Point]:
    """What is measured for questions 1 and 2."""
    if short:
        one = [(1, 16, 0.1), (1, 64, 0.1), (1, 16, 0.01), (1, 64, 1.0), (1, 256, 0.1)]
        return [*one, (2, 256, 0.1), (2, 256, 0.01)]
    return [(n, s, at) for n in (1, 2) for s in (16, 64, 256) for at in (0.01, 0.1, 1.0)]


def nodes(short: bool) -> list[int]:
    """Worker processes of the straight line."""
    return [1, 2, 3] if short else [1, 2, 3, 4, 5, 6]


class Host:
    """A broker, a Redis and a worker host, beside a web; made by :func:`running`."""

    def __init__(self, system: System, redis: RedisServer, web: Web) -> None:
        self._system, self._redis, self._web = system, redis, web
        self._crawls = 0

    def _cpu(self) -> dict[str, float]:
        assert self._redis.process is not None
        times = psutil.Process(self._redis.process.pid).cpu_times()
        return {**self._system.cpu_seconds(), "redis": times.user + times.system}

    def measure(self, sessions: int, latency: float, warm: float, seconds: float) -> dict[str, Any]:
        """A crawl of ``sessions`` hosts, each with one connection; see ``bench.window``."""
        if self._crawls:
            self._come_to_rest()
        self._web.set_latency(latency)
        self._crawls += 1
        name = f"c{self._crawls}"
        seeds = self._web.seeds()[:sessions]
        self._system.crawl(seeds, name=name, delay=0, slots=1, scope="host")
        time.sleep(warm + 4 * latency)
        window = Window(self._web, self._cpu)
        time.sleep(seconds)
        found = window.close()
        self._system.call("POST", f"/v1/crawls/{name}/pause")
        return found

    def _come_to_rest(self) -> None:
        """Let the sessions of a paused crawl fetch what they have leased, at once."""
        self._web.set_latency(0.0)
        pages = -1.0
        until = time.monotonic() + REST_SECONDS
        while pages != (pages := self._web.counts()["pages"]):
            if time.monotonic() > until:
                raise RuntimeError("a paused crawl does not come to rest")
            time.sleep(1.2)  # longer than the latency of a request that is under way


@contextmanager
def running(folder: Path, web: Web, processes: int, greenlets: int) -> Iterator[Host]:
    """Started and at rest; stopped in the end."""
    redis = RedisServer(folder / "redis").start()
    try:
        with System(
            folder,
            [redis.url],
            processes=processes,
            log_level="warning",
            greenlets=str(greenlets),
        ) as system:
            system.start()
            system.settle()
            yield Host(system, redis, web)
            system.kill("worker")
    finally:
        redis.stop()


def measure(short: bool) -> dict[str, Any]:
    """All windows: ``grid`` rows {point, windows} and ``line`` rows {processes, windows}."""
    warm, seconds, rounds = (1.5, 3.0, 1) if short else (5.0, 10.0, 3)
    found: dict[Point, list[dict[str, Any]]] = {point: [] for point in grid(short)}
    straight: dict[int, list[dict[str, Any]]] = {count: [] for count in nodes(short)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = Spec(hosts=HOSTS, pages=20_000)
        for number in range(rounds):
            for processes in sorted({point[0] for point in found}):
                at = folder / f"grid{processes}-{number}"
                with Web(at / "web", spec) as web, running(at, web, processes, HOSTS) as host:
                    for point in (p for p in found if p[0] == processes):
                        _, sessions, latency = point
                        one = host.measure(sessions, latency, warm, seconds)
                        found[point].append(one)
                        _say(f"{processes} × {sessions} sessions, {latency * 1000:g} ms", one)
            for count in straight:
                at = folder / f"line{count}-{number}"
                with (
                    Web(at / "web", spec) as web,
                    running(at, web, count, NODE_SESSIONS) as host,
                ):
                    sessions = NODE_SESSIONS * count
                    one = host.measure(sessions, NODE_LATENCY, warm, seconds)
                    straight[count].append(one)
                    _say(f"{count} nodes", one)
    return {
        "grid": [{"point": point, "windows": windows} for point, windows in found.items()],
        "line": [{"processes": count, "windows": w} for count, w in straight.items()],
    }


def _say(what: str, one: dict[str, Any]) -> None:
    print(f"   {what}: {one['pages_s']} pages/s, foreign cores {one['foreign']}", flush=True)


def sample(row: dict[str, Any]) -> Sample:
    """Medians of a grid's row."""
    processes, sessions, latency = row["point"]
    windows = row["windows"]
    busy = {part: statistics.median(w["busy"][part] for w in windows) for part in PARTS}
    rate = statistics.median(w["pages_s"] for w in windows)
    return Sample(processes, sessions, latency, rate, busy)


def split(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Small runs, on which the model is fitted, and those that it is to foretell."""
    small = [one for one in samples if one.processes == 1 and one.sessions <= SMALL_SESSIONS]
    return small, [one for one in samples if one not in small]


def run(short: bool) -> None:
    """Writes the result, the plots and ``docs/scaling.md``."""
    record = Record(NAME, "More processes, and what comes beyond them", short)
    measured = measure(short)
    record.runs("measured", measured)
    show(record, measured, psutil.cpu_count() or 1)
    record.finish()
    scaling.write()


def show(record: Record, measured: dict[str, Any], cores: int) -> None:
    """Fit, tables, figures and plots."""
    windows = [w for rows in measured.values() for row in rows for w in row["windows"]]
    if loud := unquiet(windows):
        record.note(loud)
    samples = [sample(row) for row in measured["grid"]]
    small, large = split(samples)
    costs = cost_model.fit(small, cores)
    _grid_table(record, measured["grid"])
    _two_processes(record, samples, measured["grid"], cores)
    _model(record, costs, small, large)
    straight = [
        (row["processes"], [w["pages_s"] for w in row["windows"]], _node_cpu(row))
        for row in measured["line"]
    ]
    fitted = cost_model.line([(n, rate) for n, rates, _ in straight for rate in rates])
    record.figure("line_slope", fitted.slope)
    record.figure("line_r2", fitted.r2)
    columns = ("nodes", "pages/s", "CPU a node, cores")
    rows = [(n, spread(rates), spread(cpu)) for n, rates, cpu in straight]
    title = f"A node more brings {NODE_SESSIONS} sessions, at {NODE_LATENCY:g} s"
    record.table(title, columns, rows)
    record.note(
        f"Source B's line, here over nodes of {NODE_SESSIONS} sessions each at hosts that take"
        f" {NODE_LATENCY:g} s: {fitted.slope:.1f} pages/s a node, R² = {fitted.r2:.4f}."
    )
    _plots(record, costs, samples, straight, fitted)


def _grid_table(record: Record, grid_rows: list[dict[str, Any]]) -> None:
    rows = []
    for row in grid_rows:
        processes, sessions, latency = row["point"]
        rates = [w["pages_s"] for w in row["windows"]]
        cpu = [
            spread([w["busy"][part] / max(w["pages_s"], 0.1) * 1000 for w in row["windows"]])
            for part in PARTS
        ]
        rows.append((processes, sessions, f"{latency * 1000:g}", spread(rates), *cpu))
    columns = ("processes", "sessions", "latency, ms", "pages/s")
    parts = [f"{part}, CPU ms/page" for part in PARTS]
    record.table("Pages a second and CPU a page", (*columns, *parts), rows)


def _two_processes(
    record: Record, samples: list[Sample], grid_rows: list[dict[str, Any]], cores: int
) -> None:
    """Of what the CPU of all processes allows, the share that two workers reach at their best."""
    shares = []
    for one, row in zip(samples, grid_rows, strict=True):
        if one.processes == 2:
            foreign = statistics.median(w["foreign"] for w in row["windows"])
            allowed = (cores - foreign) / (sum(one.busy.values()) / one.pages_s)
            shares.append(one.pages_s / allowed)
    if cores == 2:  # with more cores other parts do not compete with two workers
        record.figure("two_processes", max(shares))


def _model(record: Record, costs: Costs, small: list[Sample], large: list[Sample]) -> None:
    rows = [(part, cost.per_page * 1000, cost.fixed) for part, cost in costs.parts.items()]
    record.table("Costs, fitted on the small runs", ("part", "CPU ms/page", "cores at rest"), rows)
    for part, cost in costs.parts.items():
        record.figure(f"cpu_ms_{part}", cost.per_page * 1000)
    record.figure("wait_ms", costs.wait * 1000)
    rows = []
    worst = 0.0
    for one, seen in [(s, "fitted") for s in small] + [(s, "withheld") for s in large]:
        guess = costs.predict(one.processes, one.sessions, one.latency)
        off = guess / one.pages_s - 1
        if seen == "withheld":
            worst = max(worst, abs(off))
        latency = f"{one.latency * 1000:g}"
        row = (seen, one.processes, one.sessions, latency, one.pages_s, guess, f"{off:+.1%}")
        rows.append(row)
    columns = ("run", "processes", "sessions", "latency, ms", "pages/s", "predicted", "off by")
    record.table("The model against what was measured", columns, rows)
    record.figure("prediction_off", worst)
    holds = "holds" if worst <= WITHIN else "does not hold"
    record.note(
        f"The model was fitted on runs of one process with at most {SMALL_SESSIONS} sessions. Of"
        f" the larger ones, which it had not seen, the worst is off by {worst:.0%}: the claim of"
        f" {WITHIN:.0%} {holds}."
    )


def _node_cpu(row: dict[str, Any]) -> list[float]:
    return [w["busy"]["worker"] / row["processes"] for w in row["windows"]]


def _plots(
    record: Record,
    costs: Costs,
    samples: list[Sample],
    straight: list[tuple[int, list[float], list[float]]],
    fitted: cost_model.Line,
) -> None:
    figure = draw(7, 4)
    axes = figure.subplots()
    colours = ("tab:green", "tab:blue", "tab:orange")
    for colour, latency in zip(colours, (0.01, 0.1, 1.0), strict=True):
        for processes, style, marker in ((1, "-", "o"), (2, "--", "s")):
            met = [s for s in samples if (s.processes, s.latency) == (processes, latency)]
            counts = range(4, 257, 4)
            guesses = [costs.predict(processes, n, latency) for n in counts]
            name = f"{processes} × {latency * 1000:g} ms"
            axes.plot(counts, guesses, style, color=colour, linewidth=0.8, label=f"{name}, model")
            points = [(s.sessions, s.pages_s) for s in met]
            if points:
                axes.plot(*zip(*points, strict=True), marker, color=colour, markersize=5)
    axes.set(xlabel="sessions", ylabel="pages/s", ylim=(0, None))
    axes.legend(fontsize=7)
    record.plot(
        "model", figure, "Pages a second: measured (points) and as the model has it (lines)"
    )

    figure = draw(7, 4)
    axes = figure.subplots()
    counts = [n for n, _, _ in straight]
    axes.plot(counts, [statistics.median(r) for _, r, _ in straight], "o", color="tab:green")
    ends = [0, max(counts)]
    axes.plot(ends, [fitted.intercept + fitted.slope * n for n in ends], color="tab:green")
    axes.set(xlabel="nodes", ylabel="pages/s", ylim=(0, None))
    other = axes.twinx()
    cpu = [statistics.median(c) for _, _, c in straight]
    other.plot(counts, cpu, "--s", color="tab:grey", markersize=4)
    other.set(ylabel="CPU a node, cores", ylim=(0, max(1e-3, 2 * max(cpu))))
    record.plot("line", figure, "Source B: pages a second against nodes; grey: CPU a node")


if __name__ == "__main__":
    run("--short" in sys.argv[1:])
