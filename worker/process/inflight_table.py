"""Which sessions have a request under way, in memory that outlives the process.

When a worker's process dies, a server may still be busy with its last requests, so the hosts of
these requests must rest until the requests have surely ended. Other hosts need not rest: the next
process reads their sessions here, and names them when it reconciles. Like the crash record
(``greencrawl.worker.process.crash_record``) this is a plain ``mmap`` of a file. Unlike the crash
record, the table does not count after a reboot, because the file may then be older than the
process's end.

Layout (little-endian): boot id 16 bytes, then a row a session: token u64 · state u8 · pad 7.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from greencrawl.worker.process.incarnation import boot_id

ROWS = 4096
"""Number of sessions with an entry of their own; further ones count as having an open request."""

_ROW = struct.Struct("<QB7x")
_HEAD = 16
_FREE, _IDLE, _BUSY = 0, 1, 2


class InflightTable:
    """One process's table. Raises OSError when the file cannot be made."""

    def __init__(self, path: Path, *, boot: str | None = None) -> None:
        """Open the table; ``boot`` names the boot of the machine; by default the kernel is
        asked."""
        path.parent.mkdir(parents=True, exist_ok=True)
        size = _HEAD + ROWS * _ROW.size
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # a hole in the file on a full disk would cause SIGBUS
            os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        known = boot_id() if boot is None else boot
        self._boot = known.replace("-", "").encode()[:_HEAD].ljust(_HEAD, b"\0")
        self._unused: list[int] = []

    def left(self) -> tuple[str, ...]:
        """Return tokens of sessions of the last process that had no request under way."""
        if self._map[:_HEAD] != self._boot or not any(self._boot):
            return ()
        rows = _ROW.iter_unpack(self._map[_HEAD:])
        return tuple(f"{token:016x}" for token, state in rows if state == _IDLE)

    def begin(self) -> None:
        """Forget the last process: the table is this process's from now on."""
        self._map[:] = self._boot.ljust(len(self._map), b"\0")
        self._unused = list(range(_HEAD, len(self._map), _ROW.size))

    def take(self, token: str) -> int | None:
        """Take a row for a session without a request; None if there is none, or before
        :meth:`begin`."""
        if not self._unused:
            return None
        row = self._unused.pop()
        _ROW.pack_into(self._map, row, int(token, 16), _IDLE)
        return row

    def set_busy(self, row: int, busy: bool) -> None:
        """Note that a request is about to be sent, or that the last one has ended."""
        self._map[row + 8] = _BUSY if busy else _IDLE

    def free(self, row: int) -> None:
        """Free the row of a session that is over."""
        self._map[row + 8] = _FREE
        self._unused.append(row)
