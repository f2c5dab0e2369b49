"""Migrations on MySQL: the numbered files of ``schema/sql/mysql``, one process at a time.

A statement that changes a table commits by itself. So a file that fails half-way is run again from
its start, and each of its statements must be safe to repeat. The same happens when another server
takes writes between two migrations: the fence is checked before each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from greencrawl import schema
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.store.migrations import Applied, Migration, Told, load, pending, recorded, refusal
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.topology import Topology
from greencrawl.store.mysql.connection import Db

FOLDER = Path(schema.__file__).parent / "sql" / "mysql"
LOCK_SECONDS = 20
"""How long a process waits for another one that migrates."""
STATEMENT_SECONDS = 86_400.0
"""A change of a large table takes long."""

_TABLE = """CREATE TABLE IF NOT EXISTS migrations (
    number INT NOT NULL PRIMARY KEY, name VARBINARY(100) NOT NULL, checksum VARBINARY(64) NOT NULL,
    applied_ms BIGINT NOT NULL) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"""
_CLUSTERS = frozenset({"fence", "votes"})
"""Tables of the cluster itself, which may exist before any content."""


def statements(sql: str) -> Iterator[str]:
    """Split a script at semicolons that end a line."""
    for statement in re.split(r";[ \t]*(?:\n|$)", sql):
        if re.sub(r"--[^\n]*", "", statement).strip():
            yield statement.strip()


def prepare(cluster: Cluster, folder: Path = FOLDER) -> None:
    """Set up an empty database (or wait for the process that does), and refuse a database of an
    earlier version.

    Unlike on SQLite, nothing else is applied automatically: a change of a large table takes long,
    and a person should choose its time. Raises InvalidConfig, Unavailable.
    """
    _refuse_foreign(cluster.read(_tables))
    available = load(folder)
    if not cluster.read(applied):
        migrate(cluster, folder)
    due = pending(available, cluster.read(applied), post=False)
    if due:  # unless another process is migrating: checked again when it is done
        due = cluster.alter(lambda db, _: _due(db, available), seconds=STATEMENT_SECONDS)
    if due:
        raise refusal(
            f"is of a version before this one (migration {due[0]} is missing): "
            "run `greencrawl migrate`"
        )


def migrate(
    cluster: Cluster,
    folder: Path = FOLDER,
    *,
    post: bool = True,
    told: Told = lambda _: None,
) -> int:
    """Apply what is pending; return how many files were applied.

    Raises InvalidConfig for a newer, edited or foreign database, Unavailable.
    """
    return cluster.alter(
        lambda db, begin: _migrate(db, begin, load(folder), post, told), seconds=STATEMENT_SECONDS
    )


def _migrate(
    db: Db, begin: Callable[[], None], available: list[Migration], post: bool, told: Told
) -> int:
    with _exclusively(db):
        _refuse_foreign(_tables(db))
        todo = pending(available, applied(db), post=post)
        db.execute(_TABLE)
        for migration in todo:
            told(migration)
            for statement in statements(migration.sql):
                begin()
                db.execute(statement)
            begin()
            db.executemany(
                "INSERT INTO migrations (number, name, checksum, applied_ms) "
                "VALUES (%s, %s, %s, %s)",
                recorded(migration, epoch_ms()),
            )
            db.connection.commit()
    return len(todo)


def _due(db: Db, available: list[Migration]) -> list[Migration]:
    with _exclusively(db):
        return pending(available, applied(db), post=False)


@contextmanager
def _exclusively(db: Db) -> Iterator[None]:
    """Hold the lock of migrations. Raises Unavailable if another process holds it for long."""
    db.execute("SELECT GET_LOCK(CONCAT('greencrawl.', DATABASE()), %s)", (LOCK_SECONDS,))
    if db.fetchone() != (1,):
        raise Unavailable("another process is migrating the database")
    try:
        yield
    finally:
        db.execute("SELECT RELEASE_LOCK(CONCAT('greencrawl.', DATABASE()))")


def _tables(db: Db) -> frozenset[str]:
    db.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
    return frozenset(row[0] for row in db.fetchall())


def _refuse_foreign(tables: frozenset[str]) -> None:
    foreign = tables - _CLUSTERS
    if foreign and "migrations" not in foreign:
        raise refusal(f"is another program's database (it has a table {min(foreign)!r})")


def applied(db: Db) -> dict[int, Applied]:
    """Return number → the record of each applied migration."""
    if "migrations" not in _tables(db):
        return {}
    db.execute("SELECT number, name, checksum FROM migrations")
    return {
        number: Applied(name.decode(), checksum.decode())
        for number, name, checksum in db.fetchall()
    }


class MysqlUpgrade:
    """:class:`greencrawl.store.migrations.Upgrade` of the database of a cluster."""

    def __init__(self, topology: Topology) -> None:
        self._cluster = Cluster(topology)

    def pending(self) -> list[Migration]:
        """See :class:`greencrawl.store.migrations.Upgrade`."""
        return pending(load(FOLDER), self._cluster.read(applied))

    def apply(self, *, post: bool, told: Told) -> int:
        """See :class:`greencrawl.store.migrations.Upgrade`."""
        return migrate(self._cluster, post=post, told=told)

    def close(self) -> None:
        """Close the cluster's connections."""
        self._cluster.close()
