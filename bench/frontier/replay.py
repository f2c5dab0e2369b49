"""How fast a lost Redis gets all links of the log: ``-m bench.frontier.replay [--short]``.

The log is that of a breadth-first crawl. Each page leads to 50 URLs: five are new, and the others
are random ones that earlier pages led to. The pages are the first of these URLs. So nine tenths of
the links are known when they come; some of these pages were already marked as fetched.

Redis (append-only file, fsync every second) has one core. The other has this process, which does
what a broker does while it refills a node, with its SQLite file. Runs with and without the cache of
what was sent (:mod:`greencrawl.broker.frontier.recovery.sent_filter`) alternate on the same log,
three of each, each into an empty Redis; the median counts. A greenlet that sleeps for a millisecond
at a time shows how long other clients have to wait meanwhile.

``--short`` is a tenth of it, once. The figures are kept only if the run was full and other programs
took less than a tenth of a core.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402
import random  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterable, Sequence  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
import psutil  # noqa: E402
import xxhash  # noqa: E402

from bench.frontier.frontier_rig import BROKER_CORE, Rig, calm  # noqa: E402
from bench.frontier.urls import url_of  # noqa: E402
from bench.rig.options import parser  # noqa: E402
from bench.rig.report import Report  # noqa: E402
from greencrawl.broker.frontier.recovery import replay  # noqa: E402
from greencrawl.broker.frontier.recovery.sent_filter import SentFilter  # noqa: E402
from greencrawl.schema import log  # noqa: E402
from greencrawl.schema.records import Admission, Commit, StoredPage  # noqa: E402

PAGES, LINKS, NEW = 20_000, 50, 5
HOSTS = 1000
TOGETHER = 100
"""Pages of a commit."""
ROUNDS = 3
OTHERS_MOST = 0.1
"""Cores that other work may use in a run that counts."""
LEAST = 100_000.0
"""Links a second, required."""


class Nothing(SentFilter):
    """A replacement of the cache: no link is known."""

    def unknown(self, _crawl: int, links: Iterable[Admission]) -> list[tuple[int, Admission]]:
        """Return all links, with their fingerprints."""
        digest_of, secret = xxhash.xxh3_64_intdigest, self._secret
        return [(digest_of(link.url.encode(), secret), link) for link in links]


class Phases:
    """The start times of the phases."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self.began: dict[str, float] = {}

    def hold(self) -> None:
        """Do nothing: no other broker works on the node."""

    @property
    def phase(self) -> str:
        """Return the phase that began last."""
        return next(reversed(self.began))

    @phase.setter
    def phase(self, phase: str) -> None:
        """Begin a phase."""
        self.began[phase] = time.perf_counter()


class Waiting:
    """Measures the longest pause, in ms, of a greenlet that wants to run every millisecond."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            began = time.perf_counter()
            gevent.sleep(0.001)
            self.waits.append((time.perf_counter() - began) * 1000 - 1)

    def stop(self) -> None:
        """Stop measuring."""
        self._greenlet.kill()


def fill(rig: Rig, crawl: int, pages: int) -> None:
    """Write the log."""
    assert rig.frontier is not None
    assert rig.store is not None
    chosen, met, work = random.Random(14), 1, []
    for number in range(pages):
        new = range(met, met + NEW)
        numbers = [*new, *(chosen.randrange(met) for _ in range(LINKS - NEW))]
        met += NEW
        url = url_of(number, HOSTS, 1)
        work.append(
            StoredPage(
                crawl=crawl, fingerprint=rig.frontier.fingerprint(url), url=url, status=200,
                fetched_ms=1000, body=b"<html>",
                links=[Admission(url_of(n, HOSTS, 1), 3, 3) for n in numbers],
            )
        )  # fmt: skip
        if len(work) == TOGETHER or number == pages - 1:
            rig.store.commit(Commit(work))
            work = []


def once(rig: Rig, cache: type[SentFilter]) -> dict[str, float]:
    """Give an empty Redis everything; return the costs."""
    assert rig.frontier is not None
    assert rig.store is not None
    assert rig.server.process is not None
    client = rig.server.client
    if names := client.keys("gc:{*"):
        client.unlink(*names)
    setattr(replay, "SentFilter", cache)  # noqa: B010 - it is another class
    phases = Phases()
    whole: Any = replay.Replay(
        rig.frontier.parts, rig.store, rig.frontier.nodes[0], 0, phases, everything=True
    )
    calm()
    server, mine = psutil.Process(rig.server.process.pid), psutil.Process()
    ours = sum(map(_cpu, (server, mine)))
    busy, here, there, waiting = _busy(), _cpu(mine), _cpu(server), Waiting()
    began = time.perf_counter()
    whole.run()
    seconds = time.perf_counter() - began
    waiting.stop()
    busy, ours = _busy() - busy, sum(map(_cpu, (server, mine))) - ours
    waits = sorted(waiting.waits)
    return {
        "links": phases.began["blocks"] - phases.began["links"],
        "marks": phases.began["seeds"] - phases.began["marks"],
        "all": seconds,
        "broker cpu": _cpu(mine) - here,
        "redis cpu": _cpu(server) - there,
        "others": max(busy - ours, 0.0) / seconds,
        "wait ms": waits[-1],
        "wait p99 ms": waits[int(len(waits) * 0.99)],
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy() -> float:
    times = psutil.cpu_times()
    return float(sum(times[:8]) - times.idle - times.iowait)


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if the claim holds."""
    options = parser("bench.frontier.replay", __doc__, "a tenth of it, once").parse_args(arguments)
    pages, rounds = (PAGES // 10, 1) if options.short else (PAGES, ROUNDS)
    log.configure("bench", "error")
    os.sched_setaffinity(0, {BROKER_CORE})
    report = Report("replay", "a full replay of the log's links into an empty Redis")
    report.figure("links, nine tenths of them known", pages * LINKS)
    found: dict[str, list[dict[str, float]]] = {"with the cache": [], "without it": []}
    with Rig(broker=False) as rig:
        crawl = rig.crawl("replay")
        fill(rig, crawl.id, pages)
        assert rig.frontier is not None
        for _ in range(rounds):
            known = []
            for name, cache in zip(found, (SentFilter, Nothing), strict=True):
                found[name].append(once(rig, cache))
                print(
                    f"   {name}: {pages * LINKS / found[name][-1]['links']:,.0f} links/s",
                    flush=True,
                )
                totals = rig.frontier.scan(crawl.id)
                assert totals is not None
                known.append(totals)
            assert known[0] == known[1], "the same is queued and seen"
            assert known[0].admitted == pages * NEW + 1
    rates = {}
    for name, runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        rates[name] = pages * LINKS / middle.pop("links")
        report.row(name, links_a_second=rates[name], **_columns(middle))
    others = max(run["others"] for runs in found.values() for run in runs)
    report.figure("others took at most", others, "cores")
    with_cache, without = rates.values()
    report.claim(f"at least {LEAST:,.0f} links/s", with_cache >= LEAST)
    print(f"   {with_cache / without:.1f} times as many as without the cache", flush=True)
    if options.short or others > OTHERS_MOST:
        print("== not kept: the run was short, or others were at work")
        return 0 if with_cache >= LEAST else 1
    return report.finish()


def _columns(figures: dict[str, float]) -> dict[str, float]:
    names = {"marks": "marks_seconds", "all": "all_seconds"}
    return {names.get(key, key.replace(" ", "_")): value for key, value in figures.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
