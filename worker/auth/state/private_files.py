"""Files that only their owner may read; others cannot interfere when they are made, replaced or
read.

A file is written beside its place, made durable and renamed: readers see the old or the new one,
also after a power cut. Writers take a lock on the folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError

LOCK_SECONDS = 10.0
"""The longest wait for a lock. A process holds it for milliseconds, unless the process was
stopped."""
_LOOK_SECONDS = 0.01


class InsecureFile(GreencrawlError):
    """Raised for a file or folder that others may have read or written; the message says what to
    do."""


def private_folder(folder: Path) -> None:
    """Make ``folder``, mode 0700, unless it exists. Raises InsecureFile and OSError.

    If the folder is ours and was open to others, it is closed to them.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise InsecureFile("is no folder: move it away") from None
        if found.st_uid != os.geteuid():
            raise InsecureFile(
                f"belongs to another user (uid {found.st_uid}): give it to ours"
            ) from None
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock on ``folder``, among processes and greenlets.

    Raises OSError; TimeoutError if it is not free within :data:`LOCK_SECONDS`.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        limit = monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() >= limit:
                    raise TimeoutError(f"{folder} is locked by another process") from None
                gevent.sleep(_LOOK_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # gevent's os.close() may come only later
    finally:
        os.close(descriptor)


def read_private(file: Path, most_bytes: int) -> bytes | None:
    """Return the content of ``file``; None if it does not exist.

    Raises InsecureFile when it is not a plain file, is not ours, was open to others or is larger
    than ``most_bytes``; OSError when it cannot be read.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InsecureFile("is a link, not a plain file") from error
        raise
    with open(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InsecureFile("is no plain file")
        if found.st_uid != os.geteuid():
            raise InsecureFile(f"belongs to another user (uid {found.st_uid})")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise InsecureFile("was open to others than its owner, who may have read it")
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise InsecureFile(f"is larger than {most_bytes} bytes")
    return data


def write_private(file: Path, data: bytes) -> None:
    """Replace ``file`` by ``data``, mode 0600, durably. Call it under the folder's lock.

    Raises OSError; then the file is as it was.
    """
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)  # left by a process that died here
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o600), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
