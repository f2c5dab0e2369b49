"""What the Monitor costs: ``python -m bench.scale.monitor [--short]``.

``open``: a client leases and gives back sessions of one broker at a steady pace, by turns without
and with a hundred open pages; their p99 in the two. Pages are followed as the Monitor's script
does: every two seconds with the ``ETag`` of before, each on a connection of its own, from another
process. What the broker's process spends more with them is what they cost.

``paint``: a real Chromium that has never been there opens the first page: when it painted first
(``PerformancePaintTiming``), and how many bytes came.

A full run takes two minutes and a half.
"""

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import http.client  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402
import psutil  # noqa: E402
from gevent.event import Event  # noqa: E402

from bench.rig.options import parser  # noqa: E402
from greencrawl.broker.client import BrokerClient  # noqa: E402
from greencrawl.schema.records import (  # noqa: E402
    CloseItem,
    CloseRequest,
    HostReport,
    LeaseRequest,
)
from tests.support.cdp import Browser  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402
from tests.support.system import System  # noqa: E402

PAGES = 100
EVERY_SECONDS = 2.0
STARTED_SECONDS = 3.0
LEASES_PER_SECOND = 40
WAIT_SECONDS = 0.5
MOST_EMPTY = 0.1
CRAWLS, HOSTS = 20, 30
PLACES = ("", "", "", "crawls/c0", "crawls/c1", "nodes", "hosts", "frontier", "store", "traps")
"""What people have open."""
MOST_PAINT_MS, MOST_BYTES = 100, 120 * 1024
MOST_CORE, MOST_SLOWER = 0.001, 1.10
FIRST_VISITS = 15


class Leases:
    """Leases and gives back at a pace; seconds of each lease."""

    def __init__(self, port: int) -> None:
        self._client = BrokerClient([f"http://127.0.0.1:{port}"])
        self._sequence = 0
        self.empty = 0
        """Calls that were answered without a session: all hosts of a look were taken."""

    def run(self, seconds: float) -> list[float]:
        """Go on for so long; how long each lease took, in seconds."""
        took = []
        until = time.monotonic() + seconds
        due = time.monotonic()
        while due < until:
            took.append(self._one())
            due += 1 / LEASES_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
        return took

    def _one(self) -> float:
        self._sequence += 1
        asked = LeaseRequest(
            worker="bench", incarnation=1, sequence=self._sequence, max_sessions=1,
            tasks_per_session=1, wait=WAIT_SECONDS,
        )  # fmt: skip
        began = time.perf_counter()
        reply = self._client.lease(asked)
        took = time.perf_counter() - began - reply.waited
        items = tuple(
            CloseItem(
                session=one.session,
                token=one.token,
                report=HostReport(robots=True),
                release=tuple(task.number for task in one.tasks),
            )
            for one in reply.sessions
        )
        self.empty += not items
        if items:
            self._client.close(CloseRequest(items))
        return took


