"""One crawl of one crawler on one site, for :mod:`bench.peers.compare` and ``.speed``.

A crawling process has one core to itself; nginx, Redis and our broker share another (with one core,
all share it).
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.rig.nginx import FLUSH_SECONDS, Nginx, neglected_duties, rate
from bench.rig.sites import Site
from tests.support.checkout import ROOT
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until

CONNECTIONS = 64
"""Connections of a crawler at once, divided among its hosts."""
OURS, SCRAPY, SCRAPY_REDIS, CRAWLEE = "ours", "Scrapy", "scrapy-redis", "Crawlee"
MODULES = {
    SCRAPY: "bench.peers.scrapy_job",
    SCRAPY_REDIS: "bench.peers.scrapy_job",
    CRAWLEE: "bench.peers.crawlee_job",
}
PLAIN, FULL = "plain", "full"
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True)
class Outcome:
    """The result of a crawl: pages/s, pages; by part CPU (ms a page) and memory (MB); neglected
    duties."""

    rate: float
    pages: int
    cpu: dict[str, float]
    memory: dict[str, float]
    neglected: list[str]

    @property
    def all_cpu(self) -> float:
        """Return the CPU of all processes, ms a page."""
        return sum(self.cpu.values())

    @property
    def all_memory(self) -> float:
        """Return the memory of all processes, MB."""
        return sum(self.memory.values())


@dataclass(frozen=True)
class ServedSite:
    """A site on many addresses, and the cores of the crawling process and of all other processes.

    Each address serves ``pages`` that may be fetched. A crawl fetches whole hosts. So all crawlers
    get the same pages, with the same share of new links, however many hosts each has.
    """

    site: Site
    pages: int
    nginx: Nginx
    crawler_cpu: int | None
    other_cpu: int | None

    def seeds(self, hosts: int) -> list[str]:
        """Return the first page on each of this many hosts."""
        return self.nginx.urls(self.site.start, hosts)

    def outcome(
        self,
        mark: int,
        hosts: int,
        ended: float,
        stored: int | None,
        cpu: Mapping[str, float],
        memory: Mapping[str, float],
    ) -> Outcome:
        """Check a crawl of ``hosts`` by nginx's log since ``mark``.

        ``ended`` is when the last page was handled, in Unix seconds. CPU is in seconds and memory
        in bytes; ``stored`` is None if nothing had to be stored.
        """
        time.sleep(FLUSH_SECONDS)
        hits = self.nginx.hits(mark)
        pages = sum(hit.page for hit in hits)
        neglected = neglected_duties(hits, self.site.forbidden)
        if pages != hosts * self.pages:
            neglected.append(f"{pages} of {hosts * self.pages} pages fetched")
        if stored is not None and stored != pages:
            neglected.append(f"{stored} of {pages} pages stored")
        return Outcome(
            round(rate(hits, ended), 1),
            pages,
            {part: round(seconds / pages * 1000, 4) for part, seconds in cpu.items()},
            {part: round(size / 1e6, 1) for part, size in memory.items()},
            neglected,
        )


def cores() -> tuple[int | None, int | None]:
    """Return a core for the crawling process and one for the rest; (None, None) with one core."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[-1], allowed[0]) if len(allowed) > 1 else (None, None)


@contextmanager
def served(site: Site, hosts: int, folder: Path) -> Iterator[ServedSite]:
    """Serve ``site`` on ``hosts`` addresses with nginx as long as the block runs."""
    crawler, other = cores()
    folder.mkdir(parents=True)
    addresses = [f"127.0.0.{n}" for n in range(2, 2 + hosts)]
    pages = site.write(folder / "plain")
    for address in addresses:  # otherwise all bodies after those of the first host would be known
        copied = shutil.copytree(folder / "plain", folder / "site" / address)
        for page in copied.rglob("*.html"):
            page.write_bytes(page.read_bytes() + f"<!-- {address} -->".encode())
    nginx = Nginx(folder, addresses, other).start()
    try:
        yield ServedSite(site, pages, nginx, crawler, other)
    finally:
        nginx.stop()


@contextmanager
def redis_on(folder: Path, cpu: int | None) -> Iterator[tuple[RedisServer, psutil.Process]]:
    """Start an empty Redis on core ``cpu``."""
    server = RedisServer(folder).start()
    try:
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        if cpu is not None:
            process.cpu_affinity([cpu])
        yield server, process
    finally:
        server.stop()


