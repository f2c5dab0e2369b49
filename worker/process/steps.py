"""Long work in steps, so that it can be interrupted between two of them."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that may be interrupted at each ``yield``, and its result."""


class Budget:
    """CPU that steps may take. The caller sets ``over``; then they end as soon as they can."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.over = False


UNBOUNDED = Budget(inf)


def finish(steps: Steps[T]) -> T:
    """Run all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
