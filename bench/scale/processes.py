"""More processes and longer latencies: pages a second, CPU by process, and a model that foretells.

``python -m bench.scale.processes [--short]``. Three questions:

1. pages a second and CPU a page of each part, against worker processes and latency (10, 100 and
   1000 ms); of two processes on this machine, what share of what the CPU of all processes allows;
2. a cost model (``bench.scale.cost_model``), fitted on small runs – one process, few sessions –,
against
   larger runs that it has not seen;
3. source B's straight line: one node more brings its own sessions; pages a second against nodes,
   and CPU a node.

Every page has 40 links: two lead to pages that nobody knew, the others to its host's menu. So a
page costs the same at each moment of a crawl. In one series all are new, to tell what that costs,
and in one every host has a single page, to tell what it costs to meet a host.

Measurements that others disturb are repeated, a bounded number of times. What follows for a hundred
workers and a billion URLs is written to ``docs/scaling.md``.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.rig.record import Record, draw, spread
from bench.rig.web import Spec, Web
from bench.rig.window import Patience, Window, unquiet
from bench.scale import cost_model, scaling
from bench.scale.cost_model import Costs, Forecast, Sample
from tests.support.redis_server import RedisServer
from tests.support.system import System

NAME = "scale"
WITHIN = 0.15
"""What a prediction may be off by."""
HOSTS = 256
"""As many sessions as the largest runs have."""
SMALL_SESSIONS = 64
"""Up to here a run is small: the model is fitted on it if it has one process."""
SINGLES = 12_000
"""Hosts with a single page, more than a worker gets through while it is measured."""
FRESH, ALL_FRESH = 2, 40
"""New links of a page, of 40."""
BUSIEST = 0.01
"""The latency in seconds at which CPU is scarce, not sessions."""
REST_SECONDS = 120.0
PATIENCE_SECONDS = 30.0
NODE_SESSIONS = 20
NODE_LATENCY = 1.0
PARTS = ("worker", "broker", "redis", "server")
_BATCHES = re.compile(
    rb'^greencrawl_http_requests_total\{operation="finish_tasks".*\} (\S+)$', re.M
)


class Point(NamedTuple):
    """``latency`` in seconds; ``fresh`` links of a page are new."""

    processes: int
    sessions: int
    latency: float
    fresh: int = FRESH


class Lengths(NamedTuple):
    """Seconds before a measurement and of it; how often the grid is gone through."""

    warm: float
    seconds: float
    rounds: int


def grid(short: bool) -> list[Point]:
    """What is measured for questions 1 and 2."""
    all_new = [Point(1, 16, 0.1, ALL_FRESH), Point(1, 64, BUSIEST, ALL_FRESH)]
    if short:
        small = [Point(1, 16, 1.0), Point(1, 64, 1.0), Point(1, 16, 0.1), Point(1, 64, 0.1)]
        small += [Point(1, 16, BUSIEST), Point(1, 64, BUSIEST)]
        large = [Point(1, HOSTS, BUSIEST), Point(2, HOSTS, 0.1), Point(2, HOSTS, BUSIEST)]
        return [*small, *large, all_new[1]]
    points = [Point(1, s, at) for at in (1.0, 0.1, BUSIEST) for s in (16, 64, HOSTS)]
    return [*points, *(Point(2, HOSTS, at) for at in (1.0, 0.1, BUSIEST)), *all_new]


def nodes(short: bool) -> list[int]:
    """Worker processes of the straight line."""
    return [1, 2, 3] if short else [1, 2, 4, 6]


class Host:
    """A broker, a Redis and a worker host, beside a web; made by :func:`running`."""

    def __init__(self, system: System, redis: RedisServer, web: Web, patience: Patience) -> None:
        self._system, self._redis, self._web = system, redis, web
        self._patience = patience
        self._crawls = 0

    def _cpu(self) -> dict[str, float]:
        assert self._redis.process is not None
        times = psutil.Process(self._redis.process.pid).cpu_times()
        return {**self._system.cpu_seconds(), "redis": times.user + times.system}

    def _count(self) -> dict[str, float]:
        """Batches so far: the posts of their outcomes, as the broker counts them."""
        address = f"http://127.0.0.1:{self._system.port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            found = _BATCHES.findall(answer.read())
        return {"batches": sum(float(number) for number in found)}

    def measure(
        self, sessions: int, latency: float, lengths: Lengths, **options: object
    ) -> dict[str, Any]:
        """A crawl of ``sessions`` hosts, each with one connection; see ``bench.rig.window``."""
        if self._crawls:
            self._come_to_rest()
        self._web.set_latency(latency)
        self._crawls += 1
        name = f"c{self._crawls}"
        seeds = self._web.seeds()[:sessions]
        self._system.crawl(seeds, name=name, delay=0, slots=1, scope="host", **options)
        time.sleep(lengths.warm + 3 * latency)  # robots.txt, the first page, the next session
        found = self._patience.measure(
            lambda: Window(self._web, self._cpu, self._count), lengths.seconds
        )
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
def running(
    folder: Path,
    processes: int,
    greenlets: int,
    patience: Patience,
    *,
    hosts: int = HOSTS,
    fresh: int = FRESH,
) -> Iterator[Host]:
    """Started and at rest; stopped in the end."""
    spec = Spec(hosts=hosts, fresh=fresh)
    with Web(folder / "web", spec) as web:
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
                yield Host(system, redis, web, patience)
                system.kill("worker")
        finally:
            redis.stop()


def measure(short: bool) -> dict[str, Any]:
    """All windows: ``grid`` rows {point, windows}, ``line`` rows {processes, windows}, ``singles``:
    of a crawl whose hosts have a page each.
    """
    lengths = Lengths(1.5, 3.0, 1) if short else Lengths(2.0, 4.0, 3)
    patience = Patience(PATIENCE_SECONDS / 3 if short else PATIENCE_SECONDS)
    found: dict[Point, list[dict[str, Any]]] = {point: [] for point in grid(short)}
    straight: dict[int, list[dict[str, Any]]] = {count: [] for count in nodes(short)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(lengths.rounds):
            for processes, fresh in dict.fromkeys(
                (point.processes, point.fresh) for point in found
            ):
                if number and fresh == ALL_FRESH:
                    continue
                at = folder / f"grid{processes}-{fresh}-{number}"
                with running(at, processes, HOSTS, patience, fresh=fresh) as host:
                    for point in found:
                        if (point.processes, point.fresh) == (processes, fresh):
                            one = host.measure(point.sessions, point.latency, lengths)
                            found[point].append(one)
                            _say(_named(point), one)
        with running(folder / "singles", 1, HOSTS, patience, hosts=SINGLES) as host:
            single = host.measure(SINGLES, BUSIEST, lengths, depth=0)
            _say("hosts with a page each", single)
        for count in straight:
            with running(folder / f"line{count}", count, NODE_SESSIONS, patience) as host:
                one = host.measure(NODE_SESSIONS * count, NODE_LATENCY, lengths)
                straight[count].append(one)
                _say(f"{count} nodes", one)
    return {
        "grid": [{"point": point, "windows": windows} for point, windows in found.items()],
        "line": [{"processes": count, "windows": w} for count, w in straight.items()],
        "singles": [{"windows": [single]}],
    }


def _named(point: Point) -> str:
    new = ", all links new" * (point.fresh == ALL_FRESH)
    return f"{point.processes} × {point.sessions} sessions, {point.latency * 1000:g} ms{new}"


def _say(what: str, one: dict[str, Any]) -> None:
    print(f"   {what}: {one['pages_s']} pages/s, foreign cores {one['foreign']}", flush=True)


def sample(point: Point, window: dict[str, Any], cores: int) -> Sample:
    """A window as the model wants it."""
    return Sample(
        point.processes,
        point.sessions,
        point.latency,
        max(window["pages_s"], 0.1),
        max(window["counted"]["batches"], 0.1),
        {part: window["busy"][part] for part in PARTS},
        cores - window["foreign"],
    )


def is_small(point: Point) -> bool:
    """Whether the model is fitted on a run; it is to foretell the others."""
    return point.processes == 1 and point.sessions <= SMALL_SESSIONS


def efficiencies(
    one: list[dict[str, Any]], two: list[dict[str, Any]], cores: int
) -> list[dict[str, float]]:
    """What two processes reach of what the CPU of all processes allows, round by round.

    ``alone``: CPU seconds a page of all parts while one worker process runs; ``together``: while
    two do. All cores would ``allow`` so many pages, each at the lesser of the two, if nothing kept
    them waiting. What is missing is ``idle`` – the share of the cores that nobody used – or was
    spent because there are two: they share caches, turn about on cores, and write to one database.
    A page may also cost two processes less than one. What they save so does not make up for what
    they leave idle, and the ``share`` is never above 1.
    """
    found = []
    for single, double in zip(one, two, strict=True):
        alone = sum(single["busy"][part] for part in PARTS) / single["pages_s"]
        ours = cores - double["foreign"]
        spent = sum(double["busy"][part] for part in PARTS)
        together = spent / double["pages_s"]
        allowed = ours / min(alone, together)
        found.append(
            {
                "alone": alone,
                "together": together,
                "allowed": allowed,
                "pages_s": double["pages_s"],
                "idle": max(0.0, 1 - spent / ours),
                "share": min(1.0, double["pages_s"] / allowed),
            }
        )
    return found


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
    record.note(
        f"Pages of 20 KB with 40 links, {FRESH} of them new. CPU a page is that of all processes of"
        " a part. Latency is the server's: of each answer, ±20 %."
    )
    if loud := unquiet(windows):
        record.note(loud)
    rows = {Point(*row["point"]): row["windows"] for row in measured["grid"]}
    plain = {point: found for point, found in rows.items() if point.fresh == FRESH}
    samples = {point: [sample(point, w, cores) for w in found] for point, found in plain.items()}
    small = [one for point, found in samples.items() if is_small(point) for one in found]
    costs = cost_model.fit(small)
    _grid_table(record, rows)
    if cores == 2:  # with more cores other parts do not compete with two workers
        _two_processes(record, rows, cores)
    (single,) = measured["singles"][0]["windows"]
    _costs(record, costs, _new_links(rows), _met_hosts(costs, single))
    _model(record, costs, samples)
    straight = [
        (row["processes"], [w["pages_s"] for w in row["windows"]], _node_cpu(row))
        for row in measured["line"]
    ]
    fitted = cost_model.line([(n, rate) for n, rates, _ in straight for rate in rates])
    record.figure("line_slope", fitted.slope)
    record.figure("line_r2", fitted.r2)
    columns = ("nodes", "pages/s", "CPU a node, cores")
    table = [(n, spread(rates), spread(cpu)) for n, rates, cpu in straight]
    title = f"A node more brings {NODE_SESSIONS} sessions, at {NODE_LATENCY:g} s"
    record.table(title, columns, table)
    record.note(
        f"Source B's line, here over nodes of {NODE_SESSIONS} sessions each at hosts that take"
        f" {NODE_LATENCY:g} s: {fitted.slope:.1f} pages/s a node, R² = {fitted.r2:.4f}."
    )
    _plots(record, costs, samples, straight, fitted, cores)


def _grid_table(record: Record, grid_rows: dict[Point, list[dict[str, Any]]]) -> None:
    rows = []
    for point, windows in grid_rows.items():
        cpu = [
            spread([w["busy"][part] / max(w["pages_s"], 0.1) * 1000 for w in windows])
            for part in PARTS
        ]
        rates = spread([w["pages_s"] for w in windows])
        batches = spread([w["pages_s"] / max(w["counted"]["batches"], 0.1) for w in windows])
        latency = f"{point.latency * 1000:g}"
        rows.append((point.processes, point.sessions, latency, point.fresh, rates, batches, *cpu))
    columns = ("processes", "sessions", "latency, ms", "new links", "pages/s", "pages a batch")
    parts = [f"{part}, CPU ms/page" for part in PARTS]
    record.table("Pages a second and CPU a page", (*columns, *parts), rows)


def _two_processes(record: Record, rows: dict[Point, list[dict[str, Any]]], cores: int) -> None:
    found = efficiencies(rows[Point(1, HOSTS, BUSIEST)], rows[Point(2, HOSTS, BUSIEST)], cores)

    def cell(key: str, factor: float = 1.0) -> str:
        return spread([one[key] * factor for one in found])

    columns = (
        "CPU ms/page with one process",
        "with two",
        "allowed by the lesser, pages/s",
        "reached, pages/s",
        "share",
        "cores idle, %",
    )
    row = (
        cell("alone", 1000),
        cell("together", 1000),
        cell("allowed"),
        cell("pages_s"),
        cell("share"),
        cell("idle", 100),
    )
    record.table("Two processes: of what the CPU of all processes allows", columns, [row])
    record.figure("two_processes", statistics.median(one["share"] for one in found))
    record.figure("two_processes_idle", statistics.median(one["idle"] for one in found))
    dearer = statistics.median(one["together"] / one["alone"] for one in found)
    record.figure("two_processes_dearer", dearer)


def _new_links(rows: dict[Point, list[dict[str, Any]]]) -> dict[str, float]:
    """CPU seconds of a part for each link that is new, by runs where few are and where all are."""
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for point, windows in rows.items():
        few = rows.get(point._replace(fresh=FRESH))
        if point.fresh == FRESH or few is None:
            continue
        for part in PARTS:
            many, less = (
                statistics.median(w["busy"][part] / max(w["pages_s"], 0.1) for w in these)
                for these in (windows, few)
            )
            found[part].append(max(0.0, many - less) / (point.fresh - FRESH))
    return {part: statistics.median(costs) for part, costs in found.items()}


def _met_hosts(costs: Costs, single: dict[str, Any]) -> dict[str, float]:
    """CPU seconds of a part for a host that is met, beside those of its page and of batches."""
    found = {}
    for name, part in costs.parts.items():
        known = part.rest + part.batch * single["counted"]["batches"]
        spent = max(0.0, single["busy"][name] - known)
        found[name] = max(0.0, spent / max(single["pages_s"], 0.1) - part.page)
    return found


def _costs(
    record: Record, costs: Costs, new_link: dict[str, float], met_host: dict[str, float]
) -> None:
    columns = (
        "part",
        "at rest, cores",
        "CPU ms/batch",
        "CPU ms/page",
        "CPU ms/page, batches full",
        "CPU µs/new link",
        "CPU ms/host",
    )
    rows = []
    for name, part in costs.parts.items():
        link, met = new_link[name] * 1e6, met_host[name] * 1000
        pages = (part.page * 1000, part.full * 1000)
        rows.append((name, part.rest, part.batch * 1000, *pages, link, met))
        record.figure(f"rest_ms_{name}", part.rest * 1000)
        record.figure(f"cpu_ms_{name}", part.full * 1000)
        record.figure(f"cpu_ms_batch_{name}", part.batch * 1000)
        record.figure(f"cpu_us_new_link_{name}", link)
        record.figure(f"cpu_ms_host_{name}", met)
    record.table("Costs, fitted on the small runs", columns, rows)
    record.figure("new_links", FRESH)
    record.figure("all_links", ALL_FRESH)
    record.figure("worker_cores", costs.reach)
    record.figure("gather_ms", costs.gather * 1000)
    record.figure("wait_ms", costs.wait * 1000)


def _model(record: Record, costs: Costs, samples: dict[Point, list[Sample]]) -> None:
    """The model beside each point's median; of larger runs the worst counts."""
    rows = []
    worst = {"pages_s": 0.0, "cpu": 0.0}
    for point, measured in samples.items():
        seen = "fitted" if is_small(point) else "withheld"
        guesses = [costs.predict(*point[:3], one.cores) for one in measured]
        pages, cpu = _off(measured, guesses)
        if seen == "withheld":
            worst = {
                "pages_s": max(worst["pages_s"], abs(pages)),
                "cpu": max(worst["cpu"], abs(cpu)),
            }
        rows.append(
            (
                seen,
                point.processes,
                point.sessions,
                f"{point.latency * 1000:g}",
                statistics.median(one.pages_s for one in measured),
                statistics.median(guess.pages_s for guess in guesses),
                f"{pages:+.1%}",
                statistics.median(_page(one.busy, one.pages_s) for one in measured),
                statistics.median(_page(guess.busy, guess.pages_s) for guess in guesses),
                f"{cpu:+.1%}",
            )
        )
    columns = ("run", "processes", "sessions", "latency, ms", "pages/s", "predicted", "off by")
    more = ("CPU ms/page", "predicted", "off by")
    record.table("The model against what was measured", (*columns, *more), rows)
    record.figure("prediction_off", worst["pages_s"])
    record.figure("prediction_off_cpu", worst["cpu"])
    holds = "holds" if worst["pages_s"] <= WITHIN else "does not hold"
    record.note(
        f"The model was fitted on runs of one process with at most {SMALL_SESSIONS} sessions. Of"
        f" the larger ones, which it had not seen, the worst is off by {worst['pages_s']:.0%} in"
        f" pages/s and by {worst['cpu']:.0%} in CPU a page: the claim of {WITHIN:.0%} {holds}."
    )


