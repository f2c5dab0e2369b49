"""The command of the nemesis."""

from __future__ import annotations

import subprocess
import sys

from tests.nemesis.parts import HERE


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
