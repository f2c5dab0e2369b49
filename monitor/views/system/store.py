"""The store: whether it answers, what waits in it, and what is being deleted."""

from __future__ import annotations

from typing import Any

from greencrawl.monitor.look import Data, Look, View
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl

COUNT_SECONDS = 60.0
"""Seconds between two reads of a crawl's sums, which read more than a row."""
BATCHES = 100
LAG_SECONDS = 10.0


def part(look: Look) -> Data:
    """Return what a store tells of itself."""
    store = look.service.store
    pending = store.pending_seeds(BATCHES)
    mysql = type(store).__module__.startswith("greencrawl.store.mysql")
    ring = look.service.ring()
    return {
        "mysql": mysql,
        "ring": ring,
        "lags": _lags(look) if mysql and ring is None else {},
        "bytes": _size(look),
        "pending": len(pending),
        "more_pending": len(pending) == BATCHES,
        "purges": look.service.purges(),
        "counts": [(crawl, _counts(look, crawl)) for crawl in reversed(look.figures.crawls())],
    }


def _size(look: Look) -> int | None:
    """Return the size of its files or tables; None if it is not known now."""
    try:
        return look.shared.get("size", look.service.store.size, COUNT_SECONDS)
    except Unavailable:
        return None


def _lags(look: Look) -> dict[str, float | None]:
    """Return the lags of replicas whose masters are no ring; each has to be asked."""
    try:
        return look.shared.get("lags", look.service.store.lags, LAG_SECONDS)
    except Unavailable:
        return {}


def _counts(look: Look, crawl: Crawl) -> dict[str, int]:
    """Return the sums of a crawl; none if they are not known now."""
    key: Any = ("counts", crawl.id)
    try:
        return look.shared.get(key, lambda: look.service.store.counts(crawl.id), COUNT_SECONDS)
    except Unavailable:
        return {}


VIEWS = (View(name="store", path="/monitor/store", part=part, nav=True),)
