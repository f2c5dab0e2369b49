"""The counts of one process, in memory that outlives it.

Each process adds to numbers in a file that it shares with its supervisor by ``mmap``. The process
that serves them sees a count at once. Counting costs no system call and no message, and the counts
survive SIGKILL. The next process continues with the same numbers, so that no counter goes backwards
while the supervisor lives; when the supervisor is restarted they begin at 0.

Layout (native byte order): the layout's checksum u64, then a float64 for each number of
:mod:`greencrawl.worker.metrics.table`. One process writes a number, others only read it; eight
bytes at an address that eight divides are written atomically.
"""

from __future__ import annotations

import mmap
import os
import zlib
from bisect import bisect_left
from pathlib import Path

from greencrawl.schema.log import logger
from greencrawl.worker.metrics import table

log = logger("metrics")

_HEAD = 8
SIZE = _HEAD + 8 * table.SLOTS
_CHECKSUM = zlib.crc32(table.LAYOUT.encode())


class Tallies:
    """The numbers of one process; in memory of its own unless ``shared`` is given."""

    __slots__ = ("_shared", "_values")

    def __init__(self, shared: mmap.mmap | None = None) -> None:
        self._shared = shared
        whole = memoryview(bytearray(SIZE) if shared is None else shared)
        self._values = whole[_HEAD:SIZE].cast("d")

    def add(self, slot: int, amount: float = 1.0) -> None:
        """Count ``amount`` more."""
        self._values[slot] += amount

    def set(self, slot: int, value: float) -> None:
        """Set a gauge, or a counter that is kept elsewhere."""
        self._values[slot] = value

    def observe(self, slot: int, buckets: tuple[float, ...], value: float) -> None:
        """Add one ``value`` to the histogram that begins at ``slot``."""
        self._values[slot + bisect_left(buckets, value)] += 1.0
        self._values[slot + len(buckets) + 1] += value

    def get(self, slot: int) -> float:
        """Return a number as it is now."""
        return self._values[slot]

    def clear_gauges(self) -> None:
        """Set gauges to 0: the process is gone, and holds nothing."""
        for slot in table.GAUGES:
            self._values[slot] = 0.0

    def close(self) -> None:
        """Release the memory; the file stays."""
        self._values.release()
        if self._shared is not None:
            self._shared.close()


def file_of(folder: Path, worker_id: str, number: int) -> Path:
    """Return the file of a worker's process."""
    return folder / f"{worker_id}-{number}.tallies"


def files_of(folder: Path, worker_id: str) -> dict[int, Path]:
    """Return number of a process → its file, for existing files."""
    found = {}
    for path in folder.glob("*.tallies"):
        name, _, number = path.stem.rpartition("-")
        if name == worker_id and number.isdecimal():
            found[int(number)] = path
    return dict(sorted(found.items()))


def create(path: Path) -> Tallies:
    """Make the numbers of a process that is started for the first time: all 0. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        # a hole in the file on a full disk would cause SIGBUS
        os.posix_fallocate(descriptor, 0, SIZE)
        shared = mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)
    shared[:_HEAD] = _CHECKSUM.to_bytes(_HEAD, "little")
    return Tallies(shared)


def attach(path: Path) -> Tallies | None:
    """Open the numbers that :func:`create` made; None if they are missing, or of another version's
    layout.

    Another layout means that the program was replaced under a running supervisor.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_size != SIZE:
            return None
        shared = mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)
    if int.from_bytes(shared[:_HEAD], "little") != _CHECKSUM:
        shared.close()
        return None
    return Tallies(shared)


def joined(path: Path | None) -> Tallies:
    """Return the numbers of a worker's process: those at ``path``, or its own, which nobody
    reads."""
    if path is None:
        return Tallies()
    found = attach(path)
    if found is None:
        log.warning("metrics_not_shared", path=str(path), mend="restart the supervisor")
        return Tallies()
    return found
