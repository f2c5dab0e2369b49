"""Events while a process imports: Ctrl-C, and a package that is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from greencrawl.schema.process import starting
from tests.cli.local.test_processes import until
from tests.support.checkout import ROOT

PROGRAMS = {
    "greencrawl": "greencrawl",
    "greencrawl.cli": "greencrawl",
    "greencrawl.broker": "broker",
    "greencrawl.worker": "worker",
    "greencrawl.logger": "logger",
}
WAITS = "import pathlib, time\npathlib.Path({here!r}).touch()\ntime.sleep(60)\n"


def start(*arguments: str, path: str = "") -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep if path else ''}{ROOT / 'src'}"}
    return subprocess.Popen(
        [sys.executable, *arguments], env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize(("module", "program"), PROGRAMS.items())
def test_a_missing_python_package_is_reported_in_one_line_with_what_to_do(
    module: str, program: str
) -> None:
    process = start("-S", "-P", "-m", module)  # -S: without the packages of .venv
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.startswith(f"{program}: there is no Python package '")
    assert "make setup" in said
    assert said.count("\n") == 1


def test_a_package_that_the_venv_lacks_is_reported_with_what_always_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "prefix", f"{ROOT}/.venv")
    said = starting.missing(ModuleNotFoundError(name="gevent.hub"))
    wanted = f"{ROOT}/.venv is not complete; delete it and run `make setup` in {ROOT}"
    assert said == f"there is no Python package 'gevent': {wanted}"


@pytest.mark.parametrize("module", PROGRAMS)
def test_ctrl_c_during_imports_ends_a_process_without_output(module: str, tmp_path: Path) -> None:
    here = tmp_path / "imports"
    for package in ("gevent", "structlog"):
        (tmp_path / f"{package}.py").write_text(WAITS.format(here=str(here)))
    process = start("-P", "-m", module, path=str(tmp_path))
    try:
        until(here.exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (-signal.SIGINT, "", "")


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hook = sys.excepthook
        starting.begin("greencrawl")
        sys.excepthook = hook
        starting.done()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)
        starting.begin("greencrawl")
        sys.excepthook = hook
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        starting.done()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'greencrawl.x'", name="greencrawl.x"),
        ModuleNotFoundError("No module named '_sqlite3'", name="_sqlite3"),
        ImportError("of no name"),
        ValueError("another"),
    ],
)
def test_other_errors_at_the_start_are_shown_as_they_are(error: Exception) -> None:
    assert starting.missing(error) == ""


def test_a_partly_installed_package_is_reported_as_such() -> None:
    said = starting.missing(ImportError("cannot import name 'monkey'", name="gevent"))
    assert said.startswith("there is only a part of Python package 'gevent'")
