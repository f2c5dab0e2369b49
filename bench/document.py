"""Make ``docs/benchmarks.md`` from the files in ``bench/results/``: ``python -m bench.document``.

Nothing is measured or counted here. If a benchmark has no file, or if the file lacks a figure, this
is shown as not run. Tables, plots and notes are as :class:`bench.rig.record.Record` stored them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.rig.record import PLOTS, shown
from bench.rig.report import RESULTS

DOCUMENT = PLOTS.parent / "benchmarks.md"
NOT_RUN = "not run"

BENCHMARKS = {
    "peers": ("bench.peers.compare", "Beside other crawlers, with the same duties"),
    "greenlets-vs-threads": (
        "bench.models.greenlets_vs_threads",
        "Greenlets and threads under the same crawler",
    ),
    "libraries": (
        "bench.libraries.compare",
        "Own code beside libraries for the same standard",
    ),
    "wide": ("bench.scale.wide", "The web as it is: many hosts, slow, dead and polite"),
    "scale": ("bench.scale.processes", "More processes, and what comes beyond them"),
    "away": ("bench.faults.away", "One of two Redis nodes is away"),
    "idle-crawls": ("bench.frontier.idle_crawls", "What a hundred idle crawls cost"),
    "recovery": ("bench.frontier.recovery", "A restart of Redis, by what waits in SQL"),
    "crawls": ("bench.store.crawls", "Memory over two hundred crawls"),
    "growth": ("bench.store.growth", "Whether SQL only grows"),
}
"""Each benchmark's module and title by the name of its file, in the order in which they run and are
shown."""

LASTING = ("away", "idle-crawls", "recovery", "crawls", "growth")
"""Benchmarks that take long: ``make bench-lasting`` runs them, ``make bench`` does not."""


class Required(NamedTuple):
    """A required figure: ``key`` among the ``figures`` of the benchmark ``name``."""

    what: str
    name: str
    key: str
    must: float
    goal: float
    at_most: bool = False

    def said(self) -> str:
        """Return ``what`` in a form that is clear without the row above."""
        return self.what.replace("the same", "pages/s of a core ÷ Scrapy's, 20 KB pages,")

    def reached(self, value: float, bound: float) -> bool:
        """Return whether ``value`` keeps ``bound``."""
        return value <= bound if self.at_most else value >= bound


REQUIRED = (
    Required("pages/s of a core ÷ Scrapy's, 20 KB pages, plain", "peers", "plain_scrapy", 8, 12),
    Required("the same with text and storage", "peers", "full_scrapy", 10, 16),
    Required("pages/s of a core ÷ scrapy-redis', plain", "peers", "plain_scrapy_redis", 20, 30),
    Required("pages/s of a core ÷ Crawlee's (Parsel), plain", "peers", "plain_crawlee", 5, 8),
    Required(
        "pages/s ÷ Scrapy's, real documentation, plain",
        "peers",
        "documentation_plain_scrapy",
        8,
        15,
    ),
    Required(
        "Scrapy's CPU a page ÷ that of all our processes, text and storage",
        "peers",
        "cpu_full_scrapy",
        8,
        12,
    ),
    Required(
        "wide: pages/s ÷ the lower of CPU bound and politeness bound",
        "wide",
        "of_bound",
        0.85,
        0.95,
    ),
    Required(
        "two worker processes: pages/s ÷ what the CPU of all processes allows",
        "scale",
        "two_processes",
        0.9,
        0.95,
    ),
    Required(
        "error of the cost model for a larger run that it has not seen",
        "scale",
        "prediction_off",
        0.15,
        0.15,
        at_most=True,
    ),
    Required(
        "memory of a worker at 1,000 greenlets, MB",
        "greenlets-vs-threads",
        "rss_mb_greenlets_1000",
        150,
        100,
        at_most=True,
    ),
    Required(
        "`sleep(5)` at 1,000 greenlets, with a parse: ideal ÷ actual time",
        "greenlets-vs-threads",
        "ratio_greenlets_1000_parse",
        0.95,
        0.97,
    ),
    Required(
        "one of two Redis nodes killed: pages/s of the other's hosts ÷ before",
        "away",
        "killed_ratio",
        0.95,
        0.99,
    ),
    Required(
        "one of two Redis nodes frozen: pages/s of the other's hosts ÷ before",
        "away",
        "frozen_ratio",
        0.95,
        0.99,
    ),
    Required(
        "one of two Redis nodes killed, bound by CPU: pages/s of all hosts ÷ before",
        "away",
        "busy_ratio",
        0.95,
        1,
    ),
    Required("URLs lost after it is back", "away", "lost", 0, 0, at_most=True),
    Required(
        "growth of a worker or broker while it is away, MB",
        "away",
        "growth_mb",
        16,
        8,
        at_most=True,
    ),
    Required(
        "a hundred idle crawls, ten brokers: CPU of Redis, ms a second",
        "idle-crawls",
        "redis_ms_a_second",
        2,
        1,
        at_most=True,
    ),
    Required(
        "a restart of Redis: seconds with most rows in the overflow ÷ with fewest",
        "recovery",
        "most_over_fewest",
        2,
        1.2,
        at_most=True,
    ),
    Required(
        "two hundred crawls, the second half: growth of worker or broker a crawl, MB",
        "crawls",
        "growth_mb",
        0.2,
        0.05,
        at_most=True,
    ),
    Required(
        "rows and bytes in SQL: the most of the third year ÷ that of the second",
        "growth",
        "last_year_over_before",
        1.05,
        1.01,
        at_most=True,
    ),
)

DRAWN = "## What must be reached\n"
"""The generated part begins here; the text before it is the page's own."""

