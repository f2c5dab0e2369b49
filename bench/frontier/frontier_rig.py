"""The environment of the frontier's benchmark: cores for Redis and a broker, clients, bare Lua."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hiredis
import psutil
import redis
from gevent import monkey

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import lua_scripts
from greencrawl.schema.records import Crawl, CrawlOptions, CreateCrawl
from greencrawl.store import Store, open_store
from tests.support.broker_process import BrokerProcess
from tests.support.checkout import ROOT
from tests.support.redis_server import RedisServer

_socket = monkey.get_original("socket", "socket")

CORES = sorted(os.sched_getaffinity(0))
REDIS_CORE, BROKER_CORE = CORES[0], CORES[-1]
SLOW_MICROS = 1000
"""Scripts that take longer are kept in Redis' slow log."""


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Pin processes that are started within to ``core``, with all their threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def calm(most_seconds: float = 1.0, busy_percent: float = 15.0) -> None:
    """Wait until the machine is nearly idle for half a second, so that other work disturbs less."""
    until = time.monotonic() + most_seconds
    while time.monotonic() < until and psutil.cpu_percent(0.5) > busy_percent:
        pass


class Spent:
    """CPU seconds that a process has used between ``begin()`` and ``end()``."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.cpu = 0.0
        self.begin()

    def _read(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def begin(self) -> None:
        """Start counting."""
        self._at = self._read()

    def end(self) -> None:
        """Stop counting."""
        self.cpu = self._read() - self._at


def _busy() -> float:
    """Return the CPU seconds of all cores so far."""
    times = psutil.cpu_times()
    return float(sum(times[:8]) - times.idle - times.iowait)


class Client:
    """A process of ``module`` with a task; ``run()`` starts the task and returns its figures."""

    def __init__(self, module: str, core: int, **task: Any) -> None:
        with on_core(core):
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(task)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"a client ended with {self.process.wait()}"
        return line

    def ready(self) -> Client:
        """Wait until the client is ready."""
        assert self._line() == "ready"
        return self

    def go(self) -> None:
        """Start the client's task."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def figures(self) -> dict[str, float]:
        """Wait for the client's end; return its measurements."""
        found: dict[str, float] = json.loads(self._line())
        self.process.wait()
        return found

    def stop(self) -> None:
        """Kill the client if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Bare:
    """Times only the script calls of a frontier in this process.

    It sends the bytes that the frontier would send, in the same batches, but over one plain
    blocking connection, one call at a time. Time counts from the first byte sent to the last answer
    read.
    """

    def __init__(self, frontier: Frontier, port: int) -> None:
        self.seconds = 0.0
        self._replies: list[Any] = []
        self._connection = _socket()
        self._connection.connect(("127.0.0.1", port))
        (self._node,) = frontier.nodes
        for script in lua_scripts.SCRIPTS.values():
            self._node.command("SCRIPT", "LOAD", script.text)
        send = self._node._send
        self._node._send = lambda _, *given: send(self, *given)  # type: ignore

    # -- instead of the driver's connection

    def send_packed_command(self, commands: list[bytes]) -> None:
        """Send the commands, and read all their replies."""
        data = b"".join(commands)
        reader = hiredis.Reader()
        replies: list[Any] = []
        began = time.perf_counter()
        self._connection.sendall(data)
        while len(replies) < len(commands):
            reader.feed(self._connection.recv(1 << 20))
            while (reply := reader.gets()) is not False:
                replies.append(reply)
        self.seconds += time.perf_counter() - began
        self._replies = replies[::-1]

    def read_response(self) -> Any:
        """Return the next reply, as the driver's connection does."""
        reply = self._replies.pop()
        assert not isinstance(reply, Exception), reply
        return reply

    def __enter__(self) -> Bare:
        calm()
        return self

    def __exit__(self, *_: object) -> None:
        del self._node._send  # from now on the method of the class is called
        self._connection.close()


