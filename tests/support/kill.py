"""A crawl in which one process dies by SIGKILL at a named point, and is started again."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from tests.support import oracle
from tests.support.site_server import SiteServer
from tests.support.sites import direct, graph_site
from tests.support.stored import Stored, read_stored
from tests.support.system import System, alive, wait_until
from tests.support.walk import Walk, walk

REQUEST_SECONDS = 1.5


@dataclass
class Run:
    """The result of a run.

    ``leased`` counts the tasks under a lease at the kill; ``seconds`` run from the restart to the
    end of the crawl.
    """

    expected: Walk
    stored: Stored
    requests: Counter[str]
    leased: int
    seconds: float

    @property
    def refetched(self) -> int:
        return oracle.refetched(self.requests)


def killed_at(
    point: str, count: int, folder: Path, redis_url: str, *, hosts: int = 6, pages: int = 25
) -> Run:
    """Crawl ``hosts`` × ``pages`` pages while the ``count``-th pass of ``point`` kills.

    Half of the hosts are seeded while the crawl runs. A seeding call that was not acknowledged is
    repeated, as its caller would – but not when the kill fell after the batch was logged: then the
    log alone must bring it back.
    """
    part = point.partition(".")[0]
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    site = graph_site(pages, slow_every=3, slow=0.05)
    addresses = tuple(f"127.0.0.{n}" for n in range(2, 2 + hosts))
    with (
        SiteServer(site, addresses) as server,
        System(
            folder,
            [redis_url],
            request_seconds=str(REQUEST_SECONDS),
            lease_seconds="5",
        ) as system,
    ):
        starts = [server.url("/p/0", address) for address in addresses]
        fault = f"{point}:{count}"
        system.start_broker(fault if part == "broker" else "")
        system.start_worker(fault if part == "worker" else "")
        child = system.children()[0]
        acknowledged = _seed_in_two(system, server, starts, lambda: _died(system, part, child))
        wait_until(lambda: _died(system, part, child), 30, f"death at {fault}")
        leased = leased_tasks(client)
        system.kill(part)
        system.start_broker() if part == "broker" else system.start_worker()
        if not acknowledged and point != "broker.after_seed_log":
            _seed(system, starts)
        seconds = system.wait_done(60)
        requests = oracle.requests_of(server.hits, server.port)
        stored = read_stored(folder / "data")
    return Run(walk(starts, direct(site), agent="greencrawl"), stored, requests, leased, seconds)


def _seed_in_two(
    system: System, server: SiteServer, starts: list[str], died: Callable[[], bool]
) -> bool:
    """Seed one half, and the other when the crawl runs; return True if both were acknowledged."""
    half = len(starts) // 2
    try:
        system.crawl(starts[:half], delay=0, scope="any")
        wait_until(lambda: died() or len(server.hits) > half, 20, "the crawl is under way")
        _seed(system, starts[half:])
    except (OSError, http.client.HTTPException):
        return False
    return True


def _seed(system: System, urls: list[str]) -> None:
    system.call("POST", "/v1/crawls/test/urls", {"urls": urls})


def _died(system: System, part: str, child: psutil.Process) -> bool:
    if part == "broker":
        return system.broker is not None and system.broker.poll() is not None
    return not alive(child)


def leased_tasks(client: redis.Redis) -> int:
    """Return the number of leased tasks, counted from the session records themselves
    (``frontier/keys.py``): the broker may be the one that died, and its counters could be what is
    wrong.
    """
    sessions = client.scan_iter("gc:{*}:s:*", count=1000)
    return sum(
        name.startswith("t") and name[1:].isdigit()
        for session in sessions
        for name in map(str, client.hkeys(session))
    )
