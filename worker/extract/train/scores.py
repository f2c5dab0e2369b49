"""How near a text is to the main text that was marked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_WORD = re.compile(r"\w+")


def bag(text: str) -> Counter[str]:
    """Words in small letters and how often each stands there."""
    return Counter(_WORD.findall(text.lower()))


def f1(found: str, truth: str) -> float:
    """F1 over words; 0 if nothing is common to both."""
    return shares(found, truth)[2]


def shares(found: str, truth: str) -> tuple[float, float, float]:
    """Precision, recall and F1 over words."""
    one, other = bag(found), bag(truth)
    common = sum((one & other).values())
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / sum(one.values()), common / sum(other.values())
    return precision, recall, 2 * precision * recall / (precision + recall)


@dataclass(slots=True)
class Snippets:
    """How many snippets were found that had to be (``hit``) or must not be (``wrong``)."""

    hit: int = 0
    missed: int = 0
    wrong: int = 0

    def add(self, found: str, present: Iterable[str], absent: Iterable[str]) -> None:
        """Count those of one page."""
        text = " ".join(found.split())
        here = [snippet in text for snippet in present]
        self.hit += sum(here)
        self.missed += len(here) - sum(here)
        self.wrong += sum(snippet in text for snippet in absent)

    @property
    def precision(self) -> float:
        """Of what was found."""
        return self.hit / (self.hit + self.wrong or 1)

    @property
    def recall(self) -> float:
        """Of what had to be found."""
        return self.hit / (self.hit + self.missed or 1)

    @property
    def f1(self) -> float:
        """Their harmonic mean."""
        return 2 * self.precision * self.recall / (self.precision + self.recall or 1)
