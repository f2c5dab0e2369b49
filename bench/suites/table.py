"""The result of a suite: how many cases each reader gets right, and which cases ours gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
Right = Callable[[T], bool]

RAISED = (ValueError, TypeError, LookupError, AttributeError)
"""Exceptions of libraries for input that they cannot read."""

_WIDTH = 150


@dataclass
class Figure:
    """The right cases of one suite; ``of`` is the number of cases, ``least`` what ours has to
    reach.

    ``wrong`` names the cases that ours gets wrong.
    """

    suite: str
    of: int
    ours: int
    others: dict[str, int]
    least: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        """Return whether ours is enough."""
        return self.ours >= self.least

    @property
    def best(self) -> str:
        """Return the best of the others, as ``419 (its name)``; "-" without any."""
        if not self.others:
            return "-"
        name = max(self.others, key=self.others.__getitem__)
        return f"{self.others[name]:,} ({name})"


def tried(
    suite: str,
    cases: Sequence[T],
    ours: Right[T],
    others: Mapping[str, Right[T]],
    least: int = 0,
    shown: Callable[[T], str] = repr,
) -> Figure:
    """Run each case with each reader. A library that raises gets the case wrong."""
    wrong = [shown(case) for case in cases if not ours(case)]
    found = {name: sum(_right(right, case) for case in cases) for name, right in others.items()}
    return Figure(suite, len(cases), len(cases) - len(wrong), found, least, wrong)


def _right(right: Right[T], case: T) -> bool:
    try:
        return right(case)
    except RAISED:
        return False


def text(figures: Sequence[Figure], wrong: int) -> str:
    """Return the table, and for each suite at most ``wrong`` cases that ours gets wrong."""
    names = sorted({name for figure in figures for name in figure.others})
    head = ["suite", "ours", "best library", "of", "at least", *names]
    rows = [
        [
            figure.suite, f"{figure.ours:,}", figure.best, f"{figure.of:,}",
            f"{figure.least:,}{'' if figure.reached else ' MISSED'}" if figure.least else "-",
            *(f"{figure.others[name]:,}" if name in figure.others else "" for name in names),
        ]
        for figure in figures
    ]  # fmt: skip
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    for figure in figures:
        if wrong and figure.wrong:
            lines += ["", f"{figure.suite}: wrong here {len(figure.wrong):,}"]
            lines += [f"  {case[:_WIDTH]}" for case in figure.wrong[:wrong]]
    return "\n".join(lines)
