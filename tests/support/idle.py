"""The costs of an idle system, and how fast it wakes."""

from __future__ import annotations

import time

import redis

from tests.support.site_server import SiteServer
from tests.support.system import System, wait_until

OWN_COMMANDS = frozenset({"info", "config|resetstat", "config", "client|setinfo", "hello"})
"""Commands of the measurement itself, and of its connections."""


def commands_by_name(client: redis.Redis) -> dict[str, int]:
    """Return the calls of each command since the last reset, also those of scripts."""
    stats = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): int(row["calls"]) for name, row in stats.items()}
    return {name: count for name, count in calls.items() if name not in OWN_COMMANDS}


def commands_during(client: redis.Redis, seconds: float) -> dict[str, int]:
    """Return the commands that others send within ``seconds``."""
    client.config_resetstat()
    time.sleep(seconds)
    return commands_by_name(client)


def seed_to_arrival(system: System, server: SiteServer, address: str, crawl: str = "test") -> float:
    """Seed ``/p/0`` of a new host; return the seconds from the acknowledgement until the page
    (after its robots.txt) arrives at the target.

    Return 0 if it arrives before the acknowledgement.
    """
    url = server.url("/p/0", address)
    reply = system.call("POST", f"/v1/crawls/{crawl}/urls", {"urls": [url]})
    acknowledged = time.monotonic()
    if reply["added"] != 1:
        raise AssertionError(f"seed not added: {reply}")

    def arrivals() -> list[float]:
        return [h.arrived for h in server.hits if h.address == address and h.target == "/p/0"]

    wait_until(arrivals, 10, f"{url} fetched", every=0.001)
    return max(0.0, arrivals()[0] - acknowledged)
