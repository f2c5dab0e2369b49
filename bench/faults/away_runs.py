"""The runs of ``bench.faults.away``: there are two Redis nodes, one of which goes away and comes
back."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.faults.away_figures import EVERY_SECONDS, Times, account, by_step, figures, twice
from bench.rig.resident import Resident
from bench.rig.web import Spec, Web, cores, host
from greencrawl.schema.net.urls import host_of, partition_of
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until

HOSTS = 60
DELAY = 0.5
SPEC = Spec(hosts=1000, page_bytes=(6000, 6000), fresh=6, foreign=1.0)
"""Each page has twelve links, six of them new, so that hosts do not run out of URLs.

Sixty of these hosts are used.
"""
LEASE_SECONDS = 10
"""Duration of a lease, and of a request: a killed node rests for this long and twelve seconds
more."""
BACK_SECONDS = 300.0
"""Within this time a node that is back must have got what it missed."""
WARM_SECONDS = 10.0
OURS = ("worker", "broker")
PARTS = (*OURS, "Redis that stays")


class Run(NamedTuple):
    """How a node goes away, and for how long; ``delay`` of the crawl in seconds."""

    what: str
    how: signal.Signals
    delay: float
    away_seconds: float
    before_seconds: float

    def short(self) -> Run:
        """Return the same run with shorter times, for a quick check."""
        return self._replace(
            away_seconds=self.away_seconds / (10 if self.delay else 6),
            before_seconds=self.before_seconds / 6,
        )


RUNS = {
    "killed": Run("killed", signal.SIGKILL, DELAY, 600.0, 120.0),
    "frozen": Run("frozen", signal.SIGSTOP, DELAY, 600.0, 120.0),
    "busy": Run("killed, bound by CPU", signal.SIGKILL, 0.0, 180.0, 60.0),
}


class Nodes:
    """Two Redis nodes; :meth:`take_away` takes one until :meth:`give_back`."""

    def __init__(self, folder: Path) -> None:
        self.servers = [RedisServer(folder / f"redis{n}").start() for n in range(2)]
        self.gone = self.servers[0]

    def chosen(self, store: Store, web: Web) -> dict[str, list[int]]:
        """Return equally many hosts of each node, by its address."""
        identity = store.frontier()
        assert identity is not None
        addresses = store.addresses()
        found: dict[str, list[int]] = {server.url: [] for server in self.servers}
        for number in range(web.spec.hosts):
            p = partition_of(host_of(web.url(number)), identity.partitions)
            found[addresses[identity.nodes[identity.placement[p]]]].append(number)
        return {address: numbers[: HOSTS // 2] for address, numbers in found.items()}

    @property
    def staying(self) -> RedisServer:
        """Return the node that is not harmed."""
        return next(server for server in self.servers if server is not self.gone)

    def take_away(self, how: signal.Signals) -> None:
        """Kill or stop the other node."""
        if how == signal.SIGKILL:
            self.gone.kill()
        else:
            self._signal(how)

    def give_back(self, how: signal.Signals) -> None:
        """Start the node again, or resume it."""
        if how == signal.SIGKILL:
            self.gone.start()
        else:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.gone.process is not None
        self.gone.process.send_signal(number)

    def stop(self) -> None:
        """Stop both nodes, in whatever state they are."""
        for server in self.servers:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
            server.stop()


def crawl(run: Run, folder: Path) -> dict[str, Any]:
    """Run everything from the start to the account at the end; return raw values."""
    one, other = cores()
    nodes = Nodes(folder)
    try:
        with System(
            folder,
            [server.url for server in nodes.servers],
            broker_cpu=other,
            worker_cpu=one,
            lease_seconds=str(LEASE_SECONDS),
            request_seconds=str(LEASE_SECONDS),
        ) as system:
            system.start()
            store = open_store(f"sqlite:///{folder / 'data' / 'content.sqlite'}")
            try:
                web = Web(folder / "web", SPEC, cpu=other)
                numbers = nodes.chosen(store, web)
                web.spec = replace(SPEC, abroad=[n for some in numbers.values() for n in some])
                names = {host(SPEC, number).name for number in numbers[nodes.gone.url]}
                with web:
                    system.crawl(web.seeds(), scope="any", delay=run.delay)
                    return _measured(run, nodes, names, web, system, store)
            finally:
                store.close()
    finally:
        nodes.stop()


def _measured(
    run: Run,
    nodes: Nodes,
    names: set[str],
    web: Web,
    system: System,
    store: Store,
) -> dict[str, Any]:
    assert system.broker is not None
    assert nodes.staying.process is not None
    parts = {
        "worker": system.children(),
        "broker": [psutil.Process(system.broker.pid)],
        "Redis that stays": [psutil.Process(nodes.staying.process.pid)],
    }
    time.sleep(WARM_SECONDS)
    with Resident(lambda: parts, min(EVERY_SECONDS, run.away_seconds / 30)) as resident:
        began, cpu = time.time(), [spent(parts)]
        time.sleep(run.before_seconds)
        away = time.time()
        cpu.append(spent(parts))
        nodes.take_away(run.how)
        say(f"it is away for {run.away_seconds:g} s")
        time.sleep(run.away_seconds)
        named = [one["node"] for one in system.call("GET", "/v1/stats")["away"]]
        back = time.time()
        cpu.append(spent(parts))
        nodes.give_back(run.how)
        wait_until(lambda: _paid(system, store), BACK_SECONDS, "it was given what it missed", 0.2)
        paid = time.time()
        say(f"it was given what it missed within {paid - back:.1f} s")
        wait_until(lambda: _answers_since(web, names, back), BACK_SECONDS, "its hosts go on", 1.0)
        time.sleep(max(run.before_seconds / 2, 2 * EVERY_SECONDS))
        ended = time.time()
    rows = web.flush()
    system.call("POST", "/v1/crawls/test/pause")
    wait_until(lambda: _rests(system), 10 * LEASE_SECONDS, "nothing is leased any more", 1.0)
    return {
        "times": Times(began, away, back, paid, ended)._asdict(),
        "named_away": named,
        "steps": by_step(rows, names, began, ended),
        "first_after": min(row[1] for row in rows if row[2] in names and row[1] > back) - back,
        "twice": twice(rows),
        "memory": resident.samples,
        "cpu_seconds": [last - first for first, last in pairwise(cpu)],
        **account(store, system.stats(), web.seeds(), names),
        **figures(rows, names, Times(began, away, back, paid, ended)),
    }


def _paid(system: System, store: Store) -> bool:
    """Return whether both nodes answer and have got everything that they missed."""
    if system.call("GET", "/v1/stats")["away"] or store.debts():
        return False
    repairs = system.call("GET", "/v1/repair")["nodes"]
    return all(one["phase"] in ("none", "done") for one in repairs)


def _answers_since(web: Web, names: set[str], since: float) -> bool:
    return any(row[2] in names and row[1] > since for row in web.flush())


def _rests(system: System) -> bool:
    """Return whether all leased tasks were finished or handed back, and no counter changes."""
    first = system.stats()
    time.sleep(1.0)
    return first["leased"] == 0 and system.stats() == first


def spent(parts: Mapping[str, Sequence[psutil.Process]]) -> float:
    """Return the CPU seconds of worker and broker so far."""
    times = [process.cpu_times() for part in OURS for process in parts[part]]
    return sum(one.user + one.system for one in times)


def say(text: str) -> None:
    """Print the progress of the benchmark."""
    print(f"   {text}", flush=True)
