"""Host names of one address, and of many addresses, requested by three workers.

In :func:`one_address` three supervisors crawl 300 names of one address; one of them is killed
half-way. The address's own log must never show more requests in a second than its cap, except for
:data:`CLOCK_SECONDS` of error of the clocks. :func:`many_addresses` crawls 300 names of 300
addresses with caps and without: caps that do not bind must cost almost nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.attacks.rig import Result, Say
from tests.attacks.servers import Hosts, good
from tests.support.dns_server import DnsServer, Zone
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until

NAMES = 300
RATE = 20
CLOCK_SECONDS = 0.02
SECONDS = 60.0
PLAIN_SECONDS = 15.0
LEAST_SHARE = 0.97
CAPS = {"address_rate": 1000, "address_connections": 100, "domain_rate": 2000}


def busiest(times: list[float], window: float) -> int:
    """Return the most arrivals within any window."""
    times = sorted(times)
    most = begin = 0
    for end, at in enumerate(times):
        while times[begin] <= at - window:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def one_address(folder: Path, say: Say) -> Result:
    """Crawl many names of one address by three workers; see the module's text."""
    result = Result("one-address", f"{NAMES} names of one address, three workers, one killed")
    names = [f"n{n}.of-one.test" for n in range(NAMES)]
    with ExitStack() as stack:
        server = stack.enter_context(Hosts(good(), log=True))
        zone = {"of-one.test": Zone(("127.40.0.1",))}
        systems = _workers(stack, folder, zone, 3)
        first = systems[0]
        seeds = [f"http://{name}:{server.port}/0" for name in names]
        first.crawl(seeds, delay=0.05, address_rate=RATE, domain_rate=0)
        began = time.monotonic()
        time.sleep(SECONDS / 2)
        systems[1].kill("worker")
        say(f"killed a worker after {len(server.arrivals)} requests")
        time.sleep(SECONDS / 2)
        arrivals = list(server.arrivals)
        result.rate = len(arrivals) / (time.monotonic() - began)
        most = busiest(arrivals, 1 - CLOCK_SECONDS)
        late = [at for at in arrivals if at > began + SECONDS / 2 + 10]
        result.notes = {
            "cap": RATE,
            "most in a second": most,
            "requests": len(arrivals),
            "a second, ten seconds after the kill and later": round(
                len(late) / (SECONDS / 2 - 10), 1
            ),
        }
        if most > RATE:
            result.why_not.append(f"{most} requests within a second, the cap is {RATE}")
        if not late or result.rate < RATE / 2:
            result.why_not.append(f"only {result.rate:.1f} requests a second")
    return result


def many_addresses(folder: Path, say: Say) -> Result:
    """Crawl names of many addresses; see the module's text. Runs with and without caps alternate,
    twice each."""
    result = Result("many-addresses", f"{NAMES} names of {NAMES} addresses, caps on against off")
    addresses = {
        f"n{n}.d{n}-many.example": (f"127.41.{n // 250}.{n % 250 + 1}",) for n in range(NAMES)
    }
    rates: dict[str, list[float]] = {"on": [], "off": []}
    with ExitStack() as stack:
        server = stack.enter_context(Hosts(good()))
        (system,) = _workers(stack, folder, {"example": Zone(addresses)}, 1)
        seeds = [f"http://{name}:{server.port}/0" for name in addresses]
        for number, how in enumerate(["off", "on", "off", "on"]):
            caps = CAPS if how == "on" else {}
            crawl = f"run-{number}"
            system.crawl(seeds, crawl, delay=0.5, **caps)
            wait_until(lambda crawl=crawl: _stored(system, crawl) >= NAMES, 30, "all are known")
            before, began = sum(server.asked.values()), time.monotonic()
            time.sleep(PLAIN_SECONDS)
            rate = (sum(server.asked.values()) - before) / (time.monotonic() - began)
            say(f"caps {how}: {rate:.0f} pages/s")
            rates[how].append(rate)
            system.call("DELETE", f"/v1/crawls/{crawl}")
            time.sleep(2)
    result.rate = sum(rates["on"]) / 2
    result.share = result.rate / (sum(rates["off"]) / 2)
    result.notes = {how: [round(rate, 1) for rate in found] for how, found in rates.items()}
    if result.share < LEAST_SHARE:
        result.why_not.append(f"with caps {result.share:.1%} of the rate")
    return result


def _stored(system: System, crawl: str) -> int:
    return int(system.stats(crawl)["stored"])


def _workers(stack: ExitStack, folder: Path, zones: dict[str, Zone], count: int) -> list[System]:
    """Return ``count`` systems, each with a worker: a supervisor with one child. Only the first
    system has a broker."""
    names = stack.enter_context(DnsServer(zones))
    redis = RedisServer(folder / "redis").start()
    stack.callback(redis.stop)
    first = System(folder, [redis.url], dns_servers=names.address, worker_id="w0")
    stack.enter_context(first)
    first.start()
    systems = [first]
    for number in range(1, count):
        other = System(
            folder / f"w{number}", [redis.url], dns_servers=names.address,
            broker=first.variables["BROKER"], worker_id=f"w{number}",
        )  # fmt: skip
        stack.enter_context(other)
        other.start_worker()
        systems.append(other)
    return systems


ROWS: dict[str, Callable[[Path, Say], Result]] = {
    "one-address": one_address,
    "many-addresses": many_addresses,
}
