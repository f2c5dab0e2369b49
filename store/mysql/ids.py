"""Numbers in order of time that many processes make without talking to each other."""

from __future__ import annotations

import random
from collections.abc import Callable

from greencrawl.schema.clock import epoch_ms

SINCE_MS = 1_767_225_600_000
"""2026-01-01 in UTC: 41 bits of milliseconds last until 2095."""
BITS = 22
"""Bits of a number below the milliseconds: a sequence that begins at random in each of them."""


class Numbers:
    """63-bit numbers, rising within a process and nearly so among processes.

    If two processes make a number in the same millisecond, the two are equal about once in four
    million times. Then a unique key refuses the second number, and its transaction runs again with
    a new one.
    """

    def __init__(self, clock: Callable[[], int] = epoch_ms) -> None:
        self._clock = clock
        self._last = 0

    def take(self, count: int = 1) -> int:
        """Return the first of ``count`` numbers in a row."""
        now = max(self._clock() - SINCE_MS, 0) << BITS
        # A clock that is set back must not repeat numbers.
        first = max(now + random.getrandbits(BITS), self._last + 1)
        self._last = first + count - 1
        return first


NUMBERS = Numbers()
"""The generator of this process."""
