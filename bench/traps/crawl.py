"""A crawl of a site of ours by the command, as a user runs it, and the site's log of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bench.traps.kinds.sites import Log, Site
from tests.support.checkout import ROOT
from tests.support.site_server import SiteServer

SECONDS = 1800.0
"""A crawl that is not done by then is ended, and counts as failed."""


@dataclass(frozen=True)
class Manner:
    """How to crawl. ``requests``: stop after this many pages, 0: never.

    ``traps``: ``on``, ``off`` or "" for the tree's default. ``tree`` is the checkout whose code
    crawls.
    """

    requests: int = 3000
    traps: str = ""
    slots: int = 1
    processes: int = 1
    tree: Path = ROOT
    sitemaps: bool = False
    """True if sitemaps are read: few of the sites have any."""

    def options(self) -> list[str]:
        """Return options of the command, without ``traps`` if the tree does not know it."""
        given = ["--delay", "0", "--slots", str(self.slots), "--processes", str(self.processes)]
        if self.requests:
            given += ["--max-pages", str(self.requests)]
        if self.traps and knows(self.tree, "--traps"):
            given += ["--traps", self.traps]
        if not self.sitemaps and knows(self.tree, "--sitemaps"):
            given += ["--sitemaps", "off"]
        return given


@dataclass
class Result:
    """The result of a crawl of a site.

    ``content`` of ``of`` were found; ``wasted`` are worthless requests by kind, ``useful`` the
    others.
    """

    name: str
    requests: int = 0
    content: int = 0
    of: int = 0
    wasted: dict[str, int] = field(default_factory=dict)
    useful: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    missing: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    why_not: list[str] = field(default_factory=list)

    @property
    def on_traps(self) -> int:
        """Return the number of worthless requests."""
        return sum(self.wasted.values())

    @property
    def share(self) -> float:
        """Return the share of worthless requests in all requests."""
        return self.on_traps / self.requests if self.requests else 0.0


class Failed(Exception):
    """A crawl did not end normally; the message has the end of its output."""


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of a command that may crawl loopback, with only the needed variables
    of ours."""
    kept = {name: value for name, value in os.environ.items() if "GREENCRAWL" not in name}
    return kept | {"PYTHONPATH": str(tree / "src"), "GREENCRAWL_ALLOW_NETWORKS": "127.0.0.0/8"}


@cache
def knows(tree: Path, option: str) -> bool:
    """Return whether the command of ``tree`` has an option."""
    command = [sys.executable, "-P", "-m", "greencrawl", "crawl", "--help"]
    said = subprocess.run(command, env=environment(tree), capture_output=True, text=True)
    return option in said.stdout


def run(
    arguments: list[str],
    folder: Path,
    manner: Manner,
    secrets: dict[str, str] | None = None,
) -> tuple[float, dict[str, Any]]:
    """Crawl ``arguments`` with the data in ``folder``; return the seconds, and the summary.

    Raises :class:`Failed`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    summary = folder / "summary.json"
    command = [sys.executable, "-P", "-m", "greencrawl", "crawl", *arguments, *manner.options()]
    command += ["--crawl", "traps", "--data", str(folder / "data"), "--summary", str(summary)]
    began = time.monotonic()
    with (folder / "crawl.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(manner.tree) | (secrets or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
    said = (folder / "crawl.log").read_text(errors="replace")[-3000:]
    if code is None:
        raise Failed(f"not done in {SECONDS:.0f} s: {said}")
    if code or not summary.exists():
        raise Failed(f"exit code {code}: {said}")
    return time.monotonic() - began, json.loads(summary.read_text())


def crawl_site(site: Site, folder: Path, manner: Manner) -> tuple[Result, Log]:
    """Serve ``site`` on loopback and crawl it."""
    log, result = Log(site), Result(site.name)
    with SiteServer(log) as server:
        try:
            result.seconds, summary = run([server.url(site.start)], folder, manner)
            result.notes |= parked(summary)
        except Failed as error:
            result.why_not.append(str(error))
    result.requests, result.of = len(log.asked), len(site.content)
    result.content, result.missing = len(log.found), log.missing
    result.wasted = dict(log.wasted.most_common())
    result.useful = dict(log.useful().most_common())
    return result, log


def parked(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the summary's entries about parked URLs, under any name."""
    return {name: value for name, value in summary.items() if "parked" in name and value}


def shares(counts: dict[str, int]) -> str:
    """Return the counts in words, the greatest first."""
    return ", ".join(f"{name} {count}" for name, count in Counter(counts).most_common(8))
