"""Actions on crawls: pause, stop, resume, and retry what failed.

The HTTP API and the Monitor call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.api.problems import invalid as invalid_of
from greencrawl.broker.api.problems import of as problem_of
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import (
    EVERY_SHAPE,
    STOPPING,
    STOPPING_NOW,
    Crawl,
    Seed,
    SeedBatch,
    SeedReply,
)


class Missing(HttpProblem):
    """Raised for something that does not exist: a 404."""

    def __init__(self, what: str) -> None:
        super().__init__(404, what)


AGAIN = 1000
"""At most this many pages are asked for again at once."""


def pause(service: Service, name: str) -> Crawl:
    """Lease no more URLs of a crawl; leased ones are finished. Idempotent.

    Raises UnknownCrawl, and a 409 for a crawl that is done or being stopped.
    """
    while True:
        found = service.store.crawl(name)
        if found.state == "done":
            why = f"crawl {name} is done ({found.reason}); there is nothing to pause"
            raise HttpProblem(409, why)
        if found.stopping:
            raise HttpProblem(409, f"crawl {name} is being stopped; resume it first")
        changed = service.store.set_state(found.id, "paused", version=found.version)
        if changed.state == "paused":  # otherwise it was changed meanwhile: it may be done
            service.frontier.put_crawl(changed)
            return changed


def stop(service: Service, name: str, *, now: bool) -> Crawl:
    """End a crawl once nothing of it is leased; with ``now`` leased tasks are given back unfetched.

    A crawl that is done at a limit stays as it is. Idempotent. Raises UnknownCrawl.
    """
    reason = STOPPING_NOW if now else STOPPING
    while True:
        found = service.store.crawl(name)
        done = found.state == "done" and not found.finished
        if done or (found.stopping and found.reason in (reason, STOPPING_NOW)):
            return found
        changed = service.store.set_state(found.id, "paused", reason, version=found.version)
        if changed.stopping:  # otherwise it was changed meanwhile
            service.frontier.put_crawl(changed)
            return changed


def resume(service: Service, name: str) -> Crawl:
    """Lease URLs of a crawl again, also after a stop or after a limit was raised. Idempotent."""
    changed = service.store.set_state(service.store.crawl(name).id, "active")
    service.frontier.put_crawl(changed)
    return changed


def requeue(service: Service, name: str) -> SeedReply:
    """Try all present dead letters of a crawl again, without their earlier errors.

    A URL that is given up again meanwhile stays a dead letter.
    """
    crawl = service.store.crawl(name)
    now = service.store.tick()
    return _settled(service, lambda: service.store.requeue_dead(crawl.id, before=now))


def release(service: Service, name: str, shape: str | None) -> SeedReply:
    """Queue what is parked by a shape, None for any, and park nothing of it again. Idempotent.

    The crawl becomes active again if it was done.
    """
    crawl = service.store.crawl(name)
    # This comes first: from here on the store refuses what workers park by such a shape.
    released = service.store.add_released(crawl.id, [EVERY_SHAPE if shape is None else shape])
    service.frontier.put_crawl(released)  # the new revision tells workers
    return _settled(service, lambda: service.store.release_parked(crawl.id, shape))


def fetch_failed(service: Service, name: str, function: str, message: str) -> SeedReply:
    """Fetch pages again on which a function of the crawl's hook failed with this message.

    So the hook runs on them once more. At most a thousand of them; ``items`` is empty. Each keeps
    its depth. Raises UnknownCrawl.
    """
    crawl = service.store.crawl(name)
    found = service.store.hook_failures(crawl.id, function, message, limit=AGAIN)
    seeds = [_as_stored(service, crawl, failure.url) for _, failure in found]
    reply = seeding.seed(service, name, seeds, force=True)
    return msgspec.structs.replace(reply, items=())


def _as_stored(service: Service, crawl: Crawl, url: str) -> Seed:
    page = service.store.page(crawl.id, service.frontier.fingerprint(url), detail="row")
    return Seed(url, page.depth if page is not None else 0)


def _settled(service: Service, following: Callable[[], SeedBatch | None]) -> SeedReply:
    """Admit batch after batch until there is none."""
    added = pending = 0
    while (batch := following()) is not None:
        missed = len(seeding.settle(service, batch).missed)
        added += len(batch.urls) - missed
        pending += missed
    return SeedReply(added=added, duplicate=0, rejected=0, items=(), pending=pending)


def error_parts(error: Exception) -> tuple[int, str, tuple[tuple[str, str], ...]] | None:
    """Return (HTTP status, what happened, (field, what is wrong) pairs) of an expected error.

    None for an unexpected error: nothing of it is for other people's eyes.
    """
    if isinstance(error, msgspec.ValidationError):
        error = invalid_of(error)
    problem = problem_of(error)
    if problem is None:
        return None
    record = problem.record
    detail = record.detail or record.title
    return record.status, detail, tuple((one.field, one.detail) for one in record.errors)
