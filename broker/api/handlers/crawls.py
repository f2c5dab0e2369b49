"""Crawls: made, changed, seeded, deleted."""

from __future__ import annotations

from greencrawl.broker.api.messages import Answer, CrawlChange, SeedQuery, StopRequest
from greencrawl.broker.service import changing, seeding
from greencrawl.broker.service.faces import operating
from greencrawl.broker.service.faces.asking import host_name
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import (
    Crawl,
    CreateCrawl,
    Period,
    Purge,
    Round,
    SeedReply,
    SeedRequest,
)


def create_crawl(service: Service, body: CreateCrawl) -> Answer[Crawl]:
    """Create a crawl, or update the options of the one with this name, and queue its seeds.

    Idempotent. The seeds' hosts (or domains, or prefixes) become the roots of its scope. Roots
    are only ever added. A crawl that was done becomes active again if seeds are given, one that was
    stopped if some of them are new to it. If options let more links be followed than before, stored
    pages are read again for them, without a fetch: see ``/rounds``. Seeds for a Redis node that is
    away are kept, and queued when it is back.
    """
    crawl, is_new = seeding.create(service, body)
    return Answer(201 if is_new else 200, crawl)


def list_crawls(service: Service) -> list[Crawl]:
    """All crawls, oldest first."""
    return service.store.crawls()


def get_crawl(service: Service, crawl: str) -> Crawl:
    """One crawl with its options, roots and state."""
    return service.store.crawl(crawl)


def patch_crawl(service: Service, crawl: str, body: CrawlChange) -> Crawl:
    """Change some options of a crawl, and leave the others as they are.

    Workers follow within a second: sessions end where the crawl's ``delay`` or ``slots`` changed,
    and what was not fetched goes back; all else holds from the next page on. New ``seeds`` are
    queued. With a ``revision`` it is answered 409 if the crawl has another one by now.
    """
    return changing.change(service, crawl, body.options, revision=body.revision, by=body.by)


def delete_crawl(service: Service, crawl: str) -> Crawl:
    """Delete a crawl with all its content, in the background.

    It is unknown from now on, and its name free. ``/v1/purges`` says how far the deletion is; a
    broker that dies leaves the rest to the next.
    """
    found = service.store.crawl(crawl)
    service.purge(found)
    return found


def purge_host(service: Service, crawl: str, host: str) -> Purge:
    """Drop what waits of a host in a crawl, in the background. Idempotent.

    Each URL becomes excluded, by the kind ``purged``. Pages that are stored stay; what is leased is
    finished; URLs found later are queued as ever.
    """
    return service.purge(service.store.crawl(crawl), host_name(host))


def list_purges(service: Service) -> list[Purge]:
    """Deletions under way, oldest first, how far they are, and for which Redis nodes they wait.

    One that waits goes on by itself when these are back.
    """
    return service.purges()


def pause_crawl(service: Service, crawl: str) -> Crawl:
    """Lease no more URLs of this crawl; what is leased is finished. Idempotent."""
    return operating.pause(service, crawl)


def stop_crawl(service: Service, crawl: str, body: StopRequest) -> Crawl:
    """End a crawl: lease no more of it. It is done (``stopped``) once nothing of it is leased.

    Until then it is paused, by the reason ``stopping``. Waiting URLs are left where they are.
    Leased ones are finished, or with ``now`` given back, within a third of a lease. Only resuming
    it, new seeds or a round make it active again; links that are found late do not. One that is
    done at a limit stays as it is. Idempotent.
    """
    return operating.stop(service, crawl, now=body.now)


def resume_crawl(service: Service, crawl: str) -> Crawl:
    """Lease URLs of this crawl again, also after a stop or a limit that was raised. Idempotent."""
    return operating.resume(service, crawl)


def list_periods(service: Service, crawl: str) -> list[Period]:
    """The latest hundred periods of a crawl that begins again, the latest first."""
    return service.store.periods(service.store.crawl(crawl).id)


def begin_round(service: Service, crawl: str) -> Round:
    """Have all of a crawl asked for again: each page that is stored, and what had none.

    Each page stays until its new version is there, and as its latest if none comes. Links that are
    new are followed. A crawl that was done or stopped becomes active again. Idempotent: where such
    a round is under way it goes on. A crawl with ``max_pages``, ``max_bytes``, ``max_seconds``,
    ``host_pages`` or ``shape_pages`` is refused, since these count what is fetched again, too.
    """
    return seeding.begin_round(service, service.store.crawl(crawl))


def list_rounds(service: Service, crawl: str) -> list[Round]:
    """The last rounds of a crawl over what it has stored, and how far they are.

    ``read``: pages are looked through for links that options which were changed let be followed,
    without a request. ``fetch``: all is asked for again. ``total`` is -1 where it is not counted:
    of a crawl with more than 20,000 pages.
    """
    return seeding.rounds(service, service.store.crawl(crawl))


def seed_urls(service: Service, crawl: str, body: SeedRequest, query: SeedQuery) -> SeedReply:
    """Queue URLs of a crawl: JSON, NDJSON (a URL or a seed a line), or plain lines of URLs.

    Answered when all are durable, and queued but for what is ``pending``: that waits for a Redis
    node that is away. Idempotent: a URL that was seen is a duplicate.
    """
    if_changed = body.if_changed or query.if_changed
    force = body.force or query.force or if_changed
    return seeding.seed(service, crawl, body.urls, force, if_changed=if_changed)
