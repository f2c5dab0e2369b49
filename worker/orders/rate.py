"""How many requests a second a whole worker may send: one row of turns for all its processes.

The next turn is in memory that the processes share, under a lock that is held for some
microseconds. Each process takes its turns from there, one at a time, and hands them to its sessions
in the order in which they ask (the generic cell rate algorithm, ITU-T I.371). A missed turn can be
made up for within :data:`CREDIT_SECONDS`, so that the rate is kept and no burst follows a pause.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from greencrawl.worker.process.incarnation import boot_id

CREDIT_SECONDS = 0.05

_ROW = struct.Struct("<16sdd")
"""Boot id, requests a second (0: no limit), and when the next turn is, on the monotonic clock."""

Monotonic = Callable[[], float]


class Turn(Event):
    """A request that waits for its turn. ``left``: it is not wanted any more."""

    left = False


class SharedTurns:
    """The row of turns in a file; see the module's docstring. Raises OSError."""

    def __init__(self, path: Path, *, clock: Monotonic = time.monotonic) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # a hole in the file on a full disk would cause SIGBUS
        os.posix_fallocate(self._descriptor, 0, _ROW.size)
        self._map = mmap.mmap(self._descriptor, _ROW.size)
        self._boot = boot_id().replace("-", "").encode()[:16].ljust(16, b"\0")

    def set(self, rate: float) -> None:
        """Set the rate a second for all processes; 0: no limit."""
        with self:
            known, at = self._read()
            if rate != known:
                now = self._clock()
                at = min(at, now + 1 / rate) if rate else 0.0
                _ROW.pack_into(self._map, 0, self._boot, rate, at)

    def take(self) -> float | None:
        """Take the next turn; return its time on the clock. None if there is no limit."""
        with self:
            rate, at = self._read()
            if not rate:
                return None
            at = max(at, self._clock() - CREDIT_SECONDS)
            _ROW.pack_into(self._map, 0, self._boot, rate, at + 1 / rate)
            return at

    def close(self) -> None:
        """Close the file."""
        self._map.close()
        os.close(self._descriptor)

    def _read(self) -> tuple[float, float]:
        boot, rate, at = _ROW.unpack_from(self._map)
        return (rate, at) if boot == self._boot else (0.0, 0.0)

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)


class Rate:
    """The requests of one process: counted, and each at its turn while there is a limit."""

    def __init__(self, turns: SharedTurns | None = None) -> None:
        """Build the object; without ``turns`` there never is a limit."""
        self.requests = 0
        """Requests that this process has sent."""
        self.limited = False
        """True if a request has to wait for :meth:`turn`."""
        self._turns = turns
        self._waiting: deque[Turn] = deque()
        self._wanted, self._changed = Event(), Event()
        self._greenlet: gevent.Greenlet[..., Any] | None = None

    def set(self, rate: float) -> None:
        """Set the requests a second of all processes together; 0: no limit."""
        if self._turns is None:
            return
        self._turns.set(rate)
        self.limited = rate > 0
        if self.limited and self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)
        self._changed.set()

    def turn(self) -> Turn:
        """Return the turn to wait for before a request is sent: an event.

        Set ``left`` if it is no longer waited for.
        """
        turn = Turn()
        self._waiting.append(turn)
        self._wanted.set()
        return turn

    def _run(self) -> None:
        assert self._turns is not None
        while True:
            while self._waiting and self._waiting[0].left:
                self._waiting.popleft()
            if not self._waiting:
                self._wanted.clear()
                self._wanted.wait()
                continue
            self._changed.clear()
            at = self._turns.take()
            if at is None:
                while self._waiting:
                    self._waiting.popleft().set()
                continue
            seconds = at - time.monotonic()
            if seconds > 0 and self._changed.wait(seconds):
                continue  # the rate has changed: this turn is outdated
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.left:
                turn.set()
                return
