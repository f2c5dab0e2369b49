"""Writes rows by the dozen in few statements of few sizes, so that they are found prepared.

One statement for each number of rows would be hundreds of texts: more than a connection keeps, and
to prepare one for 30 rows takes as long as to write them. Beside a busy hub each statement costs a
turn of the GIL, too, so one for each row is no way either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

ROWS = 64
"""Rows a statement at most."""

STEP = 8
"""Numbers of rows are multiples of it, or below it: 15 statements of each kind."""


def parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Up to :data:`ROWS` at a time; what is left at the end in two parts at most."""
    start, even = 0, len(rows) - len(rows) % STEP
    while start < len(rows):
        end = min(start + ROWS, even) if start < even else len(rows)
        yield rows[start:end]
        start = end


def padded(values: list[T]) -> list[T]:
    """``values`` for a look-up, which finds no more if the last one is asked for again."""
    return values + values[-1:] * (-len(values) % STEP)


@lru_cache(maxsize=1024)
def marks(count: int) -> str:
    """Of a list of ``count`` values."""
    return ", ".join("?" * count)


@lru_cache(maxsize=1024)
def values(columns: str, rows: int, *, stamped: bool = False) -> str:
    """Of ``rows`` rows; if ``stamped`` each begins with the first value of all."""
    row = marks(columns.count(",") + 1)
    row = f"(?1, {row})" if stamped else f"({row})"
    return ", ".join([row] * rows)
