"""Ctrl-C and SIGTERM as events, for commands that run until they are told to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import gevent
from gevent.event import Event

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

GRACE_SECONDS = 2.0
"""How long a call may take to end by itself after the first signal."""


class _BrokenOff(BaseException):
    """Raised in a call that waits for a silent peer after a person asked to stop."""


class Stop:
    """``asked`` is set by the first signal, ``impatient`` by the second; ``number`` is the
    signal."""

    def __init__(self) -> None:
        self.asked = Event()
        self.impatient = Event()
        self.number = 0

    @property
    def exit_code(self) -> int:
        """Return the exit code that a shell expects after a signal (128 + its number); 0 if there
        was none."""
        return 128 + self.number if self.number else 0

    def signal(self, number: int) -> None:
        """Note one signal."""
        (self.impatient if self.asked.is_set() else self.asked).set()
        self.number = self.number or number

    def within(self, call: Callable[[], T], grace_seconds: float = GRACE_SECONDS) -> T | None:
        """Return the result of ``call``; None if it still runs ``grace_seconds`` after the first
        signal.

        It must be safe to interrupt the call wherever it waits.
        """
        ours = gevent.getcurrent()
        timers: list[gevent.Greenlet[..., None]] = []
        broken_off = _BrokenOff()

        def later(_: Event) -> None:
            timers.append(gevent.spawn_later(grace_seconds, ours.throw, broken_off))

        self.asked.rawlink(later)
        try:
            return call()
        except _BrokenOff as error:
            if error is not broken_off:
                raise
            return None
        finally:
            self.asked.unlink(later)
            gevent.killall(timers, block=False)


@contextmanager
def on_signals() -> Iterator[Stop]:
    """Send SIGINT and SIGTERM to the :class:`Stop` that this yields while the block runs."""
    stop = Stop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    watchers = [gevent.signal_handler(number, stop.signal, number) for number in SIGNALS]
    try:
        yield stop
    finally:
        for watcher in watchers:
            watcher.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
