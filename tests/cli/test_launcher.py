"""The executable and the set-up, for a person whose machine lacks something."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without .venv."""
    folder = tmp_path / "a checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / "greencrawl", folder)
    for name in ("setup", "packages"):
        shutil.copy(ROOT / ".ci" / name, folder / ".ci")
    (folder / "requirements.txt").write_text("click==1\n")
    (folder / "worker" / "extract" / "main").mkdir(parents=True)
    for name in ("speedups.c", "main/main.c", "compile.py", "speedups.py", "text.py"):
        shutil.copy(ROOT / "worker" / "extract" / name, folder / "worker" / "extract" / name)
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with a few tools only; ``id`` says that we are not root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "cmp", "rm", "cp", "sed", "dirname", "readlink"):
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    script(folder / "id", "echo 1000")
    return folder


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run(
    *command: str | Path, cwd: Path, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PATH": str(path)} if path else dict(os.environ)
    environ.pop("PYTHON3", None)
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environ, capture_output=True, text=True
    )


def test_the_command_advises_make_setup_if_there_is_no_venv(checkout: Path, tmp_path: Path) -> None:
    done = run(checkout / "greencrawl", "status", cwd=tmp_path)
    assert done.returncode == 1
    assert "make setup" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_venv_whose_interpreter_cannot_be_run_is_not_called_missing(
    checkout: Path, tmp_path: Path
) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "removed")
    done = run(checkout / "greencrawl", "status", cwd=tmp_path)
    assert done.returncode == 1
    assert ".venv has no interpreter that you may run; run `make setup`" in done.stderr


def test_ctrl_c_is_blocked_while_python_starts(checkout: Path, tmp_path: Path) -> None:
    shown = "from signal import *; print(SIGINT in pthread_sigmask(SIG_BLOCK, []))"
    script(checkout / ".venv" / "bin" / "python", "")
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f"#!{sys.executable}\n{shown}\n")  # a shell would change the mask
    done = run(checkout / "greencrawl", "status", cwd=tmp_path)
    assert done.stdout == "True\n"


def test_command_finds_its_checkout_through_links_from_any_folder(
    checkout: Path, tmp_path: Path
) -> None:
    script(checkout / ".venv" / "bin" / "python", 'echo "$PYTHONPATH"; echo "$@"')
    (tmp_path / "first").symlink_to(checkout / "greencrawl")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "second").symlink_to("../first")
    done = run(tmp_path / "elsewhere" / "second", "seed", "a b", cwd=tmp_path / "elsewhere")
    paths, arguments = done.stdout.splitlines()
    assert paths.split(":")[0] == str(checkout.resolve() / "src")
    assert arguments == "-P -m greencrawl seed a b"


def test_setup_without_python_and_root_says_what_to_install(checkout: Path, tools: Path) -> None:
    done = run("sh", ".ci/setup", "requirements.txt", cwd=checkout, path=tools)
    assert done.returncode == 1
    assert "sudo apt-get install python3 python3-venv" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (checkout / ".venv").exists()


def test_setup_takes_a_later_name_when_python3_is_too_old(checkout: Path, tools: Path) -> None:
    script(tools / "python3", "exit 1")
    script(
        tools / "python3.12",
        'case "$*" in *venv*.venv) mkdir -p .venv/bin; cp "$0" .venv/bin/python;'
        ' cp "$0" .venv/bin/pip;; *--version) echo Python 3.12.1;; esac',
    )
    (tools / "mkdir").symlink_to(shutil.which("mkdir") or "/bin/mkdir")
    done = run("sh", ".ci/setup", "requirements.txt", cwd=checkout, path=tools)
    assert done.returncode == 0, done.stderr
    assert "Python 3.12.1" in done.stderr
    again = run("sh", ".ci/setup", "requirements.txt", cwd=checkout, path=tools)
    assert (again.returncode, again.stderr) == (0, "")
    (checkout / "requirements.txt").write_text("click==2\n")
    changed = run("sh", ".ci/setup", "requirements.txt", cwd=checkout, path=tools)
    assert "installing requirements.txt" in changed.stderr


def test_setup_makes_a_venv_again_if_a_part_of_it_was_deleted(checkout: Path, tools: Path) -> None:
    packages = checkout / ".venv" / "lib" / "python3.12" / "site-packages"
    script(
        tools / "python3",
        'case "$*" in *venv*.venv) mkdir -p .venv/bin; cp "$0" .venv/bin/python;'
        f' cp "$0" .venv/bin/pip;; *install*) mkdir -p "{packages}/click"'
        f' "{packages}/click-1.dist-info" "{packages}/__pycache__";; esac',
    )
    (tools / "mkdir").symlink_to(shutil.which("mkdir") or "/bin/mkdir")

    def said() -> str:
        done = run("sh", ".ci/setup", "requirements.txt", cwd=checkout, path=tools)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "not complete" not in said()
    for harmless in ("click-1.dist-info", "__pycache__"):
        (packages / harmless).rmdir()
    (packages / "mine").mkdir()
    assert said() == ""
    for part in (packages / "click", checkout / ".venv" / "bin" / "pip"):
        shutil.rmtree(part) if part.is_dir() else part.unlink()
        assert ".venv is not complete: it is made again" in said()
        assert not (packages / "mine").exists()
        assert part.exists()
        (packages / "mine").mkdir()
        assert said() == ""


