"""The content: pages, attempts, final states, seeds. ``open_store`` gives a store by its URL."""

from __future__ import annotations

from pathlib import Path

from schema.errors import InvalidConfig
from store.base import Store
from store.bodies import Bodies
from store.migrate import Upgrade
from store.mysql import topology
from store.sqlite import SqliteStore
from store.sqlite_upgrade import SqliteUpgrade
from store.warc.files import WarcFiles

__all__ = ["Store", "open_store", "open_upgrade"]


def open_store(url: str, bodies: str = "sql", *, upgrade: bool = True) -> Store:
    """Open the store at ``url``: ``sqlite:///PATH`` or ``mysql://…`` (see ``store.mysql``).

    A SQLite file is created or migrated; ``sqlite:///data/x.sqlite`` is relative,
    ``sqlite:////srv/x.sqlite`` absolute. An empty MySQL database is set up. ``bodies`` is as
    GREENCRAWL_BODIES has it. Without ``upgrade`` a SQLite file stays as it is, for who only looks.
    Open it once per process. Raises InvalidConfig for another scheme or
    a database that is not for this version, Unavailable when no server takes writes.
    """
    if url.startswith("mysql://"):
        from store.mysql.store import MysqlStore  # brings cryptography along: 8 MB

        return MysqlStore(topology.parse(url), open_bodies(bodies))
    return SqliteStore(_file(url), open_bodies(bodies), upgrade=upgrade)


def open_upgrade(url: str) -> Upgrade:
    """The migrations of the store at ``url``. Raises InvalidConfig, Unavailable."""
    if url.startswith("mysql://"):
        from store.mysql.migrations import MysqlUpgrade

        return MysqlUpgrade(topology.parse(url))
    return SqliteUpgrade(_file(url))


def _file(url: str) -> Path:
    scheme, _, path = url.partition("://")
    if scheme == "sqlite" and len(path) > 1 and path.startswith("/") and ":memory:" not in path:
        return Path(path[1:])
    raise InvalidConfig(
        [
            (
                "GREENCRAWL_STORE",
                "must be sqlite:///PATH, a file that processes share, or "
                "mysql://USER:PASSWORD@HOST[,HOST]/DATABASE",
            )
        ]
    )


def open_bodies(bodies: str) -> Bodies | None:
    """The files of ``warc:FOLDER``; None for ``sql``. Raises InvalidConfig."""
    kind, _, folder = bodies.partition(":")
    if kind == "warc" and folder:
        return WarcFiles(Path(folder))
    if bodies != "sql":
        raise InvalidConfig([("GREENCRAWL_BODIES", "must be sql, or warc:FOLDER")])
    return None
