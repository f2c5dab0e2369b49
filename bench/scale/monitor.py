"""What the Monitor costs: ``python -m bench.scale.monitor [--short]``.

``open``: a client leases and gives back sessions of one broker at a steady pace, alternately
without open pages and with a hundred. Each turn has a p99; the report has the median of these for
each kind, and their ratio. Pages are followed as the Monitor's script does it, each on a connection
of its own, from another process: with the last ``ETag``, two seconds after an answer with something
new, and four seconds after any other. The cost is the additional CPU of the broker's process.

``paint``: a real Chromium without a profile opens a page. Measured are the time of the first paint
(``PerformancePaintTiming``) and the bytes received. The pages alternate: a bare page of the same
size, without style and script; the Monitor's first page, saved with its files; the broker's first
page while others have it open; and the same page rendered for its first viewer. The bare page shows
what the browser itself takes, the saved page adds the browser's work with our files, and the others
add the broker's work.

A full run takes three minutes and a half.
"""

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import http.client  # noqa: E402
import random  # noqa: E402
import re  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import gevent  # noqa: E402
import psutil  # noqa: E402
from gevent.event import Event  # noqa: E402
from gevent.pywsgi import WSGIServer  # noqa: E402

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
EVERY_SECONDS, CALM_SECONDS = 2.0, 4.0
STARTED_SECONDS = 3.0
LEASES_PER_SECOND = 100
WAIT_SECONDS = 0.5
SETTLED_SECONDS = 0.5
"""Renders that are under way have ended after this time."""
HOME = "/monitor/"
MOST_EMPTY = 0.1
CRAWLS, HOSTS = 20, 30
PLACES = ("", "", "", "crawls/c0", "crawls/c1", "nodes", "hosts", "frontier", "store", "traps")
"""The pages that people have open."""
MOST_PAINT_MS, MOST_BYTES = 100, 120 * 1024
MOST_CORE, MOST_SLOWER = 0.001, 1.10
FIRST_VISITS = 12
ROUNDS, TURN_SECONDS = 16, 4.0


class Leases:
    """Leases sessions and gives them back at a steady pace; records the seconds of each lease."""

    def __init__(self, port: int) -> None:
        self._client = BrokerClient([f"http://127.0.0.1:{port}"])
        self._sequence = 0
        self.empty = 0
        """Calls that were answered without a session, because all hosts were leased."""

    def run(self, seconds: float) -> list[float]:
        """Go on for this time; return how long each lease took, in seconds."""
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
    """Follow a hundred pages until the process is ended; signals say whether they are visible."""
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
            gevent.sleep(EVERY_SECONDS if answer.status == 200 else CALM_SECONDS)

    following = [gevent.spawn(follow, n) for n in range(PAGES)]
    while True:
        gevent.joinall(following, timeout=60.0, raise_error=True)


@contextmanager
def pages(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a hundred pages open meanwhile, hidden at first."""
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
    """Start a broker with crawls from which nothing is fetched."""
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
    """Return the p99 of at least some hundred values."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]


class Turn(NamedTuple):
    """The leases of a few seconds: how long each took, and the share of a core that the broker's
    process used."""

    took: list[float]
    core: float


def open_pages(system: System, rounds: int, seconds: float) -> bool:
    """Print the cost of open pages; return whether it is small enough."""
    assert system.broker is not None
    process = psutil.Process(system.broker.pid)
    leases = Leases(system.port)
    leases.run(3)

    def turn() -> Turn:
        before, began = process.cpu_times(), time.monotonic()
        took = leases.run(seconds)
        after, passed = process.cpu_times(), time.monotonic() - began
        return Turn(took, (after.user + after.system - before.user - before.system) / passed)

    alone: list[Turn] = []
    watched: list[Turn] = []
    with pages(system.port) as looking:

        def seen() -> None:
            looking.send_signal(signal.SIGUSR1)
            time.sleep(EVERY_SECONDS)  # all were rendered once
            watched.append(turn())
            looking.send_signal(signal.SIGUSR2)
            time.sleep(SETTLED_SECONDS)

        for number in range(rounds):  # alternate, so that changes over time affect both
            if number % 2:
                seen()
            alone.append(turn())
            if not number % 2:
                seen()
    calls = sum(len(one.took) for one in (*alone, *watched))
    assert leases.empty <= MOST_EMPTY * calls, f"{leases.empty} of {calls} leases were empty"
    bare, busy = (statistics.median(p99(one.took) for one in turns) for turns in (alone, watched))
    cores = [(one.core - other.core) / PAGES for one, other in zip(watched, alone, strict=True)]
    slower, core = busy / bare, statistics.median(cores)
    medians = [
        statistics.median(x for one in turns for x in one.took) for turns in (alone, watched)
    ]
    whole = [p99([x for one in turns for x in one.took]) for turns in (alone, watched)]
    print(
        f"{calls:,} leases in {rounds} turns of {seconds:g} s each, without and with {PAGES} open "
        f"pages: p99 {bare * 1000:.2f} and {busy * 1000:.2f} ms (medians of the turns; "
        f"{slower:.2f} of it), of all turns together {whole[0] * 1000:.2f} and "
        f"{whole[1] * 1000:.2f} ms, median "
        f"{medians[0] * 1000:.2f} and {medians[1] * 1000:.2f} ms"
    )
    print(
        f"a page takes {core:.3%} of a core of the broker's (median of {rounds} rounds, "
        f"{min(cores):.3%} to {max(cores):.3%}), which takes "
        f"{statistics.median(one.core for one in alone):.1%} without pages",
        flush=True,
    )
    return slower <= MOST_SLOWER and core < MOST_CORE


class Copy(NamedTuple):
    """An answer as it was sent."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


def fetched(port: int, path: str) -> Copy:
    """Return the broker's answer to a browser."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        kept = [one for one in answer.getheaders() if one[0].lower() not in _HOP]
        return Copy(f"{answer.status} {answer.reason}", kept, body)


_HOP = ("connection", "date", "transfer-encoding", "content-length")


@contextmanager
def served(copies: Mapping[str, Copy]) -> Iterator[int]:
    """Serve answers by their paths, from memory; yield the port."""

    def answer(
        environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], Any]
    ) -> Iterable[bytes]:
        copy = copies.get(environ["PATH_INFO"], Copy("404 Not Found", [], b""))
        start(copy.status, [*copy.headers, ("Content-Length", str(len(copy.body)))])
        return [copy.body]

    server = WSGIServer(("127.0.0.1", 0), answer, log=None)
    server.init_socket()
    # A head and a body are two packets: the second would wait for an answer to the first, 40 ms.
    server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.start()
    try:
        yield server.server_port
    finally:
        server.stop()


