"""Parked URLs: lists their shapes, and releases them."""

from __future__ import annotations

from greencrawl.broker.api.messages import ParkedQuery, ParkedReply, ReleaseParkedRequest
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.service.service import Service
from greencrawl.broker.service.shared import crawl_actions
from greencrawl.schema.records import SeedReply


def list_parked(service: Service, query: ParkedQuery) -> ParkedReply:
    """List shapes of parked URLs in a crawl: why, how many, and one URL of each."""
    crawl = service.store.crawl(query.crawl)
    found = service.store.parked_shapes(crawl.id, query.limit)
    return ParkedReply(tuple(found), released=crawl.released)


def release_parked(service: Service, body: ReleaseParkedRequest) -> SeedReply:
    """Queue what is parked by a shape, or by any, and park nothing of it again.

    ``items`` is empty. The crawl becomes active again if it was done. Idempotent.
    """
    if bool(body.shape) == body.all:
        what = "name a shape, or say all" if not body.all else "not together with all"
        raise HttpProblem(400, f"shape: {what}", [("shape", what)])
    return crawl_actions.release(service, body.crawl, None if body.all else body.shape)
