"""The measurements of ``bench.scale.processes``: a grid of processes, sessions and latencies, and a
line."""

from __future__ import annotations

import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.rig.web import Spec, Web
from bench.rig.window import Patience, Window
from tests.support.redis_server import RedisServer
from tests.support.system import System

HOSTS = 256
"""As many hosts as the largest runs have sessions."""
SINGLES = 12_000
"""Hosts with a single page, more than a worker needs while it is measured."""
FRESH, ALL_FRESH = 2, 40
"""New links of a page, of 40."""
BUSIEST = 0.01
"""The latency in seconds at which CPU is the limit, not sessions."""
REST_SECONDS = 120.0
PATIENCE_SECONDS = 30.0
NODE_SESSIONS = 20
NODE_LATENCY = 1.0
_BATCHES = re.compile(
    rb'^greencrawl_http_requests_total\{operation="finish_tasks".*\} (\S+)$', re.M
)


class Point(NamedTuple):
    """``latency`` in seconds; ``fresh`` links of a page are new."""

    processes: int
    sessions: int
    latency: float
    fresh: int = FRESH


class Lengths(NamedTuple):
    """For how many seconds a run warms up, for how many it measures, and how often the grid is
    repeated."""

    warm: float
    seconds: float
    rounds: int


def grid(short: bool) -> list[Point]:
    """Return the points that are measured for questions 1 and 2."""
    all_new = [Point(1, 16, 0.1, ALL_FRESH), Point(1, 64, BUSIEST, ALL_FRESH)]
    if short:
        small = [Point(1, 16, 1.0), Point(1, 64, 1.0), Point(1, 16, 0.1), Point(1, 64, 0.1)]
        small += [Point(1, 16, BUSIEST), Point(1, 64, BUSIEST)]
        large = [Point(1, HOSTS, BUSIEST), Point(2, HOSTS, 0.1), Point(2, HOSTS, BUSIEST)]
        return [*small, *large, all_new[1]]
    points = [Point(1, s, at) for at in (1.0, 0.1, BUSIEST) for s in (16, 64, HOSTS)]
    return [*points, *(Point(2, HOSTS, at) for at in (1.0, 0.1, BUSIEST)), *all_new]


def nodes(short: bool) -> list[int]:
    """Return the numbers of worker processes of the straight line."""
    return [1, 2, 3] if short else [1, 2, 4, 6]


class Host:
    """A broker, a Redis and a worker, beside a web; made by :func:`running`."""

    def __init__(self, system: System, redis: RedisServer, web: Web, patience: Patience) -> None:
        self._system, self._redis, self._web = system, redis, web
        self._patience = patience
        self._crawls = 0

    def _cpu(self) -> dict[str, float]:
        assert self._redis.process is not None
        times = psutil.Process(self._redis.process.pid).cpu_times()
        return {**self._system.cpu_seconds(), "redis": times.user + times.system}

    def _count(self) -> dict[str, float]:
        """Return the batches so far: the posts of their outcomes, as the broker counts them."""
        address = f"http://127.0.0.1:{self._system.port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            found = _BATCHES.findall(answer.read())
        return {"batches": sum(float(number) for number in found)}

    def measure(
        self, sessions: int, latency: float, lengths: Lengths, **options: object
    ) -> dict[str, Any]:
        """Measure a crawl of ``sessions`` hosts, each with one connection; see
        ``bench.rig.window``."""
        if self._crawls:
            self._come_to_rest()
        self._web.set_latency(latency)
        self._crawls += 1
        name = f"c{self._crawls}"
        seeds = self._web.seeds()[:sessions]
        self._system.crawl(seeds, name=name, delay=0, slots=1, scope="host", **options)
        # the time for robots.txt, the first page and the next session
        time.sleep(lengths.warm + 3 * latency)
        found = self._patience.measure(
            lambda: Window(self._web, self._cpu, self._count), lengths.seconds
        )
        self._system.call("POST", f"/v1/crawls/{name}/pause")
        return found

    def _come_to_rest(self) -> None:
        """Let the sessions of a paused crawl fetch their leased URLs at once."""
        self._web.set_latency(0.0)
        pages = -1.0
        until = time.monotonic() + REST_SECONDS
        while pages != (pages := self._web.counts()["pages"]):
            if time.monotonic() > until:
                raise RuntimeError("a paused crawl does not come to rest")
            time.sleep(1.2)  # longer than the latency of a request that is under way


@contextmanager
def running(
    folder: Path,
    processes: int,
    greenlets: int,
    patience: Patience,
    *,
    hosts: int = HOSTS,
    fresh: int = FRESH,
) -> Iterator[Host]:
    """Start a host and let it come to rest; stop it at the end."""
    spec = Spec(hosts=hosts, fresh=fresh)
    with Web(folder / "web", spec) as web:
        redis = RedisServer(folder / "redis").start()
        try:
            with System(
                folder,
                [redis.url],
                processes=processes,
                log_level="warning",
                greenlets=str(greenlets),
            ) as system:
                system.start()
                system.settle()
                yield Host(system, redis, web, patience)
                system.kill("worker")
        finally:
            redis.stop()


def measure(short: bool) -> dict[str, Any]:
    """Measure all windows: ``grid`` rows {point, windows}, ``line`` rows {processes, windows},
    ``singles``: of a crawl whose hosts have one page each."""
    lengths = Lengths(1.5, 3.0, 1) if short else Lengths(2.0, 4.0, 3)
    patience = Patience(PATIENCE_SECONDS / 3 if short else PATIENCE_SECONDS)
    found: dict[Point, list[dict[str, Any]]] = {point: [] for point in grid(short)}
    straight: dict[int, list[dict[str, Any]]] = {count: [] for count in nodes(short)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(lengths.rounds):
            for processes, fresh in dict.fromkeys(
                (point.processes, point.fresh) for point in found
            ):
                if number and fresh == ALL_FRESH:
                    continue
                at = folder / f"grid{processes}-{fresh}-{number}"
                with running(at, processes, HOSTS, patience, fresh=fresh) as host:
                    for point in found:
                        if (point.processes, point.fresh) == (processes, fresh):
                            one = host.measure(point.sessions, point.latency, lengths)
                            found[point].append(one)
                            _say(_named(point), one)
        with running(folder / "singles", 1, HOSTS, patience, hosts=SINGLES) as host:
            single = host.measure(SINGLES, BUSIEST, lengths, depth=0)
            _say("hosts with a page each", single)
        for count in straight:
            with running(folder / f"line{count}", count, NODE_SESSIONS, patience) as host:
                one = host.measure(NODE_SESSIONS * count, NODE_LATENCY, lengths)
                straight[count].append(one)
                _say(f"{count} nodes", one)
    return {
        "grid": [{"point": point, "windows": windows} for point, windows in found.items()],
        "line": [{"processes": count, "windows": w} for count, w in straight.items()],
        "singles": [{"windows": [single]}],
    }


def _named(point: Point) -> str:
    new = ", all links new" * (point.fresh == ALL_FRESH)
    return f"{point.processes} × {point.sessions} sessions, {point.latency * 1000:g} ms{new}"


def _say(what: str, one: dict[str, Any]) -> None:
    print(f"   {what}: {one['pages_s']} pages/s, foreign cores {one['foreign']}", flush=True)
