"""Failures: URLs that were given up, and pages on which a hook raised an error."""

from __future__ import annotations

from greencrawl.broker.api.messages import (
    DeadLetter,
    DeadQuery,
    DeadReply,
    HookCounts,
    HooksQuery,
    HooksReply,
    RequeueRequest,
)
from greencrawl.broker.service.service import Service
from greencrawl.broker.service.shared import crawl_actions
from greencrawl.broker.service.shared.queries import cursor
from greencrawl.schema.records import SeedReply


def list_dead(service: Service, query: DeadQuery) -> DeadReply:
    """List dead letters of a crawl, a page at a time: URLs that were given up, and why."""
    crawl = service.store.crawl(query.crawl)
    with cursor():
        rows = service.store.dead(crawl.id, query.limit, query.after)
    full = len(rows) == query.limit
    return DeadReply(
        tuple(DeadLetter(id=number, letter=final) for number, final in rows),
        next=rows[-1][0] if full else "",
    )


def requeue_dead(service: Service, body: RequeueRequest) -> SeedReply:
    """Try all present dead letters of a crawl again, without their earlier errors.

    ``items`` is empty. A URL that is given up again meanwhile stays a dead letter.
    """
    return crawl_actions.requeue(service, body.crawl)


def count_hook_failures(service: Service, crawl: str) -> HookCounts:
    """Count the pages on which the crawl's hook failed, by function and message."""
    found = service.store.crawl(crawl)
    return HookCounts(tuple(service.store.hook_counts(found.id)))


def list_hook_failures(service: Service, query: HooksQuery) -> HooksReply:
    """List pages on which a function of a crawl's hook failed with a message, some at a time."""
    crawl = service.store.crawl(query.crawl)
    with cursor():
        found = service.store.hook_failures(
            crawl.id, query.function, query.message, after=query.after, limit=query.limit
        )
    full = len(found) == query.limit
    return HooksReply(tuple(failure for _, failure in found), next=found[-1][0] if full else "")
