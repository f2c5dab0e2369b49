"""How soon orders are followed, and how well a rate is kept: ``python -m bench.scale.orders``.

``follow``: a hundred orders at one broker, while three nodes with a process each crawl and follow
another broker. The time counts from when the order is in the store until the last process has
reported that it follows it; then comes the time until the number of processes has changed. The
target's log shows whether anything was fetched twice, or too soon.

``rate``: ``requests_per_second=20`` at a node with 1, 2 and 4 processes that could send many more.
The target's log shows how many came in each second of a minute.

``--short``: twenty orders, and ten seconds for each number of processes. A full run takes five
minutes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.rig.options import parser
from tests.support import oracle
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until
from tests.support.web import Web, WebSpec

NODES = 3
RATE = 20
DELAY = 0.5
LOOK_SECONDS = 0.005


class Nodes:
    """Two brokers, and workers that know the second; all share a store and a Redis."""

    def __init__(self, stack: ExitStack, folder: Path, nodes: int, **settings: str) -> None:
        redis = RedisServer(folder / "redis").start()
        stack.callback(redis.stop)
        shared = {"store": f"sqlite:///{folder / 'content.sqlite'}", "log_level": "warning"}
        self.brokers = []
        for name in ("a", "b"):
            broker = System(folder / name, [redis.url], worker_id=name, **shared)
            stack.enter_context(broker).start_broker()
            self.brokers.append(broker)
        self.workers = []
        for number in range(nodes):
            address = f"http://127.0.0.1:{self.brokers[1].port}"
            worker = System(
                folder / f"w{number}", [redis.url], worker_id=f"w{number}", broker=address,
                **{**shared, **settings},
            )  # fmt: skip
            stack.enter_context(worker).start_worker()
            self.workers.append(worker)
        count = nodes * int(settings["processes"])
        wait_until(lambda: len(self.told()) == count, 60, "all are members")

    def told(self) -> dict[str, dict[str, Any]]:
        """Return id → the last report of each process of a worker, from the broker that it
        follows."""
        found = self.brokers[1].call("GET", "/v1/members")["members"]
        return {
            one["id"]: one for one in found if one["kind"] == "worker" and one["status"] == "here"
        }

    def order(self, member: str, **options: object) -> int:
        """Give the order at the first broker; return when it was in the store (Unix ms)."""
        body = {"member": member, "options": options, "by": "bench"}
        return int(self.brokers[0].call("PATCH", "/v1/orders", body)["at_ms"])

    def keeps(self, option: str, value: object) -> int:
        """Return when the last process reported that it keeps a value (Unix ms); 0 until then."""
        told = self.told().values()
        if any(one["facts"]["options"][option]["value"] != value for one in told):
            return 0
        return max(one["heard_ms"] for one in told)


def soon(holds: Callable[[], int], seconds: float, what: str) -> int:
    """Wait until ``holds`` returns something other than 0, and return it."""
    until = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK_SECONDS)
    return found


def follow(folder: Path, orders: int) -> bool:
    """Print how long it took until orders were followed; return whether that is good enough."""
    spec = WebSpec(hosts=90, pages=90 * 1000, fan_out=90, cross_links=0, answer_seconds=0.05)
    with ExitStack() as stack:
        nodes = Nodes(stack, folder, NODES, processes="1", greenlets="60")
        web = stack.enter_context(Web(spec, folder / "web.log"))
        nodes.brokers[0].crawl(web.seeds(), scope="any", delay=DELAY, depth=99)
        wait_until(lambda: web.requests() > 300, 60, "it is under way")
        took = []
        for number in range(orders):
            greenlets = 20 + number % 2 * 40 + number % 7
            at_ms = nodes.order("*", greenlets=greenlets)
            heard = soon(lambda n=greenlets: nodes.keeps("greenlets", n), 20, "it is followed")  # type: ignore[misc]
            took.append((heard - at_ms) / 1000)
        processes = []
        for count in (2, 4, 1):
            began = time.monotonic()
            nodes.order("w0", processes=count)
            wait_until(lambda n=count: len(nodes.workers[0].children()) == n, 20, "processes")  # type: ignore[misc]
            processes.append(time.monotonic() - began)
        nodes.order("*", drain=True)
        drained = wait_until(
            lambda: nodes.keeps("drain", True) and not nodes.brokers[0].stats()["leased"],
            20, "all is handed back",
        )  # fmt: skip
        retries = nodes.brokers[0].stats()["retries"]
        pages = Counter(
            (hit.address, hit.target) for hit in web.hits() if hit.target != "/robots.txt"
        )
        again = sum(count - 1 for count in pages.values())
        impolite = len(oracle.impolite(web.hits(), DELAY))
    p99 = sorted(took)[max(0, -(-99 * len(took) // 100) - 1)]
    print(
        f"{orders} orders at {NODES} nodes that crawl: followed by all processes after "
        f"{statistics.median(took) * 1000:.0f} ms (median), {p99 * 1000:.0f} ms (p99), "
        f"{max(took) * 1000:.0f} ms (most)"
    )
    print(f"processes of a node 1 → 2 → 4 → 1: {', '.join(f'{one:.2f} s' for one in processes)}")
    print(
        f"{len(pages):,} pages; fetched twice: {again}, too soon: {impolite}, retries: {retries}, "
        f"no lease left {drained:.1f} s after a drain"
    )
    return p99 <= 1.0 and not (again or impolite or retries)


def rate(folder: Path, seconds: int) -> bool:
    """Print how many requests came each second; return whether that is what was ordered."""
    kept = True
    for processes in (1, 2, 4):
        counts = seconds_of(folder / f"rate-{processes}", processes, seconds)
        mean = statistics.mean(counts)
        print(
            f"{RATE} requests a second, {processes} process(es): {mean:.2f} a second over "
            f"{seconds} s, {min(counts)} to {max(counts)} in each",
            flush=True,
        )
        kept &= abs(mean - RATE) <= 1
    return kept


def seconds_of(folder: Path, processes: int, seconds: int) -> list[int]:
    """Return the requests in each second at a node with this order."""
    spec = WebSpec(hosts=60, pages=60 * 200, fan_out=60, cross_links=0)
    with ExitStack() as stack:
        nodes = Nodes(stack, folder, 1, processes=str(processes))
        web = stack.enter_context(Web(spec, folder / "web.log"))
        nodes.order("w0", requests_per_second=RATE)
        soon(lambda: nodes.keeps("requests_per_second", RATE), 20, "it is followed")
        nodes.brokers[0].crawl(web.seeds(60), scope="any", delay=0, depth=99)
        wait_until(lambda: web.requests() > RATE, 60, "it is under way")
        time.sleep(seconds + 1)
        arrived = sorted(hit.arrived for hit in web.hits())
    begin = arrived[RATE]
    return [sum(begin + n <= at < begin + n + 1 for at in arrived) for n in range(seconds)]


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if all figures are good enough."""
    words = parser("bench.scale.orders", __doc__, "a minute instead of five")
    words.add_argument("what", nargs="?", choices=("follow", "rate"), help="one of them")
    options = words.parse_args(arguments)
    good = True
    with tempfile.TemporaryDirectory(prefix="orders-") as name:
        if options.what in (None, "follow"):
            good &= follow(Path(name) / "follow", 20 if options.short else 100)
        if options.what in (None, "rate"):
            good &= rate(Path(name), 10 if options.short else 60)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
