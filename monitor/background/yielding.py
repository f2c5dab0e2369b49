"""Long work in slices, between which the process serves leases.

It takes some milliseconds to draw a page. Without slices a lease would wait until all is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import gevent

from greencrawl.schema.clock import monotonic

T = TypeVar("T")

SLICE_SECONDS = 0.001
"""No other greenlet runs for this long, or longer if one item takes longer."""
PAUSE_SECONDS = 0.0001
"""With ``sleep(0)`` other greenlets would run, but timers and sockets would have to wait."""


def yield_now() -> None:
    """Let all other greenlets run."""
    gevent.sleep(PAUSE_SECONDS)


def yielding(items: Iterable[T]) -> Iterator[T]:
    """Yield the items; other greenlets run whenever some items have taken a slice of time."""
    began = monotonic()
    for item in items:
        yield item
        if monotonic() - began >= SLICE_SECONDS:
            yield_now()
            began = monotonic()
