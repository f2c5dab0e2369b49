"""Redis is killed, emptied or frozen during a crawl: everything goes on by itself without a loss.

A lost node rests for the longest lease and the longest request before it leases again, so both are
short here.
"""

from __future__ import annotations

import os
import signal
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import gevent
import pytest

from tests.faults.test_outages import ADDRESSES, Scene, half_done
from tests.support import oracle
from tests.support.effort import cases
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import direct, graph_site
from tests.support.stored import read_stored
from tests.support.system import System, wait_until
from tests.support.walk import walk


def _killed(server: RedisServer) -> None:
    server.kill()
    gevent.sleep(0.5)
    server.start()


def _emptied(server: RedisServer) -> None:
    server.client.flushall()


def _frozen(server: RedisServer) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    gevent.sleep(5)
    server.process.send_signal(signal.SIGCONT)


def _cut_back(server: RedisServer) -> None:
    """A power cut: the last two seconds of the append-only file never reached the disk, nor did a
    part of the command before."""
    sizes = {file: file.stat().st_size for file in server.folder.rglob("*.aof")}
    gevent.sleep(2)
    server.kill()
    lost = 0
    for file, size in sizes.items():
        if file.stat().st_size > size:
            lost += file.stat().st_size - size
            os.truncate(file, size - 3)
    assert lost > 0
    server.start()


def _scripts_gone(server: RedisServer) -> None:
    server.client.script_flush()


# After a power cut Redis is older: by day ``test_recovery_machine`` uses a copy instead.
@pytest.mark.parametrize("harm", cases([_emptied], [_frozen, _killed, _scripts_gone, _cut_back]))
def test_a_crawl_loses_no_page_if_redis_is_killed_emptied_or_frozen(
    tmp_path: Path, redis_server: RedisServer, harm: Callable[[RedisServer], None]
) -> None:
    with half_done(
        tmp_path, redis_server, delay=0.01, pages=30, lease_seconds=2, request_seconds=1
    ) as scene:
        harm(redis_server)
        _finish_losing_nothing(scene)


def _wait_done(system: System) -> None:
    """Check that the broker answers 503 while Redis is away."""

    def done() -> bool:
        with suppress(urllib.error.HTTPError):
            return bool(system.stats()["state"] == "done")
        return False

    try:
        wait_until(done, 40, "the crawl is done", every=0.1)
    except AssertionError as error:
        error.add_note(f"{system.tail('broker')}\n{system.tail('worker')}")
        raise


def _finish_losing_nothing(scene: Scene) -> None:
    """Wait for the end: every page is stored; leased pages and those not yet on disk may be fetched
    again."""
    _wait_done(scene.system)
    requests = oracle.requests_of(scene.server.hits, scene.server.port)
    pages = read_stored(scene.folder / "data").pages
    assert oracle.shown(oracle.differences(pages, scene.expected.pages, "stored")) == ""
    assert oracle.shown(oracle.differences(requests, scene.expected.requested, "sent")) == ""


def test_no_page_is_lost_if_two_of_three_nodes_are_killed_and_come_back(tmp_path: Path) -> None:
    nodes = [RedisServer(tmp_path / f"redis{n}").start() for n in range(3)]
    site = graph_site(20, slow_every=4, slow=0.1)
    try:
        with (
            SiteServer(site, ADDRESSES) as server,
            System(
                tmp_path,
                [node.url for node in nodes],
                lease_seconds="2",
                request_seconds="1",
            ) as system,
        ):
            starts = [server.url("/p/0", address) for address in ADDRESSES]
            expected = walk(starts, direct(site), agent="greencrawl")
            system.start().crawl(starts, delay=0.01)
            half = len(expected.requested) // 2
            wait_until(lambda: len(server.hits) >= half, 60, "half of the requests arrived")
            for node in nodes[:2]:
                node.kill()
            gevent.sleep(0.5)
            for node in nodes[:2]:
                node.start()
            _wait_done(system)
            pages = read_stored(tmp_path / "data").pages
        assert oracle.shown(oracle.differences(pages, expected.pages, "stored")) == ""
    finally:
        for node in nodes:
            node.stop()
