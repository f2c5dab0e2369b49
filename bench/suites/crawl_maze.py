"""google/security-crawl-maze: which forms of URLs does a crawl with all sources find?

FOLDER is a checkout of it. Its own program serves it on loopback, and the log of that program
decides: a URL that was requested was found. Two parts are left out: the part that needs scripts,
and the URL that robots.txt forbids.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from bench.playback.tools import environment
from bench.rig.program import Program
from bench.suites.table import Figure, tried
from bench.traps.crawl import Manner, run
from greencrawl.schema.text.link_sources import DEFAULT, SOURCES
from tests.support.ports import free_port

LEAST = 46
_EXPECTED = Path("blueprints") / "utils" / "resources" / "expected-results.json"
_ASKED = re.compile(r"\"GET (\S+) HTTP/1\.[01]\"")
_FORBIDDEN = "robots.txt"
_SCRIPTED = "javascript"

REASONS = {
    "ping": "browsers send it a POST, beside a link, to count clicks",
    "action-post": "nothing is posted",
    "action-get": "the form has fields for a person",
    "isindex": "the form asks a person for a word; browsers know no such element any more",
    "src-data": "an image in a data: URL loads nothing in a browser",
    "doctype": "nobody loads a document type",
    "base/href": "a base is no page; relative URLs are resolved by it",
    "comment-conditional": "in comments nothing is a link",
    "import/implementation": "an element of Internet Explorer's",
    "content-csp": "where violations are reported to, by POST",
    "content-pinned-websites": "a setting of Internet Explorer's",
    "content-reading-view": "HTML in a text for people",
    "misc/string": "a text, not a link",
}
"""Reasons why a URL is not asked for, by a part of its path."""
_CHOSEN = "a requisite, or of a source that is not read by default"


class Maze(Program):
    """The maze's own program on a free port. ``asked`` are the paths of all requests so far."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.port = free_port()
        command = [
            str(environment()), "-B", "-m", "flask", "--app", "app", "run",
            "--host", "127.0.0.1", "--port", str(self.port),
        ]  # fmt: skip
        super().__init__(command, folder, log, f"http://127.0.0.1:{self.port}/")

    @property
    def asked(self) -> set[str]:
        """Return the paths that were asked for, without their queries."""
        return {target.partition("?")[0] for target in _ASKED.findall(self.log.read_text())}


def figures(folder: Path) -> list[Figure]:
    """Return the URLs that are found by default, and with all sources and requisites."""
    cases = [
        path
        for path in json.loads((folder / _EXPECTED).read_text())
        if _SCRIPTED not in path and _FORBIDDEN not in path
    ]
    further = [f"--links={name}" for name in SOURCES if name not in DEFAULT]
    found = []
    for title, options, least in (
        ("crawl-maze, by default", [], 0),
        ("crawl-maze, all sources and requisites", ["--requisites", "on", *further], LEAST),
    ):
        asked = _crawled(folder.resolve(), options)
        forbidden = {path for path in asked if _FORBIDDEN + ".found" in path}
        assert not forbidden, f"robots.txt forbids {forbidden}"
        found.append(tried(title, cases, asked.__contains__, {}, least, _with_reason))
    return found


def _crawled(folder: Path, options: list[str]) -> set[str]:
    with (
        tempfile.TemporaryDirectory(prefix="greencrawl-maze-") as made,
        Maze(folder, Path(made) / "maze.log") as maze,
    ):
        # Frameworks of its other part name hosts elsewhere.
        options = [*options, "--exclude", "^https?://[^1]"]
        start = f"http://127.0.0.1:{maze.port}/"
        manner = Manner(requests=2000, traps="off", slots=4, sitemaps=True)
        run([start, *options], Path(made) / "crawl", manner)
        return maze.asked


def why(path: str) -> str:
    """Return why a URL of the maze is not asked for."""
    return next((reason for part, reason in REASONS.items() if part in path), _CHOSEN)


def _with_reason(path: str) -> str:
    return f"{path}: {why(path)}"
