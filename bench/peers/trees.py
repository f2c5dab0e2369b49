"""What a change costs: CPU time a page of two checkouts, side by side on one core.

``python -m bench.peers.trees OLD NEW [synthetic|documentation]`` names two folders, each with its
own ``.venv`` (``make setup`` in each); one folder twice shows how exact it is.

Both crawl at the same time, each with a broker, a worker process and a Redis of its own. The two
worker processes share a core, all others share another: when the machine gets slower, this affects
both. CPU is that of all processes of a tree from the moment its crawl is made until it is done,
without their start. Hosts are exchanged from round to round, and so is the order of the starts.
Ratios are of one round, and the median of the rounds counts. Options of the crawls are the defaults
of each tree, except the delay, which is none, and the connections to a host.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bench.peers.crawls import CONNECTIONS, TIMEOUT_SECONDS, ServedSite, redis_on, served
from bench.rig.options import parser
from bench.rig.record import shown
from bench.rig.sites import DOCUMENTATION, SYNTHETIC
from tests.support.system import System

SITES = {site.name: site for site in (SYNTHETIC, DOCUMENTATION)}
HOSTS = 3
ROUNDS = 6
PARTS = ("worker", "broker", "redis")
_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Spent:
    """The costs of one crawl: CPU by part (ms a page), and memory of its worker process (MB)."""

    cpu: dict[str, float]
    memory: float

    @property
    def all_cpu(self) -> float:
        """Return the CPU of all processes, ms a page."""
        return sum(self.cpu.values())


Pair = tuple[Spent, Spent]
"""The costs of the old tree and of the new one, in one round."""


class Tree:
    """A checkout's broker, worker process and Redis; made by :func:`running`."""

    def __init__(self, system: System, redis: psutil.Process) -> None:
        self.settle = system.settle
        self.system = system
        self.others = {"redis": redis}
        """Processes that are not children of broker or worker, by part."""
        self._before: dict[str, float] = {}

    def crawl(self, seeds: Sequence[str], options: Mapping[str, Any]) -> None:
        """Start a crawl of whole hosts. Raises HTTPError if its broker refuses it."""
        self._before = self._cpu()
        asked = {
            "name": "test",
            "seeds": list(seeds),
            "delay": 0,
            "slots": CONNECTIONS // len(seeds),
            **options,
        }
        self.system.call("POST", "/v1/crawls", asked)

    def spent(self, pages: int) -> Spent | None:
        """Return the costs; None while the crawl of the tree is not done.

        Raises RuntimeError if the crawl has stored another number of pages.
        """
        stats = self.system.stats()
        if stats["state"] != "done":
            return None
        after = self._cpu()
        if stats["stored"] != pages:
            raise RuntimeError(f"{stats['stored']} of {pages} pages: {self.system.tail('worker')}")
        cpu = {part: (after[part] - self._before[part]) / pages * 1000 for part in after}
        memory = sum(child.memory_info().rss for child in self.system.children())
        return Spent(cpu, memory / 1e6)

    def _cpu(self) -> dict[str, float]:
        times = {part: process.cpu_times() for part, process in self.others.items()}
        spent = {part: one.user + one.system for part, one in times.items()}
        return {**self.system.cpu_seconds(), **spent}


Start = Callable[[], AbstractContextManager[Tree]]


@contextmanager
def running(checkout: Path, folder: Path, on: ServedSite, **settings: str) -> Iterator[Tree]:
    """Start the processes of a checkout, with these settings; stop them when the block ends."""
    with (
        redis_on(folder / "redis", on.other_cpu) as (server, redis),
        System(
            folder,
            [server.url],
            checkout=checkout,
            worker_cpu=on.crawler_cpu,
            broker_cpu=on.other_cpu,
            log_level="warning",
            hooks="",  # a setting that older trees do not know
        ) as system,
    ):
        system.variables |= {name.upper(): value for name, value in settings.items()}
        yield Tree(system.start(), redis)


def one_round(
    on: ServedSite, trees: Sequence[Path], options: Mapping[str, Any], folder: Path, number: int
) -> Pair:
    """Crawl with both trees at the same time. Only the crawl of the new tree, the second, gets
    ``options``."""
    starts = [
        partial(running, tree, folder / which, on)
        for tree, which in zip(trees, ("old", "new"), strict=True)
    ]
    return side_by_side(on, starts, ({}, options), number)


