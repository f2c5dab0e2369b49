"""nginx for benchmarks: a folder for each of many loopback addresses, and a log that is checked."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.support.ports import free_port
from tests.support.system import wait_until

CONFIGURATION = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  default_type application/octet-stream;
  types {{
    text/html html; text/plain txt; text/css css; text/javascript js;
    image/svg+xml svg; image/png png; image/x-icon ico;
  }}
  log_format times '$msec $status $server_addr $uri';
  access_log {folder}/access.log times buffer=64k flush=200ms;
  sendfile on;
  tcp_nodelay on;
  keepalive_requests 1000000;
  open_file_cache max=500 inactive=60s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ {listen} root {folder}/site/$server_addr; }}
}}
"""
FLUSH_SECONDS = 0.5
"""After this time the log has all answers."""


class Hit(NamedTuple):
    """One request: Unix seconds of its answer, status, address and path."""

    at: float
    status: str
    address: str
    path: str

    @property
    def page(self) -> bool:
        """Return whether the request was an existing page."""
        return self.status == "200" and self.path.endswith(".html")


class Nginx:
    """nginx on one port of ``addresses``, each serving ``folder``/site/ADDRESS; log with times of
    requests.
    """

    def __init__(self, folder: Path, addresses: Sequence[str], cpu: int | None) -> None:
        self.folder = folder
        self.addresses = tuple(addresses)
        self.port = free_port()
        self._cpu = cpu
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Nginx:
        """Start the server. Raises SystemExit saying what to install if there is no nginx."""
        binary = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if binary is None:
            raise SystemExit("nginx is missing: as root, apt-get install nginx-light")
        listen = " ".join(f"listen {a}:{self.port} backlog=1024;" for a in self.addresses)
        user = "user root;" if os.geteuid() == 0 else ""
        config = self.folder / "nginx.conf"
        config.write_text(CONFIGURATION.format(folder=self.folder, listen=listen, user=user))
        command = [binary, "-p", str(self.folder), "-c", str(config)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        if self._cpu is not None:
            psutil.Process(self._process.pid).cpu_affinity([self._cpu])
        ready = self.folder / "nginx.pid"
        try:
            wait_until(lambda: ready.exists() and ready.read_text().strip(), 10, "nginx started")
        except AssertionError:
            self.stop()
            log = self.folder / "error.log"
            said = log.read_text()[-1500:] if log.exists() else ""
            raise SystemExit(f"nginx does not come up: {said}") from None
        return self

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)

    def urls(self, path: str, hosts: int) -> list[str]:
        """Return ``path`` on the first ``hosts`` addresses."""
        return [f"http://{address}:{self.port}{path}" for address in self.addresses[:hosts]]

    def mark(self) -> int:
        """Return the present end of the log; give it to :meth:`hits` to read later entries."""
        log = self.folder / "access.log"
        return log.stat().st_size if log.exists() else 0

    def hits(self, mark: int) -> list[Hit]:
        """Return the requests since ``mark``, in the order of answers."""
        with (self.folder / "access.log").open() as log:
            log.seek(mark)
            rows = [line.split(maxsplit=3) for line in log]
        return [Hit(float(at), status, address, path.strip()) for at, status, address, path in rows]


def rate(hits: Sequence[Hit], ended: float) -> float:
    """Return pages a second from the first page's answer until ``ended`` (Unix seconds).

    Raises ValueError if there are fewer than two pages.
    """
    times = [hit.at for hit in hits if hit.page]
    if len(times) < 2:
        raise ValueError(f"{len(times)} pages are too few to tell a rate")
    return (len(times) - 1) / (ended - times[0])


def neglected_duties(hits: Sequence[Hit], forbidden: str) -> list[str]:
    """Return the duties that a crawler did not do, by its server's log: an empty list if it did
    all.

    There are three duties. The crawler asks each host for robots.txt before it fetches a page. It
    fetches no path that begins with ``forbidden``. It fetches no page of a host twice.
    """
    found = []
    asked: set[str] = set()
    unasked: set[str] = set()
    times: Counter[tuple[str, str]] = Counter()
    for hit in hits:
        if hit.path == "/robots.txt":
            asked.add(hit.address)
        elif hit.address not in asked:
            unasked.add(hit.address)
        times[hit.address, hit.path] += hit.path != "/robots.txt"
    found += [f"{address} was not asked for robots.txt first" for address in sorted(unasked)]
    for (address, path), count in times.items():
        if path.startswith(forbidden):
            found.append(f"{address}{path} is forbidden")
        if count > 1:
            found.append(f"{address}{path} was fetched {count} times")
    return found
