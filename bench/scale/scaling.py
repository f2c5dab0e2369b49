"""What is drawn in ``docs/scaling.md``, from ``bench/results/scale.json`` and other benchmarks.

Nothing is measured here. What a part carries is computed from its cost a page; where a benchmark
was not run, the cell says so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.rig.record import PLOTS, shown
from bench.rig.report import RESULTS

DOCUMENT = PLOTS.parent / "scaling.md"
NOT_RUN = "not run"
_PLOTS = "[plot](benchmarks.md#more-processes-and-what-comes-beyond-them)"
WORKERS = 100
URLS = 1_000_000_000
PAGE_BYTES = 20_000
STORED_BYTES = 9_600
"""Bytes of a page in the store, by the table in docs/operations.md."""
LINE_BITS = 10_000_000_000
BUSY = 0.7
"""Share of a core up to which a server may be used permanently: beyond it queues grow."""

_PARTS = (
    ("worker", "worker"),
    ("broker", "broker"),
    ("redis", "Redis"),
    ("server", "the benchmark's web server"),
)


class Capacity(NamedTuple):
    """The capacity of one part, in pages a second; None if it was not measured."""

    part: str
    one: str
    pages_s: float | None


def capacities(
    scale: Mapping[str, Any], store: Mapping[str, Any], frontier: Mapping[str, Any]
) -> list[Capacity]:
    """Return the capacity of each part, from the figures of the benchmarks; an empty mapping means
    not run."""
    figures = scale.get("figures", {})

    def core(part: str) -> float | None:
        cost = figures.get(f"cpu_ms_{part}")
        return None if not cost else BUSY * 1000 / cost

    writer = store.get("figures", {}).get("store x4", {}).get("pages_a_second")
    rows = [
        Capacity("writer of the MySQL cluster", "the benchmark's, one core", writer),
        Capacity("network", f"{BUSY:.0%} of 10 Gbit/s", BUSY * LINE_BITS / 8 / PAGE_BYTES),
        Capacity("broker", f"a process at {BUSY:.0%} of a core", core("broker")),
        Capacity("Redis", f"a node at {BUSY:.0%} of a core", core("redis")),
        Capacity("Redis, all links new", f"a node at {BUSY:.0%} of a core", _all_new(figures)),
    ]
    tasks = [row["tasks/s"] for row in frontier.get("figures", {}).values() if _has_tasks(row)]
    alone = min(tasks, default=None)
    rows.append(Capacity("Redis, its queue alone", "the frontier's benchmark", alone))
    return sorted(rows, key=lambda row: row.pages_s or float("inf"))


def _all_new(figures: Mapping[str, float]) -> float | None:
    """Return pages a second of a Redis node at the start of a crawl, when all URLs are new."""
    if "cpu_us_new_link_redis" not in figures:
        return None
    more = figures["all_links"] - figures["new_links"]
    return BUSY * 1000 / (figures["cpu_ms_redis"] + more * figures["cpu_us_new_link_redis"] / 1000)


def _has_tasks(row: object) -> bool:
    return isinstance(row, dict) and "tasks/s" in row


def draw(
    scale: Mapping[str, Any],
    store: Mapping[str, Any],
    frontier: Mapping[str, Any],
    page: str,
) -> str:
    """Return ``page`` with the generated parts, made from the records of four benchmarks."""
    figures = scale.get("figures", {})
    cost = figures.get("cpu_ms_worker")
    rate = 1000 / cost if cost else None
    found = capacities(scale, store, frontier)
    rows = [_carried(one, rate) for one in found]
    columns = (
        "part",
        "measured",
        "pages/s of one",
        "workers that one serves",
        f"needed for {WORKERS} workers",
    )
    parts = {
        "origin": _origin(scale),
        "saturates": _table(columns, rows) + "\n" + _order(found, rate),
        "hundred": _hundred(rate, frontier),
        "model": _model(figures),
        "two": _two(figures),
        "line": _line(figures),
    }
    for name, text in parts.items():
        marks = f"<!-- drawn: {name} -->\n", "<!-- end -->\n"
        before, rest = page.split(marks[0])
        page = f"{before}{marks[0]}{text}{marks[1]}{rest.split(marks[1], 1)[1]}"
    return page


def _origin(scale: Mapping[str, Any]) -> str:
    if not scale:
        return f"`python -m bench.scale.processes`: {NOT_RUN}.\n"
    machine = scale["machine"]
    short = (
        ", a short run, which shows that the benchmark works rather than how fast Greencrawl is"
        * scale["short"]
    )
    return (
        f"Measured {scale['when'][:10]} on {machine['cores']} cores ({machine['processor']}),"
        f" Python {scale['versions']['python']}{short}.\n"
    )


def _carried(one: Capacity, rate: float | None) -> tuple[str, ...]:
    if one.pages_s is None:
        return (one.part, one.one, NOT_RUN, NOT_RUN, NOT_RUN)
    carried = (one.part, one.one, shown(round(one.pages_s)))
    if rate is None:
        return (*carried, NOT_RUN, NOT_RUN)
    return (*carried, shown(one.pages_s / rate), shown(WORKERS * rate / one.pages_s))


def _order(found: Sequence[Capacity], rate: float | None) -> str:
    """Return the table as a sentence."""
    known = [one for one in found if one.pages_s is not None]
    if rate is None or len(known) < 2:
        return ""
    ends = [f"{one.part} at {shown((one.pages_s or 0.0) / rate)}" for one in known]
    return (
        f"One of each part reaches its limit at the following number of workers: {'; '.join(ends)}."
        " There may be any number of each part except the writer; the last section says what to"
        " add.\n"
    )


def _hundred(rate: float | None, frontier: Mapping[str, Any]) -> str:
    """Return the table of a hundred workers and a billion URLs."""
    figures = frontier.get("figures", {})
    url = figures.get("seen 10,000,000 URLs", {}).get("bytes_a_URL")
    waits = figures.get("10,000,000 URLs waiting at 100,000 hosts", {}).get("bytes_a_URL")
    total = None if rate is None else WORKERS * rate

    def of(value: float | None, factor: float, unit: str) -> str:
        return NOT_RUN if value is None else f"{shown(value * factor)} {unit}".rstrip()

    hours = None if total is None else URLS / total / 3600
    rows = [
        ("pages a second of all workers", of(total, 1, "")),
        ("time for all pages", of(hours, 1, "h")),
        ("hosts at once, with a delay of 1 s and answers after 0.3 s", of(total, 1.3, "")),
        ("network", of(total, PAGE_BYTES * 8 / 1e9, "Gbit/s")),
        ("bytes into the store", of(total, STORED_BYTES / 1e6, "MB/s")),
        (
            "room in the store, as docs/operations.md calculates it",
            of(float(URLS), STORED_BYTES / 1e12, "TB"),
        ),
        ("Redis: all URLs seen", of(url, URLS / 1e9, "GB")),
        ("Redis: a tenth of them waiting", of(waits, URLS / 10 / 1e9, "GB")),
    ]
    return _table(("what", "how much"), rows)


def _model(figures: Mapping[str, float]) -> str:
    def of(key: str, unit: str) -> str:
        value = figures.get(key)
        return NOT_RUN if value is None else f"{shown(value)} {unit}"

    rows = [
        (
            name,
            of(f"rest_ms_{part}", "ms/s"),
            of(f"cpu_ms_batch_{part}", "ms"),
            of(f"cpu_ms_{part}", "ms"),
            of(f"cpu_us_new_link_{part}", "µs"),
            of(f"cpu_ms_host_{part}", "ms"),
        )
        for part, name in _PARTS
    ]
    columns = ("CPU of", "at rest", "a batch", "a page in a full batch", "a new link", "a host")
    off, cpu = figures.get("prediction_off"), figures.get("prediction_off_cpu")
    text = _table(columns, rows) + "\nErrors for larger runs, to which the model was not fitted: "
    if off is None or cpu is None:
        return text + f"{NOT_RUN}.\n"
    return text + (
        f"at most {off:.0%} in pages per second, {cpu:.0%} in CPU per page ({_PLOTS}).\n"
    )


def _two(figures: Mapping[str, float]) -> str:
    if "two_processes" not in figures:
        return f"Share of what the CPU allows: {NOT_RUN}.\n"
    return (
        f"Two workers reach {shown(figures['two_processes'])} of the rate that the CPU allows."
        f" {figures['two_processes_idle']:.1%} of the cores stays idle. The CPU of a page, divided"
        f" by the CPU with one worker, is {shown(figures['two_processes_dearer'])}.\n"
    )


def _line(figures: Mapping[str, float]) -> str:
    if "line_slope" not in figures:
        return f"Pages a second against nodes that bring their own sessions: {NOT_RUN}.\n"
    return (
        "As long as no part reaches its limit, each node with sessions of its own adds"
        f" {figures['line_slope']:.1f} pages per second"
        f" (R² = {figures['line_r2']:.4f}; {_PLOTS}).\n"
    )


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _read(name: str, results: Path) -> dict[str, Any]:
    path = results / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(results: Path = RESULTS, document: Path = DOCUMENT) -> None:
    """Write the page again."""
    names = ("scale", "store-mysql", "frontier")
    records = (_read(name, results) for name in names)
    document.write_text(draw(*records, DOCUMENT.read_text()))


if __name__ == "__main__":
    sys.exit(write())
