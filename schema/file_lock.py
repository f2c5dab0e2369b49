"""A file that one process at a time holds; the process writes into it who it is.

The kernel gives it up when the process ends, however that comes about. The file stays: if it were
deleted, two processes could each hold their own.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

LOOK_SECONDS = 0.1
"""One who looks whether the file is held (:func:`holder`) is in the way for some microseconds: who
takes it tries for so long."""


def take(path: Path, note: bytes) -> int:
    """Hold the file, made if it is missing, with ``note`` in it; to close the descriptor that is
    returned gives it up.

    Raises BlockingIOError where another process holds it, another OSError where it cannot be had.
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
    """The note of the process that holds the file now, b"" if it has yet to write it; None if
    nobody holds it."""
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
