"""A real ``python -m greencrawl.broker`` on a free port, in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from greencrawl.broker.client import BrokerClient
from tests.support.checkout import ROOT
from tests.support.ports import free_port

START_SECONDS = 60.0


class BrokerProcess:
    """``settings`` are GREENCRAWL_ variables in lower case without the prefix.

    ``start()`` returns when it is ready; without ``redis`` it runs the embedded one.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.scheme = "https" if "tls_cert" in settings else "http"
        self.token = settings.get("admin_token", "")
        self._ca = settings.get("tls_cert", "")
        self.settings = {"data": str(folder), "bind": f"127.0.0.1:{self.port}", **settings}
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, timeout: float = 10.0) -> BrokerClient:
        return BrokerClient([self.url], self.token, ca=self._ca, timeout=timeout)

    def spawn(self) -> subprocess.Popen[str]:
        """Start the broker without waiting; its output goes to ``log`` in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
        given = {f"GREENCRAWL_{key.upper()}": value for key, value in self.settings.items()}
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "greencrawl.broker"],
                cwd=ROOT,
                env={**kept, **given},
                stdout=log,
                stderr=log,
                text=True,
            )
        return self.process

    def start(self) -> BrokerProcess:
        process, client = self.spawn(), self.client(timeout=2.0)
        limit = time.monotonic() + START_SECONDS
        while not client.ready():
            if process.poll() is not None or time.monotonic() > limit:
                self.kill()
                raise AssertionError(f"the broker did not start:\n{self.log()}")
            time.sleep(0.02)
        client.disconnect()
        return self

    def log(self) -> str:
        """Return all of the broker's output."""
        return (self.folder / "log").read_text()

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(25)
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL, as in a power cut."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()
