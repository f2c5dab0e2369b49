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

from bench.rig.report import Report

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 300


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    report = Report("setup", "1. make crawl in a fresh clone")
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        began = time.monotonic()
        code, output = _run(["make", "crawl"], clone)
        seconds = time.monotonic() - began
        report.figure("make crawl", seconds, "s")
        report.claim("ends with exit code 0", code == 0, "" if code == 0 else output[-3000:])
        table = output[output.rfind("\ncrawl ") :].replace(str(clone), ".")
        report.figure("its summary", table)
        report.claim(f"in under {LIMIT_SECONDS} s", seconds < LIMIT_SECONDS)
        _read_summary(report, clone, Path(folder) / "summary.json")
    return report.finish()


def _read_summary(report: Report, clone: Path, file: Path) -> None:
    """Ask the command itself for the summary as JSON; it must count the shipped site's pages."""
    code, output = _run(["./greencrawl", "crawl", "--demo", "--summary", str(file)], clone)
    found = json.loads(file.read_text()) if file.exists() else {}
    shown = {k: v.replace(str(clone), ".") if isinstance(v, str) else v for k, v in found.items()}
    report.figure("summary", shown)
    counted = found.get("pages", 0) >= 10 and found.get("state") == "done"
    report.claim(
        "the summary (JSON) counts the shipped site's pages and says that it is done",
        code == 0 and counted,
        "" if counted else output[-1000:],
    )


def _run(command: list[str], clone: Path) -> tuple[int, str]:
    """Exit code and output; 124 when it took too long and was stopped with all it started."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GREENCRAWL_", "MAKE"))}
    environment.pop("VIRTUAL_ENV", None)
    environment["PIP_NO_CACHE_DIR"] = "1"  # as on a machine that never installed anything
    process = subprocess.Popen(
        command,
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
