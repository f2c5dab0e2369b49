"""Google's cases of robots.txt: a file, a URL, a product token, and whether it may be fetched."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import NamedTuple

from jwm.robotstxt.googlebot import RobotsMatcher
from protego import Protego

from bench.suites.table import Figure, tried
from greencrawl.worker.robots.parser import parse

LEAST = 390
"""Of 400 cases. The other cases contradict RFC 9309; docs/politeness.md names them."""


class Case(NamedTuple):
    """One line of the suite."""

    file: str
    body: bytes
    url: str
    agent: str
    allowed: bool


def cases(path: Path) -> list[Case]:
    """Return the cases of ``robots-ctc.jsonl``."""
    rows = map(json.loads, path.read_text().splitlines())
    return [
        Case(
            row["file"], base64.b64decode(row["robots_base64"]), row["url"], row["agent"],
            row["expected"] == "ALLOWED",
        )
        for row in rows
    ]  # fmt: skip


def _ours(case: Case) -> bool:
    return parse(case.body).allowed(case.url, case.agent) is case.allowed


def _google(case: Case) -> bool:
    found = RobotsMatcher().OneAgentAllowedByRobots(case.body, case.agent, case.url)
    return bool(found) is case.allowed


def _protego(case: Case) -> bool:
    rules = Protego.parse(case.body.decode("utf-8", "replace"))
    return bool(rules.can_fetch(case.url, case.agent)) is case.allowed


def figures(folder: Path) -> list[Figure]:
    """Return the figures of ours, of Google's own matcher, for which the suite was made, and of
    protego."""
    found = cases(folder / "robots-ctc.jsonl")
    others = {"jwm.robotstxt": _google, "protego": _protego}
    return [tried("robotstxt-spec-test", found, _ours, others, LEAST, _shown)]


def _shown(case: Case) -> str:
    want = "allowed" if case.allowed else "disallowed"
    return f"{case.agent} at {case.url} should be {want} by {case.file}"
