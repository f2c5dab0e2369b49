"""A Redis whose wall clock can be set while it runs, as an operator or a bad NTP server would.

libfaketime (Debian: ``libfaketime``) answers the server's questions for the time of day; its
monotonic clock stays the machine's. Only the bundled server is run so: with a server whose
allocator is jemalloc, as Debian's, libfaketime hangs before ``main``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.support.redis_server import RedisServer, binaries

CACHE_SECONDS = 1
"""How long libfaketime goes on with the offset that it last read."""


def library() -> Path | None:
    """Return libfaketime, or None if it is not installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return found[0] if found else None


class ClockedRedis(RedisServer):
    """A :class:`RedisServer` with a clock of its own. Raises FileNotFoundError from ``start()``
    without libfaketime.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, binaries()[0], *options)
        self._offset = folder / "clock-offset"

    def start(self) -> RedisServer:
        preload = library()
        if preload is None:
            raise FileNotFoundError("libfaketime is not installed: apt-get install libfaketime")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(0)
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(preload),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_CACHE_DURATION": str(CACHE_SECONDS),
            "DONT_FAKE_MONOTONIC": "1",
        }
        return super().start()

    def set_clock(self, offset_seconds: float) -> None:
        """Let the server's wall clock be wrong by this much; return when the server shows it.

        Raises AssertionError if the server does not show it within a few seconds.
        """
        self._write(offset_seconds)
        until = time.monotonic() + 5 * CACHE_SECONDS
        while abs(self.offset() - offset_seconds) > 0.05:
            if time.monotonic() > until:
                raise AssertionError(f"the clock did not go to {offset_seconds:+g} s")
            time.sleep(0.02)

    def offset(self) -> float:
        """Return the seconds by which its wall clock is ahead of this machine's."""
        seconds, micros = self.client.time()
        return int(seconds) + int(micros) / 1e6 - time.time()

    def _write(self, offset_seconds: float) -> None:
        draft = self._offset.with_suffix(".draft")
        draft.write_text(f"{offset_seconds:+g}\n")
        draft.replace(self._offset)
