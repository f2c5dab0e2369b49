"""Show 9: links with Chinese queries in a GBK page; the target's log against the URL standard.

Where Chromium is installed, it loads each link from the same page too, and must have sent the
same request lines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.rig.report import Report
from tests.support import oracle
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, Site, SiteServer
from tests.support.sites import GBK_LINKS, gbk_site
from tests.support.system import System

EXPECTED = set(GBK_LINKS.values())
OWN = {"/", "/robots.txt", "/favicon.ico", "/frames"}
"""Targets that belong to the visit itself."""


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    report = Report("gbk", "9. Chinese queries in a GBK page")
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer(Path(folder) / "redis").start()
        try:
            with (
                SiteServer(gbk_site()) as server,
                System(Path(folder) / "crawl", [redis.url]) as system,
            ):
                system.start().crawl([server.url("/")], delay=0)
                system.wait_done(60)
                sent = {hit.target for hit in server.hits} - OWN
        finally:
            redis.stop()
        for reference, target in GBK_LINKS.items():
            report.figure(reference, target if target in sent else "not requested so")
        report.none(
            "request lines are those of the URL standard",
            oracle.differences(sent, EXPECTED, "requested"),
        )
        if chromium := shutil.which("chromium"):
            requested = _browse(chromium, Path(folder) / "profile")
            report.none(
                "Chromium sends the same", oracle.differences(requested, EXPECTED, "requested")
            )
        else:
            report.figure("Chromium", "not installed; compared with the standard's bytes only")
    return report.finish()


def _browse(chromium: str, profile: Path) -> set[str]:
    """Targets that a browser requests when the page's links are shown in frames."""
    with SiteServer(_framed(gbk_site())) as server:
        command = [chromium, "--headless=new", "--disable-gpu", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")
        command += ["--virtual-time-budget=5000", "--dump-dom", server.url("/frames")]
        subprocess.run(command, timeout=90, check=True, capture_output=True)
        return {hit.target for hit in server.hits} - OWN


def _framed(site: Site) -> Site:
    """``/frames`` is the GBK page with its links as frames, which a browser loads unasked."""

    def framed(request: Request) -> Answer:
        if request.target != "/frames":
            return site(request)
        page = site(Request(request.address, "/", {})).body
        return Answer(
            body=page.replace(b"<a href=", b"<iframe src=").replace(b"</a>", b"</iframe>"),
            headers={"Content-Type": "text/html"},
        )

    return framed
