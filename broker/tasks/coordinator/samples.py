"""Samples: what a crawl's counters were at a minute, for plots."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from greencrawl.broker.tasks.coordinator import alerts
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Counted, Crawl, CrawlStats
from greencrawl.store.base import Store

ROWS = 100
"""Samples in one transaction."""
SAME_MINUTES = 15
"""A crawl in which nothing changes has one row in this many minutes."""


class Samples:
    """Selects the samples that are worth a row.

    These are: samples that differ from the last one; the last one of a row of equal samples, so
    that plots keep their edges; and now and then one of a crawl that does not change.
    """

    def __init__(self) -> None:
        self._written: dict[int, Counted] = {}
        self._same: dict[int, Counted] = {}
        """Crawl → the latest sample that was left out."""
        self.still: set[int] = set()
        """Crawls whose latest sample equals the one before."""

    def write(self, store: Store, seen: Sequence[Counted], known: Collection[int]) -> None:
        """Write those of :meth:`due`. Raises Unavailable; then all are due the next time."""
        rows = self.due(seen, known)
        try:
            for start in range(0, len(rows), ROWS):
                store.put_samples(rows[start : start + ROWS])
        except Unavailable:  # some may be written
            self._written.clear()
            self._same.clear()
            raise

    def due(self, seen: Sequence[Counted], known: Collection[int]) -> list[Counted]:
        """Return the samples of this minute, and of earlier ones, that must be written.

        ``known`` are all crawls that are under way, with or without a sample.
        """
        rows = []
        self._written = {id_: one for id_, one in self._written.items() if id_ in known}
        self._same = {id_: one for id_, one in self._same.items() if id_ in known}
        self.still.intersection_update(known)
        for one in seen:
            last, before = self._written.get(one.crawl), self._same.pop(one.crawl, None)
            if last is None or replace(one, minute=last.minute) != last:
                self.still.discard(one.crawl)
                rows += [before] if before is not None else []
            else:
                self.still.add(one.crawl)
                if one.minute - last.minute < SAME_MINUTES:
                    self._same[one.crawl] = one
                    continue
            rows.append(one)
            self._written[one.crawl] = one
        return rows


def counted(crawl: Crawl, stats: CrawlStats, minute: int) -> Counted:
    """Return the sample of a crawl's counters."""
    return Counted(
        crawl=crawl.id, minute=minute, pages=stats.fetched, bytes=stats.bytes,
        errors=alerts.errors(stats), unchanged=stats.unchanged, waiting=stats.waiting,
        leased=stats.leased, later=stats.later, overflow=stats.overflow, dead=stats.dead,
        parked=stats.parked, hosts=stats.hosts,
    )  # fmt: skip
