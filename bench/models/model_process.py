"""``python -m bench.models.model_process greenlets|threads TASK.json``: one process of one model.

It is a worker's process: ``greencrawl.worker.child.Worker`` builds all its parts, and its engine
runs the sessions, as greenlets or as threads. Only the broker is a replacement, which leases hosts
of its own to the worker without a queue. The process prints ``ready`` when the worker is built.
Then it reads a line, the time to begin (Unix seconds), and at the end it prints its result as JSON.
"""

import sys

MODEL = sys.argv[1]
if MODEL == "greenlets":
    from gevent import monkey

    monkey.patch_all()
elif MODEL == "threads":
    from bench.models import on_threads

    on_threads.install()
else:
    sys.exit(f"{MODEL!r} is no model")

import functools
import gc
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import gevent
from gevent.event import Event
from gevent.queue import Queue

from greencrawl.broker.client import BrokerClient
from greencrawl.schema import garbage, log
from greencrawl.schema.records import (
    CloseRequest,
    Crawl,
    ExtendRequest,
    Failure,
    Fetched,
    FinishRequest,
    ItemsReply,
    ItemStatus,
    LeaseReply,
    LeaseRequest,
    MemberReply,
    MemberRequest,
    ReconcileReply,
    ReconcileRequest,
    Session,
    Task,
)
from greencrawl.schema.settings import load
from greencrawl.worker import child
from greencrawl.worker.crawls import context_of
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.http.connections import Connection, Connections
from greencrawl.worker.kernels.http import read
from greencrawl.worker.process.crash_record import Suspect
from greencrawl.worker.process.inflight_table import InflightTable
from greencrawl.worker.session.fetcher import Visit
from greencrawl.worker.session.held import HeldSession, Sessions
from greencrawl.worker.session.slow_hosts import SlowHosts

LOOKS = 5
MOST_SECONDS = 600
"""No task takes longer; a hanging process ends by then."""
TTL_SECONDS = 3600.0


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


def _wait_in_thread(_: Connection, watcher: Any, until: float) -> None:
    watcher.wait(until)  # see ``bench.models.on_threads.Io``


if MODEL == "threads":
    setattr(Connection, "_wait", _wait_in_thread)  # noqa: B010 - mypy lets no method be replaced
    _guard(Connections, "take", "give", "_drop")
    _guard(Sessions, "hold", "submitted", "settled", "fetched", "closed", "extended")
    _guard(InflightTable, "take", "free")
    _guard(SlowHosts, "admits", "look", "ended")


class Lenient(dict[str, Any]):
    """A table from which an entry may be removed before it is inserted, as a thread may do."""

    def __delitem__(self, key: str) -> None:
        self.pop(key, None)


class Hosts:
    """The broker's replacement: hosts that are always due, with pages that are all new.

    A host is leased again when its session is closed; a caller waits while none is free.
    """

    crawl: Crawl

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._free: Queue[str] = Queue()
        self._leased: dict[str, str] = {}
        self._sessions = 0
        self._pages = dict.fromkeys(names, 0)

    def open(self, count: int) -> None:
        """Allow the first ``count`` hosts to be crawled from now on."""
        for name in self.names[:count]:
            self._free.put(name)

    def session(self, host: str, tasks: int) -> Session:
        """Return a session with the next pages of a host, with a token of its own."""
        self._sessions += 1
        first = self._pages[host]
        self._pages[host] += tasks
        return Session(
            session=f"1/{host}",
            token=f"{self._sessions:016x}",
            crawl=self.crawl.id,
            revision=self.crawl.revision,
            host=host,
            ttl=TTL_SECONDS,
            delay=0.0,
            floor=0.0,
            robots_known=True,
            tasks=tuple(Task(n, f"http://{host}/p/{first + n}") for n in range(1, tasks + 1)),
        )

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Return free hosts, at least one."""
        hosts = [self._free.get()]
        while len(hosts) < request.max_sessions and not self._free.empty():
            hosts.append(self._free.get())
        sessions = tuple(self.session(host, request.tasks_per_session) for host in hosts)
        self._leased |= {session.token: session.host for session in sessions}
        return LeaseReply(sessions)

    def close(self, request: CloseRequest) -> ItemsReply:
        """Give hosts back."""
        for item in request.items:
            self._free.put(self._leased.pop(item.token))
        return _accepted(len(request.items))

    def finish(self, request: FinishRequest) -> ItemsReply:
        """Accept the items; nothing is stored."""
        return _accepted(len(request.items))

    def extend(self, request: ExtendRequest) -> ItemsReply:
        """Accept; a lease lasts for ever."""
        return _accepted(len(request.items))

    def reconcile(self, _: ReconcileRequest) -> ReconcileReply:
        """Return an empty answer: nothing was leased before."""
        return ReconcileReply(sessions=0, tasks=0)

    def follow(self, request: MemberRequest) -> MemberReply:
        """Return no orders."""
        gevent.sleep(request.wait)
        return MemberReply()

    def ready(self) -> bool:
        """Return True."""
        return True


def _accepted(count: int) -> ItemsReply:
    ok: ItemStatus = "ok"
    return ItemsReply((ok,) * count)


class Counts:
    """Counts of the downloader's results."""

    def __init__(self) -> None:
        self.pages = 0
        self.bytes = 0

    def watch(self, downloader: Downloader) -> None:
        """Count the results of ``downloader`` from now on."""
        fetch = downloader.fetch

        def counted(url: str, headers: Mapping[str, str], **named: Any) -> Fetched | Failure:
            answer = fetch(url, headers, **named)
            if isinstance(answer, Fetched):
                self.pages += 1
                self.bytes += answer.wire_bytes
            return answer

        downloader.fetch = counted  # type: ignore[method-assign]


