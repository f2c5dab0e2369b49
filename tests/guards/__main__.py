"""``make guards``: remove one guard after the other from a copy, and check that a test fails.

A state machine has five runs of 25 examples to find it, a single test one run. Code that breaks
down without its guard proves nothing: that is WRONG, and the table has to be corrected.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.guards.table import GREEN, MACHINES, RED, ROOT, WRONG, Guard, guards

FOUND, MISSED, INTERRUPTED = 0, 1, 130
RUNS = 5
MOST_SECONDS = 600.0
"""The time for one run; most take a quarter of a minute."""
SHOWN = 90
"""Characters of a run's output that are shown."""
STOP_SECONDS = 30.0
"""The time for a run that is told to end: it stops its servers."""
BREAKDOWNS = [
    "SyntaxError", "NameError", "UnboundLocalError", "ImportError", "Error compiling script",
    "nonexistent global variable",
]  # fmt: skip
"""Texts in the log of a run that show that the code broke down without the guard."""


def main() -> int:
    """Return the exit code: 0 if a test failed for each removed guard; 1 if no test failed for some
    guard, or if the code broke down; 130 if interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = _chosen()
    missed: list[str] = []
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="guards-") as folder:
            copy = Path(folder)
            _copy_to(copy)
            for number, guard in enumerate(chosen, 1):
                _show(f"{number}/{len(chosen)} {guard.id}: {guard.what} …")
                found, line = _without(guard, copy)
                _show()
                print(f"{guard.id:4} {line} | {guard.what}", flush=True)
                if not found:
                    missed.append(guard.id)
    except KeyboardInterrupt:
        _show()
        print("interrupted", flush=True)
        return INTERRUPTED
    seconds = time.monotonic() - began
    print(
        f"tests failed without {len(chosen) - len(missed)} of {len(chosen)} guards, "
        f"in {seconds:.0f} s" + (f"; they passed without {' '.join(missed)}" if missed else "")
    )
    return MISSED if missed else FOUND


def _chosen() -> list[Guard]:
    every = guards()
    parser = argparse.ArgumentParser(prog="make guards", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="as in tests/guards/*.toml; all")
    ids = parser.parse_args().ids
    if unknown := set(ids) - {guard.id for guard in every}:
        parser.error(f"no such guard: {' '.join(sorted(unknown))}")
    return [guard for guard in every if not ids or guard.id in ids]


def _copy_to(folder: Path) -> None:
    """Copy the files that git knows of this checkout, in their present state."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # the package consists of links
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)


def _without(guard: Guard, copy: Path) -> tuple[bool, str]:
    """Return whether a test failed without the guard, and a line that says how."""
    place = copy / guard.file
    whole = place.read_text()
    place.write_text(guard.taken_out(whole))
    try:
        for name in guard.found_by:
            for run in range(1, RUNS + 1 if name in MACHINES else 2):
                code, seconds, said = _try(name, copy)
                how = f"in run {run} of {name}" if name in MACHINES else f"by {Path(name).name}"
                if code == RED:
                    return True, f"red {how}, {seconds:.0f} s: {said}"
                if code != GREEN:
                    return False, f"WRONG {how}: {said}"
    finally:
        place.write_text(whole)
    return False, f"GREEN in all runs of {', '.join(guard.found_by)}"


def _try(name: str, copy: Path) -> tuple[int, float, str]:
    """Run once; return the exit code, the duration, and the last output."""
    command = [sys.executable, "-m", "tests.guards.trial", name]
    path = os.pathsep.join([str(copy / "src"), str(copy)])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=copy, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            _stop(process)
            return WRONG, MOST_SECONDS, f"no end within {MOST_SECONDS:.0f} s"
        except KeyboardInterrupt:
            _stop(process)
            raise
    seconds = time.monotonic() - began
    if broken := breakdown(output):
        return WRONG, seconds, broken
    return process.returncode, seconds, (output.strip().splitlines() or ["nothing"])[-1][:SHOWN]


def breakdown(output: str) -> str:
    """Return the text that shows in the log of a run that the code broke down; "" if none."""
    for line in output.splitlines():
        if found := [line.index(sign) for sign in BREAKDOWNS if sign in line]:
            return line[min(found) :][:SHOWN]
    return ""


def _stop(process: subprocess.Popen[str]) -> None:
    """Tell a run to end: it stops its servers. If it does not end, kill it with all of its
    descendants."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _show(what: str = "") -> None:
    """Show the present step on a terminal; the next line replaces it."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{what[:100]}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
