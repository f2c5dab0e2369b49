"""The content: pages, attempts, final states, seeds. ``open_store`` gives a store by its URL."""

from __future__ import annotations

from pathlib import Path

from schema.errors import InvalidConfig
from store.base import Store
from store.mysql import topology
from store.mysql.store import MysqlStore
from store.sqlite import SqliteStore

__all__ = ["Store", "open_store"]


def open_store(url: str) -> Store:
    """Open the store at ``url``: ``sqlite:///PATH`` or ``mysql://…`` (see ``store.mysql``).

    A SQLite file is created or migrated; ``sqlite:///data/x.sqlite`` is relative,
    ``sqlite:////srv/x.sqlite`` absolute. Open it once per process. Raises InvalidConfig for another
    scheme or a database that is not for this version, Unavailable when no server takes writes.
    """
    scheme, _, path = url.partition("://")
    if scheme == "sqlite" and len(path) > 1 and path.startswith("/") and ":memory:" not in path:
        return SqliteStore(Path(path[1:]))
    if scheme == "mysql":
        return MysqlStore(topology.parse(url))
    raise InvalidConfig(
        [
            (
                "GREENCRAWL_STORE",
                "must be sqlite:///PATH, a file that processes share, or "
                "mysql://USER:PASSWORD@HOST[,HOST]/DATABASE",
            )
        ]
    )
