"""Waiting: crawls for due times in a partition, calls for sessions, crawls for their turn."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from math import inf

from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.crawl_cache import CrawlCache
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl, LeaseRequest, Session
from greencrawl.schema.text.kernel_rules import own_code

CALLER: ContextVar[Callable[[], bool] | None] = ContextVar("CALLER", default=None)
"""Tells whether the caller that this greenlet answers is still there; None: not known."""

_SPARE = 64
"""Outdated entries are searched for when there are at least this many."""

CRAWLS, IDLE_SECONDS = 1000, 300.0
"""The turns of at most this many crawls are kept, and for this long; a crawl that was away longer
comes back level with the others."""

FRESH_SECONDS = 1.0
"""How long the room that a call reported is valid."""
RETURN_SECONDS = 0.05
"""How long a served worker counts as waiting: most ask again within 10 ms."""

Key = tuple[int, int]
"""(partition, crawl); crawl 0 is the partition's own upkeep."""


class DueTimes:
    """Keys by the moment (monotonic seconds) at which they are due; the earliest note of each."""

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def note(self, key: Key, at: float) -> bool:
        """Keep the earlier of ``at`` and what is known; return True if the key is now the first
        in the queue."""
        if at >= self._at.get(key, inf):
            return False
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + _SPARE:  # notes that an earlier one replaced
            self._heap = [(when, noted) for noted, when in self._at.items()]
            heapq.heapify(self._heap)
        return self._heap[0][1] == key

    def __len__(self) -> int:
        """Return how many notes are kept, outdated ones included."""
        return len(self._heap)

    def first(self) -> float | None:
        """Return the earliest moment, or None."""
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
        """True if a node that gave no answer may have opened more sessions."""
        self.superseded = 0
        self.gone = False
        self.error: Unavailable | None = None
        self._caller = CALLER.get()
        self._refuses = {one.crawl: one.hook for one in request.refuses}

    def free_sessions(self, most: int) -> int:
        """Return how many more sessions its worker can take.

        It is ``most`` if the worker reported its room long ago: any number of its sessions may have
        ended since.
        """
        return self.request.max_sessions if self.is_fresh() else most

    def is_fresh(self) -> bool:
        """Return whether the room that it reported is still valid."""
        return monotonic() - self.arrived < FRESH_SECONDS

    def is_there(self) -> bool:
        """Return whether the call's caller is there; it may have died."""
        return self._caller is None or self._caller()

    def takes(self, crawl: Crawl) -> bool:
        """Return whether the call's worker takes sessions of the crawl, as far as the crawl's code
        is the same."""
        named = self._refuses.get(crawl.id)
        return not named or named != own_code(crawl.options)


class Returning:
    """Workers that were served a moment ago, and have room: they are about to ask again."""

    def __init__(self) -> None:
        self._free: dict[str, tuple[float, int]] = {}

    def served(self, request: LeaseRequest, sessions: int) -> None:
        """Note that the request's worker was given this many sessions."""
        free = request.max_sessions - sessions
        if free > 0 and not request.refuses:
            self._free[request.worker] = (monotonic() + RETURN_SECONDS, free)

    def back(self, worker: str) -> None:
        """Note that the worker asks again."""
        self._free.pop(worker, None)

    def free_sessions(self) -> list[int]:
        """Return the free sessions of each worker that has not come back yet."""
        now = monotonic()
        self._free = {w: (until, free) for w, (until, free) in self._free.items() if until > now}
        return [free for _, free in self._free.values()]

    def seconds(self) -> float:
        """Return the seconds until the wait for the first of them ends; 0 if there is none."""
        first = min((until for until, _ in self._free.values()), default=0.0)
        return max(first - monotonic(), 0.0)


def level_part(due: int, free: int, others: Sequence[int]) -> int:
    """Return how many due partitions go to a call with ``free`` sessions, so that all get about
    the same.

    ``others`` are the free sessions of each other call. Returns 0 if the others have so many more
    that they get all partitions.
    """
    together, of = free - due, 1
    for other in sorted(others, reverse=True):
        if other * of <= together:  # fewer than the others would have on average
            break
        together, of = together + other, of + 1
    return min(due, max(0, math.ceil(free - together / of)))


class Turns:
    """The order of crawls, by their weights.

    Each has a virtual time that advances by tasks / weight, and the one furthest behind comes first
    (stride scheduling, Waldspurger 1995).
    """

    def __init__(self) -> None:
        self._times: CrawlCache[int, float] = CrawlCache(CRAWLS, IDLE_SECONDS)
        self._now = 0.0

    def __len__(self) -> int:
        """Return how many crawls' turns are kept."""
        return len(self._times)

    def share(
        self, wanted: dict[int, int], due: dict[int, list[Crawl]], tasks_per_session: int
    ) -> dict[int, dict[int, int]]:
        """Return sessions per partition and crawl: each goes to the due crawl furthest behind."""
        crawls = {crawl.id: crawl for found in due.values() for crawl in found}
        times: dict[int, float] = {}
        for crawl_id in crawls:  # a crawl that was away comes back level with the others
            times[crawl_id] = max(self._times.get(crawl_id) or 0.0, self._now)
            self._times[crawl_id] = times[crawl_id]
        self._now = min(times.values())
        shares: dict[int, dict[int, int]] = {}
        for p, sessions in wanted.items():
            share = shares[p] = {crawl.id: 0 for crawl in due[p]}
            for _ in range(sessions):
                least = min(share, key=times.__getitem__)
                share[least] += 1
                times[least] += tasks_per_session / crawls[least].options.weight
        return shares

    def charge(self, crawl_id: int, tasks: int, crawl: Crawl | None) -> None:
        """Note that this many tasks of the crawl were given."""
        weight = crawl.options.weight if crawl else 1
        self._times[crawl_id] = (self._times.get(crawl_id) or 0.0) + tasks / weight
