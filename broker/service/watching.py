"""The coordinator's records for people: points of plots, and open alerts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Alert, Counted, Crawl, Sample
from greencrawl.store.base import MINUTE_MS

SUMS = ("pages", "bytes", "errors", "unchanged")
"""For these counters, a point has the increase since the point before."""
LEVELS = ("waiting", "leased", "later", "overflow", "dead", "parked", "hosts")

FIRST_MINUTES = 15
"""A crawl is counted for the first time within this time after it was made, if a coordinator is
there."""


def points(crawl: Crawl, rows: Sequence[Counted], since_ms: int = 0) -> list[Sample]:
    """Return the increase between each two rows of a crawl. If the crawl's first row is among
    ``rows``, the increase up to this row comes first. If Redis lost its counters, the increase is
    0."""
    begun = crawl.created_ms // MINUTE_MS
    if rows and crawl.created_ms >= since_ms and abs(rows[0].minute - begun) <= FIRST_MINUTES:
        rows = [Counted(crawl=crawl.id, minute=min(begun, rows[0].minute - 1)), *rows]
    return [
        Sample(
            at_ms=after.minute * MINUTE_MS,
            seconds=(after.minute - before.minute) * 60,
            **{name: max(0, getattr(after, name) - getattr(before, name)) for name in SUMS},
            **{name: getattr(after, name) for name in LEVELS},
        )
        for before, after in pairwise(rows)
    ]


def open_alerts(service: Service) -> list[Alert]:
    """Return the open alerts, the oldest first. Raises Unavailable."""
    found = [one for one in service.store.alerts() if one.began_ms]
    with suppress(Unavailable):  # Redis is away: the store answers
        outage = service.frontier.outages.open()
        if outage is not None:
            found.append(outage.alert())
    return found
