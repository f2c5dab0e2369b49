"""``python -m bench.traps [SITE …]``: what share of a crawl goes to traps; 1 if a site fails.

Each site is served on loopback and crawled by the command. ``--traps off`` shows the same without
the detector, and ``--tree`` with the code of another checkout, which may lack the detector. The
folder of a failed site is kept. ``python -m bench.traps cost`` shows how much CPU the detector
takes: see :mod:`bench.traps.cost`.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.traps import cost
from bench.traps.crawl import Manner
from bench.traps.table import HEAD, TRIES, attempt, keep, line
from tests.support.checkout import ROOT


def main(arguments: Sequence[str]) -> int:
    """Crawl the named sites, or all; return the exit code: 0 if all hold."""
    if arguments[:1] == ["cost"]:
        return cost.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m bench.traps", description=__doc__)
    parser.add_argument(
        "sites", nargs="*", metavar="SITE", choices=[[], *TRIES], help=", ".join(TRIES)
    )
    parser.add_argument(
        "--traps", choices=("on", "off", ""), default="on",
        help="the crawls' option; '' for a tree that has none",
    )  # fmt: skip
    parser.add_argument("--requests", type=int, default=3000, help="pages of a site with traps")
    parser.add_argument("--bound", type=int, default=0, help="pages of a site without; 0: all")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", default="1", help="of all texts, addresses and links")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout that crawls")
    parser.add_argument("--keep", action="store_true", help="write bench/results/traps.json")
    given = parser.parse_args(arguments)
    manner = Manner(given.requests, given.traps, given.slots, given.processes, given.tree.resolve())
    began, results = time.monotonic(), []
    for name in given.sites or TRIES:
        folder = Path(tempfile.mkdtemp(prefix=f"traps-{name}-"))
        result = attempt(name, given.seed, folder, manner, given.bound)
        results.append(result)
        print(line(result), flush=True)
        if result.why_not:
            print(f"        logs and data: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n== traps\n{HEAD}", *(line(one).partition("\n")[0] for one in results), sep="\n")
    failed = [result.name for result in results if result.why_not]
    print(f"== {len(results) - len(failed)} of {len(results)} sites hold", flush=True)
    if given.keep:
        print(f"== {keep(results, manner, time.monotonic() - began)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