def copies_of(system: System) -> dict[str, Copy]:
    """Return the first page with its files, and a bare page of its size."""
    found = {HOME: fetched(system.port, HOME)}
    html = found[HOME].body.decode()
    for path in set(re.findall(r'/monitor/static/[^"\s]+', html)):
        found[path] = fetched(system.port, path)
    line = "<p>A line of a page that has nothing but lines, and needs no style and no script.</p>\n"
    text = "<!doctype html>\n<title>bare</title>\n" + line * (len(html) // len(line))
    found["/bare"] = Copy("200 OK", [("Content-Type", "text/html; charset=utf-8")], text.encode())
    return found


def paint(system: System, folder: Path) -> bool:
    """Print the first paint of a visit and what it loads; return whether both are small enough."""
    fetched(system.port, HOME)  # the very first visit loads the Monitor
    seen: dict[str, list[dict[str, float]]] = {}
    with served(copies_of(system)) as port, Browser(folder / "browser") as browser:
        places = {
            "bare": f"http://127.0.0.1:{port}/bare",
            "saved": f"http://127.0.0.1:{port}{HOME}",
            "ours": f"http://127.0.0.1:{system.port}{HOME}",
            "new": f"http://127.0.0.1:{system.port}{HOME}?visit=",
        }
        for number in range(FIRST_VISITS + 1):
            for name in sorted(places, reverse=bool(number % 2)):
                with browser.page() as page:
                    page.goto(places[name] + str(number) * (name == "new"))
                    found = page.run(_PAINTED)
                if number:  # the browser's own first pages come from a cold start
                    seen.setdefault(name, []).append(found)

    def told(name: str, what: str) -> str:
        values = [one[what] for one in seen[name]]
        return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"

    print(
        f"first paint of a first visit, ms (median of {FIRST_VISITS}, least to most): a bare page "
        f"of the same size {told('bare', 'painted')}, the first page saved with its files "
        f"{told('saved', 'painted')}, from the broker {told('ours', 'painted')}, "
        f"and one that nobody has open {told('new', 'painted')}"
    )
    bytes_ = seen["ours"][-1]["bytes"]
    print(
        f"the broker's first byte comes after {told('ours', 'first')} and {told('new', 'first')} "
        f"ms, a saved page's after {told('saved', 'first')} ms; the style has come after "
        f"{told('ours', 'style')} and {told('saved', 'style')} ms; {bytes_ / 1024:.1f} KB in all"
    )
    median = statistics.median(one["painted"] for one in seen["ours"])
    return median <= MOST_PAINT_MS and bytes_ <= MOST_BYTES


_PAINTED = """new Promise((done) => {
  const told = new PerformanceObserver((list) => {
    const first = list.getEntriesByName('first-paint')[0];
    if (first) whole(first);
  });
  function whole(first) {
    if (document.body.dataset.plots && !window.uPlot) return setTimeout(whole, 20, first);
    const [page] = performance.getEntriesByType('navigation');
    const files = performance.getEntriesByType('resource');
    const style = files.find((one) => one.name.includes('monitor.css'));
    done({
      painted: first.startTime,
      first: page.responseStart,
      style: style ? style.responseEnd : 0,
      bytes: [page, ...files].reduce((sum, one) => sum + one.transferSize, 0),
    });
  }
  told.observe({ type: 'paint', buffered: true });
})"""


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if all figures are good enough."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale.monitor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="a minute")
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("what", nargs="?", choices=("open", "paint", "look"), help="one of them")
    options = parser.parse_args(arguments)
    if options.what == "look":
        return look(options.port)
    good = True
    with tempfile.TemporaryDirectory(prefix="monitor-") as name, broker(Path(name)) as system:
        if options.what in (None, "open"):
            rounds, seconds = (4, 3.0) if options.short else (ROUNDS, TURN_SECONDS)
            good &= open_pages(system, rounds, seconds)
        if options.what in (None, "paint"):
            good &= paint(system, Path(name))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
