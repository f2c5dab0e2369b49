"""Runs long work in steps, with pauses of the same length between them.

Other writes come in between. On SQLite, writers of other processes do not queue, so steps without a
pause would give them the lock only by luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import gevent

from greencrawl.schema.clock import Clock

T = TypeVar("T")

MOST_SECONDS = 1.0
"""The longest pause."""


def rested(steps: Iterable[T], clock: Clock) -> Iterator[T]:
    """Yield what each step yields, and then pause for as long as the step took."""
    began = clock()
    for step in steps:
        took = clock() - began
        yield step
        gevent.sleep(min(took, MOST_SECONDS))
        began = clock()