def side_by_side(
    on: ServedSite, starts: Sequence[Start], options: Sequence[Mapping[str, Any]], number: int
) -> Pair:
    """Start both of ``starts``, let them crawl at the same time, and return their costs.

    Each crawl has its own ``options``.
    """
    seeds = on.seeds(len(on.nginx.addresses))
    half = len(seeds) // 2
    halves = (seeds[:half], seeds[half:])[:: -1 if number % 2 else 1]
    found: dict[int, Spent] = {}
    with ExitStack() as stack:
        systems = [stack.enter_context(start()) for start in starts]
        for system in systems:
            system.settle()
        for at in (0, 1) if number % 4 < 2 else (1, 0):
            systems[at].crawl(halves[at], options[at])
        until = time.monotonic() + TIMEOUT_SECONDS
        while len(found) < len(systems):
            if time.monotonic() > until:
                raise RuntimeError(f"not done after {TIMEOUT_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)
            for at, system in enumerate(systems):
                one = None if at in found else system.spent(half * on.pages)
                if one is not None:
                    found[at] = one
    return found[0], found[1]


def table(pairs: Sequence[Pair], names: tuple[str, str] = ("old", "new")) -> list[str]:
    """Return lines with medians: old, new, and how much more the new one takes, with the least and
    the greatest value."""
    rows = [("CPU ms a page", [(old.all_cpu, new.all_cpu) for old, new in pairs])]
    rows += [
        (f"  {part}", [(old.cpu.get(part, 0.0), new.cpu.get(part, 0.0)) for old, new in pairs])
        for part in sorted(pairs[0][1].cpu, key=(*PARTS, *pairs[0][1].cpu).index)
    ]
    rows += [("memory of a worker, MB", [(old.memory, new.memory) for old, new in pairs])]
    lines = [f"{'':24}{names[0]:>9}{names[1]:>9}{'more':>8}"]
    for what, values in rows:
        more = [new / old - 1 if old else 0.0 for old, new in values]
        old, new = (statistics.median(column) for column in zip(*values, strict=True))
        between = f"  ({min(more):+.1%} to {max(more):+.1%})"
        lines.append(
            f"{what:24}{shown(old):>9}{shown(new):>9}{statistics.median(more):>+8.1%}{between}"
        )
    return lines


def option(text: str) -> tuple[str, Any]:
    """Return an option of a crawl, from NAME=VALUE; a value that is no JSON is text.

    Raises ValueError.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    words = parser("bench.peers.trees", __doc__)
    words.add_argument("old", type=Path, metavar="OLD")
    words.add_argument("new", type=Path, metavar="NEW")
    words.add_argument("site", nargs="?", default=SYNTHETIC.name, choices=SITES)
    words.add_argument("--rounds", type=int, default=ROUNDS)
    words.add_argument("--hosts", type=int, default=HOSTS, help="for each of the two")
    words.add_argument("--pages", type=int, help="of a host of the synthetic site")
    words.add_argument(
        "--with",
        dest="options",
        type=option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the new tree's crawl, such as traps=on",
    )
    given = words.parse_args(arguments)
    trees = [given.old.resolve(), given.new.resolve()]
    for tree in trees:
        if not (tree / ".venv" / "bin" / "python").exists():
            words.error(f"{tree} has no .venv: make setup there")
    site = SITES[given.site]
    if given.pages and site.pages:
        site = replace(site, pages=given.pages)
    pairs: list[Pair] = []
    with (
        tempfile.TemporaryDirectory() as name,
        served(site, 2 * given.hosts, Path(name) / "site") as on,
    ):
        print(f"{given.hosts} × {on.pages} {site.what}", flush=True)
        for number in range(given.rounds):
            folder = Path(name) / f"round{number}"
            old, new = one_round(on, trees, dict(given.options), folder, number)
            pairs.append((old, new))
            more = new.all_cpu / old.all_cpu - 1
            print(
                f"round {number + 1}: {old.all_cpu:.4f} {new.all_cpu:.4f} {more:+.1%}", flush=True
            )
    print(*table(pairs), sep="\n")


if __name__ == "__main__":
    main()
