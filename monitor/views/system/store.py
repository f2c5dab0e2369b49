"""The store: whether it answers, what waits in it, and what is being deleted."""

from __future__ import annotations

from greencrawl.monitor.page_request import Data, PageRequest, View, whole
from greencrawl.schema.errors import Unavailable

SIZE_SECONDS = 60.0
SHOWN = 50
"""Crawls, the newest first."""
BATCHES = 100
LAG_SECONDS = 10.0


def part(request: PageRequest) -> Data:
    """Return a store's description of itself."""
    store = request.service.store
    pending = store.pending_seeds(BATCHES)
    mysql = type(store).__module__.startswith("greencrawl.store.mysql")
    ring = request.service.ring()
    return {
        "mysql": mysql,
        "ring": ring,
        "lags": _lags(request) if mysql and ring is None else {},
        "bytes": _size(request),
        "pending": len(pending),
        "more_pending": len(pending) == BATCHES,
        "purges": request.service.purges(),
        **_counts(request),
    }


def _counts(request: PageRequest) -> Data:
    """Return a page of crawls with their sums; a crawl that is still being counted has none."""
    before = whole(request.asked("before"))
    crawls = [one for one in request.figures.crawls() if before is None or one.id < before]
    shown = crawls[: -SHOWN - 1 : -1]
    sums = request.figures.counting.of([one.id for one in shown])
    return {
        "counts": [(one, sums.get(one.id), one.id not in sums) for one in shown],
        "next": f"?before={shown[-1].id}" if len(crawls) > SHOWN else "",
        "first": before is None,
    }


def _size(request: PageRequest) -> int | None:
    """Return the size of its files or tables; None if it is not known now."""
    try:
        return request.shared.get("size", request.service.store.size, SIZE_SECONDS)
    except Unavailable:
        return None


def _lags(request: PageRequest) -> dict[str, float | None]:
    """Return the lags of replicas if the masters are no ring; then each replica has to be asked."""
    try:
        return request.shared.get("lags", request.service.store.lags, LAG_SECONDS)
    except Unavailable:
        return {}


VIEWS = (View(name="store", path="/monitor/store", part=part, nav=True),)
