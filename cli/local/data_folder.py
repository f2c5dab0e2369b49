"""Who runs in a data folder: a lock held while a command serves it, and where its broker listens.

Two brokers with an embedded Redis in one folder would be two truths, so ``crawl`` and ``up`` hold
the lock; other commands read from it which broker to ask.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from greencrawl.schema.errors import GreencrawlError

LOCK = "greencrawl.lock"


class FolderHolder(msgspec.Struct, frozen=True):
    """The command that holds a data folder, its process id, and its broker's address."""

    command: str
    pid: int
    broker: str


class FolderInUse(GreencrawlError):
    """Raised when another command holds the data folder."""

    def __init__(self, data: Path, other: FolderHolder | None) -> None:
        who = f"greencrawl {other.command} (process {other.pid})" if other else "another command"
        there = f", or GREENCRAWL_BROKER={other.broker} to crawl with that one" if other else ""
        super().__init__(
            f"{data} is in use by {who}; wait until it ends, give another folder with --data{there}"
        )


@contextmanager
def held(data: Path, command: str, broker: str) -> Iterator[None]:
    """Hold ``data`` (created if missing) while the block runs.

    Raises :class:`FolderInUse`, and :class:`GreencrawlError` when the folder cannot be written.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise GreencrawlError(f"cannot use the data folder {data}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(data, _read(descriptor)) from None
        note = msgspec.json.encode(FolderHolder(command, os.getpid(), broker))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note, 0)
        yield
    finally:
        os.close(descriptor)  # gives the lock up; the file stays, or two could each lock their own


def holder(data: Path) -> FolderHolder | None:
    """The command that holds ``data`` now, or None."""
    try:
        descriptor = os.open(data / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> FolderHolder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=FolderHolder)
    except msgspec.DecodeError:
        return None  # the holder has locked but not yet written
