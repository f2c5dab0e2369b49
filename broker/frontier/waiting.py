"""What waits: crawls of a partition until something is due, and calls until they are served."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from math import inf

from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl, LeaseRequest, Session

CALLER: ContextVar[Callable[[], bool] | None] = ContextVar("CALLER", default=None)
"""Whether who made the call that this greenlet answers is still there; None: it is not known."""

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


class Waiter:
    """A lease call that waits."""

    def __init__(self, request: LeaseRequest) -> None:
        self.request = request
        self.arrived = monotonic()
        self.opened = self.arrived
        self.until = self.arrived + request.wait
        self.done = Event()
        self.serving = False
        self.sessions: list[Session] = []
        self.lost = False
        """Whether more sessions may have been opened by a node that gave no answer."""
        self.superseded = 0
        self.gone = False
        self.error: Unavailable | None = None
        self._caller = CALLER.get()
        self._refuses = {one.crawl: one.hook for one in request.refuses}

    def is_there(self) -> bool:
        """Whether there is somebody to answer: not where the caller has died."""
        return self._caller is None or self._caller()

    def takes(self, crawl: Crawl) -> bool:
        """Whether its worker takes sessions of the crawl, as far as its hook is still the same."""
        return self._refuses.get(crawl.id) != crawl.options.hook or not crawl.options.hook


def level_part(due: int, room: int, others: Sequence[int]) -> int:
    """How many of so many due partitions go to who has ``room``, so that all come out about level.

    ``others`` is the room of all others that wait. At least 1, where something is due.
    """
    together, of = room - due, 1
    for other in sorted(others, reverse=True):
        if other * of <= together:  # less room than is left to each of those before
            break
        together, of = together + other, of + 1
    return min(due, max(1, math.ceil(room - together / of)))
