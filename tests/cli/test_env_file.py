"""``.env`` is read as honcho reads it, except that a variable that is set already stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from honcho import environ as honcho
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.cli import env_file
from greencrawl.schema.errors import InvalidConfig
from tests.support.checkout import ROOT

LINES = [
    "GREENCRAWL_DATA=data",
    "GREENCRAWL_STORE=mysql://user:pa%23ss@h1,h2/name?replicas=a,b",
    "# GREENCRAWL_DATA=other",
    "  #GREENCRAWL_DATA=other",
    "GREENCRAWL_BIND = 127.0.0.1:8765   # where it listens",
    "TOKEN='a # b'",
    'TOKEN="a \\" b"',
    "EMPTY=",
    "EMPTY=''",
    r"LINES=a\nb\tc",
    r"LINES='a\nb'",
    "export TOKEN=x",
    "1TOKEN=x",
    "NO EQUALS",
    "A==b",
    "=b",
    "",
    "GREENCRAWL_DATA=later",
    "NAME=茶 ä",
]


@given(lines=st.lists(st.sampled_from(LINES), max_size=8), end=st.sampled_from(["\n", "\r\n"]))
def test_lines_of_an_env_file_are_read_as_honcho_reads_them(lines: list[str], end: str) -> None:
    content = end.join(lines)
    assert env_file.parsed(content) == honcho.parse(content)


@given(line=st.text("AB_=x1 '\"\\#$\t", max_size=12))
def test_an_arbitrary_line_is_read_as_honcho_reads_it(line: str) -> None:
    try:
        expected = honcho.parse(line)
    except ValueError:  # honcho ends there
        expected = {}
    assert env_file.parsed(line) == expected


def test_variables_that_are_set_stay_and_the_first_env_file_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("SET=file\nEMPTY=file\nBOTH=first\n")
    second.write_text("BOTH=second\nMORE=second\n")
    environ = {"SET": "set", "EMPTY": ""}
    env_file.take([first, tmp_path / "none", tmp_path, second], environ)
    assert environ == {"SET": "set", "EMPTY": "", "BOTH": "first", "MORE": "second"}


def test_an_unreadable_setting_is_named_and_lines_of_other_programs_are_skipped(
    tmp_path: Path,
) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"OTHER='a key\nof two lines'\nLATIN=\xe9\nNUL=a\0b\nGOOD=1\n")
    environ: dict[str, str] = {}
    env_file.take([file], environ)
    assert environ == {"LATIN": "\udce9", "GOOD": "1"}
    file.write_text("\nGREENCRAWL_ADMIN_TOKEN='x\n")
    with pytest.raises(InvalidConfig, match=r"\.env, line 2: a quotation mark"):
        env_file.take([file], environ)


def said_by(
    module: str, cwd: Path, source: Path = ROOT / "src", **variables: str
) -> tuple[int, str]:
    """Return the exit code and the errors of ``status`` in a process of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, "status"],
        cwd=cwd,
        env={
            **kept,
            "GREENCRAWL_BROKER": "http://127.0.0.1:1",
            **variables,
            "PYTHONPATH": str(source),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_the_command_reads_the_env_file_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GREENCRAWL_DATA=of-the-file\n")
    assert "/of-the-file yet" in said_by("greencrawl.cli", tmp_path)[1]
    said = said_by("greencrawl.cli", tmp_path, GREENCRAWL_DATA="of-the-environment")
    assert "/of-the-environment yet" in said[1]
    (tmp_path / ".env").write_text('GREENCRAWL_DATA="\n')
    code, complaint = said_by("greencrawl.cli", tmp_path)
    assert (code, complaint.startswith("greencrawl: .env, line 1:")) == (2, True), complaint


def test_the_env_file_of_the_checkout_is_read_after_that_of_the_current_folder(
    tmp_path: Path,
) -> None:
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    package = checkout / "src" / "greencrawl"
    package.mkdir(parents=True)
    elsewhere.mkdir()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "src" / "greencrawl" / name, package)
    for room in ("schema", "store", "broker", "logger", "worker", "cli"):
        (package / room).symlink_to(ROOT / room)
    (checkout / ".env").write_text("GREENCRAWL_DATA=of-the-checkout\n")

    def said() -> str:
        return said_by("greencrawl", elsewhere, checkout / "src")[1]

    assert "/data yet" in said()  # nothing there shows that it is a checkout
    shutil.copy(ROOT / "Procfile", checkout)
    assert "/of-the-checkout yet" in said()
    (elsewhere / ".env").write_text("GREENCRAWL_DATA=of-the-folder\n")
    assert "/of-the-folder yet" in said()
