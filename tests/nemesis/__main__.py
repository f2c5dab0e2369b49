"""``python -m tests.nemesis``: harm a whole system from a seed, and check that it keeps its
promises."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.nemesis import schedule, shrink
from tests.nemesis.parts import HERE
from tests.nemesis.run import Report, run
from tests.nemesis.world import CannotRun, raise_at_signals

CLEAN, FOUND, CANNOT = 0, 1, 2
SHOWN = 5
"""Findings of one kind that are shown at the end; all are in ``report.json``."""


def main() -> int:
    """Return the exit code: 0 clean, 1 with findings, 2 if it cannot run."""
    given = _arguments()
    raise_at_signals()
    root = given.root.absolute()
    keep = given.folder or Path(tempfile.mkdtemp(prefix="nemesis-"))
    keep.mkdir(parents=True, exist_ok=True)
    if given.replay:
        plan = schedule.Schedule.load(given.replay)
    else:
        seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
        plan = schedule.make(seed, given.store, given.minutes)
    name = f"seed-{plan.seed}-{plan.store}"
    print(
        f"seed {plan.seed}, {plan.store}, {plan.seconds / 60:g} min, mix {'+'.join(plan.mix)}, "
        f"{sum(event.is_fault for event in plan.events)} faults, "
        f"{sum(not event.is_fault for event in plan.events)} operations",
        flush=True,
    )
    try:
        report = _once(plan, keep / name, root)
        if report.findings:
            place = keep / f"{name}.json"
            plan.save(place)
            print(f"schedule: {place}", flush=True)
            if given.again or given.shrink:
                shrink.pursue(
                    plan,
                    {finding.kind for finding in report.findings},
                    lambda one, label: _once(one, keep / f"{name}-{label}", root, quiet=True),
                    again=given.again,
                    seconds=given.shrink * 60,
                    place=place,
                )
    except CannotRun as error:
        print(f"cannot run: {error}")
        return CANNOT
    except KeyboardInterrupt:
        print("interrupted: everything is stopped")
        return CANNOT
    _tell(report)
    return FOUND if report.findings else CLEAN


def _tell(report: Report) -> None:
    """Print everything except the surplus of one kind; the summary comes last."""
    told: Counter[str] = Counter()
    for finding in report.findings:
        told[finding.kind] += 1
        if told[finding.kind] > SHOWN:
            continue
        print(f"  {finding.at:6.1f}  {finding.kind}: {finding.text}")
        for fault in finding.near:
            print(f"            {fault}")
    for note in report.notes:
        print(f"  note: {note}")
    print(report.line())


def _once(plan: schedule.Schedule, folder: Path, root: Path, *, quiet: bool = False) -> Report:
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    report = run(plan, folder, root, (lambda _: None) if quiet else _say)
    report.figures["seconds"] = round(time.monotonic() - began, 1)
    report.save(folder / "report.json")
    if not report.findings:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _say(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description=__doc__)
    parser.add_argument("--seed", type=int, help="what is done when; drawn and printed if left out")
    parser.add_argument("--minutes", type=float, default=6.0, help="of faults, 6 unless given")
    parser.add_argument("--store", choices=("sqlite", "mysql"), default="sqlite")
    parser.add_argument("--root", type=Path, default=HERE, help="project whose processes run")
    parser.add_argument("--folder", type=Path, help="where logs and schedules are kept")
    parser.add_argument("--replay", type=Path, help="a schedule that was kept, in place of a seed")
    parser.add_argument("--again", type=int, default=10, help="runs of a schedule that failed")
    parser.add_argument("--shrink", type=float, default=30.0, help="minutes to shrink it, 0: not")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
