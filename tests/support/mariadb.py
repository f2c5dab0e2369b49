"""A real MariaDB for a test: free port, its own folder, stopped by process id."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from greencrawl.store.mysql.cluster.local.cluster import DATABASE as DATABASE
from greencrawl.store.mysql.cluster.local.cluster import LocalCluster
from greencrawl.store.mysql.cluster.local.options import PLAIN
from greencrawl.store.mysql.cluster.local.server import LocalServer, template
from tests.support.lane import SHARED
from tests.support.ports import free_port

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
        _link_template(folder.parent)
        super().__init__(folder, free_port(), {**PLAIN, **given})

    @property
    def url(self) -> str:
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def database(self, name: str) -> str:
        """Make an empty database; return its URL."""
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


def local_cluster(folder: Path) -> LocalCluster:
    """Two masters and three replicas."""
    _link_template(folder)
    return LocalCluster(folder)


def _link_template(folder: Path) -> None:
    """Link to an empty data folder that is made once for all tests."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "template").exists():
        (folder / "template").symlink_to(_template())


@cache
def _template() -> Path:
    if SHARED in os.environ:
        return template(Path(os.environ[SHARED]))
    folder = Path(tempfile.mkdtemp(prefix="mariadb-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return template(folder)
