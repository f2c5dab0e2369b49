"""``make bench`` and ``make bench-full``: all benchmarks in order, then ``docs/benchmarks.md``.

``python -m bench.all [--short] [--lasting | NAME …]``. Benchmarks of long runs take their time, and
``make bench-lasting`` runs them. Each runs in a process of its own, since some patch the standard
library and others must not. If one fails or hangs, the others still run.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import document

ROOT = Path(__file__).resolve().parents[1]
SHORT_SECONDS, FULL_SECONDS = 600.0, 5400.0
"""After this time a benchmark counts as hanging; each takes much less."""
STOP_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="bench.all", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="without --lasting, all in under ten minutes"
    )
    parser.add_argument("--lasting", action="store_true", help="those of `make bench-lasting`")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(document.BENCHMARKS))
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(document.BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    began = time.monotonic()
    failed = []
    chosen = [one for one in document.BENCHMARKS if (one in document.LASTING) == options.lasting]
    for name in options.names or chosen:
        module, _ = document.BENCHMARKS[name]
        command = [sys.executable, "-m", module, *["--short"] * options.short]
        if run(command, SHORT_SECONDS if options.short else FULL_SECONDS):
            failed.append(name)
    document.main()
    print(f"== benchmarks took {time.monotonic() - began:,.0f} s", flush=True)
    for name in failed:
        print(f"== FAILED: {name} (see above)", file=sys.stderr, flush=True)
    return 1 if failed else 0


def run(command: Sequence[str], seconds: float) -> int:
    """Run one and return its exit status; after ``seconds`` interrupt it, so that it stops its
    processes."""
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        print(f"== interrupted after {seconds:,.0f} s", file=sys.stderr, flush=True)
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(STOP_SECONDS) or 1
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
