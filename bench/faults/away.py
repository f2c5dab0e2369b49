"""One of two Redis nodes is away: what is fetched of the other's hosts, what is lost of its own.

``python -m bench.faults.away [--short] [killed|frozen|busy …]``. A broker and a worker process
crawl sixty hosts, thirty on each of two Redis nodes. Links lead to all of them at random, so half
of the links lead to hosts of the node that is taken away.

* ``killed``: the node's server is killed for ten minutes, then started again. Each host is asked
  every half second, so the rate is bounded by politeness, and is the same before and after;
* ``frozen``: the same, but that its server is stopped by SIGSTOP and goes on by SIGCONT;
* ``busy``: killed for three minutes under a crawl without delays, which is bounded by the CPU of
  the worker's core: there a page that costs more while a node is away would show.

The figure is pages a second during all of the time that the node was away ÷ before: of the other
node's hosts, and with ``busy``, where these get all of the CPU meanwhile, of all hosts. When the
node is back and was given what it missed, the crawl is paused, and what the queue knows is held
against the links of all pages that are stored.

``--short`` is one minute and half a minute. Full runs take 45 minutes in all, short ones six.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import document
from bench.rig.record import Cell, Record, draw
from bench.rig.resident import Resident, ends
from bench.rig.web import Spec, Web, cores, host
from greencrawl.schema.net.urls import host_of, partition_of
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until

NAME = "away"
HOSTS = 60
DELAY = 0.5
SPEC = Spec(hosts=1000, page_bytes=(6000, 6000), fresh=6, foreign=1.0)
"""Twelve links a page, six of them new: hosts do not run dry. Of these hosts sixty are taken."""
LEASE_SECONDS = 10
"""Of a lease, and of a request: so long and twelve seconds more a node that was killed rests."""
BACK_SECONDS = 300.0
"""Within which a node that is back must have been given what it missed."""
EVERY_SECONDS = 5
"""Pages are counted in steps of so long, and memory is sampled as often."""
ROBOTS = "/robots.txt"

Row = tuple[float, float, str, str, int]
"""Of the web's log: arrived, answered, host, path, status."""


class Run(NamedTuple):
    """How a node goes away, and for how long; ``delay`` of the crawl in seconds."""

    what: str
    how: signal.Signals
    delay: float
    away_seconds: float
    before_seconds: float

    def short(self) -> Run:
        return self._replace(
            away_seconds=self.away_seconds / (10 if self.delay else 6),
            before_seconds=self.before_seconds / 6,
        )


RUNS = {
    "killed": Run("killed", signal.SIGKILL, DELAY, 600.0, 120.0),
    "frozen": Run("frozen", signal.SIGSTOP, DELAY, 600.0, 120.0),
    "busy": Run("killed, bound by CPU", signal.SIGKILL, 0.0, 180.0, 60.0),
}
WARM_SECONDS = 10.0
OURS = ("worker", "broker")
PARTS = (*OURS, "Redis that stays")


class Times(NamedTuple):
    """Epoch seconds: counting began, the node went away, was back, was given what it missed, and
    counting ended.
    """

    began: float
    away: float
    back: float
    paid: float
    ended: float


class Nodes:
    """Two Redis nodes, of which :meth:`take_away` takes one until :meth:`give_back`."""

    def __init__(self, folder: Path) -> None:
        self.servers = [RedisServer(folder / f"redis{n}").start() for n in range(2)]
        self.gone = self.servers[0]

    def chosen(self, store: Store, web: Web) -> dict[str, list[int]]:
        """As many hosts of either node, by its address."""
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
        return next(server for server in self.servers if server is not self.gone)

    def take_away(self, how: signal.Signals) -> None:
        if how == signal.SIGKILL:
            self.gone.kill()
        else:
            self._signal(how)

    def give_back(self, how: signal.Signals) -> None:
        if how == signal.SIGKILL:
            self.gone.start()
        else:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.gone.process is not None
        self.gone.process.send_signal(number)

    def stop(self) -> None:
        for server in self.servers:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
            server.stop()


def crawl(run: Run, folder: Path) -> dict[str, Any]:
    """Everything from the start to the account at the end; raw values."""
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
        "twice": _twice(rows),
        "memory": resident.samples,
        "cpu_seconds": [last - first for first, last in pairwise(cpu)],
        **account(store, system.stats(), web.seeds(), names),
        **figures(rows, names, Times(began, away, back, paid, ended)),
    }


