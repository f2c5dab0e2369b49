"""The cost of observing a crawl: CPU a page with members, logger and metrics, and without.

``python -m bench.peers.seen [--pairs N]``. Pairs are those of :mod:`bench.peers.trees`: both crawl
at the same time, on the same cores, each with a broker, a worker process and a Redis of its own,
and exchange hosts from pair to pair.

*On* is this checkout as it is, with a logger, and with broker and worker scraped every
:data:`SCRAPE_SECONDS`; the CPU of the logger counts. No setting turns members off. So *off* is a
copy of this checkout without :data:`OUT`: no process reports itself, follows orders or learns of
loggers, no coordinator takes samples, and nothing is counted for metrics; there is no logger, and
nobody scrapes. After each crawl both are checked to be in the right state. The result is the ratio
of the medians. Ten pairs take some four minutes; nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPException
from pathlib import Path

import psutil

from bench.peers.crawls import ServedSite, served
from bench.peers.trees import Pair, Tree, running, side_by_side, table
from bench.rig.sites import SYNTHETIC
from tests.support.checkout import ROOT
from tests.support.logger_process import LoggerProcess
from tests.support.ports import free_port
from tests.support.system import wait_until

PAIRS, HOSTS, PAGES = 10, 3, 2000
MOST_RATIO = 1.02
SCRAPE_SECONDS = 5.0
JOINED_SECONDS, SENT_SECONDS = 20.0, 60.0
KINDS = ["broker", "logger", "worker"]

OUT: Mapping[str, Sequence[tuple[str, str]]] = {
    "worker/orders/following.py": [
        (
            "                reply = self._call(self._asked(wait))\n",
            "                gevent.sleep(3600.0)\n                continue\n",
        ),
        ("    def leave(self) -> None:\n", "    def leave(self) -> None:\n        return\n"),
    ],
    "worker/child.py": [
        ("            with self._meter.running():\n", "            if True:\n"),
    ],
    "worker/metrics/tallies.py": [
        ("        self._values[slot] += amount\n", "        return\n"),
        ("        self._values[slot + bisect_left(buckets, value)] += 1.0\n", "        return\n"),
    ],
    "broker/tasks/membership.py": [
        (
            "self._greenlets = [gevent.spawn(self._service.members.run), gevent.spawn(self._run)]",
            "self._greenlets = []",
        ),
    ],
    "broker/__main__.py": [("            coordinator.start()\n", "")],
}
"""File → pieces of code, each once in it, and their replacements."""


def take_out(folder: Path) -> None:
    """Copy this checkout to ``folder`` without :data:`OUT`, with the present Python.

    Raises ValueError if a piece of code has changed.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # the package consists of links
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    for name, pieces in OUT.items():
        text = (folder / name).read_text()
        for piece, without in pieces:
            if text.count(piece) != 1:
                raise ValueError(f"{name} has this {text.count(piece)} times: {piece}")
            text = text.replace(piece, without)
        (folder / name).write_text(text)
    (folder / ".venv").symlink_to(sys.prefix)


@contextmanager
def scraping(urls: Sequence[str]) -> Iterator[list[int]]:
    """Ask for metrics as long as the block runs; yield the sizes of the answers.

    Raises RuntimeError after the block if a request for metrics failed: later requests were not
    made.
    """
    found, failed, over = list[int](), list[Exception](), threading.Event()

    def scrape() -> None:
        try:
            while not over.wait(SCRAPE_SECONDS / 2):
                for url in urls:
                    with urllib.request.urlopen(url, timeout=SCRAPE_SECONDS) as answer:
                        found.append(len(answer.read()))
                over.wait(SCRAPE_SECONDS / 2)
        except (OSError, HTTPException) as error:
            failed.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
    if failed:
        raise RuntimeError(f"scraping failed after {len(found)} answers") from failed[0]


@contextmanager
def seen(folder: Path, on: ServedSite) -> Iterator[Tree]:
    """Run this checkout with all observers. Raises RuntimeError if it was not observed."""
    metrics = f"127.0.0.1:{free_port()}"
    with running(ROOT, folder, on, log_level="info", metrics_bind=metrics) as tree:
        broker = tree.system.variables["BROKER"]
        logger = LoggerProcess(folder / "logger", broker=broker)
        try:
            process = psutil.Process(logger.spawn().pid)
            if on.other_cpu is not None:
                process.cpu_affinity([on.other_cpu])
            tree.others["logger"] = process
            wait_until(lambda: _members(tree) == KINDS, JOINED_SECONDS, "all are members")
            wait_until(lambda: int(logger.health()["taken"]) > 0, SENT_SECONDS, "lines come")
            with scraping([f"{broker}/metrics", f"http://{metrics}/metrics"]) as scraped:
                yield tree
            if not scraped:
                raise RuntimeError("nobody scraped")
        finally:
            logger.stop()


@contextmanager
def unseen(checkout: Path, folder: Path, on: ServedSite) -> Iterator[Tree]:
    """Run the copy that :func:`take_out` made. Raises RuntimeError if it was observed
    nevertheless."""
    with running(checkout, folder, on, log_level="info") as tree:
        yield tree
        if _members(tree):
            raise RuntimeError(f"it knows members: {_members(tree)}")


def _members(tree: Tree) -> list[str]:
    """Return the kinds of present and former members."""
    found = tree.system.call("GET", "/v1/members?gone=true")["members"]
    return sorted(one["kind"] for one in found)


def ratio(pairs: Sequence[Pair]) -> float:
    """Return the CPU a page: the median with all observers, divided by that without."""
    without = statistics.median(off.all_cpu for off, _ in pairs)
    return statistics.median(on.all_cpu for _, on in pairs) / without


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if it costs too much."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.seen",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--hosts", type=int, default=HOSTS, help="for each of the two")
    parser.add_argument("--pages", type=int, default=PAGES, help="of a host")
    given = parser.parse_args(arguments)
    os.environ["PYTHONPATH"] = "src"  # each runs in its own checkout, and must not import the other
    pairs: list[Pair] = []
    with (
        tempfile.TemporaryDirectory() as name,
        served(replace(SYNTHETIC, pages=given.pages), 2 * given.hosts, Path(name) / "site") as on,
    ):
        copy = Path(name) / "off"
        take_out(copy)
        print(f"{given.hosts} × {on.pages} {SYNTHETIC.what}", flush=True)
        for number in range(given.pairs):
            folder = Path(name) / f"pair{number}"
            starts = [partial(unseen, copy, folder / "off", on), partial(seen, folder / "on", on)]
            off, with_all = side_by_side(on, starts, ({}, {}), number)
            pairs.append((off, with_all))
            print(
                f"pair {number + 1}: {off.all_cpu:.4f} {with_all.all_cpu:.4f} ms "
                f"{with_all.all_cpu / off.all_cpu - 1:+.1%}",
                flush=True,
            )
            shutil.rmtree(folder)
    print(*table(pairs, ("off", "on")), sep="\n")
    found = ratio(pairs)
    print(f"ratio of the medians: {found:.4f} (at most {MOST_RATIO})")
    return 0 if found <= MOST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
