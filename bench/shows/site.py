"""Show 2: Debian's ``postgresql-doc-15``, crawled by two worker processes, equals a plain walk."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from bench.rig.report import Report
from tests.support import oracle
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import folder_site
from tests.support.stored import read_stored
from tests.support.system import System
from tests.support.walk import http_fetch, walk

PACKAGE = "postgresql-doc-15"
SITE = Path("/usr/share/doc") / PACKAGE / "html"
START = "/index.html"
MISSING = tuple(f"/no-such-page-{n}.html" for n in range(5))
"""Seeded beside the start: the package's own links all have targets."""


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    report = Report("site", f"2. {PACKAGE}, two worker processes")
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer(Path(folder) / "redis").start()
        try:
            crawl_site(report, Path(folder), [redis.url])
        finally:
            redis.stop()
    return report.finish()


def install_site() -> None:
    """Install the package if it is missing. Raises SystemExit saying what to do without root."""
    if (SITE / "index.html").exists():
        return
    if os.geteuid() != 0:
        raise SystemExit(f"{PACKAGE} is missing: as root, apt-get install {PACKAGE}")
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", PACKAGE], check=True)


def crawl_site(report: Report, folder: Path, redis: list[str]) -> None:
    """Walk the site, crawl it, and compare store, journal and log with the walk."""
    install_site()
    with SiteServer(folder_site(SITE)) as server, System(folder, redis, processes=2) as system:
        starts = [server.url(path) for path in (START, *MISSING)]
        expected = walk(starts, http_fetch(), agent="greencrawl")
        server.hits.clear()
        system.start().crawl(starts, delay=0, slots=16)
        seconds = system.wait_done(180)
        requests = oracle.requests_of(server.hits, server.port)
        stored = read_stored(folder / "data")
    report.figure("files in the package", sum(path.is_file() for path in SITE.iterdir()))
    report.figure("pages the walk reached", len(expected.pages))
    report.figure("missing targets the walk met", len(expected.missing))
    report.figure("pages stored", len(stored.pages))
    report.figure("requests in the server's log", sum(requests.values()))
    report.figure("crawl", seconds, "s")
    report.claim("the walk reached a real site", len(expected.pages) > 1000)
    report.none(
        "pages stored equal the walk's", oracle.differences(stored.pages, expected.pages, "stored")
    )
    report.none("every URL fetched exactly once", oracle.not_once(requests, expected.requested))
    report.none(
        "missing targets journalled",
        oracle.differences(stored.gone, expected.missing, "journalled"),
    )
    tries = {stored.tries[url] for url in expected.missing}
    report.claim("… once each, and there were some", tries == {1})