def look(port: int) -> int:
    """Follow a hundred pages, until the process is ended: while they are seen, by signals."""
    seen = Event()
    gevent.signal_handler(signal.SIGUSR1, seen.set)
    gevent.signal_handler(signal.SIGUSR2, seen.clear)

    def follow(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        place = PLACES[number % len(PLACES)]
        tag = ""
        while True:
            if not seen.is_set():
                seen.wait()
                gevent.sleep(random.random() * EVERY_SECONDS)
            headers = {"If-None-Match": tag} if tag else {}
            connection.request("GET", f"/monitor/{place}?part=1", headers=headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 304), (place, answer.status)
            tag = answer.getheader("ETag") or tag
            gevent.sleep(EVERY_SECONDS)

    following = [gevent.spawn(follow, n) for n in range(PAGES)]
    while True:
        gevent.joinall(following, timeout=60.0, raise_error=True)


@contextmanager
def pages(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A hundred pages are open meanwhile, that nobody sees yet."""
    command = [sys.executable, "-m", "bench.scale.monitor", "look", "--port", str(port)]
    with subprocess.Popen(command) as process:
        try:
            time.sleep(STARTED_SECONDS)
            yield process
            assert process.poll() is None, "those who look have failed"
        finally:
            process.terminate()


@contextmanager
def broker(folder: Path) -> Iterator[System]:
    """One, with crawls of which nothing is fetched."""
    redis = RedisServer(folder / "redis").start()
    try:
        with System(folder, [redis.url], log_level="warning") as system:
            system.start_broker()
            for n in range(CRAWLS):
                seeds = [
                    f"http://h{host}.c{n}.example/{path}"
                    for host in range(HOSTS)
                    for path in range(20)
                ]
                system.crawl(seeds, f"c{n}", delay=0)
            yield system
    finally:
        redis.stop()


def p99(values: Sequence[float]) -> float:
    """Of some hundreds of values at least."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]


def open_pages(system: System, rounds: int, seconds: float) -> bool:
    """Print what open pages cost; whether that is little enough."""
    assert system.broker is not None
    process = psutil.Process(system.broker.pid)
    leases = Leases(system.port)
    leases.run(3)

    def window() -> tuple[list[float], float]:
        before, began = process.cpu_times(), time.monotonic()
        took = leases.run(seconds)
        after, passed = process.cpu_times(), time.monotonic() - began
        return took, (after.user + after.system - before.user - before.system) / passed

    alone: list[float] = []
    watched: list[float] = []
    cores: list[float] = []
    with pages(system.port) as looking:
        for _ in range(rounds):
            without, idle = window()
            looking.send_signal(signal.SIGUSR1)
            time.sleep(EVERY_SECONDS)  # all have been drawn once
            beside, busy = window()
            looking.send_signal(signal.SIGUSR2)
            time.sleep(EVERY_SECONDS)
            alone += without
            watched += beside
            cores.append((busy - idle) / PAGES)
    calls = len(alone) + len(watched)
    assert leases.empty <= MOST_EMPTY * calls, f"{leases.empty} of {calls} leases were empty"
    slower = p99(watched) / p99(alone)
    core = statistics.median(cores)
    print(
        f"{len(alone):,} leases without, {len(watched):,} with {PAGES} open pages: p99 "
        f"{p99(alone) * 1000:.1f} and {p99(watched) * 1000:.1f} ms ({slower:.2f} of it), median "
        f"{statistics.median(alone) * 1000:.2f} and {statistics.median(watched) * 1000:.2f} ms"
    )
    print(
        f"a page takes {core:.3%} of a core of the broker's (median of {rounds} rounds, "
        f"{min(cores):.3%} to {max(cores):.3%})",
        flush=True,
    )
    return slower <= MOST_SLOWER and core < MOST_CORE


def paint(system: System, folder: Path) -> bool:
    """Print when a first visit is painted, and what it loads; whether that is little enough."""
    home = f"http://127.0.0.1:{system.port}/monitor/"
    painted, bytes_ = [], 0
    with Browser(folder / "browser") as browser:
        for _ in range(FIRST_VISITS):
            with browser.page() as page:
                page.goto(home)
                painted.append(page.run(_PAINTED))
                bytes_ = page.run(_BYTES)
    median = statistics.median(painted)
    print(
        f"first paint of a first visit: {median:.0f} ms (median of {FIRST_VISITS}, "
        f"{min(painted):.0f} to {max(painted):.0f}); {bytes_ / 1024:.1f} KB in all"
    )
    return median <= MOST_PAINT_MS and bytes_ <= MOST_BYTES


_PAINTED = """new Promise((done) => {
  const told = new PerformanceObserver((list) => {
    const first = list.getEntriesByName('first-paint')[0];
    if (first) done(first.startTime);
  });
  told.observe({ type: 'paint', buffered: true });
})"""
_BYTES = (
    "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
    ".reduce((sum, one) => sum + one.transferSize, 0)"
)


def main(arguments: Sequence[str]) -> int:
    """Run it; 0 if all is as it should be."""
    words = parser("bench.scale.monitor", __doc__, "half a minute")
    words.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    words.add_argument("what", nargs="?", choices=("open", "paint", "look"), help="one of them")
    options = words.parse_args(arguments)
    if options.what == "look":
        return look(options.port)
    good = True
    with tempfile.TemporaryDirectory(prefix="monitor-") as name, broker(Path(name)) as system:
        if options.what in (None, "open"):
            rounds, seconds = (3, 3.0) if options.short else (12, 3.0)
            good &= open_pages(system, rounds, seconds)
        if options.what in (None, "paint"):
            good &= paint(system, Path(name))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
