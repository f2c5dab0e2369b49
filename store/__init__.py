"""The content: pages, attempts, final states, seeds. ``open_store`` gives a store by its URL."""

from __future__ import annotations

from pathlib import Path

from schema.errors import InvalidConfig
from store.base import Store
from store.bodies import Bodies
from store.migrate import Upgrade
from store.sqlite import SqliteStore
from store.sqlite_upgrade import SqliteUpgrade

__all__ = ["Store", "open_store", "open_upgrade"]


def open_store(url: str, bodies: str = "sql") -> Store:
    """Open the store at ``url``, ``sqlite:///PATH``; the file is created or migrated.

    ``sqlite:///data/x.sqlite`` is relative, ``sqlite:////srv/x.sqlite`` absolute. ``bodies`` is as
    GREENCRAWL_BODIES has it. Open it once per process. Raises InvalidConfig for another scheme or
    a database that is not for this version.
    """
    return SqliteStore(_file(url), _open_bodies(bodies))


def open_upgrade(url: str) -> Upgrade:
    """The migrations of the store at ``url``. Raises InvalidConfig."""
    return SqliteUpgrade(_file(url))


def _file(url: str) -> Path:
    scheme, _, path = url.partition("://")
    if scheme == "sqlite" and len(path) > 1 and path.startswith("/") and ":memory:" not in path:
        return Path(path[1:])
    if scheme == "mysql":
        raise InvalidConfig([("GREENCRAWL_STORE", "mysql:// comes with the MySQL cluster")])
    raise InvalidConfig(
        [("GREENCRAWL_STORE", "must be sqlite:///PATH, a file that processes share")]
    )


def _open_bodies(bodies: str) -> Bodies | None:
    if bodies == "sql":
        return None
    raise InvalidConfig([("GREENCRAWL_BODIES", "warc: comes with the WARC files")])