def test_setup_in_a_folder_of_another_account_says_who_has_to_run_it(checkout: Path) -> None:
    checkout.chmod(0o555)
    other = ["setpriv", "--reuid=65534", "--clear-groups"] if os.getuid() == 0 else []
    done = run(*other, "sh", ".ci/setup", "requirements.txt", cwd=checkout)
    checkout.chmod(0o755)
    assert done.returncode == 1
    assert "its owner has to run `make setup`" in done.stderr
    assert done.stderr.count("\n") == 1


def test_setup_tries_again_after_pip_has_failed(checkout: Path, tools: Path) -> None:
    script(checkout / ".venv" / "bin" / "python", 'case "$*" in *pip*) exit 1;; esac')
    script(checkout / ".venv" / "bin" / "pip", "exit 1")
    for _ in range(2):
        done = run("sh", ".ci/setup", "requirements.txt", cwd=checkout, path=tools)
        assert done.returncode == 1
        assert "pip could not install requirements.txt" in done.stderr


def test_setup_says_once_that_nothing_could_be_compiled(checkout: Path, tools: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    script(checkout / ".venv" / "bin" / "pip", "exit 0")

    def setup(compiling: str) -> str:
        script(python, f'case "$*" in *compile) {compiling};; esac')
        done = run("sh", ".ci/setup", "requirements.txt", cwd=checkout, path=tools)
        assert done.returncode == 0
        return done.stderr

    assert "setup: no compiler" in setup("echo no compiler; exit 1")
    assert setup("echo no compiler; exit 1") == ""
    assert "setup: no headers" in setup("echo no headers; exit 1")
    assert setup("exit 0") == ""  # it exists now
    assert setup("echo compiled again; exit 1") == ""
    (checkout / "worker" / "extract" / "speedups.c").write_text("changed")
    assert "compiled again" in setup("echo compiled again; exit 1")


def test_missing_packages_are_named_on_one_line_without_root(checkout: Path, tools: Path) -> None:
    done = run("sh", ".ci/packages", cwd=checkout, path=tools)
    known = shutil.which("nginx", path="/usr/sbin:/sbin")
    assert done.returncode == 1
    assert "redis-server" in done.stderr
    assert ("nginx-light" in done.stderr) == (known is None)
    assert done.stderr.count("\n") == 1


def test_mariadb_counts_as_missing_if_one_of_its_programs_is_missing(
    checkout: Path, tools: Path
) -> None:
    parts = ("mariadbd", "mariadb-install-db", "my_print_defaults", "mariadb", "mariadb-dump")
    for part in parts:
        script(tools / part, "exit 0")
    done = run("sh", ".ci/packages", cwd=checkout, path=tools)
    assert "redis-server" in done.stderr
    assert "mariadb-server" not in done.stderr
    (tools / "my_print_defaults").unlink()  # this program is in a package of its own
    done = run("sh", ".ci/packages", cwd=checkout, path=tools)
    assert done.returncode == 1
    assert "mariadb-server" in done.stderr


def test_the_manual_is_wanted_in_the_release_that_the_distribution_has(
    checkout: Path, tools: Path
) -> None:
    done = run("sh", ".ci/packages", cwd=checkout, path=tools)
    assert "postgresql-doc" in done.stderr.split()
    script(tools / "ls", "exit 0")  # as if every release were installed
    done = run("sh", ".ci/packages", cwd=checkout, path=tools)
    assert "redis-server" in done.stderr
    assert "postgresql-doc" not in done.stderr


def test_messages_name_the_command_as_it_was_called(tmp_path: Path) -> None:
    (tmp_path / "gc").symlink_to(ROOT / "greencrawl")
    done = run("./gc", "pause", "x", "--data", "d", cwd=tmp_path, path=Path("/usr/bin:/bin"))
    assert "`./gc up --data d`" in done.stderr
    done = run("./gc", "nothing", cwd=tmp_path, path=Path("/usr/bin:/bin"))
    assert "Usage: ./gc [OPTIONS] COMMAND" in done.stderr
    assert run("./gc", "--version", cwd=tmp_path).stdout.startswith("greencrawl ")
