"""The targets of make: each is defined once, and each one that a text names exists."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.support.checkout import ROOT

_NAMED = re.compile(r"`make ([a-z][a-z0-9-]*)")
_TARGET = re.compile(r"^([a-z][a-z0-9-]*):(?!=)", re.MULTILINE)


def texts() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/**/*.md")]


def test_make_has_no_complaint_about_its_files() -> None:
    outer = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}  # of the make that may run this test
    done = subprocess.run(
        ["make", "-n", "help"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_every_make_target_that_a_text_names_exists() -> None:
    files = [ROOT / "Makefile", ROOT / "bench" / "bench.mk"]
    targets = {name for path in files for name in _TARGET.findall(path.read_text(encoding="utf-8"))}
    named = {name for path in texts() for name in _NAMED.findall(path.read_text(encoding="utf-8"))}
    assert named
    assert named - targets == set()
