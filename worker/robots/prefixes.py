"""A table that finds the longest of its strings that another string begins with; made in steps."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from greencrawl.worker.process.steps import Steps

STEP = 128
"""Lines, or rules, between two yields."""

_SORT_CHUNK = 2048


class Prefixes:
    """Strings with their codes; finds the longest that another string begins with.

    ``best`` has, for each string, the largest code of this string and of those that it begins with;
    ``exact`` has the code that counts only if the whole other string is equal.
    """

    __slots__ = ("best", "exact", "jumps", "parents", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.parents = array("i")
        self.jumps = array("i")
        self.best = array("Q")
        self.exact = array("Q")

    @classmethod
    def steps(cls, begins: dict[str, int], exact: dict[str, int]) -> Steps[Prefixes]:
        """Make a table from codes by string."""
        table = cls()
        texts = list({**begins, **exact}) if exact else list(begins)
        if len(texts) > _SORT_CHUNK:  # runs of strings are merged quickly
            runs: list[str] = []
            for first in range(0, len(texts), _SORT_CHUNK):
                runs += sorted(texts[first : first + _SORT_CHUNK])
                yield
            texts = runs
        texts.sort()
        yield
        parents, jumps, best = table.parents, table.jumps, table.best
        depths = array("i")
        above = -1
        for number, text in enumerate(texts):
            if not number % STEP:
                yield
            above = number - 1
            while above >= 0 and not text.startswith(texts[above]):
                above = parents[above]
            depths.append(depths[above] + 1 if above >= 0 else 0)
            parents.append(above)
            jumps.append(_jump(depths, jumps, above))
            own = begins.get(text, 0)
            best.append(max(own, best[above]) if above >= 0 else own)
            if exact:
                table.exact.append(exact.get(text, 0))
        table.texts = texts
        return table

    def find(self, target: str) -> int:
        """Return the place of the longest string that ``target`` begins with, or -1."""
        texts, starts = self.texts, target.startswith
        at = bisect_right(texts, target) - 1
        # the string that it begins with is at or above this one
        while at >= 0 and not starts(texts[at]):
            jump = self.jumps[at]
            at = jump if jump >= 0 and not starts(texts[jump]) else self.parents[at]
        return at

    def code(self, target: str) -> int:
        """Return the largest code that holds for ``target``, 0 if none does."""
        at = self.find(target)
        if at < 0:
            return 0
        if self.exact and len(self.texts[at]) == len(target):
            return max(self.best[at], self.exact[at])
        return self.best[at]


def _jump(depths: array[int], jumps: array[int], above: int) -> int:
    """Return a string further up, so that a chain of n strings is climbed in about log n steps."""
    if above < 0:
        return -1
    first = jumps[above]
    second = jumps[first] if first >= 0 else -1
    if first >= 0 and second >= 0:
        even = depths[above] - depths[first] == depths[first] - depths[second]
        return second if even else above
    return above
