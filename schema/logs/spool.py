"""Lines that no logger takes now, on the disk of their node.

``spool/`` has a folder for each life of a member, ``MEMBER@INCARNATION``. In it are files of up to
256 KiB, named by the number of their first line. All processes of a node together have at most
``most_bytes``: a process that begins a file makes room, and drops the oldest of all. A file is
claimed by renaming it, so a file is either sent, or dropped and counted.

A folder is locked while its process lives. Any other process of the node may take what a dead one
left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gevent import monkey

from greencrawl.schema import file_lock

SPOOL_BYTES = 64 * 1024 * 1024
FILE_BYTES = 256 * 1024

_FOLDER = re.compile(r"(?P<member>[A-Za-z0-9][A-Za-z0-9._-]{0,99})@(?P<incarnation>[0-9]{1,19})")
_OPEN, _WHOLE, _CLAIMED = ".open", ".lines", ".claimed"
_LOCK, _DROPPED = "lock", "dropped"

_allocate_lock = monkey.get_original("_thread", "allocate_lock")
"""No code waits for another greenlet while it holds this lock."""


@dataclass(frozen=True)
class Batch:
    """A claimed file: its lines, numbered from ``first`` on."""

    path: Path
    first: int
    lines: list[str]


class Spool:
    """The lines that one life of a member has in the spool. Threads may share it.

    Nothing is made on disk before the first line. Lines that cannot be written are dropped, and
    counted in ``dropped``; ``trouble`` says why.
    """

    def __init__(
        self, base: Path, member: str, incarnation: int, most_bytes: int = SPOOL_BYTES
    ) -> None:
        self.member = member
        self.incarnation = incarnation
        self.dropped = 0
        self.trouble = ""
        self._base = base
        self._folder = base / f"{member}@{incarnation}"
        self._most_bytes = most_bytes
        self._guard = _allocate_lock()
        self._lock = -1
        self._file = -1
        self._path = Path()
        self._size = 0
        self._next = 0

    # -- writing

    def append(self, first: int, lines: list[str]) -> int:
        """Keep lines, with the number of the first one; return how many lines were dropped, older
        ones or these."""
        with self._guard:
            dropped = self._append(first, lines)
            if dropped:
                self._count(dropped)
        return dropped

    def _append(self, first: int, lines: list[str]) -> int:
        dropped = at = 0
        while at < len(lines):
            if self._file < 0 or self._next != first + at:
                dropped += self._begin(first + at)
            if self._file < 0:
                dropped += len(lines) - at
                break
            count = _fitting(lines[at:], FILE_BYTES - self._size)
            data = "".join(f"{line}\n" for line in lines[at : at + count]).encode()
            if not self._write(data):
                dropped += len(lines) - at
                break
            at += count
            self._next = first + at
        return dropped

    def _begin(self, first: int) -> int:
        """Begin a file; return how many older lines were dropped for it."""
        self._end()
        try:
            if self._lock >= 0 and not self._folder.exists():  # the whole spool was given up
                os.close(self._lock)
                self._lock = -1
            if self._lock < 0:
                self._lock = _locked_folder(self._folder)
            dropped, room = make_room(self._base, self._most_bytes - FILE_BYTES)
            if room:
                self._path = self._folder / f"{first:020}{_OPEN}"
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                self._size = 0
        except OSError as error:
            self.trouble = str(error)
            return 0
        return dropped

    def _write(self, data: bytes) -> bool:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            self.trouble = str(error)
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            self._end()
            return False
        self._size += len(data)
        if self._size >= FILE_BYTES:
            self._end()
        return True

    def _end(self) -> None:
        """Complete the open file."""
        if self._file < 0:
            return
        os.close(self._file)
        self._file = -1
        with suppress(FileNotFoundError):
            if self._size:
                self._path.rename(self._path.with_suffix(_WHOLE))
            else:
                self._path.unlink()

    def _count(self, dropped: int) -> None:
        """Add to the count of dropped lines, also for the process that comes after us."""
        self.dropped += dropped
        with suppress(OSError):
            (self._folder / _DROPPED).write_text(str(self.dropped))

    # -- reading

    def __bool__(self) -> bool:
        """Return whether the spool has lines."""
        return self._size > 0 if self._file >= 0 else self._lock >= 0 and bool(self._whole())

    def claim(self) -> Batch | None:
        """Claim the oldest lines, which are then safe from being dropped; None if there are
        none."""
        if self._lock < 0:
            return None
        with self._guard:
            if not self._whole():
                self._end()
            for path in self._whole():
                claimed = path.with_suffix(_CLAIMED)
                with suppress(FileNotFoundError):  # another process needed its room
                    path.rename(claimed)
                    return Batch(claimed, _number(path), _read(claimed))
        return None

    def done(self, batch: Batch) -> None:
        """Delete a batch: a logger has its lines."""
        with suppress(FileNotFoundError):
            batch.path.unlink()

    def back(self, batch: Batch) -> None:
        """Give a batch back: no logger has its lines yet."""
        with suppress(FileNotFoundError):
            batch.path.rename(batch.path.with_suffix(_WHOLE))

    def reset_dropped(self) -> None:
        """Set the count of dropped lines to 0: it was reported."""
        self.dropped = 0
        with suppress(OSError):
            (self._folder / _DROPPED).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the lines to other processes; remove the folder if it is empty."""
        with self._guard:
            self._end()
        if self._lock < 0:
            return
        if not self._whole() and not (self._folder / _DROPPED).exists():
            with suppress(OSError):
                (self._folder / _LOCK).unlink(missing_ok=True)
                self._folder.rmdir()
        os.close(self._lock)
        self._lock = -1

    def _whole(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{_WHOLE}"))

    # -- what dead processes left

    @classmethod
    def left(cls, base: Path, most_bytes: int = SPOOL_BYTES) -> Iterator[Spool]:
        """Yield the spool of each process that has died; the caller closes it."""
        for folder in sorted(base.glob("*@*")):
            named = _FOLDER.fullmatch(folder.name)
            if named is None or file_lock.holder(folder / _LOCK) is not None:
                continue
            found = cls(base, named["member"], int(named["incarnation"]), most_bytes)
            try:
                found._lock = file_lock.take(folder / _LOCK, b"%d" % os.getpid())
            except OSError:  # another process was first
                continue
            found._adopt()
            yield found

    def _adopt(self) -> None:
        for path in [*self._folder.glob(f"*{_OPEN}"), *self._folder.glob(f"*{_CLAIMED}")]:
            with suppress(FileNotFoundError):  # another process needed its room
                path.rename(self._folder / f"{_number(path):020}{_WHOLE}")
        with suppress(OSError, ValueError):
            self.dropped = int((self._folder / _DROPPED).read_text())


def make_room(base: Path, most_bytes: int) -> tuple[int, bool]:
    """Drop the oldest files until at most ``most_bytes`` are left.

    Returns how many lines were dropped, and whether there is room now. Raises OSError.
    """
    total, old = 0, []
    for path in base.glob("*@*/*.*"):
        with suppress(FileNotFoundError):
            found = path.stat()
            total += found.st_size
            if path.suffix == _WHOLE:
                old.append((found.st_mtime_ns, path, found.st_size))
    dropped = 0
    for _, path, size in sorted(old):
        if total <= most_bytes:
            break
        claimed = path.with_suffix(f".{os.getpid()}{_CLAIMED}")
        with suppress(FileNotFoundError):  # it is being sent
            path.rename(claimed)
            lines = len(_read(claimed))
            claimed.unlink()
            dropped += lines
        total -= size
    return dropped, total <= most_bytes


def _locked_folder(folder: Path) -> int:
    """Make a folder that is locked from the first moment on; return the lock. Raises OSError."""
    hidden = folder.with_name(f".{folder.name}")
    hidden.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = file_lock.take(hidden / _LOCK, b"%d" % os.getpid())
    try:
        hidden.rename(folder)
    except OSError:
        os.close(lock)
        raise
    return lock


def _number(path: Path) -> int:
    """Return the number of a file's first line."""
    return int(path.name.partition(".")[0])


def _read(path: Path) -> list[str]:
    """Return the lines of a file, without one that was cut short."""
    return path.read_bytes().decode("ascii", "replace").split("\n")[:-1]


def _fitting(lines: list[str], most_bytes: int) -> int:
    """Return how many of the lines fit, at least one."""
    for count, line in enumerate(lines):
        most_bytes -= len(line) + 1
        if most_bytes < 0 and count:
            return count
    return len(lines)
