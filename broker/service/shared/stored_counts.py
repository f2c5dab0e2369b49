"""What the store has of a crawl now, in place of counters that count a URL each time it is settled.

Redis counts without asking the store. That is exact until URLs are queued again: a page that is
fetched again is stored once, and a dead letter may have become a page.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from msgspec import Struct
from msgspec.structs import replace

from greencrawl.schema.clock import Clock
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl, CrawlStats
from greencrawl.store.base import Store

MOST_PAGES, MOST_FINAL_STATES = 1_000_000, 20_000
"""A larger crawl is not counted: a store reads a row for each page or final state. A million pages
take 0.1 s on SQLite."""
SHARE = 20
"""Counting all active crawls takes at most one second in this many."""
CRAWLS = 1000
"""Crawls whose counts are remembered; those that were asked for longest ago go first."""


class _Count(Struct, frozen=True):
    counters: tuple[object, ...]
    """The counters of Redis when the crawl was counted."""
    counted_at: float
    seconds: float
    sums: dict[str, int]
    final_states: dict[str, int] | None


class StoredCounts:
    """The counts that one broker keeps; all its requests share them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[int, _Count] = OrderedDict()

    def of(self, crawl: Crawl, found: CrawlStats) -> CrawlStats:
        """Return ``found`` with what the store has: pages, dead letters, parked URLs.

        If the crawl is not active, the result also has final states by the kind of failure.
        ``found`` stays as it is if no URL was queued again, if the crawl is too large, and while
        the store is away. Raises nothing.
        """
        if not found.requeued or found.stored > MOST_PAGES:
            return found
        goes_on = crawl.state == "active"
        counters = goes_on, found.admitted, found.finished, found.stored
        known = self._known.get(crawl.id)
        if known is None or (known.counters != counters and not (goes_on and self._is_new(known))):
            try:
                known = self._count(crawl, counters, kinds=not goes_on)
            except Unavailable:
                return found
        self._known[crawl.id] = known
        self._known.move_to_end(crawl.id)
        while len(self._known) > CRAWLS:
            self._known.popitem(last=False)
        return replace(
            found, stored=known.sums["pages"], dead=known.sums["dead"],
            parked=known.sums["parked"], final_states=known.final_states,
        )  # fmt: skip

    def _is_new(self, known: _Count) -> bool:
        """Return whether counting again now would take more than its share of the time."""
        seconds = sum(one.seconds for one in self._known.values() if one.counters[0])
        return self._clock() < known.counted_at + SHARE * seconds

    def _count(self, crawl: Crawl, counters: tuple[object, ...], *, kinds: bool) -> _Count:
        began = self._clock()
        sums = self._store.counts(crawl.id)
        few = sums["dead"] + sums["gone"] + sums["excluded"] <= MOST_FINAL_STATES
        final_states = failures_in(self._store, crawl) if kinds and few else None
        now = self._clock()
        return _Count(counters, now, now - began, sums, final_states)


def failures_in(store: Store, crawl: Crawl) -> dict[str, int]:
    """Return a crawl's final states, without parked ones, by the kind of failure.

    Raises Unavailable.
    """
    finals = (final for _, final in store.finals(crawl.id))
    kinds = Counter(final.kind for final in finals if final.state != "parked")
    return dict(sorted(kinds.items()))
