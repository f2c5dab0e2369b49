"""``python -m bench.model_process greenlets|threads TASK.json``: one process of one model.

It is a worker's process without its lease loop: the same pipeline – robots.txt, download, reading,
link checker, writer, SQLite, Redis – whose units are greenlets or threads and are handed URLs of
hosts of their own. The last line printed is the result, JSON.
"""

import sys

MODEL = sys.argv[1]
if MODEL == "greenlets":
    from gevent import monkey

    monkey.patch_all()
else:
    from bench import on_threads

    on_threads.install()

import functools
import gc
import itertools
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from broker.frontier.frontier import Frontier
from schema import log
from schema.records import Failure, Fetched, FinishItem, ItemsReply, Session, Task
from schema.settings import load
from store import open_store
from worker import connections
from worker.alone import Alone
from worker.auth.keeper import Keeper, Rooms
from worker.auth.kinds import make
from worker.auth.secrets import Secrets
from worker.connections import Connections, Origin
from worker.crawls import context_of
from worker.download import Downloader
from worker.journal import Journal
from worker.marker import Marker
from worker.outbox import Outbox
from worker.pipeline import Pipeline
from worker.reading import read
from worker.sessions import Held, Sessions
from worker.visit import Visit
from worker.writer import Writer

TASKS = 32
"""URLs of a session, as the engine leases them."""
LOOKS = 5


def _guard(cls: type, *names: str) -> None:
    """Let only one thread at a time into these methods of an object."""
    lock = threading.RLock()

    def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **named: Any) -> Any:
            with lock:
                return method(*args, **named)

        return call

    for name in names:
        setattr(cls, name, guarded(getattr(cls, name)))


class Blocking:
    """``worker.connections.Connection`` on a socket that blocks its thread."""

    def __init__(
        self, origin: Origin, address: str, sock: socket.socket, clock: Callable[[], float]
    ) -> None:
        self.place = (origin, address)
        self.address = address
        self.idle_since = 0.0
        self._socket = sock
        self._clock = clock

    def stale(self) -> bool:
        return bool(select.select([self._socket], [], [], 0)[0])

    def ask(self, data: bytes, until: float) -> None:
        self._socket.settimeout(max(0.001, until - self._clock()))
        self._socket.sendall(data)

    def receive(self, until: float) -> bytes:
        self._socket.settimeout(max(0.001, until - self._clock()))
        return self._socket.recv(64 * 1024)

    def close(self) -> None:
        self._socket.close()


if MODEL == "threads":
    connections.Connection = Blocking  # type: ignore[misc,assignment]
    _guard(Connections, "take", "give", "_drop")
    _guard(Sessions, "hold", "submitted", "settled", "fetched", "_drop_if_over")


class Lenient(dict[str, Any]):
    """A table from which an entry may be removed before it is put in, as a thread may."""

    def __delitem__(self, key: str) -> None:
        self.pop(key, None)


class Counting:
    """The downloader, and what came through it."""

    def __init__(self, inner: Downloader) -> None:
        self._inner = inner
        self.pages = 0
        self.bytes = 0

    def fetch(self, url: str, headers: Mapping[str, str], **named: Any) -> Fetched | Failure:
        answer = self._inner.fetch(url, headers, **named)
        if isinstance(answer, Fetched):
            self.pages += 1
            self.bytes += answer.wire_bytes
        return answer


class Sleeping:
    """A download that is a sleep; see the source's second experiment."""

    def __init__(self, seconds: float, body: bytes) -> None:
        self._seconds = seconds
        self._body = body

    def fetch(self, url: str, headers: Mapping[str, str], **_: Any) -> Fetched | Failure:
        gevent.sleep(self._seconds)
        kind = {"content-type": "text/html; charset=utf-8"}
        return Fetched(url=url, status=200, headers=kind, body=self._body, fetched_ms=0)


def _no_rooms() -> Rooms:
    raise RuntimeError("this crawl logs in nowhere")


