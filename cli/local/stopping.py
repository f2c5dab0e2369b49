"""Ctrl-C and SIGTERM as events, for commands that run until they are told to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
from gevent.event import Event

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """``asked`` is set by the first signal, ``impatient`` by the second; ``number`` the signal."""

    def __init__(self) -> None:
        self.asked = Event()
        self.impatient = Event()
        self.number = 0

    @property
    def exit_code(self) -> int:
        """What a shell expects after a signal (128 + its number); 0 if there was none."""
        return 128 + self.number if self.number else 0

    def signal(self, number: int) -> None:
        """Take note of one signal."""
        (self.impatient if self.asked.is_set() else self.asked).set()
        self.number = self.number or number


@contextmanager
def on_signals() -> Iterator[Stop]:
    """SIGINT and SIGTERM go to the :class:`Stop` that this yields while the block runs."""
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