def _page(busy: dict[str, float], pages_s: float) -> float:
    """CPU ms a page of all parts."""
    return sum(busy.values()) / pages_s * 1000


def _off(measured: list[Sample], guesses: list[Forecast]) -> tuple[float, float]:
    """Medians of the shares by which pages a second and CPU a page were foretold too high."""
    pairs = list(zip(measured, guesses, strict=True))
    pages = statistics.median(guess.pages_s / one.pages_s - 1 for one, guess in pairs)
    cpu = statistics.median(
        _page(guess.busy, guess.pages_s) / _page(one.busy, one.pages_s) - 1 for one, guess in pairs
    )
    return pages, cpu


def _node_cpu(row: dict[str, Any]) -> list[float]:
    return [w["busy"]["worker"] / row["processes"] for w in row["windows"]]


def _plots(
    record: Record,
    costs: Costs,
    samples: dict[Point, list[Sample]],
    straight: list[tuple[int, list[float], list[float]]],
    fitted: cost_model.Line,
    cores: int,
) -> None:
    figure = draw(7, 4)
    axes = figure.subplots()
    colours = ("tab:green", "tab:blue", "tab:orange")
    counts = range(4, HOSTS + 1, 4)
    for colour, latency in zip(colours, (BUSIEST, 0.1, 1.0), strict=True):
        for processes, style, marker in ((1, "-", "o"), (2, "--", "s")):
            guesses = [costs.predict(processes, n, latency, cores).pages_s for n in counts]
            name = f"{processes} × {latency * 1000:g} ms"
            axes.plot(counts, guesses, style, color=colour, linewidth=0.8, label=f"{name}, model")
            met = [
                (point.sessions, statistics.median(one.pages_s for one in found))
                for point, found in samples.items()
                if (point.processes, point.latency) == (processes, latency)
            ]
            if met:
                axes.plot(*zip(*met, strict=True), marker, color=colour, markersize=5)
    axes.set(xlabel="sessions", ylabel="pages/s", ylim=(0, None))
    axes.legend(fontsize=7)
    record.plot(
        "model", figure, "Pages a second: measured (points) and as the model has it (lines)"
    )

    figure = draw(7, 4)
    axes = figure.subplots()
    at = [n for n, _, _ in straight]
    axes.plot(at, [statistics.median(r) for _, r, _ in straight], "o", color="tab:green")
    ends = [0, max(at)]
    axes.plot(ends, [fitted.intercept + fitted.slope * n for n in ends], color="tab:green")
    axes.set(xlabel="nodes", ylabel="pages/s", ylim=(0, None))
    other = axes.twinx()
    cpu = [statistics.median(c) for _, _, c in straight]
    other.plot(at, cpu, "--s", color="tab:grey", markersize=4)
    other.set(ylabel="CPU a node, cores", ylim=(0, max(1e-3, 2 * max(cpu))))
    record.plot("line", figure, "Source B: pages a second against nodes; grey: CPU a node")


if __name__ == "__main__":
    run("--short" in sys.argv[1:])
