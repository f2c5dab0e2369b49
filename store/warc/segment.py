"""One file of records while it is written, and what happens to it if its writer dies.

While it grows it is called ``NAME.open``, and its writer holds a lock on it (flock); when it is
finished, it is called NAME. Data that a sync has reported stays for ever. A crash or a power cut
may tear later data; a process that finds the file without a writer cuts the torn part off.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from gevent.monkey import get_original

from greencrawl.schema import crash_points
from greencrawl.store.warc.records import HEAD_BYTES, Damage, length_of, verify

OPEN = ".open"

TORN_BYTES = 32 * 1024 * 1024
"""There are at most this many bytes between two syncs, unless a single record is longer."""

# gevent's version asks the hub about folders, and this thread may have no hub.
_close: Callable[[int], None] = get_original("os", "close")


class Unsynced(OSError):
    """Raised when a sync failed: nobody knows which of the last bytes are on the disk."""


class Segment:
    """A file of records that this process writes. Raises OSError when it cannot be created."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.size = 0
        """Bytes written."""
        self._durable = 0
        self._path = folder / (name + OPEN)
        self._file = self._path.open("x+b", buffering=0)
        taken = False
        try:
            crash_points.point("warc.created")
            # Between the two steps another process may take it for the file of a dead writer.
            taken = not _locked(self._file)
            if taken or not _is(self._file, self._path):
                raise FileNotFoundError(2, "taken for a dead writer's", str(self._path))
            sync_folder(folder)
        except BaseException:
            if not taken:
                with suppress(OSError):
                    self._path.unlink()
            self._file.close()
            raise

    def write(self, data: bytes) -> None:
        """Append whole records. Raises OSError; then call :meth:`cut`."""
        if self.size > self._durable and self.size + len(data) - self._durable > TORN_BYTES:
            self.sync()
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.size += len(data)

    def sync(self) -> None:
        """Make durable what was written. Raises Unsynced."""
        if self.size == self._durable:
            return
        crash_points.point("warc.before_sync")
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise Unsynced(*error.args) from error
        self._durable = self.size
        crash_points.point("warc.after_sync")

    def cut(self) -> None:
        """Drop what was written since the last sync. Raises OSError."""
        self._file.truncate(self._durable)
        self._file.seek(self._durable)
        self.size = self._durable

    def finish(self) -> None:
        """Give the file its final name, and release it; a file without records is deleted.

        Raises OSError. Then the file keeps its present name, and the next process that starts
        finishes it.
        """
        try:
            self.cut()
            _conclude(self._file, self._path, self._durable)
        finally:
            self._file.close()


def _is(file: FileIO, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _conclude(file: FileIO, path: Path, size: int) -> None:
    if size:
        os.fsync(file.fileno())
        crash_points.point("warc.before_rename")
        path.rename(path.with_name(path.name.removesuffix(OPEN)))
        crash_points.point("warc.after_rename")
    else:
        path.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in ``folder`` durable. Raises OSError."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        _close(number)


def repair(path: Path) -> int | None:
    """Finish ``path``, a file called ``….open``, if its writer has died.

    Returns how many bytes of its end were cut off, or None if a writer holds the file or the file
    is missing. Data that were reported as durable are never cut off: damage before the end stays.
    Raises OSError.
    """
    try:
        file = path.open("r+b", buffering=0)
    except FileNotFoundError:
        return None
    with file:
        if not (_locked(file) and _is(file, path)):
            return None
        size = os.fstat(file.fileno()).st_size
        whole = _whole(file.fileno(), size)
        if whole < size:
            file.truncate(whole)
        _conclude(file, path, whole)
        return size - whole


def _locked(file: FileIO) -> bool:
    """Take the lock of the file; return whether we have it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _whole(file: int, size: int) -> int:
    """Return where the last whole record of a file of ``size`` bytes ends.

    Only the last :data:`TORN_BYTES`, or a single longer record, can be torn, and only they are
    inflated. Before them the lengths in the records' headers are followed; damage there is not from
    a crash, and the file stays as it is.
    """
    at = 0
    while at < size:
        try:
            length = length_of(os.pread(file, HEAD_BYTES, at))
            if at + length > size:
                raise Damage("cut off")
            if size - at <= TORN_BYTES or at + length == size:
                verify(os.pread(file, length, at))
        except Damage:
            return size if size - at > TORN_BYTES and _follows(file, at, size) else at
        at += length
    return at


def _follows(file: int, at: int, size: int) -> bool:
    """Return whether a record begins after ``at``: then what is at ``at`` was not torn by a
    crash."""
    while at < size:
        found = os.pread(file, 1024 * 1024, at + 1)
        start = found.find(b"\x1f\x8b\x08\x04")
        while start >= 0:
            with suppress(Damage):
                length = length_of(os.pread(file, HEAD_BYTES, at + 1 + start))
                if at + 1 + start + length <= size:
                    return True
            start = found.find(b"\x1f\x8b\x08\x04", start + 1)
        at += max(1, len(found) - 3)
    return False
