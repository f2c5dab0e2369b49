"""Work that lets others have their turn: leases are served by the same process.

A page takes some milliseconds to draw. A lease that comes meanwhile would wait for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import gevent

from greencrawl.schema.clock import monotonic

T = TypeVar("T")

SLICE_SECONDS = 0.001
"""So long nobody else has a turn, and as much longer as one item takes."""
PAUSE_SECONDS = 0.0001
"""``sleep(0)`` would let other greenlets run, but no timer and no socket become ready."""


def yield_now() -> None:
    """Let all others have their turn."""
    gevent.sleep(PAUSE_SECONDS)


def yielding(items: Iterable[T]) -> Iterator[T]:
    """Yield the items; others have their turn whenever some have taken a slice of time."""
    began = monotonic()
    for item in items:
        yield item
        if monotonic() - began >= SLICE_SECONDS:
            yield_now()
            began = monotonic()
