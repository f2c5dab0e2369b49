"""Clocks, passed as values so that tests can turn them.

Unix milliseconds name moments that others see (Redis, SQL, the wire). The monotonic clock, which
counts suspended time, is for local waits and deadlines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

Clock = Callable[[], float]
"""A function that returns seconds and never goes backwards."""


monotonic: Clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds on a clock that also counts while the machine is suspended.

Each page asks this clock some twenty times, so it is not wrapped in a Python function.
"""


def epoch_ms() -> int:
    """Return the wall-clock time in Unix milliseconds; for records only, never for decisions."""
    return time.time_ns() // 1_000_000
