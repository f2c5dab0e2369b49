"""The table of faults: ``python -m bench.faults.table [ROW …] [--quick]``. The exit code is 1 if a
row fails.

Each row crawls a synthetic web, does its harm while tasks are leased, and is judged by the web's
own log and by SQL (``tests/support/faultrig.py``). ``--quick`` takes smaller webs. A run of all
rows at full size is stored in ``bench/results/faults.json``. The folder of a failed row is kept.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import os  # noqa: E402
import platform  # noqa: E402
import shutil  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Mapping, Sequence  # noqa: E402
from dataclasses import asdict  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from bench.faults import environment  # noqa: E402
from bench.rig.report import RESULTS, write_json  # noqa: E402
from tests.support import calendarrows, faultrows, foundrows  # noqa: E402
from tests.support.faultrig import Result, Row  # noqa: E402

ROWS: dict[int, Row] = dict(
    sorted((faultrows.ROWS | environment.ROWS | foundrows.ROWS | calendarrows.ROWS).items())
)
END_ROW = 16
"""The end of the crawl, which every row checks and the last row sums up."""

HEADS = (
    ("row", 4),
    ("leased", 7),
    ("uncommitted", 12),
    ("lost", 6),
    ("refetched", 10),
    ("impolite", 9),
    ("recover s", 10),
    ("settle s", 9),
)


def main(arguments: Sequence[str], rows: Mapping[int, Row] = ROWS, name: str = "faults") -> int:
    """Run the named rows, or all; return the exit code: 0 if all passed."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name.replace('-', '_')}")
    parser.add_argument("rows", nargs="*", type=int, metavar="ROW", choices=[[], *rows, END_ROW])
    parser.add_argument("--quick", action="store_true", help="smaller webs")
    given = parser.parse_args(arguments)
    numbers = [number for number in given.rows if number != END_ROW] or list(rows)
    began = time.monotonic()
    results = {number: _run(rows[number], number, quick=given.quick) for number in numbers}
    seconds = time.monotonic() - began
    end = _end(list(results.values()))
    _print_table(results, end, seconds)
    passed = all(result.passed for result in results.values())
    if set(numbers) == set(rows) and not given.quick:
        _keep(name, results, end, seconds, passed)
    return 0 if passed else 1


def _run(row: Row, number: int, *, quick: bool) -> Result:
    folder = Path(tempfile.mkdtemp(prefix=f"fault-{number}-"))
    began = time.monotonic()
    print(f"\n== {number}", flush=True)

    def say(text: str) -> None:
        print(f"   {time.monotonic() - began:6.1f}  {text}", flush=True)

    result = row(folder, say, quick)
    result.seconds = time.monotonic() - began
    print(_line(number, result), flush=True)
    for reason in result.why_not:
        print("        " + reason.replace("\n", "\n        "), flush=True)
    if result.passed:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"        logs and data: {folder}", flush=True)
    return result


def _end(results: Sequence[Result]) -> list[str]:
    """Row 16: return the rows whose end was announced early or not at all."""
    return [
        f"{result.name}: {result.early or 'never announced'}"
        for result in results
        if result.early or not result.announced
    ]


def _line(number: int, result: Result) -> str:
    cells = (
        f"{number}",
        f"{result.leases_out:,}",
        f"{result.uncommitted:,}",
        f"{result.lost:,}",
        f"{result.refetched:,}",
        f"{result.impolite:,}",
        _seconds(result.seconds_to_recover),
        _seconds(result.seconds_to_settle),
    )
    figures = "".join(cell.rjust(width) for cell, (_, width) in zip(cells, HEADS, strict=True))
    blows = f", {result.blows} blows" if result.blows > 1 else ""
    verdict = "ok  " if result.passed else "FAIL"
    about = f"{result.name}{blows}, {result.urls:,} URLs, {result.seconds:.0f} s"
    return f"{verdict}{figures}  {about}\n{'':8}by: {result.mechanism}{_short(result)}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _short(result: Result) -> str:
    """Return shortened times, and the measurements of only this row."""
    notes = {**result.settings, **result.notes}
    shown = ", ".join(f"{name} {value}" for name, value in notes.items() if name != "stats")
    return f"\n{'':8}{shown}" if shown else ""


def _print_table(results: dict[int, Result], end: list[str], seconds: float) -> None:
    print(f"\n== faults\n    {''.join(name.rjust(width) for name, width in HEADS)}")
    for number, result in results.items():
        print(_line(number, result))
    verdict = "FAIL" if end else "ok  "
    print(f"{verdict}{END_ROW:4}  crawl end under all of these: never early, always announced")
    for finding in end:
        print(f"        {finding}")
    failed = [number for number, result in results.items() if not result.passed]
    print(
        f"== {len(results) - len(failed)} of {len(results)} rows pass; {seconds:.0f} s", flush=True
    )


def _keep(
    name: str, results: dict[int, Result], end: list[str], seconds: float, passed: bool
) -> None:
    record: dict[str, Any] = {
        "show": name,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "seconds": round(seconds, 1),
        "holds": passed,
        "rows": {
            number: {"passed": result.passed, **asdict(result)}
            for number, result in results.items()
        },
        "crawl end": end or "never announced early, always announced",
    }
    path = RESULTS / f"{name}.json"
    write_json(path, record)
    print(f"== {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
