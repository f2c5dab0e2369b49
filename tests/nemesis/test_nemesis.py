"""Two minutes of the nemesis with fixed seeds, on whatever is being changed.

It runs beside no other test. Timed apart: ``pytest -m nemesis``, or without: ``-m 'not nemesis'``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nemesis.parts import HERE
from tests.nemesis.schedule import FAULTS, make
from tests.nemesis.world import Store

RUNS: tuple[tuple[Store, int], ...] = (("sqlite", 32), ("mysql", 32))
"""Memory, an older copy, a lock, a kill; and jumps of the clock, a full disk, cuts, SQL killed."""
MINUTES = 1.0
"""Of faults; starting, healing and the ends of all crawls come on top."""
PATIENCE_SECONDS = 400.0


@pytest.mark.nemesis
@pytest.mark.quiet("progress is judged by the clock")
@pytest.mark.parametrize(("store", "seed"), RUNS)
def test_everything_is_kept_whatever_happens(store: Store, seed: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.nemesis", "--seed", str(seed), "--store", store]
    command += ["--minutes", str(MINUTES), "--again", "0", "--shrink", "0"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_fixed_seeds_bring_what_is_rare() -> None:
    kinds = [{event.kind for event in make(seed, store, MINUTES).events} for store, seed in RUNS]
    assert {"memory", "disk", "clock", "copy", "older"} <= set().union(*kinds)
    assert all(len(some & set(FAULTS)) >= 3 for some in kinds)


def test_help_names_what_make_passes_on() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.nemesis", "--help"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for option in ("--seed", "--minutes", "--store", "--replay", "--root", "--again", "--shrink"):
        assert option in said
