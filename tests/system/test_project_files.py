"""The files that a newcomer expects: they are complete and up to date, and their tools accept
them."""

from __future__ import annotations

import ast
import configparser
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from greencrawl.broker.api.app import DRAIN_SECONDS
from greencrawl.broker.api.security import check_settings
from greencrawl.logger import __main__ as logger_main
from greencrawl.logger.joining import LEAVE_SECONDS
from greencrawl.schema.settings import Settings, load
from greencrawl.worker.process.supervisor import Supervisor
from tests.support.checkout import ROOT
from tests.support.system import wait_until

DEPLOY = ROOT / "deploy"
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the Apache License 2.0 as its authors publish it, with the appendix."""
QUESTIONS = [
    "Where is the wait after a 503 decided?",
    "Where would I add a kind of failure?",
    "… a command?",
    "… a kernel?",
    "… an export format?",
    "… a kind of login?",
    "… an option of a crawl?",
    "… a metric?",
    "… a Lua script?",
    "… a setting?",
    "… a feature of main text?",
    "… a page of the Monitor?",
    "… a migration of the store?",
]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def questions() -> list[tuple[str, str, str, str]]:
    """Return the rows of the table of CONTRIBUTING.md: (question, file, what to look for, what
    else)."""
    table = text("CONTRIBUTING.md").partition("## Where is it?")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    rows = [row for row in cells if len(row) == 4][2:]
    return [(asked, file.strip("`"), word.strip("`"), more) for asked, file, word, more in rows]


def test_the_licence_is_the_whole_text_unchanged() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE


def test_questions_that_people_ask_are_answered() -> None:
    assert [asked for asked, *_ in questions()] == QUESTIONS


@pytest.mark.parametrize(("asked", "file", "word", "more"), questions())
def test_the_file_that_answers_a_question_exists(
    asked: str, file: str, word: str, more: str
) -> None:
    assert re.search(rf"\b{re.escape(word)}", text(file)), asked
    for place in re.findall(r"`([\w./-]+[/.][\w./-]*)`", more):
        assert (ROOT / place).exists(), place


@pytest.mark.parametrize("name", ["SECURITY.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_files_that_a_document_names_exist(name: str) -> None:
    said = text(name)
    folders = "broker|cli|deploy|docs|monitor|schema|store|tests|worker"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", said)
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", said)
    for place in named:
        assert (ROOT / place).exists(), place
    for place in linked:
        assert (ROOT / name).parent.joinpath(place).exists(), place


def test_the_glossary_has_few_words_in_order_one_line_each() -> None:
    rows = [line for line in text("docs/glossary.md").splitlines() if line.startswith("* **")]
    words = [row.split("**")[1] for row in rows]
    assert words == sorted(set(words))
    assert 20 <= len(words) <= 40
    assert all(len(row) <= 100 for row in rows)


# -- what checks changes


def lint_commands() -> list[list[str]]:
    recipe = text("Makefile").partition("\nlint:")[2].partition("\n\n")[0]
    return [line.strip().lstrip("@").split() for line in recipe.splitlines()[1:]]


def test_the_pre_commit_checks_run_the_commands_of_lint() -> None:
    (repository,) = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    extra = {"env", "--force-exclude"}
    ran = [
        [word for word in hook["entry"].split() if word not in extra]
        for hook in repository["hooks"]
    ]
    assert ran == [[word for word in command if word != "."] for command in lint_commands()]
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


def test_the_ci_workflow_runs_the_ci_script() -> None:
    (job,) = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"].values()
    assert job["container"]["image"] == "debian:12"
    assert job["steps"][-1]["run"] == ".ci/run"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


# -- systemd


def unit(name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(
        strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",)
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / f"greencrawl-{name}.service", encoding="utf-8")
    return {**parser["Unit"], **parser["Service"]}


def seconds_of(span: str) -> float:
    return float(span.removesuffix("s"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    # Check both at once, because one names the other. The programs must exist: this checkout stands
    # for the installed one.
    for file in (DEPLOY / "systemd").glob("*.service"):
        where = file.read_text(encoding="utf-8").replace("/opt/greencrawl", str(ROOT))
        (tmp_path / file.name).write_text(where, encoding="utf-8")
    units = sorted(tmp_path.iterdir())
    assert len(units) == 3
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    # It also comments on this machine's own units.
    assert [line for line in done.stderr.splitlines() if "greencrawl-" in line] == []
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["broker", "worker", "logger"])
def test_a_systemd_unit_starts_the_command_of_the_procfile(name: str) -> None:
    started = unit(name)["ExecStart"].removeprefix("/opt/greencrawl/")
    optional = "#" if name == "logger" else ""
    assert f"{optional}{name}: {started}" in text("Procfile").splitlines()
    assert unit(name)["RestartPreventExitStatus"] == "2"
    assert unit(name)["EnvironmentFile"] == f"/etc/greencrawl/{name}.env"


def test_stop_timeouts_of_services_are_longer_than_their_own_grace_time() -> None:
    worker = Supervisor(load({}))._grace
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for name, least in (("broker", DRAIN_SECONDS), ("worker", worker), ("logger", LEAVE_SECONDS)):
        assert unit(name)["KillMode"] == "mixed"
        assert seconds_of(unit(name)["TimeoutStopSec"]) >= least + 10
        assert seconds_of(services[name]["stop_grace_period"]) >= least + 10


@pytest.mark.parametrize(("name", "least"), [("broker", 5), ("worker", 5), ("logger", 3)])
def test_examples_of_settings_are_accepted(name: str, least: int) -> None:
    said = (DEPLOY / "systemd" / f"{name}.env.example").read_text(encoding="utf-8")
    given = dict(line[1:].split("=", 1) for line in said.splitlines() if line[:5] == "#GREE")
    assert len(given) >= least
    settings = load(filled(given))
    if name == "logger":
        logger_main.check_settings(settings)
        return
    assert settings.redis
    if name == "broker":
        check_settings(settings)


def filled(settings: dict[str, str]) -> dict[str, str]:
    """Give each empty setting a text of its own."""
    return {name: value or f"{name}-".ljust(40, "x") for name, value in settings.items()}


# -- containers

VARIABLE = re.compile(r"\$\{(\w+):\?\}")


def compose() -> dict[str, Any]:
    """Return deploy/compose.yaml with the variables of the example filled in."""
    said = (DEPLOY / "compose.env.example").read_text(encoding="utf-8")
    given = filled(dict(line.split("=", 1) for line in said.splitlines() if line[:1] != "#"))
    raw = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert set(VARIABLE.findall(raw)) == set(given)
    read: dict[str, Any] = yaml.safe_load(VARIABLE.sub(lambda match: given[match[1]], raw))
    return read


def settings_of(service: str) -> Settings:
    return load(compose()["services"][service]["environment"])


def test_broker_and_worker_of_the_compose_file_accept_their_settings() -> None:
    services = compose()["services"]
    assert set(services) == {"broker", "worker", "logger", "redis", "mariadb"}
    assert services["logger"]["profiles"] == ["logger"]  # only on request
    logger_main.check_settings(settings_of("logger"))
    assert settings_of("logger").broker == settings_of("worker").broker
    assert settings_of("logger").worker_token == settings_of("broker").worker_token
    broker, worker = settings_of("broker"), settings_of("worker")
    check_settings(broker)
    assert (broker.redis, broker.store) == (worker.redis, worker.store)
    assert broker.worker_token == worker.worker_token
    assert worker.admin_token == ""
    database = services["mariadb"]["environment"]
    user, password = database["MARIADB_USER"], database["MARIADB_PASSWORD"]
    assert broker.store == f"mysql://{user}:{password}@mariadb/{database['MARIADB_DATABASE']}"
    for name in ("broker", "worker", "logger"):
        (module,) = services[name]["command"]
        assert text("Procfile").count(f"-m {module}\n") == 1
    for name in ("redis", "mariadb"):
        assert services[name]["networks"] == ["inside"]
        assert "ports" not in services[name]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no Redis here")
def test_the_redis_of_the_compose_file_accepts_its_settings(tmp_path: Path) -> None:
    *shell, script = compose()["services"]["redis"]["command"]
    here = f"\nport 0\nunixsocket {tmp_path / 'socket'}\ndir {tmp_path}\nEND\n"
    script = script.replace("$$", "$").replace("\nEND\n", here)
    environment = {**os.environ, "REDIS_PASSWORD": "geheim"}
    with subprocess.Popen([*shell, script], env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            client = redis.Redis(unix_socket_path=str(tmp_path / "socket"), password="geheim")
            wait_until(lambda: answers(client), 10, "it takes the password")
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert b"geheim" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
            with pytest.raises(redis.AuthenticationError):
                redis.Redis(unix_socket_path=str(tmp_path / "socket")).ping()
        finally:
            server.terminate()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def ignored() -> tuple[list[str], list[str]]:
    """Return from .dockerignore: what is copied despite ``*``, and what else is not."""
    lines = [line for line in text(".dockerignore").splitlines() if line[:1] not in ("#", "")]
    assert lines[0] == "*"
    return (
        [line[1:] for line in lines if line[0] == "!"],
        [line for line in lines[1:] if line[0] != "!"],
    )


def test_the_image_has_all_files_that_the_set_up_and_the_processes_need(tmp_path: Path) -> None:
    """The files that the build copies are enough to install the package and to start each
    process."""
    taken, left = ignored()
    assert left == ["**/__pycache__"]
    for name in taken:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, symlinks=True, ignore=leave)
        else:
            shutil.copy(source, target)
    # The import uses the environment of this checkout, but none of its sources.
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "src")}
    for module in ("greencrawl.broker", "greencrawl.worker", "greencrawl.cli.main"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"import {module} as m; print(m.__file__)"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.startswith(str(tmp_path)), done.stderr
    assert "RUN sh .ci/setup requirements.txt" in text("Containerfile")
    read = re.findall(r"worker/extract/[\w.*\[\]]+", text(".ci/setup"))
    assert read
    for pattern in read:
        assert list(tmp_path.glob(pattern)), pattern


def test_the_image_starts_the_command_that_the_checkout_has() -> None:
    lines = dict(line.split(" ", 1) for line in text("Containerfile").splitlines() if " " in line)
    entry, command = json.loads(lines["ENTRYPOINT"]), json.loads(lines["CMD"])
    assert entry == ["/opt/greencrawl/.venv/bin/python", "-P", "-m"]
    done = subprocess.run(
        [sys.executable, *entry[1:], *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "crawl" in done.stdout


def test_the_library_page_lists_what_the_examples_import() -> None:
    used = set()
    for path in sorted((ROOT / "examples").glob("*.py")):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("greencrawl."):
                used |= {(one.module, alias.name) for alias in one.names}
    stated = text("docs/library.md").partition("[examples]")[2].split("```")[1]
    listed = {
        (one.module, alias.name)
        for one in ast.parse(stated.removeprefix("python\n")).body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }
    assert used == listed
