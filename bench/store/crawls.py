"""Memory over two hundred crawls, one after another: ``python -m bench.store.crawls [--short]``.

A broker and a worker process crawl two hundred small sites of four hosts each. Every site is new,
and a crawl has two hundred pages that lead to some six thousand URLs. The benchmark measures the
resident memory of both after each number of crawls, and the growth for each crawl. A worker keeps
data of its last crawls, up to a bound that it reaches within the first hundred; so the figure is
the growth in the second hundred. The size goes up and down by some 5 MB, so each value is the
median after the last ten crawls.

``--short`` is a quarter of the pages. Full runs take five minutes, short ones three.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench import document
from bench.rig.options import parser
from bench.rig.record import Cell, Record, draw
from bench.rig.resident import resident_mb
from bench.rig.web import Spec, Web
from tests.support.redis_server import RedisServer
from tests.support.system import System

NAME = "crawls"
CRAWLS = 200
LAST = 10
"""Number of last crawls: a size is the median of the sizes after these crawls."""
HOSTS = 4
PAGES = 200
FRESH = 30
"""New links of a page."""
CRAWL_SECONDS = 60.0
"""A crawl that takes longer hangs."""
PARTS = ("worker", "broker", "Redis")


def measure(folder: Path, crawls: int, pages: int) -> list[dict[str, float]]:
    """Return the MB of each part, and all seconds so far, after each crawl."""
    found = []
    spec = Spec(hosts=HOSTS * crawls, fresh=FRESH)
    redis = RedisServer(folder / "redis").start()
    try:
        with (
            Web(folder / "web", spec) as web,
            System(folder, [redis.url], log_level="warning") as system,
        ):
            system.start()
            assert system.broker is not None
            assert redis.process is not None
            parts = {
                "worker": system.children(),
                "broker": [psutil.Process(system.broker.pid)],
                "Redis": [psutil.Process(redis.process.pid)],
            }
            began = time.monotonic()
            for number in range(crawls):
                seeds = [web.url(number * HOSTS + host) for host in range(HOSTS)]
                name = f"crawl{number}"
                system.crawl(seeds, name, delay=0, slots=4, max_pages=pages)
                system.wait_done(CRAWL_SECONDS, name)
                stored = system.stats(name)["stored"]
                if stored != pages:
                    raise SystemExit(f"{name} has {stored} pages, not {pages}")
                found.append({**resident_mb(parts), "seconds": time.monotonic() - began})
                if number + 1 in marks(crawls):
                    print(f"   after {number + 1}: {found[-1]}", flush=True)
    finally:
        redis.stop()
    return found


def marks(crawls: int) -> tuple[int, int, int]:
    """Return after how many crawls memory is shown."""
    return crawls // 10, crawls // 2, crawls


def size(found: Sequence[dict[str, float]], part: str, crawls: int) -> float:
    """Return the MB after this many crawls."""
    return statistics.median(one[part] for one in found[crawls - LAST : crawls])


def growth(found: Sequence[dict[str, float]], part: str) -> tuple[float, float]:
    """Return the growth in MB a crawl: in the first half (without its first fifth), and in the
    second half."""
    tenth, half, whole = marks(len(found))
    mb = {crawls: size(found, part, crawls) for crawls in (tenth, half, whole)}
    return (mb[half] - mb[tenth]) / (half - tenth), (mb[whole] - mb[half]) / (whole - half)


def report(record: Record, found: list[dict[str, float]]) -> None:
    """Add figures and tables."""
    shown = marks(len(found))
    rows: list[list[Cell]] = [
        [part, *(size(found, part, n) for n in shown), *growth(found, part)] for part in PARTS
    ]
    record.table(
        "Resident MB after so many crawls, and growth a crawl",
        ["of", *map(str, shown), f"{shown[0]} to {shown[1]}", f"{shown[1]} to {shown[2]}"],
        rows,
    )
    record.figure("growth_mb", max(growth(found, part)[1] for part in ("worker", "broker")))
    record.runs("after each crawl", found)
    figure = draw(7, 3.2)
    axes = figure.add_subplot(1, 1, 1)
    for part in PARTS:
        axes.plot(range(1, len(found) + 1), [one[part] for one in found], label=part)
    axes.set(xlabel="crawls", ylabel="resident MB", ylim=(0, None))
    axes.legend(fontsize=7)
    record.plot("memory", figure, "Memory of the processes after each crawl")


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if all required figures were reached."""
    options = parser("bench.store.crawls", __doc__, "a quarter of the pages").parse_args(arguments)
    title = "memory over two hundred crawls"
    pages = PAGES // 4 if options.short else PAGES
    record = Record(NAME, title, options.short, packages=("matplotlib",))
    record.note(
        f"Each crawl has {pages} pages of 20 KB with 40 links, {FRESH} of them new, from {HOSTS}"
        " hosts that no crawl had before; one worker process. Redis keeps the waiting URLs of a"
        " crawl that ended at its limit until the crawl is deleted."
    )
    with tempfile.TemporaryDirectory(prefix="crawls-") as folder:
        report(record, measure(Path(folder), CRAWLS, pages))
    record.finish()
    return document.missed(NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
