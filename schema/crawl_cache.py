"""A cache of what processes compute for a crawl; an entry stays while it is used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from greencrawl.schema.clock import Clock, monotonic

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CrawlCache(Generic[K, V]):
    """A mapping that drops entries which nobody uses.

    When an entry is used, all entries that were not used for ``idle_seconds`` are dropped. Beyond
    ``most`` entries, the entry that was not used for the longest time is dropped. The caller
    computes a dropped value again.
    """

    def __init__(self, most: int, idle_seconds: float, clock: Clock = monotonic) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._used: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value and count it as used now; None if there is none."""
        entry = self._used.get(key)
        if entry is None:
            return None
        self[key] = entry[1]
        return entry[1]

    def peek(self, key: K) -> V | None:
        """Return the value without counting it as used; None if there is none."""
        entry = self._used.get(key)
        return None if entry is None else entry[1]

    def __setitem__(self, key: K, value: V) -> None:
        now = self._clock()
        self._used[key] = now, value
        self._used.move_to_end(key)
        while True:
            oldest, (used, _) = next(iter(self._used.items()))
            if len(self._used) <= self._most and now - used < self._idle_seconds:
                return
            del self._used[oldest]

    def drop(self, key: K) -> None:
        """Forget a value, if there is one."""
        self._used.pop(key, None)

    def clear(self) -> None:
        """Forget all values."""
        self._used.clear()

    def values(self) -> Iterator[V]:
        """Return all values without counting them as used."""
        return (value for _, value in self._used.values())

    def __len__(self) -> int:
        return len(self._used)
