"""Resident memory of one worker process with 300 greenlets busy on slow hosts.

``python -m bench.scale.memory``
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from contextlib import suppress  # noqa: E402
from pathlib import Path  # noqa: E402

from bench.rig.report import Report  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402
from tests.support.site_server import SiteServer  # noqa: E402
from tests.support.sites import graph_site  # noqa: E402
from tests.support.system import System  # noqa: E402

GREENLETS = 300
MAX_MB = 150
SECONDS = 40
PAGE_BYTES = 20_000


def main() -> int:
    """Run it, print the results, and return the exit status."""
    report = Report("memory", f"a worker with {GREENLETS} greenlets")
    addresses = tuple(f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(GREENLETS))
    site = graph_site(1000, slow_every=1, slow=1.0, filler=PAGE_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer(Path(folder) / "redis").start()
        try:
            with (
                SiteServer(site, addresses) as server,
                System(Path(folder), [redis.url], greenlets=str(GREENLETS)) as system,
            ):
                system.start().crawl(
                    [server.url("/p/0", address) for address in addresses], delay=0
                )
                _sample(report, system, server)
        finally:
            redis.stop()
    return report.finish()


def _sample(report: Report, system: System, server: SiteServer) -> None:
    child = system.children()[0]
    busiest = 0
    peak = busy_peak = 0.0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        rss = child.memory_info().rss / 1e6
        busiest = max(busiest, server.in_flight)
        peak = max(peak, rss)
        if server.in_flight >= 0.95 * GREENLETS:
            busy_peak = max(busy_peak, rss)
        time.sleep(0.05)
    report.figure("requests in flight, most at once", busiest)
    report.figure("pages answered", len(server.hits))
    report.figure("resident, peak", peak, "MB")
    report.figure("resident while 95 % of the greenlets waited for an answer", busy_peak, "MB")
    with suppress(AttributeError, OSError):
        report.figure("unshared, at the end", child.memory_full_info().uss / 1e6, "MB")
    report.claim(f"{GREENLETS} greenlets were busy", busiest >= 0.95 * GREENLETS)
    report.claim(f"under {MAX_MB} MB resident", 0 < peak < MAX_MB)


if __name__ == "__main__":
    sys.exit(main())
