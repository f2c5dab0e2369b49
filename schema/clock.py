"""Clocks, passed as values so that tests can turn them.

Epoch milliseconds name moments that others see (Redis, SQL, the wire); the monotonic clock, which
counts suspended time, is for local waits and deadlines.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""A function that returns seconds, never going backwards."""


def monotonic() -> float:
    """Seconds on a clock that also counts while the machine is suspended (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def epoch_ms() -> int:
    """Wall-clock time in milliseconds since 1970, for records only, never for decisions."""
    return time.time_ns() // 1_000_000