class Sleeping:
    """A download that is a sleep; see the source's second experiment."""

    def __init__(self, seconds: float, body: bytes) -> None:
        self._seconds = seconds
        self._body = body

    def fetch(self, url: str, headers: Mapping[str, str], **_: Any) -> Fetched | Failure:
        """Sleep, and answer with the page."""
        gevent.sleep(self._seconds)
        kind = {"content-type": "text/html; charset=utf-8"}
        return Fetched(url=url, status=200, headers=kind, body=self._body, fetched_ms=0)


class Process:
    """A worker's process, built as ``greencrawl.worker.child`` builds it."""

    def __init__(self, task: dict[str, Any]) -> None:
        child.before_start()
        self.stopping = Event()
        self.hosts = Hosts([f"{address}:{task['port']}" for address in task["addresses"]])
        broker = cast(BrokerClient, self.hosts)
        self.worker = child.Worker(load(), task["number"], self.stopping, broker=broker)
        self.hosts.crawl = self.worker._store.crawl("bench")
        self.counts = Counts()
        self.counts.watch(self.worker._downloader)
        if MODEL == "threads":
            self.worker._downloader._resolver._under_way = Lenient()
        garbage.started()

    def start(self, hosts: int) -> None:
        """Crawl this many hosts at once, each with an open request all the time."""
        self.hosts.open(hosts)
        gevent.spawn(self.worker.run)

    def check(self) -> None:
        """Raise RuntimeError if a part of the worker has failed."""
        if self.stopping.is_set():
            raise RuntimeError("the worker has ended: see the lines above")


def memory(process: Process, task: dict[str, Any], _: float) -> dict[str, Any]:
    """Return the MB of the process while ``concurrency`` hosts are asked for a page, as medians of
    samples."""
    count = task["concurrency"]
    process.start(count)
    until = time.monotonic() + 60
    while process.counts.pages < 3 * count and time.monotonic() < until:
        gevent.sleep(0.05)
    looks = []
    for _ in range(LOOKS):
        gevent.sleep(task["seconds"] / LOOKS)
        looks.append(_rollup())
    process.check()
    found = {key: sorted(look[key] for look in looks)[LOOKS // 2] for key in looks[0]}
    return {"concurrency": count, "pages": process.counts.pages, **found}


def _rollup() -> dict[str, float]:
    """Return megabytes: millions of bytes, as in all benchmarks.

    The kernel's "kB" are of 1024 bytes.
    """
    rows = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    kibibytes = {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    return {
        "rss_mb": round(kibibytes["Rss:"] * 1.024e-3, 2),
        "pss_mb": round(kibibytes["Pss:"] * 1.024e-3, 2),
        "private_mb": round(
            (kibibytes["Private_Clean:"] + kibibytes["Private_Dirty:"]) * 1.024e-3, 2
        ),
    }


def sleep(process: Process, task: dict[str, Any], at: float) -> dict[str, Any]:
    """Return the seconds until all units have slept ``seconds`` once, and with ``parse`` read a
    page after it.

    A unit goes through visit, pace and crash record like a page; it is not stored, as in the
    source. A point begins every ``period`` seconds from ``at`` on, ``late`` if the one before took
    longer.
    """
    context = context_of(process.hosts.crawl)
    fetcher = Sleeping(task["seconds"], Path(task["page"]).read_bytes())
    names = process.hosts.names
    points = []

    def unit(session: Session) -> None:
        held = HeldSession(session, time.monotonic() + TTL_SECONDS)
        visit = Visit(held, context, fetcher, process.stopping)
        fetched = visit.get(session.tasks[0].url, {}, 10**7)
        if task["parse"] and isinstance(fetched, Fetched):
            with process.worker._crash_record.parsing(_suspect(session)):
                read(context, session.tasks[0], fetched)

    for number, count in enumerate(task["concurrency"]):
        sessions = [process.hosts.session(names[i], 1) for i in range(count)]
        gc.collect()
        early = at + number * task["period"] - time.time()
        gevent.sleep(max(0.0, early))
        cpu, began = time.process_time(), time.monotonic()
        gevent.joinall([gevent.spawn(unit, session) for session in sessions])
        took = time.monotonic() - began
        spent = time.process_time() - cpu
        point = {"seconds": took, "cpu": spent, "late": max(0.0, -early)}
        points.append({"concurrency": count} | {key: round(x, 4) for key, x in point.items()})
    return {"points": points}


def _suspect(session: Session) -> Suspect:
    task = session.tasks[0]
    return Suspect(session.session, session.token, 1, session.crawl, task.url, 0, 0, 0)


def link(process: Process, task: dict[str, Any], at: float) -> dict[str, Any]:
    """Return the bytes of answers by the end of each of ``periods`` of ``seconds``, counted from
    ``at``."""
    counts = process.counts
    process.start(task["concurrency"])
    gevent.sleep(max(0.0, at - time.time()))
    began, first, cpu = time.monotonic(), counts.bytes, time.process_time()
    sums = []
    for period in range(1, task["periods"] + 1):
        gevent.sleep(max(0.0, began + period * task["seconds"] - time.monotonic()))
        sums.append(counts.bytes - first)
    process.check()
    return {"bytes": sums, "cpu": round(time.process_time() - cpu, 3)}


def main() -> None:
    """Build the process of the second argument's task, run it, and print its result."""
    log.configure("bench", "warning")
    signal.alarm(MOST_SECONDS)
    task = json.loads(Path(sys.argv[2]).read_text())
    process = Process(task)
    print("ready", flush=True)
    at = float(sys.stdin.readline())
    result = {"memory": memory, "sleep": sleep, "link": link}[task["what"]](process, task, at)
    print(json.dumps(result), flush=True)
    os._exit(0)  # units are under way; their results are not needed


if __name__ == "__main__":
    main()
