"""The store: whether it answers, what waits in it, and what is being deleted."""

from __future__ import annotations

from greencrawl.monitor.look import Data, Look, View, whole
from greencrawl.schema.errors import Unavailable

SIZE_SECONDS = 60.0
SHOWN = 50
"""Crawls, the newest first."""
BATCHES = 100
LAG_SECONDS = 10.0


def part(look: Look) -> Data:
    """Return a store's description of itself."""
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
        **_counts(look),
    }


def _counts(look: Look) -> Data:
    """Return a page of crawls with their sums; a crawl that is still being counted has none."""
    before = whole(look.asked("before"))
    crawls = [one for one in look.figures.crawls() if before is None or one.id < before]
    shown = crawls[: -SHOWN - 1 : -1]
    sums = look.figures.counting.of([one.id for one in shown])
    return {
        "counts": [(one, sums.get(one.id), one.id not in sums) for one in shown],
        "next": f"?before={shown[-1].id}" if len(crawls) > SHOWN else "",
        "first": before is None,
    }


def _size(look: Look) -> int | None:
    """Return the size of its files or tables; None if it is not known now."""
    try:
        return look.shared.get("size", look.service.store.size, SIZE_SECONDS)
    except Unavailable:
        return None


def _lags(look: Look) -> dict[str, float | None]:
    """Return the lags of replicas whose masters are no ring; each has to be asked."""
    try:
        return look.shared.get("lags", look.service.store.lags, LAG_SECONDS)
    except Unavailable:
        return {}


VIEWS = (View(name="store", path="/monitor/store", part=part, nav=True),)
