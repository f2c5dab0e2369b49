"""Show 5: pages a second of a worker core and CPU a page, beside Scrapy.

One worker process and one Scrapy process crawl the same pages from the same nginx, in turn, in
the same run. With two cores or more, the crawling process has one to itself; nginx, the broker
and Redis share another, for both sides alike. Rates count from the first page's answer in nginx's
log until the last page was dealt with; CPU is taken from the processes themselves, without their
start-up, on our side summed over worker (with its supervisor and the store), broker and Redis. Ours
also extracts text, compresses, and stores every page durably; Scrapy only follows links.
:mod:`bench.peers.compare` compares more crawlers, with equal duties.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.peers.crawls import (
    OURS,
    PLAIN,
    SCRAPY,
    Outcome,
    cores,
    crawl_with,
    crawl_with_ours,
    served,
)
from bench.rig.report import Report
from bench.rig.sampling import top_functions
from bench.rig.sites import SYNTHETIC
from tests.support.system import System

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
OUR_HOSTS, SCRAPY_HOSTS = 8, 1
"""Each serves the same 1,500 pages, and is crawled as a whole."""
TIMES_FASTER = 5.0


def show() -> int:
    """Measure, print, and return the exit status."""
    report = Report("speed", "5. pages a second of a worker core, beside Scrapy")
    rounds: dict[str, list[dict[str, float]]] = {OURS: [], SCRAPY: []}
    profile: list[str] = []

    def sample(system: System) -> None:
        profile.extend(top_functions(system.children()[0].pid, seconds=4))

    with (
        tempfile.TemporaryDirectory() as name,
        served(SYNTHETIC, OUR_HOSTS, Path(name) / "site") as on,
    ):
        folder = Path(name)
        for number in range(ROUNDS):
            ours = crawl_with_ours(on, OUR_HOSTS, folder / f"ours{number}")
            theirs = crawl_with(SCRAPY, PLAIN, on, SCRAPY_HOSTS, folder / f"scrapy{number}")
            rounds[OURS].append(_figures(ours))
            rounds[SCRAPY].append(_figures(theirs))
            report.figure(
                f"round {number + 1}", f"ours {rounds[OURS][-1]}, Scrapy {rounds[SCRAPY][-1]}"
            )
        crawl_with_ours(on, OUR_HOSTS, folder / "profiled", sample)
    _compare(report, rounds)
    report.figure("pinned to cores (crawler, others)", "{}, {}".format(*cores()))
    report.figure(
        "the profile's top ten, share of samples", "".join(f"\n      {p}" for p in profile)
    )
    return report.finish()


def _figures(one: Outcome) -> dict[str, float]:
    parts = one.cpu if len(one.cpu) > 1 else {}
    found = {"pages/s": one.rate, "pages": float(one.pages)}
    for part, milliseconds in {**parts, "all": one.all_cpu}.items():
        found[f"{part} CPU ms/page"] = round(milliseconds, 3)
    return found


def _compare(report: Report, rounds: dict[str, list[dict[str, float]]]) -> None:
    medians: dict[str, dict[str, Any]] = {}
    for who, found in rounds.items():
        medians[who] = {}
        for name in found[0]:
            values = [figures[name] for figures in found]
            medians[who][name] = statistics.median(values)
            spread = f"median {medians[who][name]:,.3f} (from {min(values):,} to {max(values):,})"
            report.figure(f"{who}: {name}", spread)
    ratio = medians[OURS]["pages/s"] / medians[SCRAPY]["pages/s"]
    cpu = medians[SCRAPY]["all CPU ms/page"] / medians[OURS]["all CPU ms/page"]
    report.figure("pages/s of a worker core, times Scrapy's", ratio)
    report.figure("Scrapy's CPU a page, times all of ours", cpu)
    report.claim(f"at least {TIMES_FASTER:g} × Scrapy's pages a second", ratio >= TIMES_FASTER)
