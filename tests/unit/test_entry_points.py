"""``python -m broker`` and ``python -m worker`` refuse arguments instead of starting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["broker", "worker"])
def test_an_argument_is_answered_with_the_usage(module: str, tmp_path: Path) -> None:
    environment = {"GREENCRAWL_DATA": str(tmp_path), "GREENCRAWL_BIND": "127.0.0.1:0"}
    ended = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        cwd=HOME,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == f"usage: python -m {module} (settings: GREENCRAWL_*)\n"
