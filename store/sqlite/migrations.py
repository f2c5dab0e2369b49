"""Migrations on SQLite: all pending ones run in one transaction, so a failure changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from greencrawl import schema
from greencrawl.schema.clock import epoch_ms
from greencrawl.store.migrations import Applied, Migration, Told, load, pending, refusal, statements
from greencrawl.store.sqlite.connection import connect, opening, transaction, translated

FOLDER = Path(schema.__file__).parent / "sql" / "sqlite"

_TABLE = """CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
    applied_ms INTEGER NOT NULL)"""


def prepare(path: Path) -> None:
    """Bring the database at ``path`` up to date, creating it if there is none.

    ``post_`` files are applied if no other process (nor another store of this one) has the file
    open. So a command that runs alone needs no upgrade by hand. Otherwise these files wait, and
    everything works without them. Raises InvalidConfig, sqlite3.Error.
    """
    with opening(path):
        connection = connect(path, create=True)
        try:
            migrate(connection, post=False)
            left = pending(load(FOLDER), applied(connection))
        finally:
            connection.close()
        if left:
            _finish_exclusively(path)


def refuse_early(path: Path) -> None:
    """Raise InvalidConfig unless the file at ``path`` can be read as it is; sqlite3.Error."""
    due = [one for one in _pending(path) if not one.post]
    if due:
        raise refusal(
            f"is of a version before this one (migration {due[0]} is missing): "
            "run `greencrawl migrate`"
        )


def _pending(path: Path) -> list[Migration]:
    """Return the pending migrations of the file at ``path``. Raises InvalidConfig,
    sqlite3.Error."""
    connection = connect(path)
    try:
        done = applied(connection)
        if not done:
            _refuse_foreign(connection)
        return pending(load(FOLDER), done)
    finally:
        connection.close()


def _finish_exclusively(path: Path) -> None:
    """Apply ``post_`` files under a lock of the whole file, or leave them if another has it open.

    A connection in WAL mode holds a shared lock as long as it is open.
    """
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")  # the lock stays until the connection is closed
        migrate(connection, post=True)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
    finally:
        connection.close()


def migrate(
    connection: sqlite3.Connection,
    folder: Path = FOLDER,
    *,
    post: bool = True,
    told: Told = lambda _: None,
) -> int:
    """Apply what is pending; return how many migrations were applied.

    Several processes may start at once: what is pending is read under the write lock. Raises
    InvalidConfig for a newer, edited or foreign database; sqlite3.Error if SQL fails, which leaves
    the database as it was.
    """
    available = load(folder)
    if not pending(available, applied(connection), post=post):
        return 0
    with transaction(connection):
        done = applied(connection)
        if not done:
            _refuse_foreign(connection)
        connection.execute(_TABLE)
        todo = pending(available, done, post=post)
        for migration in todo:
            told(migration)
            for statement in statements(migration.sql):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations (number, name, checksum, applied_ms) VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.checksum, epoch_ms()),
            )
    return len(todo)


def applied(connection: sqlite3.Connection) -> dict[int, Applied]:
    """Return number → the record of each applied migration."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
        return {}
    found = connection.execute("SELECT number, name, checksum FROM migrations").fetchall()
    return {number: Applied(name, checksum) for number, name, checksum in found}


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
    if found and found[0] != "migrations":
        raise refusal(f"is another program's database (it has a table {found[0]!r})")


class SqliteUpgrade:
    """:class:`greencrawl.store.migrations.Upgrade` of a file; only ``apply`` creates it."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def pending(self) -> list[Migration]:
        """See :class:`greencrawl.store.migrations.Upgrade`."""
        if not self._path.exists():
            return load(FOLDER)
        with translated(self._path):
            return _pending(self._path)

    def apply(self, *, post: bool, told: Told) -> int:
        """See :class:`greencrawl.store.migrations.Upgrade`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with translated(self._path), opening(self._path):
            connection = connect(self._path, create=True)
            try:
                return migrate(connection, post=post, told=told)
            finally:
                connection.close()

    def close(self) -> None:
        """Do nothing: nothing is kept open."""
