"""A site as WARC, as crawled and as exported later, compared with the site itself.

warcio checks and replays the files; the site, asked again, has the right answers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import oracle
from tests.support.archive import Archive, check
from tests.support.checkout import ROOT
from tests.support.system import System
from tests.support.walk import http_fetch, walk

NAMES = ("location", "content-type", "content-length")
"""Headers that a replay has in the same form as the site."""


@dataclass(frozen=True)
class Replayed:
    """Records of an archive by kind, and how many answers below 300 were compared."""

    kinds: dict[str, int]
    pages: int


def crawl_and_export(
    folder: Path, redis: Sequence[str], base: str, paths: Sequence[str]
) -> tuple[Replayed, Replayed]:
    """Crawl twice, each time with a Redis of its own: into files, and into SQL, which is exported.

    Each is compared with a walk of the site, and with its answers. Raises AssertionError with what
    differs.
    """
    starts = [base + path for path in paths]
    met = walk(starts, http_fetch(), agent="greencrawl")
    expected = met.pages | met.redirects
    return (
        _judge(_crawl(folder / "live", redis[:1], starts), expected),
        _judge([_export(folder / "kept", redis[1:], starts)], expected),
    )


def _crawl(folder: Path, redis: Sequence[str], starts: list[str]) -> list[Path]:
    warc = folder / "warc"
    with System(folder, redis, processes=2, bodies=f"warc:{warc}") as system:
        system.start().crawl(starts, name="live", delay=0, slots=8)
        system.wait_done(60, "live")
    assert list(warc.glob("*.open")) == []
    return sorted(warc.glob("*.warc.gz"))


def _export(folder: Path, redis: Sequence[str], starts: list[str]) -> Path:
    with System(folder, redis, processes=2) as system:
        system.start().crawl(starts, name="kept", delay=0, slots=8, bodies="all")
        system.wait_done(60, "kept")
    out = folder / "site.warc.gz"
    subprocess.run(
        [sys.executable, "-m", "greencrawl.cli", "export", "--format", "warc", "--crawl", "kept",
         "--data", str(folder / "data"), "-o", str(out)],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")},
        check=True,
    )  # fmt: skip
    return out


def _judge(files: Sequence[Path], expected: set[str]) -> Replayed:
    assert check(files) == ""
    archive = Archive(files)
    found = {url: read for url, read in archive.answers.items() if read.status < 400}
    assert oracle.shown(oracle.differences(found, expected, "there")) == ""
    agents = {read.http.get("user-agent", "") for read in archive.requests.values()}
    assert agents == {"greencrawl/0.1"}
    fetch, pages = http_fetch(), 0
    for url, read in found.items():
        status, headers, body = fetch(url)
        assert (url, read.status, read.body) == (url, status, body)
        for name in NAMES:
            assert (url, name, read.http.get(name)) == (url, name, headers.get(name))
        pages += status < 300
    return Replayed(archive.kinds, pages)