def _paid(system: System, store: Store) -> bool:
    """Whether both nodes answer and neither is owed anything."""
    if system.call("GET", "/v1/stats")["away"] or store.debts():
        return False
    repairs = system.call("GET", "/v1/repair")["nodes"]
    return all(one["phase"] in ("none", "done") for one in repairs)


def _answers_since(web: Web, names: set[str], since: float) -> bool:
    return any(row[2] in names and row[1] > since for row in web.flush())


def _rests(system: System) -> bool:
    """Whether what was leased has been finished or handed back, and nothing moves."""
    first = system.stats()
    time.sleep(1.0)
    return first["leased"] == 0 and system.stats() == first


def account(
    store: Store, stats: Mapping[str, Any], seeds: Sequence[str], names: set[str]
) -> dict[str, Any]:
    """URLs that the store's pages and seeds lead to, beside those that the queue knows."""
    known, links, there = set(map(hash, seeds)), 0, 0
    for chunk in store.log_links(0):
        for _, found in chunk:
            known.update(hash(link.url) for link in found)
            links += len(found)
            there += sum(host_of(link.url).partition(":")[0] in names for link in found)
    settled = stats["finished"] + stats["waiting"] + stats["later"] + stats["overflow"]
    return {
        "known_to_store": len(known),
        "known_to_queue": stats["admitted"],
        "settled_or_waiting": settled,
        "share_of_links": there / links,
        "state": {name: value for name, value in stats.items() if isinstance(value, int)},
    }


