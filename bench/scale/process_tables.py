"""Results of the runs of ``bench.scale.processes``: the fit, tables, figures and plots."""

from __future__ import annotations

import statistics
from typing import Any

from bench.rig.record import Record, draw, spread
from bench.rig.window import unquiet
from bench.scale import cost_model
from bench.scale.cost_model import Costs, Forecast, Sample
from bench.scale.process_runs import (
    ALL_FRESH,
    BUSIEST,
    FRESH,
    HOSTS,
    NODE_LATENCY,
    NODE_SESSIONS,
    Point,
)

WITHIN = 0.15
"""The allowed error of a prediction."""
SMALL_SESSIONS = 64
"""A run is small up to here: the model is fitted on it if it has one process."""
PARTS = ("worker", "broker", "redis", "server")


def sample(point: Point, window: dict[str, Any], cores: int) -> Sample:
    """Return a window as the model needs it."""
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
    """Return whether the model is fitted on a run; it has to predict the others."""
    return point.processes == 1 and point.sessions <= SMALL_SESSIONS


def efficiencies(
    one: list[dict[str, Any]], two: list[dict[str, Any]], cores: int
) -> list[dict[str, float]]:
    """Return, for each round, the ``share`` that two worker processes reach of the rate that the
    CPU of the machine allows.

    ``alone`` is the CPU seconds a page of all parts with one worker process; ``together`` is the
    same with two processes. ``allowed`` is the pages a second of all cores without waiting, if each
    page took the lesser of the two. The rest is lost for two reasons: ``idle`` is the share of the
    cores that nobody used; and two processes share caches, alternate on cores, and write to one
    database. If a page costs two processes less than one, this does not make up for idle time: the
    ``share`` is never above 1.
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


def show(record: Record, measured: dict[str, Any], cores: int) -> None:
    """Add fit, tables, figures and plots."""
    windows = [w for rows in measured.values() for row in rows for w in row["windows"]]
    record.note(
        f"Pages of 20 KB with 40 links, {FRESH} of them new. The CPU a page is the sum over all"
        " processes of a part. The server adds the latency to each answer, ±20 %."
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
    title = f"Nodes of {NODE_SESSIONS} sessions each, at hosts that take {NODE_LATENCY:g} s"
    record.table(title, columns, table)
    record.note(
        f"Each node has {NODE_SESSIONS} sessions, at hosts that take {NODE_LATENCY:g} s. Each"
        f" further node adds {fitted.slope:.1f} pages per second (R² = {fitted.r2:.4f})."
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
    """Return the CPU seconds of a part for each new link, from runs in which few links are new and
    runs in which all links are new."""
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
    """Return the CPU seconds of a part for a new host, in addition to those of its page and of
    batches."""
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
    """Compare the model with each point's median; of larger runs the worst counts."""
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
        f"The model was fitted on runs of one process with at most {SMALL_SESSIONS} sessions. It"
        " had not seen the larger runs; at the worst of them it is off by"
        f" {worst['pages_s']:.0%} in pages/s and by {worst['cpu']:.0%} in CPU a page: the claim of"
        f" {WITHIN:.0%} {holds}."
    )


def _page(busy: dict[str, float], pages_s: float) -> float:
    """Return the CPU ms a page of all parts."""
    return sum(busy.values()) / pages_s * 1000


def _off(measured: list[Sample], guesses: list[Forecast]) -> tuple[float, float]:
    """Return how much too high pages a second and CPU a page were predicted, as medians of
    shares."""
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
    record.plot("line", figure, "Pages a second against nodes; grey: CPU of a node")
