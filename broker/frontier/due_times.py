"""When something of a partition's crawl is due next: the earliest note of each, in order."""

from __future__ import annotations

import heapq
from math import inf

from greencrawl.schema.clock import monotonic

_SPARE = 64
"""Entries that are no longer of use, before it is worth to look for them."""

Key = tuple[int, int]
"""(partition, crawl); crawl 0 is the partition's own upkeep."""


class DueTimes:
    """Keys by the moment (monotonic seconds) at which they are due; the earliest note of each."""

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def note(self, key: Key, at: float) -> bool:
        """Keep the earlier of ``at`` and what is known; True if the key now is the first of all."""
        if at >= self._at.get(key, inf):
            return False
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + _SPARE:  # notes that an earlier one outdid
            self._heap = [(when, noted) for noted, when in self._at.items()]
            heapq.heapify(self._heap)
        return self._heap[0][1] == key

    def __len__(self) -> int:
        """Notes that are kept, outdated ones included."""
        return len(self._heap)

    def first(self) -> float | None:
        """The earliest moment, or None."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self) -> list[Key]:
        """Remove and return the keys that are due now, the earliest first."""
        now, found = monotonic(), []
        while (first := self.first()) is not None and first <= now:
            key = heapq.heappop(self._heap)[1]
            del self._at[key]
            found.append(key)
        return found
