"""A second pass over PostgreSQL's documentation: each request asks whether a page has changed.

nginx serves the package from loopback and counts what it sends; a broker, one worker process and a
Redis crawl it in two periods with ``depth = "all"``. CPU is that of all three together, a page.

    python -m bench.store.again [--every SECONDS]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.rig.report import Report
from bench.rig.sites import DOCUMENTATION
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until

MOST_BYTES, MOST_CPU = 0.03, 0.4

_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
  types {{ text/html html; text/css css; image/svg+xml svg; }}
  log_format sent '$status $bytes_sent $uri';
  access_log {folder}/access.log sent;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""


class Pass:
    """The costs of a pass: requests by status, bytes sent, and seconds of CPU."""

    def __init__(self, lines: list[str], seconds: float) -> None:
        rows = [line.split(" ", 2) for line in lines if not line.endswith("/robots.txt")]
        self.statuses = Counter(status for status, _, _ in rows)
        self.bytes = sum(int(size) for _, size, _ in rows)
        self.paths = {path for _, _, path in rows}
        self.seconds = seconds


@contextmanager
def nginx(folder: Path) -> Iterator[int]:
    """Serve ``folder/files``; yield the port."""
    port = free_port()
    (folder / "nginx.conf").write_text(_CONFIG.format(folder=folder, port=port))
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    user = ["-g", "user root;"] if os.geteuid() == 0 else []
    command = [binary, "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log"), *user]
    process = subprocess.Popen(command)
    try:
        wait_until((folder / "pid").exists, 10, "nginx serves")
        yield port
    finally:
        process.terminate()
        process.wait(10)


def measure(report: Report, every_seconds: int) -> None:
    """Crawl two periods, and measure the second."""
    with tempfile.TemporaryDirectory(prefix="again-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        DOCUMENTATION.write(folder / "files")
        server = RedisServer(folder / "redis").start()
        try:
            with (
                nginx(folder) as port,
                System(folder / "system", [server.url]).start() as system,
            ):
                passes = _crawl(
                    system, folder, f"http://127.0.0.1:{port}/index.html", every_seconds
                )
                stored = _stored(folder / "system" / "data" / "content.sqlite")
        finally:
            server.stop()
    first, second = passes
    for what, one in (("first", first), ("second", second)):
        report.row(
            f"{what} pass", requests=sum(one.statuses.values()), sent_MB=one.bytes / 1e6,
            CPU_ms_a_request=1000 * one.seconds / max(sum(one.statuses.values()), 1),
            **{f"of_status_{status}": count for status, count in sorted(one.statuses.items())},
        )  # fmt: skip
    report.claim("every page that is stored was asked for again", first.paths == second.paths)
    report.claim("each once", sum(second.statuses.values()) == len(second.paths))
    part = second.bytes / first.bytes
    report.claim(f"at most {MOST_BYTES:.0%} of the bytes: {part:.2%}", part <= MOST_BYTES)
    report.claim("no version, and no body, was stored", stored == 0, f"{stored} versions")
    costs = [one.seconds / sum(one.statuses.values()) for one in passes]
    part = costs[1] / costs[0]
    report.claim(f"CPU of a 304 at most {MOST_CPU} of a 200's: {part:.2f}", part <= MOST_CPU)


def _crawl(system: System, folder: Path, start: str, every_seconds: int) -> list[Pass]:
    system.settle()
    recrawl = {"every": f"{every_seconds}s", "depth": "all"}
    passes: list[Pass] = []
    system.crawl([start], delay=0, slots=4, recrawl=recrawl)
    seen, spent = 0, sum(system.cpu_seconds().values())
    for number in (1, 2):
        wait_until(lambda n=number: _ended(system, n), 300, f"pass {number} ends", 0.5)  # type: ignore[misc]
        now = sum(system.cpu_seconds().values())
        lines = (folder / "access.log").read_text().splitlines()
        passes.append(Pass(lines[seen:], now - spent))
        if number == 1:  # the cost of resting belongs to no page
            wakes = system.stats()["wakes_ms"] / 1000
            time.sleep(max(wakes - time.time() - 0.5, 0))
        seen, spent = len(lines), sum(system.cpu_seconds().values())
    system.call("POST", "/v1/crawls/test/stop", {})
    return passes


def _ended(system: System, number: int) -> bool:
    found = system.call("GET", "/v1/crawls/test/periods")[::-1]
    return len(found) >= number and found[number - 1]["ended_ms"] > 0


def _stored(path: Path) -> int:
    """Return the number of versions beyond the first."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        found: int = database.execute("SELECT COUNT(*) FROM versions").fetchone()[0]
        return found


def main(arguments: list[str]) -> int:
    """Measure, print and judge; return the exit code."""
    parser = argparse.ArgumentParser(description="A second pass, if anything has changed.")
    parser.add_argument("--every", type=int, default=30, help="seconds between two periods")
    given = parser.parse_args(arguments)
    report = Report("again", "every page of PostgreSQL's documentation once more")
    measure(report, given.every)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
