"""The store's content: pages, attempts, final states, seeds. ``open_store`` opens a store by its
URL."""

from __future__ import annotations

from pathlib import Path

from greencrawl.schema.errors import InvalidConfig
from greencrawl.store.base import Store
from greencrawl.store.bodies import Bodies
from greencrawl.store.migrations import Upgrade
from greencrawl.store.mysql.cluster import topology
from greencrawl.store.sqlite.migrations import SqliteUpgrade
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.warc.files import WarcFiles

if __name__ != "greencrawl.store":
    raise ImportError("`store` is called `greencrawl.store` now: import that")

__all__ = ["Store", "open_store", "open_upgrade"]


def open_store(url: str, bodies: str = "sql", *, upgrade: bool = True) -> Store:
    """Open the store at ``url``: ``sqlite:///PATH``, or ``mysql://…``.

    A SQLite file is created or migrated; ``sqlite:///data/x.sqlite`` is relative,
    ``sqlite:////srv/x.sqlite`` absolute. An empty MySQL database is set up. ``bodies`` takes the
    values of GREENCRAWL_BODIES. Without ``upgrade`` a SQLite file is not migrated: for callers that
    only read. Open it once per process. Raises InvalidConfig for another scheme or a database that
    is not for this version, Unavailable when no server takes writes.
    """
    if url.startswith("mysql://"):
        from greencrawl.store.mysql.store import MysqlStore

        return MysqlStore(topology.parse(url), open_bodies(bodies))
    return SqliteStore(_file(url), open_bodies(bodies), upgrade=upgrade)


def open_upgrade(url: str) -> Upgrade:
    """Open the migrations of the store at ``url``. Raises InvalidConfig, Unavailable."""
    if url.startswith("mysql://"):
        from greencrawl.store.mysql.migrations import MysqlUpgrade

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
    """Open the files of ``warc:FOLDER``; return None for ``sql``. Raises InvalidConfig."""
    kind, _, folder = bodies.partition(":")
    if kind == "warc" and folder:
        return WarcFiles(Path(folder))
    if bodies != "sql":
        raise InvalidConfig([("GREENCRAWL_BODIES", "must be sql, or warc:FOLDER")])
    return None
