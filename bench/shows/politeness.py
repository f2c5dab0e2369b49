"""Show 3: eight hosts, delay 0.2 s, three worker processes, one killed half-way: from the log."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.rig.report import Report
from tests.support import oracle
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import direct, graph_site
from tests.support.system import System, signal_child, wait_until
from tests.support.walk import walk

DELAY = 0.2
ADDRESSES = tuple(f"127.0.0.{n}" for n in range(2, 10))
PAGES = 60


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    report = Report("politeness", f"3. {len(ADDRESSES)} hosts, delay {DELAY} s, a worker killed")
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer(Path(folder) / "redis").start()
        try:
            _crawl(report, Path(folder), redis)
        finally:
            redis.stop()
    return report.finish()


def _crawl(report: Report, folder: Path, redis: RedisServer) -> None:
    site = graph_site(PAGES, slow_every=9, slow=0.5)
    with (
        SiteServer(site, ADDRESSES) as server,
        System(folder, [redis.url], processes=3, request_seconds="5", lease_seconds="10") as system,
    ):
        starts = [server.url("/p/0", address) for address in ADDRESSES]
        expected = walk(starts, direct(site), agent="greencrawl")
        system.start().crawl(starts, delay=DELAY)
        half = len(expected.requested) // 2
        wait_until(lambda: len(server.hits) >= half, 120, "half of the requests arrived")
        victims = system.children()
        leased = system.stats()["leased"]
        signal_child(victims[0])
        report.figure("worker processes when one was killed", len(victims))
        report.figure("tasks leased when the kill fell", leased)
        seconds = system.wait_done(300)
        hits = server.log()
    requests = oracle.requests_of(hits, server.port)
    robots = sum(hit.target == "/robots.txt" for hit in hits)
    report.figure("requests", len(hits))
    report.figure("… of them robots.txt", robots)
    report.figure("… of them redirects", sum(300 <= hit.status < 400 for hit in hits))
    report.figure("refetched", oracle.refetched(requests))
    report.figure("closest two arrivals at one host", oracle.closest(hits), "s")
    report.figure("from the kill to the end", seconds, "s")
    report.claim("three processes crawled, and work was leased", len(victims) == 3 and leased > 0)
    report.none("no two arrivals closer than the delay, none overlap", oracle.impolite(hits, DELAY))
    report.none(
        "no URL was lost", oracle.differences(set(requests), expected.requested, "requested")
    )
    report.claim("robots and redirects were among the requests", robots >= len(ADDRESSES))
