"""A logger: ``python -m greencrawl.logger`` on a free port, or its parts in this process."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zstandard
from gevent.pywsgi import WSGIServer

from greencrawl.broker.api.security import Guard
from greencrawl.logger.app import LoggerApp
from greencrawl.logger.archive import Archive
from greencrawl.logger.intake import Intake
from tests.support.checkout import ROOT
from tests.support.ports import free_port
from tests.support.system import wait_until

START_SECONDS = 60.0


def line(text: str, /, at_ms: int | None = None, level: str = "info", **fields: object) -> str:
    """Return a log line as processes write it."""
    now = time.time() if at_ms is None else at_ms / 1000
    said = {
        "event": text,
        "level": level,
        "timestamp": datetime.fromtimestamp(now, UTC).isoformat(),
    }
    return json.dumps({**said, **fields})


def post(url: str, lines: Sequence[str | bytes], token: str = "", **query: object) -> Any:
    """Send lines like a sender; raises urllib.error.HTTPError."""
    body = b"\n".join(one.encode() if isinstance(one, str) else one for one in lines)
    given = {"member": "w-0", "incarnation": 1, "first": 1, **query}
    asked = "&".join(f"{name}={value}" for name, value in given.items())
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "zstd"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    packed = zstandard.ZstdCompressor().compress(body)
    request = urllib.request.Request(f"{url}/v1/logs?{asked}", packed, headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def get(url: str, token: str = "", **query: object) -> Any:
    """Return the answer of a logger; raises urllib.error.HTTPError."""
    asked = "&".join(f"{name}={value}" for name, value in {"since": "1d", **query}.items())
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url}/v1/logs?{asked}", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def everything(url: str, **query: object) -> list[dict[str, Any]]:
    """Return all lines of a logger, page by page."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        reply = get(url, limit=1000, after=after, **query)
        found += reply["items"]
        after = reply["next"]
        if not after:
            return found


@contextmanager
def logger_here(folder: Path, token: str = "", port: int = 0) -> Iterator[tuple[str, Intake]]:
    """Run a logger in this process; yield its address, and the object that takes its lines.

    No minute passes in it: lines are written when a test, or a sender, says so. Lines in memory at
    the end are lost, as after kill -9.
    """
    intake = Intake(Archive(folder, 14))
    app = LoggerApp(intake.archive, intake, Guard(token, ""))
    server = WSGIServer(("127.0.0.1", port or free_port()), app.wsgi, log=None, spawn=50)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", intake
    finally:
        server.stop(timeout=0.001)  # its connections are cut


class LoggerProcess:
    """``settings`` are GREENCRAWL_ variables in lower case without the prefix."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = {
            "data": str(folder),
            "logger_bind": f"127.0.0.1:{self.port}",
            "broker": f"http://127.0.0.1:{free_port()}",
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the logger without waiting; its output goes to ``log`` in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
        given = {f"GREENCRAWL_{key.upper()}": value for key, value in self.settings.items()}
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "greencrawl.logger"],
                cwd=ROOT,
                env={**kept, **given},
                stdout=log,
                stderr=log,
            )
        return self.process

    def limit(self, file_bytes: int) -> None:
        """Limit the length of its files from now on, as on a full disk; 0: no limit."""
        assert self.process is not None
        soft = file_bytes or resource.RLIM_INFINITY
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    def start(self) -> LoggerProcess:
        process = self.spawn()

        def answers() -> bool:
            assert process.poll() is None, self.log()
            try:
                return bool(self.health())
            except OSError:
                return False

        wait_until(answers, START_SECONDS, "the logger answers")
        return self

    def health(self) -> Any:
        with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
            return json.loads(answer.read())

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        """Send SIGKILL, as in a power cut."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(15)
        finally:
            self.kill()
