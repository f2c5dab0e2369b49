"""The store: whether it answers, what waits in it, and what is being deleted."""

from __future__ import annotations

from typing import Any

from greencrawl.monitor.look import Data, Look, View
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl

COUNT_SECONDS = 60.0
"""Sums of a crawl are asked for so seldom: that looks at more than a row."""
BATCHES = 100


def part(look: Look) -> Data:
    """What the contract of a store tells."""
    store = look.service.store
    stamp = store.clock()
    pending = store.pending_seeds(BATCHES)
    return {
        "mysql": type(store).__module__.startswith("greencrawl.store.mysql"),
        "clock": stamp.clock,
        "pending": len(pending),
        "more_pending": len(pending) == BATCHES,
        "purges": look.service.purges(),
        "counts": [(crawl, _counts(look, crawl)) for crawl in reversed(look.figures.crawls())],
    }


def _counts(look: Look, crawl: Crawl) -> dict[str, int]:
    """Sums of a crawl; none where they cannot be had now."""
    key: Any = ("counts", crawl.id)
    try:
        return look.shared.get(key, lambda: look.service.store.counts(crawl.id), COUNT_SECONDS)
    except Unavailable:
        return {}


VIEWS = (View(name="store", path="/monitor/store", part=part, nav=True),)
