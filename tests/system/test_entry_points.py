"""The modules that start processes: wrong arguments, and what they do not import."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

HOME = ROOT


@pytest.mark.parametrize("module", ["broker", "worker", "logger"])
def test_an_argument_is_answered_with_the_usage(module: str, tmp_path: Path) -> None:
    environment = {"GREENCRAWL_DATA": str(tmp_path), "GREENCRAWL_BIND": "127.0.0.1:0"}
    ended = subprocess.run(
        [sys.executable, "-m", f"greencrawl.{module}", "--help"],
        cwd=HOME / "src",
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == f"usage: python -m greencrawl.{module} (settings: GREENCRAWL_*)\n"


@pytest.mark.parametrize("module", ["broker", "worker", "logger"])
@pytest.mark.parametrize("at", ["", "/deep"])
def test_a_data_folder_that_cannot_be_used_is_named_in_one_line(
    module: str, at: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()  # root may write into every folder, but not into a file
    data = f"{tmp_path}/file/data{at}"
    ended = subprocess.run(
        [sys.executable, "-m", f"greencrawl.{module}"],
        cwd=HOME / "src",
        env={"GREENCRAWL_DATA": data, "GREENCRAWL_BIND": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    said = ended.stderr + ended.stdout
    assert ended.returncode == 1
    assert "Traceback" not in said
    assert f"{module}: cannot use {tmp_path}/file" in said
    assert "Not a directory; GREENCRAWL_DATA may name another folder" in said


@pytest.mark.parametrize("module", ["broker", "logger"])
def test_a_data_folder_on_a_full_disk_is_named_in_one_line(module: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", f"greencrawl.{module}"],
        cwd=HOME / "src",
        env={"GREENCRAWL_DATA": str(tmp_path), "GREENCRAWL_BIND": "127.0.0.1:0"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,  # a pipe has no limit
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    told = f"{module}: cannot use {tmp_path}: File too large; make room"
    assert ended.stderr.splitlines()[-1] == told


PATCHED = "from gevent import monkey; monkey.patch_all()"
NEVER = {
    "chardet", "colorama", "pymysql", "requests", "urllib3", "oauthlib", "tldextract",
    "warcio", "twisted",
}  # fmt: skip
FOR_PEOPLE = {"rich", "pygments", "click"}
LIBRARIES = {*NEVER, *FOR_PEOPLE, "gevent", "lxml", "redis", "falcon", "msgspec", "zstandard"}


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        (
            "import greencrawl.worker.__main__",
            {*NEVER, *FOR_PEOPLE, "gevent", "lxml", "redis", "falcon"},
        ),
        (f"{PATCHED}; import greencrawl.worker.child", {*NEVER, *FOR_PEOPLE, "falcon"}),
        (
            f"{PATCHED}; import greencrawl.worker.process.quarantine",
            {*NEVER, *FOR_PEOPLE, "redis", "falcon"},
        ),
        ("import greencrawl.broker.__main__", {*NEVER, *FOR_PEOPLE, "lxml"}),
        ("import greencrawl.logger.__main__", {*NEVER, *FOR_PEOPLE, "lxml"}),
        ("import greencrawl.cli.main", {*NEVER, "lxml", "redis"}),
        ("import greencrawl", {*LIBRARIES, "importlib.metadata", "greencrawl.schema"}),
        ("from greencrawl import canonicalise, fingerprint", LIBRARIES - {"msgspec", "zstandard"}),
        ("from greencrawl import parse_robots", LIBRARIES - {"msgspec", "zstandard"}),
        ("from greencrawl import extract", LIBRARIES - {"msgspec", "zstandard", "lxml"}),
        ("from greencrawl import Client", {*NEVER, *FOR_PEOPLE, "lxml", "redis", "falcon"}),
    ],
)
def test_a_process_imports_no_library_that_only_some_runs_need(
    code: str, unwanted: set[str]
) -> None:
    """Libraries for MySQL, logins and archives take 5 to 10 MB each."""
    code = f"{code}; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, check=True
    )
    assert unwanted & set(done.stdout.split()) == set()


def test_importing_the_package_does_not_patch_the_program() -> None:
    code = (
        "from greencrawl import *; from gevent import monkey; import greencrawl, sys\n"
        "assert not monkey.saved and not monkey.is_module_patched('socket')\n"
        "print(sorted(name for name in greencrawl.__all__ if callable(globals()[name])))\n"
        "print(set(greencrawl.__all__) <= set(dir(greencrawl)), hasattr(greencrawl, 'other'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "['Client', 'canonicalise', 'extract', 'fingerprint', 'normalise', 'parse_robots']",
        "True False",
    ]