def crawl_with_ours(
    on: ServedSite, hosts: int, folder: Path, meanwhile: Callable[[System], None] | None = None
) -> Outcome:
    """Crawl with one broker, one worker process, Redis, and SQLite, with all default settings
    except the delay and the connections to a host.

    ``meanwhile`` is called as soon as the crawl runs.
    """
    with (
        redis_on(folder / "redis", on.other_cpu) as (server, redis),
        System(
            folder,
            [server.url],
            worker_cpu=on.crawler_cpu,
            broker_cpu=on.other_cpu,
            log_level="warning",
        ) as system,
    ):
        system.start()
        system.settle()
        mark = on.nginx.mark()
        before = {**system.cpu_seconds(), "redis": _cpu(redis)}
        system.crawl(
            on.seeds(hosts),
            delay=0,
            slots=CONNECTIONS // hosts,
            traps="on",  # the default
            user_agent="greencrawl-bench/1.0",
        )
        if meanwhile is not None:
            meanwhile(system)
        wait_until(
            lambda: int(system.stats()["stored"]) >= hosts * on.pages,
            TIMEOUT_SECONDS,
            f"all pages stored\n{system.tail('worker')}",
            every=0.05,
        )
        ended = time.time()
        system.wait_done(TIMEOUT_SECONDS)
        after = {**system.cpu_seconds(), "redis": _cpu(redis)}
        memory = {"broker": 0, "worker": 0, "redis": _memory(redis)}
        for process in system.processes():
            broker = system.broker is not None and process.pid == system.broker.pid
            memory["broker" if broker else "worker"] += _memory(process)
        stored = int(system.stats()["stored"])
    cpu = {part: after[part] - before.get(part, 0.0) for part in ("worker", "broker", "redis")}
    return on.outcome(mark, hosts, ended, stored, cpu, memory)


def crawl_with(who: str, level: str, on: ServedSite, hosts: int, folder: Path) -> Outcome:
    """Crawl ``hosts`` with one of the other crawlers.

    Raises RuntimeError with the end of its output if it fails.
    """
    folder.mkdir(parents=True)
    if who != SCRAPY_REDIS:
        return _crawl_with(who, level, on, hosts, folder, None)
    with redis_on(folder / "redis", on.other_cpu) as server:
        return _crawl_with(who, level, on, hosts, folder, server)


def _crawl_with(
    who: str,
    level: str,
    on: ServedSite,
    hosts: int,
    folder: Path,
    redis: tuple[RedisServer, psutil.Process] | None,
) -> Outcome:
    result, store, job = folder / "result.json", folder / "pages.sqlite", folder / "job.json"
    asked = {
        "seeds": on.seeds(hosts),
        "connections": CONNECTIONS,
        "store": str(store) if level == FULL else "",
        "redis": redis[0].url if redis else "",
        "result": str(result),
    }
    job.write_text(json.dumps(asked))
    mark = on.nginx.mark()
    redis_before = _cpu(redis[1]) if redis else 0.0
    output = _run([sys.executable, "-m", MODULES[who], str(job)], on.crawler_cpu, folder)
    if not result.exists():
        raise RuntimeError(f"{who} ended without a result: {output}")
    found = json.loads(result.read_text())
    cpu, memory = {"crawler": found["cpu"]}, {"crawler": found["memory"]}
    if redis:
        cpu["redis"] = _cpu(redis[1]) - redis_before
        memory["redis"] = _memory(redis[1])
    stored = _stored(store) if level == FULL else None
    return on.outcome(mark, hosts, found["ended"], stored, cpu, memory)


def _run(command: Sequence[str], cpu: int | None, folder: Path) -> str:
    environment = os.environ | {"CRAWLEE_STORAGE_DIR": str(folder / "storage")}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        if cpu is not None:
            psutil.Process(process.pid).cpu_affinity([cpu])
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        process.kill()
    said = output.decode(errors="replace")[-2000:]
    if process.returncode:
        raise RuntimeError(f"{command} failed: {said}")
    return said


def _stored(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT COUNT(*) FROM pages").fetchone()[0])


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _memory(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)
