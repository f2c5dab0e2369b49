"""Migrations on MySQL: the numbered files of ``schema/sql/mysql``, one process at a time.

A statement that changes a table commits by itself, so a file that fails half-way is run again from
its beginning: each of its statements must be safe to repeat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import schema
from schema.clock import epoch_ms
from schema.errors import InvalidConfig, Unavailable
from store.migrate import load, pending
from store.mysql.cluster import Cluster
from store.mysql.connection import Db

MYSQL = Path(schema.__file__).parent / "sql" / "mysql"
LOCK_SECONDS = 20

_TABLE = """CREATE TABLE IF NOT EXISTS migrations (
    number INT NOT NULL PRIMARY KEY, name VARBINARY(100) NOT NULL, checksum VARBINARY(64) NOT NULL,
    applied_ms BIGINT NOT NULL) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"""
_OURS = frozenset({"fence", "votes"})
"""Tables of the cluster, which may be there before any content."""


def statements(sql: str) -> Iterator[str]:
    """Split a script at semicolons that end a line."""
    for statement in re.split(r";[ \t]*\n", sql):
        if re.sub(r"--[^\n]*", "", statement).strip():
            yield statement.strip()


def check(cluster: Cluster, folder: Path = MYSQL) -> None:
    """Set up a database without tables, and refuse one that is not of this version.

    Raises InvalidConfig, Unavailable.
    """
    if cluster.read(_tables) <= _OURS:
        migrate(cluster, folder)
    missing = pending(load(folder), cluster.read(_applied))
    if missing:
        raise _refusal(
            f"is of an earlier version (migration {missing[0].number:04d} is missing): "
            "run greencrawl migrate"
        )


def migrate(cluster: Cluster, folder: Path = MYSQL) -> int:
    """Bring the database up to date; returns how many files were applied.

    Raises InvalidConfig for a newer, edited or foreign database, Unavailable.
    """
    return cluster.write(lambda db: _migrate(db, folder))


def _migrate(db: Db, folder: Path) -> int:
    db.execute("SELECT GET_LOCK(CONCAT('greencrawl.', DATABASE()), %s)", (LOCK_SECONDS,))
    if db.fetchone() != (1,):
        raise Unavailable("another process is migrating the database")
    try:
        foreign = _tables(db) - _OURS
        if foreign and "migrations" not in foreign:
            raise _refusal(f"is another program's database (it has a table {min(foreign)!r})")
        todo = pending(load(folder), _applied(db))
        db.execute(_TABLE)
        for migration in todo:
            for statement in statements(migration.sql):
                db.execute(statement)
            db.execute(
                "INSERT INTO migrations (number, name, checksum, applied_ms) "
                "VALUES (%s, %s, %s, %s)",
                (migration.number, migration.name, migration.checksum, epoch_ms()),
            )
            db.connection.commit()
    finally:
        db.execute("SELECT RELEASE_LOCK(CONCAT('greencrawl.', DATABASE()))")
    return len(todo)


def _tables(db: Db) -> frozenset[str]:
    db.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
    return frozenset(row[0] for row in db.fetchall())


def _applied(db: Db) -> dict[int, str]:
    if "migrations" not in _tables(db):
        return {}
    db.execute("SELECT number, checksum FROM migrations")
    return {number: checksum.decode() for number, checksum in db.fetchall()}


def _refusal(what: str) -> InvalidConfig:
    return InvalidConfig([("GREENCRAWL_STORE", what)])
