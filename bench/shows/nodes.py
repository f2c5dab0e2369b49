"""Show 8: the crawl of show 2 over three Redis nodes; keys and commands of each."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.rig.report import Report
from bench.shows.site import crawl_site
from tests.support.idle import commands_by_name
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import direct, graph_site
from tests.support.stored import read_stored
from tests.support.system import System
from tests.support.walk import walk

HOSTS = 24
PAGES = 40


def show() -> int:
    """The documentation is one host, hence one partition; a second crawl of many hosts follows."""
    report = Report("nodes", "8. the same site over three Redis nodes")
    with tempfile.TemporaryDirectory() as folder:
        for name, crawl in (("site", crawl_site), ("hosts", _crawl_hosts)):
            nodes = [RedisServer(Path(folder) / name / f"redis{i}").start() for i in range(3)]
            try:
                crawl(report, Path(folder) / name, [node.url for node in nodes])
                _show_load(report, name, nodes)
            finally:
                for node in nodes:
                    node.stop()
    return report.finish()


def _crawl_hosts(report: Report, folder: Path, redis: list[str]) -> None:
    """A crawl of many hosts: its partitions, and so its load, lie on all nodes."""
    site = graph_site(PAGES)
    addresses = tuple(f"127.0.0.{n}" for n in range(2, 2 + HOSTS))
    with SiteServer(site, addresses) as server, System(folder, redis, processes=2) as system:
        starts = [server.url("/p/0", address) for address in addresses]
        expected = walk(starts, direct(site), agent="greencrawl")
        system.start().crawl(starts, delay=0, slots=4)
        system.wait_done(120)
        stored = read_stored(folder / "data")
    report.claim(f"{HOSTS} hosts: pages stored equal the walk's", stored.pages == expected.pages)


def _show_load(report: Report, name: str, nodes: list[RedisServer]) -> None:
    loads = []
    for number, node in enumerate(nodes):
        commands = commands_by_name(node.client)
        loads.append(sum(commands.values()))
        report.figure(f"{name}: node {number}: keys", node.client.dbsize())
        report.figure(f"{name}: node {number}: commands", loads[-1])
    if name == "hosts":
        report.claim(
            "every node carried at least a tenth of the load", min(loads) > sum(loads) / 10
        )
