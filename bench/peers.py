"""What the speed bench runs against and beside: nginx with synthetic pages, and Scrapy."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support.redis_server import free_port
from tests.support.system import wait_until

PAGE_BYTES = 20_000
LINKS = 40
SPIDER = Path(__file__).parent / "scrapy_spider.py"

NGINX = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  default_type text/html;
  types {{ text/html html; text/plain txt; }}
  log_format times '$msec $status $server_addr $uri';
  access_log {folder}/access.log times buffer=64k flush=200ms;
  sendfile on;
  tcp_nodelay on;
  keepalive_requests 1000000;
  open_file_cache max=500 inactive=60s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ {listen} root {folder}/site; }}
}}
"""


def write_pages(folder: Path, pages: int, seed: int = 1) -> None:
    """``pages`` files of about 20 KB with 40 links each, all reachable from ``/0.html``.

    A page links to its two children in a binary tree, and to others at random; links stand in
    paragraphs of English-like words. The same ``seed`` gives the same bytes.
    """
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(2000)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "robots.txt").write_text("User-agent: *\nDisallow: /private/\n")
    for i in range(pages):
        targets = [j for j in (2 * i + 1, 2 * i + 2) if j < pages]
        targets += chance.sample(range(pages), LINKS - len(targets))
        (folder / f"{i}.html").write_text(_page(i, targets, words, chance))


def _page(i: int, targets: list[int], words: list[str], chance: random.Random) -> str:
    share = (PAGE_BYTES - 200) // len(targets) - 48
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page {i}</title>'
        "</head><body><h1>Synthetic</h1>"
    ]
    for target in targets:
        text = " ".join(chance.choices(words, k=share // 7))
        parts.append(f'<p>{text} <a href="/{target}.html">{chance.choice(words)}</a></p>\n')
    return "".join(parts) + "</body></html>"


class Nginx:
    """nginx on one port of ``addresses``, serving ``folder``/site; log with times of requests."""

    def __init__(self, folder: Path, addresses: Sequence[str], cpu: int | None) -> None:
        self.folder = folder
        self.addresses = tuple(addresses)
        self.port = free_port()
        self._cpu = cpu
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Nginx:
        """Raises SystemExit saying what to install when there is no nginx."""
        binary = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if binary is None:
            raise SystemExit("nginx is missing: as root, apt-get install nginx-light")
        listen = " ".join(f"listen {a}:{self.port} backlog=1024;" for a in self.addresses)
        user = "user root;" if os.geteuid() == 0 else ""
        config = self.folder / "nginx.conf"
        config.write_text(NGINX.format(folder=self.folder, listen=listen, user=user))
        command = [binary, "-p", str(self.folder), "-c", str(config)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        if self._cpu is not None:
            psutil.Process(self._process.pid).cpu_affinity([self._cpu])
        ready = self.folder / "nginx.pid"
        wait_until(lambda: ready.exists() and ready.read_text().strip(), 10, "nginx started")
        return self

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)

    @property
    def seeds(self) -> list[str]:
        """The first page of every address."""
        return [f"http://{address}:{self.port}/0.html" for address in self.addresses]

    def mark(self) -> int:
        """Where the log ends now; give it to :meth:`page_times` to read what came later."""
        log = self.folder / "access.log"
        return log.stat().st_size if log.exists() else 0

    def page_times(self, mark: int) -> list[float]:
        """Epoch seconds at which pages were answered with 200 since ``mark``, in order."""
        with (self.folder / "access.log").open() as log:
            log.seek(mark)
            rows = [line.split() for line in log]
        return sorted(
            float(at) for at, status, _, path in rows if status == "200" and path[-5:] == ".html"
        )


def crawl_with_scrapy(
    seeds: Sequence[str], pages: int, connections: int, folder: Path, cpu: int | None
) -> dict[str, Any]:
    """Crawl about ``pages`` pages with :mod:`bench.scrapy_spider`; its figures.

    Raises RuntimeError with the end of its output when it fails.
    """
    result = folder / "scrapy.json"
    command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER)]
    command += ["-a", f"seeds={','.join(seeds)}", "-a", f"result={result}"]
    environment = os.environ | {
        "BENCH_PAGES": str(pages),
        "BENCH_CONNECTIONS": str(connections),
        "BENCH_HOSTS": str(len(seeds)),
    }
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if cpu is not None:
        psutil.Process(process.pid).cpu_affinity([cpu])
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    if process.returncode or not result.exists():
        raise RuntimeError(f"Scrapy failed: {output.decode(errors='replace')[-2000:]}")
    found: dict[str, Any] = json.loads(result.read_text())
    result.unlink()
    return found