def figures(rows: Sequence[Row], names: set[str], times: Times) -> dict[str, Any]:
    """Pages a second by whose hosts and when, and the ratios of them.

    ``worst`` is that of the stayed node's worst step, all of whose time the other was away.
    """

    def rate(first: float, last: float, *, gone: bool | None = None) -> float:
        count = sum(
            first <= answered < last and path != ROBOTS and gone in (None, name in names)
            for _, answered, name, path, _ in rows
        )
        return count / (last - first)

    before, away = (times.began, times.away), (times.away, times.back)
    steps = int((times.back - times.away) // EVERY_SECONDS)
    firsts = [times.away + EVERY_SECONDS * step for step in range(steps)]
    other = rate(*before, gone=False)
    return {
        "before": other,
        "away": rate(*away, gone=False),
        "before_all": rate(*before),
        "away_all": rate(*away),
        "gone_before": rate(*before, gone=True),
        "gone_after": rate(times.ended - 2 * EVERY_SECONDS, times.ended, gone=True),
        "ratio": rate(*away, gone=False) / other,
        "ratio_all": rate(*away) / rate(*before),
        "worst": min(rate(at, at + EVERY_SECONDS, gone=False) for at in firsts) / other,
    }


def by_step(
    rows: Sequence[Row], names: set[str], first: float, last: float
) -> dict[str, list[float]]:
    """Pages a second in each step of :data:`EVERY_SECONDS`: of hosts that stay, and that go."""
    counts: Counter[tuple[bool, int]] = Counter()
    for _, answered, name, path, _ in rows:
        if path != ROBOTS and first <= answered < last:
            counts[name in names, int((answered - first) // EVERY_SECONDS)] += 1
    steps = range(int((last - first) // EVERY_SECONDS))
    return {
        what: [counts[gone, step] / EVERY_SECONDS for step in steps]
        for what, gone in (("stays", False), ("goes", True))
    }


def _twice(rows: Sequence[Row]) -> int:
    """Pages that were fetched again."""
    pages = Counter((name, path) for _, _, name, path, _ in rows if path != ROBOTS)
    return sum(count - 1 for count in pages.values())


def spent(parts: Mapping[str, Sequence[psutil.Process]]) -> float:
    """CPU seconds of worker and broker so far."""
    times = [process.cpu_times() for part in OURS for process in parts[part]]
    return sum(one.user + one.system for one in times)


def cpu_ms(one: Mapping[str, Any]) -> tuple[float, float]:
    """CPU of worker and broker a page, in ms: before, and while the node was away."""
    times, (before, away) = one["times"], one["cpu_seconds"]
    pages = one["before_all"] * (times["away"] - times["began"])
    pages_away = one["away_all"] * (times["back"] - times["away"])
    return before * 1000 / pages, away * 1000 / pages_away


def say(text: str) -> None:
    print(f"   {text}", flush=True)


def grown(found: Mapping[str, Any], part: str) -> tuple[float, float]:
    """MB of a part when the node went away, and before it was back."""
    times = found["times"]
    sizes = ends(found["memory"], part, times["away"], times["back"])
    assert sizes is not None, f"{part} had no process"
    return sizes


def report(record: Record, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Tables, figures and plots of the runs."""
    rates: list[list[Cell]] = []
    rest: list[list[Cell]] = []
    memory: list[list[Cell]] = []
    lost, growth = 0, 0.0
    for name, one in found.items():
        what = RUNS[name].what
        times = one["times"]
        ratios = [one["ratio"], one["worst"], one["ratio_all"]]
        rates.append(
            [what, times["back"] - times["away"], one["before"], one["away"], *ratios, *cpu_ms(one)]
        )
        gone = one["known_to_store"] - one["known_to_queue"]
        lost = max(lost, abs(gone))
        rest.append(
            [
                what,
                one["share_of_links"],
                times["paid"] - times["back"],
                one["first_after"],
                one["gone_after"] / one["gone_before"],
                one["known_to_store"],
                gone,
                one["twice"],
            ]
        )
        for part in PARTS:
            first, last = grown(one, part)
            if part in OURS:
                growth = max(growth, last - first)
            memory.append([what, part, first, last, last - first])
        record.figure(f"{name}_ratio", one["ratio_all" if name == "busy" else "ratio"])
        record.runs(name, dict(one))
    record.table(
        "Pages a second while one of two nodes is away",
        [
            "away",
            "for s",
            "before",
            "away",
            "ratio",
            "worst 5 s",
            "all hosts: ratio",
            "CPU ms a page: before",
            "while away",
        ],
        rates,
    )
    record.table(
        "When it is back",
        ["away", "links there", "all given after s", "first page after s",
         "pages/s ÷ before", "URLs by the store", "of them lost", "fetched twice"],
        rest,
    )  # fmt: skip
    record.table("Memory while it is away, MB", ["away", "of", "first", "last", "growth"], memory)
    record.figure("lost", lost)
    record.figure("growth_mb", growth)
    _plot(record, found)


def _plot(record: Record, found: Mapping[str, Mapping[str, Any]]) -> None:
    figure = draw(8, 2.6 * len(found))
    for row, (name, one) in enumerate(found.items()):
        times = one["times"]
        axes = figure.add_subplot(len(found), 2, 2 * row + 1)
        for what, colour in (("stays", "tab:green"), ("goes", "tab:red")):
            steps = one["steps"][what]
            seconds = [EVERY_SECONDS * number for number in range(len(steps))]
            axes.plot(seconds, steps, color=colour, label=f"hosts of the node that {what}")
        axes.set(xlabel="seconds", ylabel="pages/s", title=RUNS[name].what, ylim=(0, None))
        axes.legend(fontsize=6)
        beside = figure.add_subplot(len(found), 2, 2 * row + 2)
        for part in PARTS:
            points = [(at - times["began"], mb[part]) for at, mb in one["memory"] if part in mb]
            beside.plot(*zip(*points, strict=True), label=part)
        beside.set(xlabel="seconds", ylabel="resident MB", title="memory", ylim=(0, None))
        beside.legend(fontsize=6)
        for each in (axes, beside):
            for moment in ("away", "back"):
                each.axvline(times[moment] - times["began"], color="grey", linewidth=0.7)
    record.plot("rate", figure, "Between the lines the node is away")


def main(arguments: Sequence[str]) -> int:
    """Run them; 0 if all that must be reached is."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults.away",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="six minutes in all instead of 45")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=", ".join(RUNS))
    options = parser.parse_args(arguments)
    if unknown := set(options.runs) - set(RUNS):
        parser.error(f"no such run: {', '.join(sorted(unknown))}")
    title = "one of two Redis nodes is away"
    record = Record(NAME, title, options.short, packages=("matplotlib",))
    record.note(
        f"{HOSTS} hosts, twelve links a page, which lead to any host; a delay of {DELAY:g} s, or"
        " none where CPU is the bound: there the worker has a core, all others share one. Rates of"
        " all of the time that the node was away, its first seconds included, against those before,"
        " in the same run. A lease and a request last"
        f" {LEASE_SECONDS} s at most, so a node that was killed rests for {2 * LEASE_SECONDS + 12}"
        " s. Lost: URLs that the pages in the store lead to, less those that the queue knows when"
        " the crawl was paused afterwards."
    )
    found = {}
    for name in options.runs or RUNS:
        run = RUNS[name].short() if options.short else RUNS[name]
        print(f"\n== {run.what}", flush=True)
        with tempfile.TemporaryDirectory(prefix="away-") as folder:
            found[name] = crawl(run, Path(folder))
    report(record, found)
    record.finish()
    return document.missed(NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
