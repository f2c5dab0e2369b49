"""Prometheus and its promtool, and the queries of the dashboard and the alerts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import yaml

from tests.support.checkout import ROOT
from tests.support.ports import free_port
from tests.support.system import wait_until

BOARD = ROOT / "deploy" / "grafana" / "greencrawl.json"
FOLDER = ROOT / "deploy" / "prometheus"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool: `make packages`"
)

_NAME = re.compile(r"\b((?:greencrawl|process)_[a-z0-9_]+)\b")
_STRING = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\b(?:by|on) \([^)]*\)")


def board_queries() -> list[tuple[str, str]]:
    """Return (title of the panel, expression) of each query of the dashboard."""
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    return [
        (panel["title"], target["expr"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def alerts() -> dict[str, dict[str, Any]]:
    """Return the rules by name."""
    (group,) = yaml.safe_load((FOLDER / "rules.yml").read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def names(expression: str) -> set[str]:
    """Return the metrics in an expression."""
    return set(_NAME.findall(_LABELS.sub("", _STRING.sub("", expression))))


def promtool(*arguments: str, cwd: Path | None = None, text: str = "") -> str:
    """Return its output. Raises AssertionError with the output if it finds an error."""
    done = subprocess.run(
        ["promtool", *arguments], cwd=cwd, input=text, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


class Prometheus:
    """A server that scrapes ``jobs``, name → port of loopback, each second."""

    def __init__(self, folder: Path, jobs: Mapping[str, int]) -> None:
        self._folder = folder
        self._port = free_port()
        folder.mkdir(parents=True)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FOLDER / "rules.yml")],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
                for name, port in jobs.items()
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Prometheus:
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stderr=(self._folder / "log").open("wb"),
        )
        wait_until(self._ready, 30, "Prometheus is ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(30)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, path: str, **query: str) -> Any:
        """Return the ``data`` of an answer of its API."""
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]

    def evaluate(self, expression: str) -> list[dict[str, Any]]:
        """Return the present vector of an expression; variables of the dashboard stand for all
        values."""
        filled = expression.replace("$__rate_interval", "10s").replace("$crawl", ".*")
        found: list[dict[str, Any]] = self.ask("query", query=filled.replace("$instance", ".*"))[
            "result"
        ]
        return found
