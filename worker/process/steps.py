"""Long work in steps, so that it can be laid down between two of them."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that may be laid down at each ``yield``, and what it makes."""


class Budget:
    """CPU that steps may take. Who takes them sets ``over``; they end soon then, as they can."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.over = False


UNBOUNDED = Budget(inf)


def finish(steps: Steps[T]) -> T:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: T = end.value
            return made
