"""SQLite off the hub: a native thread with a connection of its own, and translated errors."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import zstandard
from gevent.threadpool import ThreadPool

from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.store.errors import Closed, Damaged

T = TypeVar("T")

BUSY_SECONDS = 60.0
"""How long a statement waits for another process's transaction."""
OPENING_SECONDS = 20.0
"""How long an opening process waits for another one: less than a command waits for its broker."""
LOOK_SECONDS = 0.01

PRAGMAS = (
    "PRAGMA synchronous = FULL",  # what is acknowledged survives a power cut
    # Debian's default overwrites what is deleted: a refetch would write twice
    "PRAGMA secure_delete = OFF",
    "PRAGMA wal_autocheckpoint = 4000",  # pages, 16 MiB: a checkpoint costs two more fsyncs
    "PRAGMA journal_size_limit = 67108864",
    # KiB of each connection. Commits to 400,000 pages took as long with 2,048 as with 16,384: pages
    # beyond it are in the system's cache, which processes share.
    "PRAGMA cache_size = -2048",
    "PRAGMA temp_store = MEMORY",
)


def _itself(value: Any) -> Any:
    return value


# For a value that is no int, float or str, the module looks for ways to adapt it, by attributes
# that do not exist: 0.5 µs a value, and a page has a dozen. An adapter is found at once.
for _kind in (bytes, type(None), zstandard.BufferSegment):
    sqlite3.register_adapter(_kind, _itself)

_AWAY = {
    sqlite3.SQLITE_BUSY: "locked by another process for too long",
    sqlite3.SQLITE_LOCKED: "locked by another process for too long",
    sqlite3.SQLITE_FULL: "disk full",
    sqlite3.SQLITE_IOERR: "disk I/O error",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_READONLY: "no permission to write, which even reading needs; try it as the "
    "owner, or on a copy",
    sqlite3.SQLITE_PERM: "no permission",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_PROTOCOL: "locking protocol",
}
LEAST_ROOM_BYTES = 64 * 1024
"""A connection needs about half of this for the index of its write-ahead log."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def translate(error: sqlite3.Error, path: Path) -> GreencrawlError | None:
    """Return what ``error`` means to a caller: Unavailable, Damaged, or None (a bug or a bad
    record)."""
    # extended codes hold the primary one in their low byte
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) and _has_no_room(path):
        return Unavailable(f"the disk of {path} is full: make room there, and try again")
    if code in _AWAY:
        return Unavailable(f"{_AWAY[code]}: {path} ({error})")
    if code in _DAMAGED:
        return Damaged(
            f"the database {path} is damaged ({error}): move it away and restore a copy, or "
            f"recover what is readable with the sqlite3 command's .recover"
        )
    return None


def _has_no_room(path: Path) -> bool:
    """Return whether SQLite has no room for its files beside the database. Reading needs room,
    too."""
    try:
        return shutil.disk_usage(path.parent).free < LEAST_ROOM_BYTES
    except OSError:
        return False


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate a sqlite3.Error by :func:`translate`; other errors pass."""
    try:
        yield
    except sqlite3.Error as error:
        ours = translate(error, path)
        if ours is None:
            raise
        raise ours from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write in one transaction; its lock is taken at once, so reading first cannot deadlock."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back on some errors (full, I/O)
            connection.execute("ROLLBACK")
        raise


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Let one process at a time prepare the database at ``path``.

    SQLite does not wait when two connections switch an empty file to WAL together. The lock is on
    the folder: opening and closing the database file itself would drop SQLite's own locks on it
    (POSIX locks belong to the process, not to the descriptor). Raises Unavailable when another
    process holds the lock for too long: that process may be frozen.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        limit = time.monotonic() + OPENING_SECONDS
        while not _locked(folder):
            if time.monotonic() > limit:
                raise Unavailable(
                    f"another process has been opening {path} for {OPENING_SECONDS:g} s: is it "
                    f"stopped (Ctrl-Z), or at a long migration? End it or let it end, and try again"
                )
            time.sleep(LOOK_SECONDS)
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)  # gevent's os.close() may come only later
        os.close(folder)


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open ``path`` in autocommit mode. Without ``create`` a missing file is an error.

    If the file vanishes while a process runs, it must not be made again as an empty store.
    """
    mode = "rwc" if create else "rw"
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        cached_statements=256,
    )
    try:
        if create:
            connection.execute("PRAGMA journal_mode = WAL")
        for pragma in PRAGMAS:
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


class _Failed(NamedTuple):
    error: Exception


class SqliteThread:
    """A native thread with its own connection; it runs work in order of arrival.

    Greenlets wait without blocking the hub. It works in an unpatched process, too. The connection
    is opened at the first use, and again after an error that may have left it unusable.
    """

    def __init__(
        self, path: Path, prepare: Callable[[sqlite3.Connection], None] | None = None
    ) -> None:
        self._path = path
        self._prepare = prepare
        self._pool = ThreadPool(1)
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call ``work`` with the connection in the lane's thread. Raises what ``work`` raises.

        A sqlite3.Error is translated. If the waiting greenlet is killed, the work still happens.
        """
        if self._closed or self._process != os.getpid():
            raise Closed(f"the store {self._path} is closed, or was opened by another process")
        outcome = self._pool.apply(self._attempt, (work,))
        if isinstance(outcome, _Failed):
            raise outcome.error
        result: T = outcome
        return result

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T | _Failed:
        # Errors return as values: gevent would print a traceback for each one raised in its thread.
        try:
            with translated(self._path):
                return work(self._open())
        except Exception as error:  # noqa: BLE001 - raised again in the caller's greenlet
            if isinstance(error, Unavailable | Damaged):
                self._drop()
            return _Failed(error)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = connect(self._path)
            if self._prepare is not None:
                self._prepare(connection)
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Finish what is queued, close the connection and end the thread. Idempotent."""
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self._pool.apply(self._drop)
        self._pool.kill()
