"""The table of attacks: ``python -m bench.faults.attacks [ROW …]``. The exit code is 1 if a row
fails.

Each row crawls ten good hosts beside one attack with one worker process, and compares their rate
with that of a run without the attack (``tests/attacks/rig.py``). The last two rows test the caps on
addresses: in one row all host names have the same address, in the other row each name has its own
address (``tests/attacks/names.py``). A run of all rows is stored in ``bench/results/attacks.json``.
The folder of a failed row is kept.
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
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import asdict  # noqa: E402
from pathlib import Path  # noqa: E402

from bench.rig.report import RESULTS, write_json  # noqa: E402
from tests.attacks import names, rig  # noqa: E402
from tests.attacks.rig import Result  # noqa: E402
from tests.attacks.rows import ATTACKS  # noqa: E402

ROWS = [*ATTACKS, *names.ROWS]
HEAD = f"{'':4}{'pages/s':>9}{'share':>7}{'worst 5 s':>11}{'MB':>6}{'all MB':>8}  row"


def main(arguments: Sequence[str]) -> int:
    """Run the named rows, or all; return the exit code: 0 if all passed."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults.attacks")
    parser.add_argument("rows", nargs="*", metavar="ROW", choices=[[], *ROWS])
    chosen = parser.parse_args(arguments).rows or ROWS
    began = time.monotonic()
    peer = _tried("none", lambda folder: rig.run(None, folder, _say))
    results = [peer]
    for name in chosen:
        if name in ATTACKS:
            attack = ATTACKS[name]
            result = _tried(name, lambda folder, a=attack: rig.run(a, folder, _say, peer))
        else:
            result = _tried(name, lambda folder, n=name: names.ROWS[n](folder, _say))
        results.append(result)
    print(f"\n== attacks\n{HEAD}", *map(_line, results), sep="\n")
    failed = [result.name for result in results if not result.passed]
    print(f"== {len(results) - len(failed)} of {len(results)} rows hold", flush=True)
    if chosen == ROWS:
        _keep(results, time.monotonic() - began, not failed)
    return 1 if failed else 0


def _tried(name: str, run: Callable[[Path], Result]) -> Result:
    folder = Path(tempfile.mkdtemp(prefix=f"attack-{name}-"))
    print(f"\n== {name}", flush=True)
    try:
        result = run(folder)
    except (AssertionError, OSError) as error:
        result = Result(name, "", why_not=[f"{type(error).__name__}: {error}"])
    print(_line(result), flush=True)
    if result.passed:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"        logs and data: {folder}", flush=True)
    return result


def _say(text: str) -> None:
    print(f"     {text}", flush=True)


def _line(result: Result) -> str:
    cells = (
        f"{result.rate:.0f}".rjust(9),
        f"{result.share:.2f}".rjust(7) if result.share else "–".rjust(7),
        f"{result.worst:.2f}".rjust(11) if result.worst is not None else "–".rjust(11),
        f"{result.memory / 1e6:.0f}".rjust(6),
        f"{result.tree / 1e6:.0f}".rjust(8),
    )
    verdict = "ok  " if result.passed else "FAIL"
    notes = [
        f"{'':8}by: {result.mechanism}" if result.mechanism else "",
        f"{'':8}explain: {result.said}" if result.said else "",
        f"{'':8}summary: {result.counted}" if result.counted else "",
        f"{'':8}{result.notes}" if result.notes else "",
        *(f"{'':8}why not: {why}" for why in result.why_not),
    ]
    return "\n".join(
        [f"{verdict}{''.join(cells)}  {result.name}: {result.what}", *filter(None, notes)]
    )


def _keep(results: Sequence[Result], seconds: float, passed: bool) -> None:
    record = {
        "show": "attacks",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "seconds": round(seconds, 1),
        "holds": passed,
        "rows": {one.name: {"passed": one.passed, **asdict(one)} for one in results},
    }
    path = RESULTS / "attacks.json"
    write_json(path, record)
    print(f"== {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
