"""A real MariaDB for a test: free port, its own folder, stopped by process id."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pymysql

from tests.support.redis_server import free_port

USER, PASSWORD, DATABASE = "greencrawl", "geheim", "greencrawl"

OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=64M",
    "--max-allowed-packet=64M",
    "--performance-schema=OFF",
    "--character-set-server=utf8mb4",
)


def template(folder: Path) -> Path:
    """An empty data folder, made once in ``folder``; copy it, or start a server on a copy."""
    data = folder / "template"
    if not data.exists():
        made = folder / f"template.{os.getpid()}"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={made}", "--skip-test-db",
             "--auth-root-authentication-method=normal", f"--user={_account()}"],
            check=True, capture_output=True,
        )  # fmt: skip
        made.rename(data)
    return data


def _account() -> str:
    import getpass

    return getpass.getuser()


class MariaDb:
    """``start()``; ``stop()`` in order, or ``kill()`` by SIGKILL, which keeps the data."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def database(self, name: str) -> str:
        """Make an empty database; returns its URL."""
        with self.root() as connection, connection.cursor() as db:
            db.execute(f"CREATE DATABASE {name}")
        return f"{self.url.rpartition('/')[0]}/{name}"

    def root(self) -> pymysql.connections.Connection[pymysql.cursors.Cursor]:
        """As root, over the socket."""
        return pymysql.connect(
            unix_socket=str(self.folder / "socket"), user="root", autocommit=True, read_timeout=60
        )

    def start(self) -> MariaDb:
        new = not (self.folder / "data").exists()
        if new:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(template(self.folder.parent), self.folder / "data")
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin") or "mariadbd",
                 "--no-defaults", f"--user={_account()}", f"--datadir={self.folder / 'data'}",
                 f"--port={self.port}", f"--socket={self.folder / 'socket'}",
                 f"--pid-file={self.folder / 'pid'}", *OPTIONS, *self.options],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.wait()
        if new:
            with self.root() as connection, connection.cursor() as db:
                db.execute("SET sql_log_bin = 0")
                db.execute(f"CREATE DATABASE {DATABASE}")
                db.execute(f"GRANT ALL ON *.* TO {USER}@'%' IDENTIFIED BY '{PASSWORD}'")
        return self

    def wait(self, seconds: float = 60.0) -> None:
        """Until it answers."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.root().close()
            except pymysql.MySQLError:
                if time.monotonic() > end or (self.process and self.process.poll() is not None):
                    log = (self.folder / "log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"MariaDB did not start:\n{log}") from None
                time.sleep(0.05)
            else:
                return

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait until the process is gone."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def stop(self) -> None:
        self.kill(signal.SIGTERM)
