"""What a number of pages a day needs, for docs/operations.md, from results of the benchmarks.

Nothing is measured here. Every figure is computed from what a benchmark found for one process, one
node, or one server. Only half of that is planned, which leaves room for peaks and for the work
after an outage.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from bench.rig.record import PLOTS, shown
from bench.rig.report import RESULTS
from bench.scale.scaling import PAGE_BYTES, STORED_BYTES

DOCUMENT = PLOTS.parent / "operations.md"
PAGES_A_DAY = (100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
DAY_SECONDS = 86_400
PLANNED = 0.5
"""Share of the capacity of a process, a node or a server that is planned."""
KEPT_DAYS = 30
"""Redis knows a crawl's URLs as long as it lasts."""
LINKS = 2
"""New URLs of a page, as in the benchmarks."""
NODE_BYTES = 32e9
"""Memory of a Redis node, ``maxmemory``."""
SEEN_SHARE = 0.4
"""Share of this memory for known URLs: half is for waiting URLs."""
PARTITIONS, PARTITIONS_A_NODE = 64, 16
SQLITE_PAGES = 1_000_000
"""Pages a day up to which one machine is assumed: SQLite is a file of one machine."""
HOSTS = "2000"
"""The runs of the wide benchmark whose CPU counts: they start with new hosts."""


@dataclass(frozen=True)
class Carries:
    """Pages a second of one worker process, broker, Redis node, writer of the MySQL cluster, and
    SQLite file; and the bytes of a known URL in Redis."""

    worker: float
    broker: float
    redis: float
    mysql: float
    sqlite: float
    seen_bytes: float


def carries(results: Path = RESULTS) -> Carries:
    """Return the results of benchmarks. Raises OSError or KeyError if a benchmark was not run."""
    runs = _read("wide", results)["runs"]["hosts"][HOSTS]["runs"]["ours"]

    def of_core(part: str) -> float:
        return statistics.median(one["free"]["pages_s"] / one["free"]["busy"][part] for one in runs)

    return Carries(
        worker=of_core("worker"),
        broker=of_core("broker"),
        redis=of_core("redis"),
        mysql=_read("store-mysql", results)["figures"]["store x4"]["pages_a_second"],
        sqlite=_read("store", results)["store busy"][0],
        seen_bytes=_read("frontier", results)["figures"]["seen 10,000,000 URLs"]["bytes_a_URL"],
    )


def row(pages: int, one: Carries) -> tuple[str, ...]:
    """Return the cells for this many pages a day."""
    rate = pages / DAY_SECONDS

    def processes(capacity: float, least: int = 1) -> int:
        return max(ceil(rate / (capacity * PLANNED)), least)

    several = pages > SQLITE_PAGES
    least = 2 if several else 1
    known = pages * KEPT_DAYS * LINKS * one.seen_bytes
    nodes = max(processes(one.redis, least), ceil(known / (NODE_BYTES * SEEN_SHARE)))
    partitions = PARTITIONS
    while partitions < nodes * PARTITIONS_A_NODE:
        partitions *= 2
    store, full = ("MySQL, five servers", one.mysql) if several else ("SQLite", one.sqlite)
    return (
        f"{pages:,}",
        shown(rate),
        str(processes(one.worker)),
        str(processes(one.broker, least)),
        f"{nodes} of {shown(max(known / SEEN_SHARE / nodes / 1e9, 0.5))} GB",
        str(partitions),
        f"{store}; {rate / full:.1%} of it",
        f"{shown(pages * STORED_BYTES / 1e9)} GB",
        f"{shown(rate * PAGE_BYTES * 8 / 1e6)} Mbit/s",
        shown(rate * 1.3),
    )


COLUMNS = (
    "pages a day", "a second", "worker processes", "brokers", "Redis nodes, memory", "partitions",
    "store", "disk a day, each server", "network", "hosts at once",
)  # fmt: skip


def table(one: Carries) -> str:
    """Return the table, and the sources of its figures."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *(row(pages, one) for pages in PAGES_A_DAY)]
    where = [
        ("figure", "from", "in `bench/results/`"),
        ("---", "---", "---"),
        (
            "worker processes",
            f"{shown(one.worker)} pages/s of one core; every connection and every look-up is new",
            "`wide.json`",
        ),
        (
            "brokers",
            f"{shown(one.broker)} pages/s of one core; at least two, so that one may stop",
            "`wide.json`",
        ),
        (
            "Redis nodes",
            f"{shown(one.redis)} pages/s of one core; {shown(one.seen_bytes)} bytes for each known "
            f"URL of {KEPT_DAYS} days with {LINKS} new URLs a page, which use {SEEN_SHARE:.0%} of "
            f"a node of at most {NODE_BYTES / 1e9:.0f} GB; at least two nodes, so that one may be "
            "away",
            "`wide.json`, `frontier.json`",
        ),
        (
            "partitions",
            f"at least {PARTITIONS_A_NODE} for each node; the number cannot be changed later",
            "not measured",
        ),
        (
            "store",
            f"the writer commits {shown(one.mysql)} pages/s; SQLite {shown(one.sqlite)}, while a "
            "worker is busy",
            "`store-mysql.json`, `store.json`",
        ),
        (
            "disk",
            f"{STORED_BYTES:,} bytes a page, [see below](#room-for-100-million-pages); if bodies "
            "are in WARC files, these take about half of it",
            "measured on 300,000 pages",
        ),
        ("network", f"pages of {PAGE_BYTES:,} bytes as they are transferred", "calculated"),
        ("hosts at once", "a delay of 1 s and answers after 0.3 s", "calculated"),
    ]
    return f"{_lines(lines)}\n\n{_lines(where)}"


def _lines(rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_MARKED = re.compile(r"(<!-- sizing: begin -->\n).*?(\n<!-- sizing: end -->)", re.DOTALL)


def filled(text: str, one: Carries) -> str:
    """Return ``text`` with the table between its markers. Raises ValueError without markers."""
    new, count = _MARKED.subn(lambda match: match[1] + table(one) + match[2], text)
    if count != 1:
        raise ValueError("no markers of the table are there")
    return new


def _read(name: str, results: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return found


def write(document: Path = DOCUMENT) -> None:
    """Write the table again."""
    text = document.read_text(encoding="utf-8")
    document.write_text(filled(text, carries()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write())
