"""Long work in steps, with turns for other greenlets in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from time import thread_time

import gevent

from greencrawl.worker.process.steps import Budget, Steps, T

_SLICE_SECONDS = 0.002
_REST = 3.0
"""After a slice, other greenlets get this many times its length; with 0, no timer or socket would
become ready."""


class TookTooLong(Exception):
    """Raised when steps have taken more CPU than allowed, in ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it had not ended after {seconds:.1f} s of CPU")
        self.seconds = seconds


def in_turns(
    steps: Steps[T],
    budget: Budget | None = None,
    guard: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[T, float]:
    """Return the result of ``steps``, and the CPU seconds that they took; others have turns in
    between.

    ``guard`` surrounds each step. Beyond the ``budget``, its ``over`` is set; beyond twice the
    budget, this raises TookTooLong.
    """
    most = inf if budget is None else budget.seconds
    took, begun = 0.0, thread_time()
    while True:
        try:
            with guard():
                next(steps)
        except StopIteration as end:
            made: T = end.value
            return made, took + thread_time() - begun
        spent = thread_time() - begun
        if spent > _SLICE_SECONDS:
            took += spent
            if budget is not None and took > most:
                budget.over = True
                if took > 2 * most:
                    raise TookTooLong(took)
            gevent.sleep(_REST * spent)
            begun = thread_time()