class Rig:
    """A Redis and a broker on a core each, in a temporary folder; optionally Redis without a
    broker.

    ``durable``: Redis writes its append-only file as in production (everysec). The file is not
    rewritten meanwhile, since that is a child process on Redis' core.
    """

    def __init__(self, *, broker: bool, durable: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="frontier-")
        folder = Path(self._folder.name)
        options = ["--appendonly", "yes" if durable else "no", "--auto-aof-rewrite-percentage", "0"]
        options += ["--slowlog-log-slower-than", str(SLOW_MICROS), "--slowlog-max-len", "100000"]
        with on_core(REDIS_CORE):
            self.server = RedisServer(folder / "redis", None, *options).start()
        assert self.server.process is not None
        self.redis = Spent(self.server.process.pid)
        self.store_url = f"sqlite:///{folder / 'content.sqlite'}"
        self.broker: BrokerProcess | None = None
        self.frontier: Frontier | None = None
        self.store: Store | None = None
        if broker:
            with on_core(BROKER_CORE):
                self.broker = BrokerProcess(
                    folder / "broker",
                    redis=self.server.url,
                    store=self.store_url,
                    log_level="warning",
                ).start()
            assert self.broker.process is not None
            self.served = Spent(self.broker.process.pid)
        else:
            self.inside()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_broker()
        if self.frontier is not None:
            self.frontier.stop()
        if self.store is not None:
            self.store.close()
        self.server.stop()
        self._folder.cleanup()

    def _stop_broker(self) -> None:
        if self.broker is not None:
            self.broker.stop()
            self.broker = None

    def inside(self) -> Frontier:
        """Stop the broker, if there is one, and open its frontier in this process."""
        self._stop_broker()
        self.store = open_store(self.store_url)
        self.frontier = Frontier([self.server.url], self.store, create=True)
        return self.frontier

    def crawl(self, name: str) -> Crawl:
        """Make a crawl of any host without a delay.

        With a broker it gets a first URL; otherwise it might be found done before our first URL
        comes.
        """
        options = CrawlOptions(scope="any", delay=0)
        if self.broker is None:
            assert self.store is not None
            assert self.frontier is not None
            made = self.store.put_crawl(name, options, [])
            self.frontier.put_crawl(made)
            return made
        client = self.broker.client()
        try:
            first = ("https://first.example/",)
            return client.put_crawl(CreateCrawl(name=name, scope="any", delay=0, seeds=first))
        finally:
            client.disconnect()

    # -- clients

    def feed(self, crawl: int, count: int, hosts: int, run: int, **more: Any) -> dict[str, float]:
        """Admit ``count`` URLs by two processes on the broker's core; the time of the slower
        counts."""
        processes = more.pop("processes", 2)
        first, step = more.pop("first", 0), -(-count // processes)
        task = {"batch": 16384, "greenlets": 1, "mode": 0, "prepared": False, **more}
        task |= {"store": self.store_url, "redis": self.server.url, "crawl": crawl}
        clients = [
            Client(
                "bench.frontier.feed",
                BROKER_CORE,
                **task,
                hosts=hosts,
                run=run,
                first=first + start,
                count=min(step, count - start),
            )
            for start in range(0, count, step)
        ]
        return self._run(clients)

    def request(self, **task: Any) -> dict[str, float]:
        """Run ``bench.frontier.client`` against the broker, on Redis' core."""
        assert self.broker is not None
        client = Client("bench.frontier.client", REDIS_CORE, port=self.broker.port, **task)
        return self._run([client])

    def _run(self, clients: list[Client]) -> dict[str, float]:
        parts = {"redis": self.redis}
        if self.broker is not None:
            parts["broker"] = self.served
        try:
            for client in clients:
                client.ready()
            calm()
            self.server.client.slowlog_reset()
            for part in parts.values():
                part.begin()
            busy, mine, began = _busy(), time.process_time(), time.monotonic()
            for client in clients:
                client.go()
            found = [client.figures() for client in clients]
            for part in parts.values():
                part.end()
            busy, mine = _busy() - busy, time.process_time() - mine
            passed = time.monotonic() - began
        finally:
            for client in clients:
                client.stop()
        figures = {
            "done": sum(f["done"] for f in found),
            "seconds": max(f["seconds"] for f in found),
            "client cpu": sum(f["cpu"] for f in found),
        }
        figures |= {f"{name} cpu": part.cpu for name, part in parts.items()}
        ours = mine + sum(value for name, value in figures.items() if name.endswith(" cpu"))
        figures["others"] = max(busy - ours, 0.0) / passed
        return figures

    # -- what Redis says

    def used(self) -> int:
        """Return the bytes that Redis has allocated for data."""
        return int(self.server.client.info("memory")["used_memory"])

    def slowest(self) -> tuple[float, int, str]:
        """Return (ms of the slowest script, number of calls over a ms, name of that script).

        Only calls since the last client began count.
        """
        names = {script.sha.encode(): name for name, script in lua_scripts.SCRIPTS.items()}
        entries = redis.Redis(port=self.server.port).slowlog_get(-1)
        slow = [
            (entry["duration"] / 1000, names.get(words[1], "?"))
            for entry in entries
            if (words := entry["command"].split()[:2]) and words[0].upper() == b"EVALSHA"
        ]
        worst, name = max(slow, default=(0.0, ""))
        return worst, len(slow), name
