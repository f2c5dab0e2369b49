"""A whole crawler for a test or a bench: broker and worker processes, driven over HTTP.

Everything is started on free ports in a folder of its own and stopped by process id, also when
the caller fails. Logs are kept in the folder and quoted when a process does not come up.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from greencrawl.schema.settings import AUTH, AUTH_FIELDS
from tests.support.checkout import ROOT
from tests.support.ports import free_port

START_SECONDS = 60.0
STOP_SECONDS = 20.0
MOST_SECONDS = 0.2
"""The longest time between two checks of a condition."""


def wait_until(
    holds: Callable[[], object], seconds: float, what: str, every: float = 0.02
) -> float:
    """Wait until ``holds()`` is true; return the seconds that it took. Raises AssertionError after
    ``seconds``; it says that ``what`` did not happen.

    It looks after ``every`` seconds, and less often the longer it waits: most looks are calls of a
    broker, and once they took more CPU than the event itself.
    """
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(max(every, min(waited / 50, MOST_SECONDS)))
    return time.monotonic() - began


_OF_ENTRY = re.compile(rf"auth_(.+?)_({'|'.join(AUTH_FIELDS)})", re.IGNORECASE)


class System:
    """One broker and one worker (a supervisor with ``processes`` children).

    ``redis`` are node addresses (none: the embedded one); ``settings`` are further GREENCRAWL_
    variables in lower case without prefix; ``secrets`` are variables that only the workers get, and
    that crawls may use as they like; ``broker_cpu`` and ``worker_cpu`` pin processes to a core. If
    ``checkout`` is given, the processes are those of that checkout, with its own ``.venv``.
    """

    def __init__(
        self,
        folder: Path,
        redis: Sequence[str] = (),
        *,
        processes: int = 1,
        broker_cpu: int | None = None,
        worker_cpu: int | None = None,
        secrets: Mapping[str, str] | None = None,
        checkout: Path = ROOT,
        **settings: str,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.broker: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None
        self.secrets = {name.upper(): value for name, value in (secrets or {}).items()}
        self._checkout = checkout
        own = checkout == ROOT
        self._python = sys.executable if own else str(checkout / ".venv" / "bin" / "python")
        self._cpu = {"broker": broker_cpu, "worker": worker_cpu}
        self.variables = {
            "DATA": str(folder / "data"),
            "BIND": f"127.0.0.1:{self.port}",
            "BROKER": f"http://127.0.0.1:{self.port}",
            "REDIS": ",".join(redis),
            "ALLOW_NETWORKS": "127.0.0.0/8",
            "PROCESSES": str(processes),
            "HOOKS": "*",
            **{f"{AUTH}{name.upper()}_HOSTS": "*" for name in _entries(secrets, settings)},
            **{name.upper(): value for name, value in settings.items()},
        }
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- processes

    def start(self) -> System:
        self.start_broker()
        self.start_worker()
        return self

    def start_broker(self, fault: str = "") -> None:
        """Start the broker and wait until it is ready; ``fault`` is POINT or POINT:N."""
        self.broker = self._spawn("broker", fault)
        wait_until(self._ready, START_SECONDS, f"broker ready\n{self.tail('broker')}")

    def start_worker(self, fault: str = "") -> None:
        """Start the worker and wait for its children."""
        self.worker = self._spawn("worker", fault)
        wait_until(self.children, START_SECONDS, f"worker has children\n{self.tail('worker')}")

    def settle(self, calm_seconds: float = 0.5) -> None:
        """Wait until imports and start-up are over: almost no CPU is spent for a while."""

        def calm() -> bool:
            before = sum(self.cpu_seconds().values())
            time.sleep(calm_seconds)
            return sum(self.cpu_seconds().values()) - before < 0.05 * calm_seconds

        wait_until(calm, START_SECONDS, "the processes came to rest")

    def children(self) -> list[psutil.Process]:
        """Return the supervisor's live children: the processes that crawl."""
        if self.worker is None or self.worker.poll() is not None:
            return []
        found = psutil.Process(self.worker.pid).children()
        return [child for child in found if alive(child)]

    def processes(self) -> list[psutil.Process]:
        """Return every live process of ours, with its descendants (the embedded Redis among
        them)."""
        found: list[psutil.Process] = []
        for started in (self.broker, self.worker):
            if started is not None and started.poll() is None:
                top = psutil.Process(started.pid)
                found += [top, *top.children(recursive=True)]
        return found

    def kill(self, part: str) -> None:
        """Kill the broker, or the supervisor with its children, with SIGKILL, as in a power cut."""
        process = self.broker if part == "broker" else self.worker
        if process is None:
            return
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=part == "worker")
        process.kill()
        process.wait()
        for child in family if part == "worker" else []:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(family if part == "worker" else [], timeout=5)

    def stop(self) -> None:
        """Stop workers, then the broker, by SIGTERM; send SIGKILL to those that remain after a
        grace time."""
        for process in (self.worker, self.broker):
            if process is None:
                continue
            family: list[psutil.Process] = []
            with suppress(psutil.NoSuchProcess):
                family = psutil.Process(process.pid).children(recursive=True)
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
            for left in family:
                with suppress(psutil.NoSuchProcess):
                    left.kill()
            if process.poll() is None:
                process.kill()
            process.wait()

    def tail(self, part: str, lines: int = 15) -> str:
        """Return the end of a process's log."""
        path = self.folder / f"{part}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])

    def _spawn(self, part: str, fault: str) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
        environment |= {f"GREENCRAWL_{k}": v for k, v in self.variables.items() if v}
        if part == "worker":
            environment |= {f"GREENCRAWL_{k}": v for k, v in self.secrets.items()}
        if fault:
            environment["GREENCRAWL_FAULT"] = fault
        process = subprocess.Popen(
            [self._python, "-m", f"greencrawl.{part}"],
            cwd=self._checkout,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"{part}.log").open("ab"),
        )
        if (cpu := self._cpu[part]) is not None:
            psutil.Process(process.pid).cpu_affinity([cpu])
        return process

    def _ready(self) -> bool:
        assert self.broker is not None
        if self.broker.poll() is not None:
            raise AssertionError(f"the broker ended: {self.broker.poll()}\n{self.tail('broker')}")
        try:
            self.call("GET", "/readyz")
        except OSError:
            return False
        return True

    # -- the HTTP API

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Make one call, JSON in and out. Raises urllib.error.HTTPError (4xx, 5xx) or OSError."""
        headers = {"Content-Type": "application/json"}
        if token := self.variables.get("ADMIN_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode(errors="replace"))
            raise
        is_json = "json" in answer.headers.get("Content-Type", "")
        return json.loads(content) if is_json and content else None

    def crawl(self, seeds: Sequence[str], name: str = "test", **options: object) -> None:
        """Make a crawl without sitemaps and without the judge of traps unless ``options`` set
        these: then the crawl asks a site for exactly its links, as the oracles expect, though its
        pages have almost no text and lead to each other."""
        given = {"sitemaps": "off", "traps": "off", **options}
        self.call("POST", "/v1/crawls", {"name": name, "seeds": list(seeds), **given})

    def stats(self, name: str = "test") -> dict[str, Any]:
        """Return the crawl's counters, with its ``state``."""
        found: list[dict[str, Any]] = self.call("GET", f"/v1/stats?crawl={name}")["crawls"]
        return found[0]

    def wait_done(self, seconds: float, name: str = "test") -> float:
        """Wait until the crawl is done; returns the seconds it took."""
        last: dict[str, Any] = {}

        def done() -> bool:
            if self.worker is not None and self.worker.poll() is not None:
                raise AssertionError("the worker ended")
            last.update(self.stats(name))
            return bool(last["state"] == "done")

        try:
            return wait_until(done, seconds, "the crawl is done", every=0.1)
        except AssertionError as error:
            error.add_note(f"{last}\n{self.tail('broker')}\n{self.tail('worker')}")
            raise

    def cpu_seconds(self) -> dict[str, float]:
        """Return user and system seconds of each part so far, with those of children that died."""
        spent: dict[str, float] = {}
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                part = "redis" if "redis" in process.name() else self._part_of(process)
                times = process.cpu_times()
                total = times.user + times.system + times.children_user + times.children_system
                spent[part] = spent.get(part, 0.0) + total
        return spent

    def _part_of(self, process: psutil.Process) -> str:
        broker = self.broker is not None and process.pid == self.broker.pid
        return "broker" if broker else "worker"


def alive(process: psutil.Process) -> bool:
    """Return whether a process exists, and is no zombie."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # gone between the two
        return False


def signal_child(child: psutil.Process, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal and wait until the process has ended."""
    os.kill(child.pid, number)
    with suppress(psutil.TimeoutExpired):
        child.wait(10)


def _entries(*given: Mapping[str, str] | None) -> set[str]:
    """Return the names of the entries for which secrets are given."""
    found = (_OF_ENTRY.fullmatch(name) for one in given for name in one or {})
    return {match[1] for match in found if match}
