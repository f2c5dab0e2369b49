"""Show 6: Redis commands of an idle system in a minute; seeds posted one by one to it."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from bench.rig.report import Report
from tests.support.idle import commands_during, seed_to_arrival
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import graph_site
from tests.support.system import System

IDLE_SECONDS = 60
MAX_COMMANDS = 60
SEEDS = 200
PAUSE_SECONDS = 0.25
"""Between two seeds: the system is idle again when the next one comes."""


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    report = Report("idle", "6. an idle system is quiet and wakes at once")
    addresses = tuple(f"127.0.1.{n}" for n in range(1, SEEDS + 2))
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer(Path(folder) / "redis").start()
        try:
            with (
                SiteServer(graph_site(1), addresses) as server,
                System(Path(folder), [redis.url]) as system,
            ):
                system.start().crawl([server.url("/p/0")], scope="any", depth=0, delay=0)
                system.wait_done(30)
                commands_during(redis.client, 2)  # the end of a crawl is not idleness yet
                _quiet(report, redis)
                _wake(report, system, server)
        finally:
            redis.stop()
    return report.finish()


def _quiet(report: Report, redis: RedisServer) -> None:
    spent = commands_during(redis.client, IDLE_SECONDS)
    total = sum(spent.values())
    report.figure("commands by name", dict(sorted(spent.items(), key=lambda item: -item[1])))
    report.figure("Redis commands", total, f"in {IDLE_SECONDS} s")
    report.claim(f"at most {MAX_COMMANDS} Redis commands a minute", total <= MAX_COMMANDS)


def _wake(report: Report, system: System, server: SiteServer) -> None:
    waits = []
    for address in server.addresses[1:]:
        waits.append(seed_to_arrival(system, server, address) * 1000)
        time.sleep(PAUSE_SECONDS)
    waits.sort()
    p99 = waits[int(len(waits) * 0.99) - 1]
    report.figure("seeds", len(waits))
    report.figure("acknowledgement to arrival, median", statistics.median(waits), "ms")
    report.figure("… p99", p99, "ms")
    report.figure("… worst", waits[-1], "ms")
    report.claim("a seed is fetched within 100 ms (p99) of its acknowledgement", p99 <= 100)
