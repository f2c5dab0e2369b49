"""Groups rows into few statements of few sizes, so that prepared statements are reused.

One statement for each number of rows would be hundreds of texts: more than a connection keeps.
Preparing a statement for 30 rows takes as long as writing the rows. While the hub is busy, each
statement also costs a turn of the GIL, so one statement for each row is too slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

ROWS = 64
"""A statement has at most this many rows."""

STEP = 8
"""A statement has a multiple of this many rows, or fewer: there are 15 statements of each kind."""


def parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield up to :data:`ROWS` rows at a time; the remainder comes in two parts at most."""
    start, even = 0, len(rows) - len(rows) % STEP
    while start < len(rows):
        end = min(start + ROWS, even) if start < even else len(rows)
        yield rows[start:end]
        start = end


def padded(values: list[T]) -> list[T]:
    """Pad ``values`` for a look-up by repeating the last one, which finds no more rows."""
    return values + values[-1:] * (-len(values) % STEP)


@lru_cache(maxsize=1024)
def marks(count: int) -> str:
    """Return the SQL of a list of ``count`` values."""
    return ", ".join("?" * count)


@lru_cache(maxsize=1024)
def values(columns: str, rows: int, *, stamped: bool = False) -> str:
    """Return the SQL of ``rows`` rows; if ``stamped`` each begins with the first value of all."""
    row = marks(columns.count(",") + 1)
    row = f"(?1, {row})" if stamped else f"({row})"
    return ", ".join([row] * rows)
