"""Long work in steps, between which other greenlets have their turn."""

from __future__ import annotations

from time import thread_time

import gevent

from greencrawl.worker.process.steps import Steps, T

_SLICE_SECONDS = 0.002
_YIELD_SECONDS = 0.0001
"""With 0 others would run, but no timer and no socket would become ready."""


def in_turns(steps: Steps[T]) -> tuple[T, float]:
    """What ``steps`` make, and the seconds of CPU that they took; others have their turn in
    between."""
    took, begun = 0.0, thread_time()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made, took + thread_time() - begun
        now = thread_time()
        if now - begun > _SLICE_SECONDS:
            took += now - begun
            gevent.sleep(_YIELD_SECONDS)
            begun = thread_time()
