"""Sums of what is stored, counted in the background: a store reads many rows for each.

One crawl is counted after another, and each so seldom that counting takes a twentieth of the time
at most. No page waits for more than a moment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import gevent
from gevent.event import Event
from msgspec import Struct

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger

log = logger("monitor")

LEAST_SECONDS = 60.0
"""Sums are kept for at least this long."""
SHARE = 20
"""Sums are also kept for at least this many times as long as it took to count them."""
FIRST_SECONDS = 0.2
"""A page waits at most this long for sums that were never counted."""
MOST = 1000
"""The sums of at most this many crawls are kept; the oldest sums are dropped first."""

Sums = Mapping[str, int]


class _Counted(Struct, frozen=True):
    until: float
    sums: Sums | None
    """None if the crawl could not be counted."""


class Counting:
    """The sums of one broker. ``count`` returns the sums of a crawl, or raises GreencrawlError."""

    def __init__(self, count: Callable[[int], Sums], clock: Clock = monotonic) -> None:
        self._count = count
        self._clock = clock
        self._kept: OrderedDict[int, _Counted] = OrderedDict()
        self._asked: dict[int, None] = {}
        self._all = Event()
        self._working: gevent.Greenlet[[], None] | None = None

    def of(self, crawls: Sequence[int]) -> dict[int, Sums | None]:
        """Return the latest sums by crawl; None for a crawl that could not be counted.

        A crawl that is still being counted is left out.
        """
        now = self._clock()
        old = [one for one in crawls if one not in self._kept or self._kept[one].until <= now]
        if old:
            self._asked.update(dict.fromkeys(old))
            self._all.clear()
            if not self._working:
                self._working = gevent.spawn(self._work)
            if any(one not in self._kept for one in old):
                self._all.wait(FIRST_SECONDS)
        return {one: self._kept[one].sums for one in crawls if one in self._kept}

    def stop(self) -> None:
        """Stop counting."""
        if self._working is not None:
            self._working.kill()

    def _work(self) -> None:
        while self._asked:
            crawl = next(iter(self._asked))
            began = self._clock()
            sums: Sums | None = None
            try:
                sums = self._count(crawl)
            except GreencrawlError as error:
                log.info("crawl_not_counted", crawl=crawl, reason=str(error))
            except Exception:  # a bug in one crawl's sums must not stop the counting of others
                log.exception("crawl_not_counted", crawl=crawl)
            finally:
                self._asked.pop(crawl, None)
            now = self._clock()
            until = now + max(LEAST_SECONDS, SHARE * (now - began))
            self._kept[crawl] = _Counted(until, sums)
            self._kept.move_to_end(crawl)
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._all.set()
