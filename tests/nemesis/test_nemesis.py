"""Runs of the nemesis with fixed seeds on the present code; by night on MySQL, too.

To run only these: ``pytest -m nemesis``; to run the tests without them: ``-m 'not nemesis'``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.nemesis.__main__ import SHOWN
from tests.nemesis.parts import HERE
from tests.nemesis.schedule import FAULTS, make
from tests.nemesis.world import Store
from tests.support.effort import cases

RUNS: tuple[tuple[Store, int], ...] = (("sqlite", 9072), ("mysql", 169))
"""Store and seed of two runs. The first has memory limits, older copies, a lock and a kill; the
second has jumps of the clock, a full disk, cuts and kills of the database."""
MINUTES = 0.5
"""Minutes of faults; starting, healing and the ends of all crawls come in addition."""
PATIENCE_SECONDS = 400.0
STOP_SECONDS = 60.0
FINDING_LETTERS = 300
"""A finding that is shown again at the end is cut to this length; its whole text stands above."""


class Run:
    """A nemesis in a process and a folder of its own."""

    def __init__(self, store: Store, seed: int, folder: Path) -> None:
        self.folder = folder
        self.report = folder / f"seed-{seed}-{store}" / "report.json"
        command = [sys.executable, "-m", "tests.nemesis", "--seed", str(seed), "--store", store]
        command += ["--minutes", str(MINUTES), "--again", "0", "--shrink", "0"]
        with (folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [*command, "--folder", str(folder)], cwd=HERE, stdout=said, stderr=said
            )

    def end(self) -> str:
        """Wait for the run; return what is wrong with its end, "" if nothing."""
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.stop()
            return f"it did not end within {PATIENCE_SECONDS:g} s"
        return f"exit code {code}" if code else ""

    def stop(self) -> None:
        """End the run if it still runs: it ends its own processes, unless that takes long."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """Return the run's output, and below it once more some findings of each kind, cut short."""
        text = (self.folder / "said").read_text(errors="replace")
        told: Counter[str] = Counter()
        for one in json.loads(self.report.read_text())["findings"] if self.report.exists() else ():
            told[one["kind"]] += 1
            if told[one["kind"]] <= SHOWN:
                text += "\n" + f"{one['kind']}: {one['text']}"[:FINDING_LETTERS]
        return text


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Store, Run]]:
    """Start all requested runs at once: most of the time each only waits."""
    names = [item.name for item in request.session.items]
    begun = {
        store: Run(store, seed, tmp_path_factory.mktemp(f"nemesis-{store}"))
        for store, seed in RUNS
        if any(f"[{store}" in name for name in names)
    }
    yield begun
    for run in begun.values():
        run.stop()


@pytest.mark.nemesis
@pytest.mark.parametrize("store", cases(["sqlite"], ["mysql"]))
def test_a_run_of_the_nemesis_finds_no_broken_promise(store: Store, runs: dict[Store, Run]) -> None:
    if wrong := runs[store].end():
        pytest.fail(f"{wrong}\n{runs[store].said()}")


def test_the_fixed_random_seeds_include_the_rare_faults() -> None:
    kinds = [{event.kind for event in make(seed, store, MINUTES).events} for store, seed in RUNS]
    assert kinds[0] >= {"memory", "copy", "older", "lock", "kill"}
    assert kinds[1] >= {"clock", "disk", "cut", "kill"}
    assert all(len(some & set(FAULTS)) >= 4 for some in kinds)


def test_runs_with_the_fixed_random_seeds_have_sitemaps_requisites_and_traps() -> None:
    for store, seed in RUNS:
        graphs = [event.arguments.get("graph", "") for event in make(seed, store, MINUTES).events]
        extras = {letter for tag in graphs for letter in tag.lstrip("gx0123456789")}
        assert extras == set("sqt")


def test_the_help_of_the_nemesis_names_the_options_that_make_passes_on() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tests.nemesis", "--help"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for option in ("--seed", "--minutes", "--store", "--replay", "--root", "--again", "--shrink"):
        assert option in said