REQUIRED_HEAD = """\
In the level *plain* the other crawlers obey robots.txt, follow links and fetch no page twice.
Greencrawl ("ours") also extracts text and stores it, in both levels. The last column says whether
the measured value reached the goal ("goal"), only the required value ("reached"), or neither
("missed").
"""


def draw(records: Mapping[str, Mapping[str, Any]], page: str) -> str:
    """Return ``page`` with the generated part made from records by name."""
    own = page[: page.index(DRAWN)]
    parts = [own + DRAWN, REQUIRED_HEAD, _required(records), _short(records)]
    for name, (module, title) in BENCHMARKS.items():
        parts.append(f"## {title}\n")
        parts.append(_section(module, records[name]) if name in records else _absent(module))
    return "\n".join(parts)


def read(results: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the existing records, by name."""
    files = {name: results / f"{name}.json" for name in BENCHMARKS}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def missed(name: str, results: Path = RESULTS) -> int:
    """Print the required figures of the benchmark ``name`` that were missed; return 1 if there are
    any, else 0."""
    records = {name: json.loads((results / f"{name}.json").read_text())}
    found = 0
    for figure in REQUIRED:
        value, verdict = _verdict(figure, records)
        if verdict == "missed" and value is not None:
            found = 1
            print(f"== MISSED: {figure.said()}: {shown(value)}, must be {shown(figure.must)}")
    return found


def _required(records: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for figure in REQUIRED:
        value, verdict = _verdict(figure, records)
        measured = NOT_RUN
        if value is not None:
            short = " (short run)" if records[figure.name]["short"] else ""
            measured = shown(value) + short
        sign = "≤ " if figure.at_most else "≥ "
        bounds = [sign + shown(bound) for bound in (figure.must, figure.goal)]
        rows.append([figure.what, *bounds, measured, verdict])
    return markdown(["figure", "must", "goal", "measured", ""], rows)


def _verdict(
    figure: Required, records: Mapping[str, Mapping[str, Any]]
) -> tuple[float | None, str]:
    """Return the measured value and its verdict; (None, "") if it was not measured."""
    value = records.get(figure.name, {}).get("figures", {}).get(figure.key)
    if value is None:
        return None, ""
    if not figure.reached(value, figure.must):
        return float(value), "missed"
    return float(value), "goal" if figure.reached(value, figure.goal) else "reached"


def _short(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a sentence with the figures that miss their goal."""
    missed, less = [], []
    for figure in REQUIRED:
        value, verdict = _verdict(figure, records)
        if value is not None and verdict == "missed":
            missed.append(f"{figure.said()}, {shown(value)} (required: {shown(figure.must)})")
        if value is not None and verdict == "reached":
            less.append(f"{figure.said()}, {shown(value)} (goal: {shown(figure.goal)})")
    parts = [f"Missed: {'; '.join(missed)}."] if missed else []
    parts += [f"Reached, but short of the goal: {'; '.join(less)}."] if less else []
    return " ".join(parts) + "\n" if parts else ""


def _absent(module: str) -> str:
    return f"`python -m {module}`: {NOT_RUN}.\n"


def _section(module: str, record: Mapping[str, Any]) -> str:
    machine = dict(record["machine"])
    short = " --short" if record["short"] else ""
    parts = [
        f"`python -m {module}{short}`, {record['when'][:10]}, {record['seconds']:,.0f} s, on"
        f" {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB,"
        f" {machine['system']}; load average before: {machine['load_average']}.\n",
        ", ".join(f"{name} {number}" for name, number in record["versions"].items()) + ".\n",
        *(f"{note}\n" for note in record["notes"]),
    ]
    for table in record["tables"]:
        parts.append(f"### {table['title']}\n")
        parts.append(markdown(table["columns"], table["rows"]))
    for plot in record["plots"]:
        parts.append(f"![{plot['caption']}](benchmarks/{plot['file']})\n")
        parts.append(f"*{plot['caption']}*\n")
    return "\n".join(parts)


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; numbers, which begin with a digit or a sign, are right-aligned."""
    numeric = [
        any(row[i] for row in rows)
        and all(row[i][:1].isdigit() or row[i][:1] in ("", "-", "+", "≥", "≤") for row in rows)
        for i in range(len(columns))
    ]
    rule = ["---:" if right else "---" for right in numeric]
    lines = [columns, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Write the page."""
    page = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(draw(read(), page), encoding="utf-8")
    print(f"== {DOCUMENT.name} drawn", flush=True)


if __name__ == "__main__":
    main()
