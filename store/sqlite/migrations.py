"""Migrations on SQLite: all pending ones run in one transaction, so a failure changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from greencrawl import schema
from greencrawl.schema.clock import epoch_ms
from greencrawl.store.migrations import (
    OLDEST,
    Applied,
    Migration,
    Told,
    load,
    pending,
    recorded,
    refusal,
    statements,
)
from greencrawl.store.sqlite.connection import connect, opening, transaction, translated

FOLDER = Path(schema.__file__).parent / "sql" / "sqlite"

_TABLE = """CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
    applied_ms INTEGER NOT NULL)"""


def prepare(path: Path, folder: Path = FOLDER) -> None:
    """Bring the database at ``path`` up to date, creating it if there is none.

    ``post_`` files are applied if no other process (nor another store of this one) has the file
    open. So a command that runs alone needs no upgrade by hand. Otherwise these files wait, and
    everything works without them. Raises InvalidConfig, sqlite3.Error.
    """
    with opening(path):
        connection = connect(path, create=True)
        try:
            migrate(connection, folder, post=False)
            _refuse_old_pages(connection)
            left = pending(load(folder), applied(connection))
        finally:
            connection.close()
        if left:
            _finish_exclusively(path, folder)


def refuse_early(path: Path) -> None:
    """Raise InvalidConfig unless the file at ``path`` can be read as it is; sqlite3.Error."""
    due = [one for one in _pending(path, FOLDER) if not one.post]
    if due:
        raise refusal(
            f"is of a version before this one (migration {due[0]} is missing): "
            "run `greencrawl migrate`"
        )


def _pending(path: Path, folder: Path) -> list[Migration]:
    """Return the pending migrations of the file at ``path``. Raises InvalidConfig,
    sqlite3.Error."""
    connection = connect(path)
    try:
        done = applied(connection)
        if not done:
            _refuse_foreign(connection)
        due = pending(load(folder), done)
        if done:
            _refuse_old_pages(connection)
        return due
    finally:
        connection.close()


def _finish_exclusively(path: Path, folder: Path) -> None:
    """Apply ``post_`` files under a lock of the whole file, unless another process has the file
    open.

    A connection in WAL mode holds a shared lock as long as it is open.
    """
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")  # the lock stays until the connection is closed
        migrate(connection, folder, post=True)
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
            connection.executemany(
                "INSERT INTO migrations (number, name, checksum, applied_ms) VALUES (?, ?, ?, ?)",
                recorded(migration, epoch_ms()),
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


def _refuse_old_pages(connection: sqlite3.Connection) -> None:
    """Raise InvalidConfig if there are pages of a version before :data:`OLDEST`.

    Such pages have their bodies in their rows, and a number in place of a digest. They would be the
    oldest rows, so only some of the oldest rows are looked at.
    """
    oldest = "SELECT content FROM pages ORDER BY id LIMIT 100"
    if connection.execute(f"SELECT 1 FROM ({oldest}) WHERE typeof(content) <> 'blob'").fetchone():
        raise refusal(
            f"has pages that a version before {OLDEST} stored, and this one cannot read: export "
            f"them with version {OLDEST}, or use another store"
        )


class SqliteUpgrade:
    """:class:`greencrawl.store.migrations.Upgrade` of a file; only ``apply`` creates the file."""

    def __init__(self, path: Path, folder: Path = FOLDER) -> None:
        self._path = path.absolute()
        self._folder = folder

    def pending(self) -> list[Migration]:
        """See :class:`greencrawl.store.migrations.Upgrade`."""
        if not self._path.exists():
            return load(self._folder)
        with translated(self._path):
            return _pending(self._path, self._folder)

    def apply(self, *, post: bool, told: Told) -> int:
        """See :class:`greencrawl.store.migrations.Upgrade`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with translated(self._path), opening(self._path):
            connection = connect(self._path, create=True)
            try:
                return migrate(connection, self._folder, post=post, told=told)
            finally:
                connection.close()

    def close(self) -> None:
        """Do nothing: nothing is kept open."""
