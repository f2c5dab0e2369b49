"""Show 5 (``make bench``): pages a second of a worker core and CPU a page, beside Scrapy.

One worker process and one Scrapy process crawl the same pages from the same nginx, in turn, in
the same run. With two cores or more, the crawling process has one to itself; nginx, the broker
and Redis share another, for both sides alike. Rates are taken from nginx's log; CPU from the
processes themselves, without their start-up, on our side summed over worker (with its supervisor
and the store), broker and Redis. Ours also extracts text, compresses, and stores every page
durably; Scrapy only follows links.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import psutil

from bench.peers import Nginx, crawl_with_scrapy, write_pages
from bench.report import Report
from bench.sampling import top_functions
from tests.support.redis_server import RedisServer
from tests.support.system import System

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
HOSTS = int(os.environ.get("BENCH_HOSTS", "8"))
CONNECTIONS = int(os.environ.get("BENCH_CONNECTIONS", "64"))
PAGES = 2500
"""Pages a host; each host serves the same ones."""
OUR_PAGES = 12_000
SCRAPY_PAGES = 1_500
TIMES_FASTER = 5.0


def show() -> int:
    report = Report("speed", "5. pages a second of a worker core, beside Scrapy")
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    crawler, others = _cores()
    with tempfile.TemporaryDirectory() as folder:
        write_pages(Path(folder) / "site", PAGES)
        addresses = [f"127.0.0.{n}" for n in range(2, 2 + HOSTS)]
        nginx = Nginx(Path(folder), addresses, others).start()
        try:
            for number in range(ROUNDS):
                ours.append(_ours(Path(folder) / f"round{number}", nginx, crawler, others))
                theirs.append(_scrapy(Path(folder), nginx, crawler))
                report.figure(f"round {number + 1}", f"ours {ours[-1]}, Scrapy {theirs[-1]}")
            profile: list[str] = []
            _ours(Path(folder) / "profiled", nginx, crawler, others, profile)
        finally:
            nginx.stop()
    _compare(report, ours, theirs)
    report.figure("pinned to cores (crawler, others)", f"{crawler}, {others}")
    report.figure(
        "the profile's top ten, share of samples", "".join(f"\n      {p}" for p in profile)
    )
    return report.finish()


def _cores() -> tuple[int | None, int | None]:
    """A core for the crawling process and one for the rest; (None, None) with one core."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[-1], cores[0]) if len(cores) > 1 else (None, None)


def _ours(
    folder: Path,
    nginx: Nginx,
    crawler: int | None,
    others: int | None,
    profile: list[str] | None = None,
) -> dict[str, float]:
    """One crawl of ``OUR_PAGES``; figures by name. With ``profile``, its worker is sampled."""
    redis = RedisServer(folder / "redis").start()
    assert redis.process is not None
    server = psutil.Process(redis.process.pid)
    if others is not None:
        server.cpu_affinity([others])
    try:
        with System(
            folder, [redis.url], worker_cpu=crawler, broker_cpu=others, log_level="warning"
        ) as system:
            system.start()
            system.settle()
            mark = nginx.mark()
            before = _cpu(system, server)
            system.crawl(
                nginx.seeds,
                delay=0,
                slots=max(1, CONNECTIONS // HOSTS),
                max_pages=OUR_PAGES,
                user_agent="greencrawl-bench/1.0",
            )
            if profile is not None:
                profile += top_functions(system.children()[0].pid, seconds=4)
            system.wait_done(240)
            after = _cpu(system, server)
            stored = int(system.stats()["stored"])
    finally:
        redis.stop()
    spent = {part: after[part] - before.get(part, 0.0) for part in after}
    figures = {"pages/s": _rate(nginx.page_times(mark)), "pages": float(stored)}
    for part, seconds in {**spent, "all": sum(spent.values())}.items():
        figures[f"{part} CPU ms/page"] = round(seconds / stored * 1000, 3)
    return figures


def _cpu(system: System, redis: psutil.Process) -> dict[str, float]:
    times = redis.cpu_times()
    return {**system.cpu_seconds(), "redis": times.user + times.system}


def _scrapy(folder: Path, nginx: Nginx, crawler: int | None) -> dict[str, float]:
    mark = nginx.mark()
    result = crawl_with_scrapy(nginx.seeds, SCRAPY_PAGES, CONNECTIONS, folder, crawler)
    return {
        "pages/s": _rate(nginx.page_times(mark)),
        "pages": float(result["pages"]),
        "all CPU ms/page": round(result["cpu"] / result["pages"] * 1000, 3),
    }


def _rate(times: list[float]) -> float:
    """Pages a second between the first and the last page of the log."""
    return round((len(times) - 1) / (times[-1] - times[0]), 1)


def _compare(report: Report, ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> None:
    medians: dict[str, dict[str, Any]] = {}
    for who, rounds in (("ours", ours), ("Scrapy", theirs)):
        medians[who] = {}
        for name in rounds[0]:
            values = [figures[name] for figures in rounds]
            medians[who][name] = statistics.median(values)
            spread = f"median {medians[who][name]:,.3f} (from {min(values):,} to {max(values):,})"
            report.figure(f"{who}: {name}", spread)
    ratio = medians["ours"]["pages/s"] / medians["Scrapy"]["pages/s"]
    cpu = medians["Scrapy"]["all CPU ms/page"] / medians["ours"]["all CPU ms/page"]
    report.figure("pages/s of a worker core, times Scrapy's", ratio)
    report.figure("Scrapy's CPU a page, times all of ours", cpu)
    report.claim(f"at least {TIMES_FASTER:g} × Scrapy's pages a second", ratio >= TIMES_FASTER)
