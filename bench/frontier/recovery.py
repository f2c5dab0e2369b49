"""The cost of a restart of Redis, by the number of rows that wait in SQL:
``-m bench.frontier.recovery [--short]``.

That many URLs wait in the overflow, beyond the memory budget; they were put there long ago by the
store's clock. Then a thousand more are admitted, and Redis is killed and started again. Its
recovery has the same window each time, so it has to take as long with a million waiting rows as
with ten thousand.

The time counts from the first answer of Redis until the frontier owes it nothing; each case is
measured three times. The rest that hosts get after that (the longest lease and request, and twelve
seconds) is the same for all, and is left out. ``--short`` ends at a hundred thousand rows. Full
runs take ten minutes, short ones one.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterable, Iterator, Sequence  # noqa: E402
from contextlib import suppress  # noqa: E402
from itertools import islice  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
import psutil  # noqa: E402

from bench import document  # noqa: E402
from bench.rig.options import parser  # noqa: E402
from bench.rig.record import Cell, Record, spread  # noqa: E402
from greencrawl.broker.frontier import Frontier  # noqa: E402
from greencrawl.broker.frontier.nodes import keys  # noqa: E402
from greencrawl.schema import log  # noqa: E402
from greencrawl.schema.clock import monotonic  # noqa: E402
from greencrawl.schema.errors import Unavailable  # noqa: E402
from greencrawl.schema.records import Admission, CrawlOptions  # noqa: E402
from greencrawl.store import open_store  # noqa: E402
from greencrawl.store.base import MARGIN, Store  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402

NAME = "recovery"
ROWS = (10_000, 100_000, 1_000_000)
WINDOW = 1000
"""URLs that are admitted before each kill."""
ROUNDS = 3
HOSTS = 5000
TOGETHER = 8192
LIMIT_SECONDS = 120.0
"""The limit for one recovery; the old code took half a minute for a million rows."""


def urls(first: int, count: int) -> Iterator[Admission]:
    """Return URLs of many hosts, numbered from ``first`` on."""
    for n in range(first, first + count):
        host = n % HOSTS
        yield Admission(f"http://h{host}.example{host}.org/path/to/page{n}", depth=1)


class RecoveryRig:
    """A Redis, a store, and a broker's frontier whose only room is the overflow."""

    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder / "redis").start()
        self.store: Store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
        self.frontier = Frontier(
            [self.server.url], self.store, host_bytes=1, lease_seconds=1, request_seconds=1,
            create=True,
        )  # fmt: skip
        self.crawl = self.store.put_crawl("waits", CrawlOptions(scope="any", delay=0), ())
        self.frontier.put_crawl(self.crawl)
        self.frontier.start()
        self.admitted = 0

    def __enter__(self) -> RecoveryRig:
        return self

    def __exit__(self, *_: object) -> None:
        self.frontier.stop()
        self.store.close()
        self.server.stop()

    def admit(self, count: int) -> None:
        """Admit this many more URLs."""
        items: Iterable[Admission] = urls(self.admitted, count)
        while some := list(islice(items, TOGETHER)):
            self.frontier.admit(self.crawl.id, some)
        self.admitted += count

    def age(self) -> None:
        """Advance the store's clock until the admitted URLs are outside of every window."""
        for _ in range(MARGIN + 3):
            self.frontier.tick(self.store.clock())
            self.store.tick()

    def overflow(self) -> int:
        """Return how many rows wait in the store."""
        return int(self.frontier.stats(self.crawl).overflow)

    def restart(self) -> dict[str, float]:
        """Kill Redis, start it, and wait until nothing is owed to it; return the costs."""
        self.server.kill()
        began = monotonic()
        self.server.start()
        up = monotonic()
        assert self.server.process is not None
        redis = psutil.Process(self.server.process.pid)
        ours, theirs = time.process_time(), _cpu(redis)
        while not self._open():
            if monotonic() - up > LIMIT_SECONDS:
                raise SystemExit(f"not recovered within {LIMIT_SECONDS:g} s")
            gevent.sleep(0.005)
        seconds = monotonic() - up
        gevent.sleep(1.0)  # the frontier may still work after it is open: this counts as well
        return {
            "seconds": seconds,
            "redis_itself": up - began,
            "broker_cpu": time.process_time() - ours,
            "redis_cpu": _cpu(redis) - theirs,
        }

    def _open(self) -> bool:
        with suppress(Unavailable):
            counted = self.frontier.scan(self.crawl.id) is not None
            owed = self.frontier.nodes[0].command("HEXISTS", keys.OWNER, "owed")
            return counted and not owed
        return False


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(rows: int) -> list[dict[str, float]]:
    """Measure three restarts with this many rows in the overflow."""
    found = []
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder, RecoveryRig(Path(folder)) as on:
        began = monotonic()
        on.admit(rows)
        print(f"   {on.overflow():,} rows wait after {monotonic() - began:.0f} s", flush=True)
        for _ in range(ROUNDS):
            on.age()
            on.admit(WINDOW)
            found.append(on.restart())
            print(f"   {found[-1]['seconds']:.3f} s", flush=True)
        if (left := on.overflow()) < rows:
            raise SystemExit(f"of {rows:,} rows only {left:,} wait afterwards")
    return found


def report(record: Record, found: dict[int, list[dict[str, Any]]]) -> None:
    """Add figures and tables."""
    rows: list[list[Cell]] = []
    for count, runs in found.items():
        columns = ("seconds", "broker_cpu", "redis_cpu", "redis_itself")
        rows.append([count, *(spread([run[name] for run in runs]) for name in columns)])
    record.table(
        f"Seconds of a recovery with {WINDOW:,} URLs in its window",
        ["rows that wait", "recovery", "CPU of the broker", "CPU of Redis",
         "before: Redis reads its file"],
        rows,
    )  # fmt: skip
    middle = [statistics.median(run["seconds"] for run in runs) for runs in found.values()]
    record.figure("most_over_fewest", middle[-1] / middle[0])
    record.runs("restarts", {str(count): runs for count, runs in found.items()})


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if all required figures were reached."""
    options = parser("bench.frontier.recovery", __doc__, "a minute instead of ten").parse_args(
        arguments
    )
    log.configure("bench", "error")
    record = Record(NAME, "a restart of Redis, by what waits in SQL", options.short)
    record.note(
        "Redis (append-only file) is killed and started again. The broker is this process; its"
        " store is a SQLite file. Redis loses nothing, but it may have lost a window of"
        f" {MARGIN} steps of the store's clock. Its recovery reads only what happened in that"
        " window. CPU is counted for one second longer than the recovery itself."
    )
    found = {}
    for rows in ROWS[:-1] if options.short else ROWS:
        print(f"\n== {rows:,} rows", flush=True)
        found[rows] = measure(rows)
    report(record, found)
    record.finish()
    return document.missed(NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
