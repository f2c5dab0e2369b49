"""Migrations: numbered SQL files, applied once each, in order, in one transaction.

A file that was applied must not change afterwards: its checksum is kept beside its number. A
database with a number that this version does not have was written by a newer one.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import schema
from schema.clock import epoch_ms
from schema.errors import InvalidConfig
from store.connection import transaction

SQLITE = Path(schema.__file__).parent / "sql" / "sqlite"

_TABLE = """CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
    applied_ms INTEGER NOT NULL)"""


class Migration(NamedTuple):
    """One file ``NNNN_name.sql``; ``checksum`` is the SHA-256 of its text in hexadecimal."""

    number: int
    name: str
    sql: str
    checksum: str


def load(folder: Path) -> list[Migration]:
    """The migrations of ``folder`` by number."""
    found = []
    for file in sorted(folder.glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)", file.stem)
        if match:
            sql = file.read_text(encoding="utf-8")
            checksum = hashlib.sha256(sql.encode()).hexdigest()
            found.append(Migration(int(match[1]), match[2], sql, checksum))
    return found


def pending(available: Sequence[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """Those still to apply; ``applied`` maps number to checksum.

    Raises InvalidConfig if a newer version wrote the database, or if an applied file was edited.
    """
    known = {migration.number: migration for migration in available}
    unknown = sorted(set(applied) - set(known))
    if unknown:
        raise _refusal(
            f"was written by a newer version of Greencrawl (migration {unknown[-1]:04d}; this one "
            f"knows up to {max(known, default=0):04d}): upgrade, or use another store"
        )
    for number, checksum in sorted(applied.items()):
        if known[number].checksum != checksum:
            raise _refusal(
                f"migration {number:04d}_{known[number].name} was edited after it had been "
                "applied: restore the file, and put changes into a new one"
            )
    return [migration for migration in available if migration.number not in applied]


def statements(sql: str) -> Iterator[str]:
    """Split a script into statements; a trigger's inner semicolons do not count.

    ``executescript`` would commit the transaction that holds the migrations together.
    """
    statement = ""
    for piece in re.split(r"(?<=;)[ \t]*(?:--[^\n]*)?\n", sql):
        statement += piece + "\n"
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if re.sub(r"--[^\n]*", "", statement).strip():
        raise ValueError(f"no semicolon ends: {statement.strip()[:100]!r}")


def migrate(connection: sqlite3.Connection, folder: Path = SQLITE) -> int:
    """Bring a SQLite database up to date; returns how many migrations were applied.

    Safe when several processes start at once: what is pending is looked up under the write lock.
    Raises InvalidConfig for a newer, edited or foreign database, sqlite3.Error if SQL fails, which
    leaves the database as it was.
    """
    available = load(folder)
    if not pending(available, _applied(connection)):
        return 0
    with transaction(connection):
        applied = _applied(connection)
        if not applied:
            _refuse_foreign(connection)
        connection.execute(_TABLE)
        todo = pending(available, applied)
        for migration in todo:
            for statement in statements(migration.sql):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations (number, name, checksum, applied_ms) VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.checksum, epoch_ms()),
            )
    return len(todo)


def _applied(connection: sqlite3.Connection) -> dict[int, str]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
        return {}
    return dict(connection.execute("SELECT number, checksum FROM migrations").fetchall())


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
    if found and found[0] != "migrations":
        raise _refusal(f"is another program's database (it has a table {found[0]!r})")


def _refusal(what: str) -> InvalidConfig:
    return InvalidConfig([("GREENCRAWL_STORE", what)])
