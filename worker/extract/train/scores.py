"""How close a text is to the marked main text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_WORD = re.compile(r"\w+")


def bag(text: str) -> Counter[str]:
    """Return words in lower case and how often each occurs."""
    return Counter(_WORD.findall(text.lower()))


def f1(found: str, truth: str) -> float:
    """Return F1 over words; 0 if they share none."""
    return shares(found, truth)[2]


def shares(found: str, truth: str) -> tuple[float, float, float]:
    """Return precision, recall and F1 over words."""
    one, other = bag(found), bag(truth)
    common = sum((one & other).values())
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / sum(one.values()), common / sum(other.values())
    return precision, recall, 2 * precision * recall / (precision + recall)


@dataclass(slots=True)
class Snippets:
    """How many required snippets were found (``hit``), and how many forbidden ones (``wrong``)."""

    hit: int = 0
    missed: int = 0
    wrong: int = 0

    def add(self, found: str, present: Iterable[str], absent: Iterable[str]) -> None:
        """Count the snippets of one page."""
        text = " ".join(found.split())
        here = [snippet in text for snippet in present]
        self.hit += sum(here)
        self.missed += len(here) - sum(here)
        self.wrong += sum(snippet in text for snippet in absent)

    @property
    def precision(self) -> float:
        """Return the precision: the share of required snippets among those that were found."""
        return self.hit / (self.hit + self.wrong or 1)

    @property
    def recall(self) -> float:
        """Return the recall: the share of required snippets that were found."""
        return self.hit / (self.hit + self.missed or 1)

    @property
    def f1(self) -> float:
        """Return the harmonic mean of both."""
        return 2 * self.precision * self.recall / (self.precision + self.recall or 1)