class Units:
    """The parts of a worker's process, and its units."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self.stopping = Event()
        settings = load()
        name = f"bench-{os.getpid()}"
        self._store = open_store(settings.store_url, settings.bodies)
        self.crawl = self._store.crawl("bench")
        frontier = Frontier(settings.redis_addresses, self._store)
        sessions = self._sessions = Sessions()
        finishing: Outbox[FinishItem] = Outbox(
            "finish",
            lambda items: ItemsReply(("ok",) * len(items)),
            lambda item, status: sessions.settled(item.token, status),
        )
        self.marker = Marker(settings.data / f"{name}.marker")
        writer = Writer(self._store, frontier, finishing, sessions)
        downloader = Downloader(settings.allow_networks, settings.request_seconds)
        if MODEL == "threads":
            downloader._resolver._under_way = Lenient()
        self.fetcher = Counting(downloader)
        secrets = Secrets(settings.credentials_file)
        self._pipeline = Pipeline(
            store=self._store,
            frontier=frontier,
            fetcher=self.fetcher,
            auth=Keeper(_no_rooms, secrets, None, make=make, stopping=self.stopping),
            writer=writer,
            journal=Journal(name),
            marker=self.marker,
            alone=Alone(settings.stall_seconds),
            stopping=self.stopping,
        )
        self._numbers = itertools.count(1)
        gevent.spawn(writer.run)
        gevent.spawn(finishing.run)

    def session(self, unit: int, pages: Iterator[int]) -> Session:
        number = next(self._numbers)
        address = self._task["addresses"][unit]
        host = f"{address}:{self._task['port']}"
        tasks = (Task(i + 1, f"http://{host}/p/{next(pages)}") for i in range(TASKS))
        return Session(
            session=f"1/{host}",
            token=f"{number:016x}",
            crawl=self.crawl.id,
            revision=self.crawl.revision,
            host=host,
            ttl=3600.0,
            delay=0.0,
            floor=0.0,
            robots_known=True,
            tasks=tuple(tasks),
        )

    def crawl_on(self, unit: int) -> None:
        """A unit's body: session after session of its host."""
        pages = itertools.count()
        while not self.stopping.is_set():
            held = self._sessions.hold(self.session(unit, pages), time.monotonic() + 3600)
            assert held is not None
            self._pipeline.run(held)
            self._sessions.fetched(held, closing=False)

    def start(self, concurrency: int) -> None:
        for unit in range(concurrency):
            gevent.spawn(self.crawl_on, unit)


def memory(task: dict[str, Any]) -> dict[str, Any]:
    """MB of the process while ``concurrency`` units have a request under way: medians of looks."""
    units = Units(task)
    count = task["concurrency"]
    units.start(count)
    until = time.monotonic() + 60
    while units.fetcher.pages < 3 * count and time.monotonic() < until:
        gevent.sleep(0.05)
    gc.collect()
    looks = []
    for _ in range(LOOKS):
        gevent.sleep(task["seconds"] / LOOKS)
        looks.append(_rollup())
    found = {key: sorted(look[key] for look in looks)[LOOKS // 2] for key in looks[0]}
    return {"concurrency": count, "pages": units.fetcher.pages, **found}


def _rollup() -> dict[str, float]:
    rows = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    kilobytes = {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    return {
        "rss_mb": round(kilobytes["Rss:"] / 1024, 2),
        "pss_mb": round(kilobytes["Pss:"] / 1024, 2),
        "private_mb": round((kilobytes["Private_Clean:"] + kilobytes["Private_Dirty:"]) / 1024, 2),
    }


def sleep(task: dict[str, Any]) -> dict[str, Any]:
    """Seconds until all units have slept ``seconds`` once, with ``parse`` read a page after it.

    A unit goes through visit, pace and marker as a page does; it is not stored, as in the source.
    """
    units = Units(task)
    context = context_of(units.crawl)
    body = Path(task["page"]).read_bytes()
    pages = iter(range(10**9))
    points = []

    def unit(session: Session) -> None:
        fetcher = Sleeping(task["seconds"], body)
        visit = Visit(Held(session, time.monotonic() + 3600), context, fetcher, units.stopping)
        fetched = visit.get(session.tasks[0].url, {}, 10**7)
        if task["parse"] and isinstance(fetched, Fetched):
            with units.marker.parsing(_suspect(session)):
                read(context, session.tasks[0], fetched)

    for count in task["concurrency"]:
        sessions = [units.session(i, pages) for i in range(count)]
        gc.collect()
        cpu, began = time.process_time(), time.monotonic()
        gevent.joinall([gevent.spawn(unit, session) for session in sessions])
        took = time.monotonic() - began
        spent = time.process_time() - cpu
        points.append({"concurrency": count, "seconds": round(took, 4), "cpu": round(spent, 4)})
    return {"points": points}


def _suspect(session: Session) -> Any:
    from worker.marker import Suspect

    task = session.tasks[0]
    return Suspect(session.session, session.token, 1, session.crawl, task.url, 0, 0, 0)


def link(task: dict[str, Any]) -> dict[str, Any]:
    """Bytes of answers by the end of each of ``periods`` of ``seconds``; counted from ``at``."""
    units = Units(task)
    units.start(task["concurrency"])
    gevent.sleep(max(0.0, task["at"] - time.time()))
    began, first, cpu = time.monotonic(), units.fetcher.bytes, time.process_time()
    sums = []
    for period in range(1, task["periods"] + 1):
        gevent.sleep(max(0.0, began + period * task["seconds"] - time.monotonic()))
        sums.append(units.fetcher.bytes - first)
    return {"bytes": sums, "cpu": round(time.process_time() - cpu, 3)}


def main() -> None:
    log.configure("bench", "warning")
    task = json.loads(Path(sys.argv[2]).read_text())
    result = {"memory": memory, "sleep": sleep, "link": link}[task["what"]](task)
    print(json.dumps(result), flush=True)
    os._exit(0)  # units are under way; nothing of theirs is wanted


if __name__ == "__main__":
    main()
