"""A lock file: one process at a time holds it, and writes into it who it is.

The kernel releases the lock when the process ends, for whatever reason. The file stays: if it were
deleted, two processes could each hold a lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

LOOK_SECONDS = 0.1
"""How long :func:`take` tries: :func:`holder` takes the lock for some microseconds to test it."""


def take(path: Path, note: bytes) -> int:
    """Take the lock, and write ``note`` into the file, which is made if it is missing.

    Closing the descriptor that is returned releases the lock. Raises BlockingIOError if another
    process holds it, another OSError if it cannot be taken.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    limit = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                raise
            time.sleep(LOOK_SECONDS / 100)
        else:
            return


def holder(path: Path) -> bytes | None:
    """Return the note of the process that holds the lock; None if no process holds it.

    b"" means that the holder has not written its note yet.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 4096, 0)
    else:
        return None
    finally:
        os.close(descriptor)
