"""Show 1: ``make crawl`` in a fresh clone without ``.venv``: seconds until its summary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bench.report import Report

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 300


def show() -> int:
    report = Report("setup", "1. make crawl in a fresh clone")
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        summary = Path(folder) / "summary.json"
        began = time.monotonic()
        code, output = _make(clone, summary)
        seconds = time.monotonic() - began
        report.figure("make crawl", seconds, "s")
        report.claim("ends with exit code 0", code == 0, "" if code == 0 else output[-3000:])
        found = json.loads(summary.read_text()) if summary.exists() else {}
        report.figure("summary", found)
        report.claim("the summary counts pages of the shipped site", found.get("pages", 0) >= 10)
        report.claim(f"in under {LIMIT_SECONDS} s", seconds < LIMIT_SECONDS)
    return report.finish()


def _make(clone: Path, summary: Path) -> tuple[int, str]:
    """Exit code and output of ``make crawl``; 124 when it took too long and was stopped."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GREENCRAWL_", "MAKE"))}
    environment.pop("VIRTUAL_ENV", None)
    process = subprocess.Popen(
        ["make", "crawl", f"SUMMARY={summary}"],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that all it started can be stopped together
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS + 60)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return 124, output
    return process.returncode, output
