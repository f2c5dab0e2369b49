"""Orders in a worker's file: they hold while no broker answers.

Its processes write them, and read them at their start. The supervisor, which calls no broker, reads
there how many processes are wanted. The file is replaced as a whole, so a reader finds either the
new orders or the old ones.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from greencrawl.schema.log import logger
from greencrawl.schema.records import NodeOptions

log = logger("orders")


class KeptOrders(Struct, frozen=True):
    """Orders and their revision, as the file keeps them."""

    revision: int = 0
    options: NodeOptions = NodeOptions()


class OrdersFile:
    """The file of one worker. Its processes share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int, int] | None = None
        """Which file was read; None: there was none, or it could not be read."""
        self._unreadable = False
        self._kept = KeptOrders()

    def read(self) -> KeptOrders:
        """Return what was written last; no orders if there is no readable file."""
        try:
            state = self._path.stat()
            at = (state.st_mtime_ns, state.st_ino, state.st_size)
            if at != self._read_at:
                self._kept = msgspec.json.decode(self._path.read_bytes(), type=KeptOrders)
                self._read_at, self._unreadable = at, False
        except FileNotFoundError:
            self._kept, self._read_at, self._unreadable = KeptOrders(), None, False
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            # From a later version, or damaged: the known orders stay, and a broker sends them
            # again.
            if not self._unreadable:
                log.warning("orders_not_read", path=str(self._path), reason=str(error))
            self._read_at, self._unreadable = None, True
        return self._kept

    def write(self, kept: KeptOrders) -> None:
        """Replace the file, unless it says the same. A full disk is logged; the old file stays."""
        if self.read() == kept and not self._unreadable:
            return
        fresh = self._path.with_suffix(f".{os.getpid()}")
        try:
            fresh.write_bytes(msgspec.json.encode(kept))
            fresh.replace(self._path)
            self._kept = kept
        except OSError as error:
            log.warning("orders_not_kept", path=str(self._path), reason=str(error))
            with suppress(OSError):
                fresh.unlink()
