"""Parked URLs: lists the shapes by which they are parked, and releases them."""

from __future__ import annotations

from greencrawl.broker.api.messages import ParkedQuery, ParkedReply, ReleaseParkedRequest
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import EVERY_SHAPE, SeedReply


def list_parked(service: Service, query: ParkedQuery) -> ParkedReply:
    """Shapes of URLs that are parked in a crawl, why, how many, and one URL of each."""
    crawl = service.store.crawl(query.crawl)
    found = service.store.parked_shapes(crawl.id, query.limit)
    return ParkedReply(tuple(found), released=crawl.released)


def release_parked(service: Service, body: ReleaseParkedRequest) -> SeedReply:
    """Queue what is parked by a shape, or by any, and park nothing of it again. ``items`` is empty.

    The crawl becomes active again if it was done. Idempotent.
    """
    if bool(body.shape) == body.all:
        what = "name a shape, or say all" if not body.all else "not together with all"
        raise HttpProblem(400, f"shape: {what}", [("shape", what)])
    crawl = service.store.crawl(body.crawl)
    # First this: what workers park from here on by such a shape the store refuses.
    released = service.store.add_released(crawl.id, [EVERY_SHAPE if body.all else body.shape])
    service.frontier.put_crawl(released)  # workers learn by the revision
    shape, added, pending = None if body.all else body.shape, 0, 0
    while (batch := service.store.release_parked(crawl.id, shape)) is not None:
        missed = len(seeding.settle(service, batch).missed)
        added += len(batch.urls) - missed
        pending += missed
    return SeedReply(added=added, duplicate=0, rejected=0, items=(), pending=pending)
