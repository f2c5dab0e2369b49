"""What 100 idle crawls with ten brokers cost Redis: ``-m bench.frontier.idle_crawls [--short]``.

There are ten broker processes, one Redis (append-only file, fsync every second) and one SQLite
file. Crawls are idle in three ways:

* ``active``: a hundred crawls with five URLs each, of hosts that are blocked for a day;
* ``active, paused and done``: besides these, a hundred paused crawls with waiting URLs, and a
  hundred that have ended;
* ``with a worker``: a worker process asks for work all the time, and there is none.

Each way is measured until every crawl was scanned twice, after the start has settled. The figure is
the CPU that Redis took (``INFO cpu``, all threads), less what the same server takes without any
client.

``--short`` measures only the last way, for the time of one scan. Full runs take 25 minutes, short
ones six.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import document
from bench.rig.options import parser
from bench.rig.record import Record
from greencrawl.broker.client import BrokerClient
from greencrawl.broker.tasks.upkeep import SELDOM_SECONDS
from greencrawl.schema.records import CreateCrawl, HostPatch, SeedRequest
from tests.support.broker_process import BrokerProcess
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until

NAME = "idle-crawls"
BROKERS = 10
CRAWLS = 100
URLS = 5
DAY_SECONDS = 86_400.0
BARE_SECONDS = 30.0
CALM_SECONDS = 140.0
"""The time after a change before anything is measured: the coordinator counts a crawl at the end of
each minute until it finds it unchanged, and then every five minutes."""


class Spent(NamedTuple):
    """Usage since Redis was started: its CPU seconds and those of the brokers, seconds in commands,
    calls by name."""

    at: float
    redis: float
    brokers: float
    commands: float
    calls: dict[str, int]


def spent(redis: RedisServer, brokers: Sequence[BrokerProcess]) -> Spent:
    """Return the usage of Redis and brokers so far."""
    cpu, stats = redis.client.info("cpu"), redis.client.info("commandstats")
    own = 0.0
    for broker in brokers:
        assert broker.process is not None
        times = psutil.Process(broker.process.pid).cpu_times()
        own += times.user + times.system
    seconds = sum(float(row["usec"]) for row in stats.values()) / 1e6
    calls = {name.removeprefix("cmdstat_"): int(row["calls"]) for name, row in stats.items()}
    used = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
    return Spent(time.monotonic(), used, own, seconds, calls)


def during(redis: RedisServer, brokers: Sequence[BrokerProcess], seconds: float) -> dict[str, Any]:
    """Return the usage a second during this many seconds: ms of CPU, and calls by name."""
    first = spent(redis, brokers)
    time.sleep(seconds)
    last = spent(redis, brokers)
    passed = last.at - first.at
    calls = {
        name: round((count - first.calls.get(name, 0)) / passed, 2)
        for name, count in last.calls.items()
        if count > first.calls.get(name, 0)
    }
    return {
        "seconds": passed,
        "redis_ms": (last.redis - first.redis) * 1000 / passed,
        "commands_ms": (last.commands - first.commands) * 1000 / passed,
        "brokers_ms": (last.brokers - first.brokers) * 1000 / passed,
        "calls": dict(sorted(calls.items(), key=lambda item: -item[1])),
    }


def make(client: BrokerClient, name: str, count: int, urls: int) -> None:
    """Make crawls ``name0`` …, each with URLs of a host of its own that is blocked for a day."""
    for number in range(count):
        host = f"{name}{number}.example{number}.org"
        client.patch_host(host, HostPatch(block=DAY_SECONDS))
        client.put_crawl(CreateCrawl(name=f"{name}{number}", scope="any"))
        if urls:
            seeds = tuple(f"http://{host}/{page}" for page in range(urls))
            client.seed(f"{name}{number}", SeedRequest(urls=seeds))


def states(client: BrokerClient) -> dict[str, int]:
    """Return how many crawls are in each state."""
    found: dict[str, int] = {}
    for crawl in client.crawls():
        found[crawl.state] = found.get(crawl.state, 0) + 1
    return found


def measure(folder: Path, *, short: bool) -> dict[str, dict[str, Any]]:
    """Measure all rows; return them by name."""
    seconds = SELDOM_SECONDS if short else 2 * SELDOM_SECONDS
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as started:
        redis = RedisServer(folder / "redis").start()
        started.callback(redis.stop)
        found["no client"] = during(redis, (), BARE_SECONDS)
        brokers = []
        for _ in range(BROKERS):
            broker = BrokerProcess(folder / "data", redis=redis.url, log_level="warning").start()
            started.callback(broker.stop)
            brokers.append(broker)
        client = brokers[0].client(timeout=60)
        started.callback(client.disconnect)

        def row(what: str) -> None:
            time.sleep(CALM_SECONDS)
            found[what] = during(redis, brokers, seconds)
            found[what]["states"] = states(client)
            print(f"   {what}: {found[what]['redis_ms']:.2f} ms/s", flush=True)

        if not short:
            row("ten brokers, no crawl")
        make(client, "active", CRAWLS, URLS)
        if not short:
            row("active")
        make(client, "paused", CRAWLS, URLS)
        for number in range(CRAWLS):
            client.pause(f"paused{number}")
        make(client, "done", CRAWLS, 0)
        wanted = {"active": CRAWLS, "paused": CRAWLS, "done": CRAWLS}
        wait_until(lambda: states(client) == wanted, 60, "a hundred crawls in each state", 0.5)
        if not short:
            row("active, paused and done")
        worker = System(
            folder,
            [redis.url],
            broker=",".join(broker.url for broker in brokers),
            data=str(folder / "data"),
            log_level="warning",
        )
        started.enter_context(worker).start_worker()
        row("with a worker")
    return found


def report(record: Record, found: dict[str, dict[str, Any]]) -> None:
    """Add figures and tables."""
    bare = found["no client"]["redis_ms"]
    rows = []
    for what, one in found.items():
        most = [f"{name} {rate}" for name, rate in one["calls"].items() if name not in ("info",)]
        more = one["redis_ms"] - bare
        cells = [one["redis_ms"], more, one["commands_ms"], one["brokers_ms"] / BROKERS]
        rows.append([what, one["seconds"], *cells, ", ".join(most[:6])])
    record.table(
        "CPU, ms a second",
        ["crawls", "for s", "Redis", "more than with no client", "in commands", "a broker",
         "calls a second"],
        rows,
    )  # fmt: skip
    costs = [one["redis_ms"] - bare for what, one in found.items() if "states" in one]
    record.figure("redis_ms_a_second", max(costs))
    record.runs("rows", found)


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if all required figures were reached."""
    options = parser("bench.frontier.idle_crawls", __doc__, "six minutes instead of 25").parse_args(
        arguments
    )
    record = Record(NAME, f"{CRAWLS} idle crawls, {BROKERS} brokers", options.short)
    record.note(
        f"{BROKERS} broker processes, one Redis and one SQLite file. The first row has {CRAWLS}"
        f" crawls with {URLS} URLs each, of hosts that are blocked for a day; the second also has"
        f" {CRAWLS} paused and {CRAWLS} finished crawls; the third also has a worker process that"
        f" asks for work. A crawl without messages is scanned every {SELDOM_SECONDS:g} s, so each"
        " row has one or two scans of all of them. The CPU of Redis is that of its process, by"
        " INFO cpu."
    )
    with tempfile.TemporaryDirectory(prefix="idle-crawls-") as folder:
        report(record, measure(Path(folder), short=options.short))
    record.finish()
    return document.missed(NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
