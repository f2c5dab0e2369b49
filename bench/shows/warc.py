"""A whole site as WARC, both as it is crawled and exported later, replays byte for byte.

Debian's ``postgresql-doc-15`` behind nginx, with a redirect for every page and pictures and style
sheets seeded beside them. One crawl keeps its bodies in WARC files; another keeps bodies of every
type in SQL and is exported. warcio checks and replays both; the judge is the site itself, asked
again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig.report import Report
from bench.shows.site import MISSING, SITE, START, install_site
from tests.support import oracle
from tests.support.archive import Archive, check
from tests.support.checkout import ROOT
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until
from tests.support.walk import Fetch, http_fetch, walk

MOVED = 40
"""Redirects that are seeded beside the start; what they lead to is linked anyway."""

NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; {user}
events {{ worker_connections 1024; }}
http {{
  include /etc/nginx/mime.types; access_log off; gzip on; gzip_min_length 1000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port}; root {site}; port_in_redirect on;
    location /moved/ {{ rewrite ^/moved(/.*)$ $1 permanent; }}
  }}
}}
"""


@dataclass
class Judged:
    """What a replay has against it, and how much was compared."""

    findings: list[str] = field(default_factory=list)
    pages: int = 0
    redirects: int = 0
    bytes: int = 0


class Nginx:
    """nginx on a free port of 127.0.0.1, serving the folder ``site``, compressed where asked for.

    What is below ``/moved`` is a redirect. A context manager.
    """

    def __init__(self, folder: Path, site: Path) -> None:
        self._folder = folder
        self._site = site
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Nginx:
        binary = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if binary is None:
            raise SystemExit("nginx is missing: as root, apt-get install nginx-light")
        self._folder.mkdir()
        config = self._folder / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(
            NGINX.format(folder=self._folder, site=self._site, port=self._port, user=user)
        )
        command = [binary, "-p", str(self._folder), "-c", str(config)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        ready = self._folder / "nginx.pid"
        wait_until(lambda: ready.exists() and ready.read_text().strip(), 10, "nginx started")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    report = Report("warc", "a crawled site as WARC equals the site")
    install_site()
    with tempfile.TemporaryDirectory() as folder, Nginx(Path(folder) / "nginx", SITE) as server:
        redis = [RedisServer(Path(folder) / f"redis{n}").start() for n in range(2)]
        try:
            addresses = [one.url for one in redis]
            archive_site(report, Path(folder), addresses, server.url, seeds_of(SITE))
        finally:
            for one in redis:
                one.stop()
    return report.finish()


def seeds_of(site: Path) -> list[str]:
    """Paths that no page links to: pictures, style sheets, redirects; and some that are missing."""
    files = [path.relative_to(site) for path in sorted(site.rglob("*")) if path.is_file()]
    rest = [f"/{path}" for path in files if path.suffix != ".html"]
    moved = [f"/moved/{path}" for path in files if path.suffix == ".html"][:MOVED]
    return [START, *rest, *moved, *MISSING]


def archive_site(
    report: Report, folder: Path, redis: Sequence[str], base: str, paths: Sequence[str]
) -> None:
    """Crawl twice, each time with a Redis of its own; export, check, replay and compare."""
    starts = [base + path for path in paths]
    expected = walk(starts, http_fetch(), agent="greencrawl")
    report.figure("pages the walk reached", len(expected.pages))
    report.figure("redirects the walk met", len(expected.redirects))
    files = _crawl(report, folder / "live", redis[:1], starts)
    _judge(report, "files of the crawl", files, base, expected.pages | expected.redirects)
    exported = _export(report, folder / "kept", redis[1:], starts)
    _judge(report, "export", [exported], base, expected.pages | expected.redirects)


def _crawl(report: Report, folder: Path, redis: Sequence[str], starts: list[str]) -> list[Path]:
    warc = folder / "warc"
    with System(folder, redis, processes=2, bodies=f"warc:{warc}") as system:
        system.start().crawl(starts, name="live", delay=0, slots=8)
        report.figure("crawl into WARC files", system.wait_done(300, "live"), "s")
    left = list(warc.glob("*.open"))
    report.none("every file is finished when the workers have stopped", [str(x) for x in left])
    return sorted(warc.glob("*.warc.gz"))


def _export(report: Report, folder: Path, redis: Sequence[str], starts: list[str]) -> Path:
    with System(folder, redis, processes=2) as system:
        system.start().crawl(starts, name="kept", delay=0, slots=8, bodies="all")
        report.figure("crawl into SQL", system.wait_done(300, "kept"), "s")
    out = folder / "site.warc.gz"
    done = subprocess.run(
        [sys.executable, "-m", "greencrawl.cli", "export", "--format", "warc", "--crawl", "kept",
         "--data", str(folder / "data"), "-o", str(out)],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    report.none("the export succeeds", [done.stderr.strip()] if done.returncode else [])
    return out


def _judge(report: Report, what: str, files: Sequence[Path], base: str, expected: set[str]) -> None:
    said = check(files)
    report.claim(f"{what}: warcio check passes", not said, said[:1000])
    archive = Archive(files)
    size = sum(path.stat().st_size for path in files)
    report.row(what, files=len(files), megabytes=size / 1e6, **archive.kinds)
    found = {url: read for url, read in archive.answers.items() if read.status < 400}
    report.none(
        f"{what}: every URL of the walk is there", oracle.differences(found, expected, "there")
    )
    judged = judge(archive, sorted(found), http_fetch())
    report.row(
        f"{what}, compared", pages=judged.pages, redirects=judged.redirects,
        megabytes=judged.bytes / 1e6,
    )  # fmt: skip
    report.none(f"{what}: each equals what the site serves", judged.findings)
    agents = {read.http.get("user-agent", "") for read in archive.requests.values()}
    wrong = agents - {"greencrawl/0.1"}
    report.none(f"{what}: requests name the crawler", sorted(wrong))


def judge(archive: Archive, urls: Sequence[str], fetch: Fetch) -> Judged:
    """Compare the replay of each URL with what its server says now."""
    judged = Judged()
    for url in urls:
        read = archive.answers[url]
        status, headers, body = fetch(url)
        if read.status != status:
            judged.findings.append(f"{url}: {read.status}, but the site says {status}")
        if read.body != body:
            judged.findings.append(f"{url}: {len(read.body)} bytes differ from {len(body)}")
        for name in ("location", "content-type", "content-length"):
            if read.http.get(name) != headers.get(name):
                judged.findings.append(f"{url}: {name} {read.http.get(name)!r}")
        judged.bytes += len(body)
        judged.redirects += 300 <= status < 400
        judged.pages += 200 <= status < 300
    return judged
