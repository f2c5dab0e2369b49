"""A real MariaDB for a test: free port, its own folder, stopped by process id."""

from __future__ import annotations

from pathlib import Path

from store.mysql.local import DATABASE as DATABASE
from store.mysql.local import PLAIN, LocalServer, free_ports

USER, PASSWORD = "greencrawl", "geheim"


class MariaDb(LocalServer):
    """One server that takes writes; ``options`` are further ones, as ``--name=value``.

    ``start()``; ``stop()`` in order, or ``kill()`` by SIGKILL, which keeps the data.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        given = {
            name: value or "ON"
            for name, _, value in (one.removeprefix("--").partition("=") for one in options)
        }
        super().__init__(folder, free_ports(1)[0], {**PLAIN, **given})

    @property
    def url(self) -> str:
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def database(self, name: str) -> str:
        """Make an empty database; returns its URL."""
        with self.root() as connection, connection.cursor() as db:
            db.execute(f"CREATE DATABASE {name}")
        return f"{self.url.rpartition('/')[0]}/{name}"

    def start(self) -> MariaDb:  # type: ignore[override]
        if super().start():
            with self.root() as connection, connection.cursor() as db:
                db.execute("SET sql_log_bin = 0")
                db.execute(f"CREATE DATABASE {DATABASE}")
                db.execute(f"GRANT ALL ON *.* TO {USER}@'%' IDENTIFIED BY '{PASSWORD}'")
        return self
