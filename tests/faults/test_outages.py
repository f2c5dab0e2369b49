"""Parts that stop, freeze or come back: workers wait and go on, and politeness always holds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gevent
import pytest

from tests.support import oracle
from tests.support.effort import cases
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import direct, graph_site
from tests.support.stored import read_stored
from tests.support.system import System, wait_until
from tests.support.walk import Walk, walk

ADDRESSES = tuple(f"127.0.0.{n}" for n in range(2, 6))


@dataclass
class Scene:
    """A crawl of four hosts that is half done; ``finish`` waits for its end."""

    server: SiteServer
    system: System
    expected: Walk
    folder: Path

    def finish(self, seconds: float = 60) -> None:
        """Wait for the end of the crawl; nothing may be lost."""
        self.system.wait_done(seconds)
        requests = oracle.requests_of(self.server.hits, self.server.port)
        pages = read_stored(self.folder / "data").pages
        assert oracle.shown(oracle.differences(requests, self.expected.requested, "sent")) == ""
        assert oracle.shown(oracle.differences(pages, self.expected.pages, "stored")) == ""

    @property
    def refetched(self) -> int:
        return oracle.refetched(oracle.requests_of(self.server.hits, self.server.port))


@contextmanager
def half_done(
    folder: Path,
    redis: RedisServer,
    *,
    delay: float,
    pages: int,
    processes: int = 1,
    lease_seconds: float = 60,
    request_seconds: float = 3,
) -> Iterator[Scene]:
    site = graph_site(pages, slow_every=4, slow=0.1)
    with (
        SiteServer(site, ADDRESSES) as server,
        System(
            folder,
            [redis.url],
            processes=processes,
            lease_seconds=str(lease_seconds),
            request_seconds=str(request_seconds),
            stall_seconds="60",
        ) as system,
    ):
        starts = [server.url("/p/0", address) for address in ADDRESSES]
        expected = walk(starts, direct(site), agent="greencrawl")
        system.start().crawl(starts, delay=delay)
        half = len(expected.requested) // 2
        wait_until(lambda: len(server.hits) >= half, 60, "half of the requests arrived")
        yield Scene(server, system, expected, folder)


def test_no_url_is_fetched_twice_if_the_broker_is_away_for_a_while(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with half_done(tmp_path, redis_server, delay=0.01, pages=40) as scene:
        broker = scene.system.broker
        assert broker is not None
        broker.terminate()
        assert broker.wait(20) == 0
        gevent.sleep(1.5)
        assert scene.system.children(), "the worker gave up"
        scene.system.start_broker()
        scene.finish()
        assert scene.refetched == 0


def test_a_stopped_worker_hands_back_its_unfetched_tasks(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with half_done(tmp_path, redis_server, delay=0.01, pages=40) as scene:
        worker = scene.system.worker
        assert worker is not None
        worker.terminate()
        assert worker.wait(20) == 0
        stats = scene.system.stats()
        assert stats["leased"] == 0
        assert stats["waiting"] > 0, "the crawl was over: nothing was at stake"
        scene.system.start_worker()
        scene.finish()
        assert scene.refetched == 0


# By day this stands for a freeze beyond a lease; the nemesis freezes it within a request.
@pytest.mark.parametrize("frozen_seconds", cases([6.0], [0.8]))
def test_a_frozen_worker_neither_loses_urls_nor_breaks_the_delay(
    tmp_path: Path, redis_server: RedisServer, frozen_seconds: float
) -> None:
    delay = 0.1
    with half_done(
        tmp_path,
        redis_server,
        delay=delay,
        pages=10,
        processes=2,
        lease_seconds=2,
        request_seconds=1,
    ) as scene:
        child = scene.system.children()[0]
        child.send_signal(signal.SIGSTOP)
        gevent.sleep(frozen_seconds)
        child.send_signal(signal.SIGCONT)
        scene.finish()
        assert oracle.shown(oracle.impolite(scene.server.hits, delay)) == ""
