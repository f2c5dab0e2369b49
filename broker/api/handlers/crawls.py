"""Operations on crawls: create, change, seed, delete."""

from __future__ import annotations

from greencrawl.broker.api.messages import Answer, CrawlChange, SeedQuery, StopRequest
from greencrawl.broker.service import changing, seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.service.shared import crawl_actions
from greencrawl.broker.service.shared.queries import host_name
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

    Idempotent. The seeds' hosts (or domains, or prefixes) become the roots of its scope. Roots are
    only ever added. A crawl that was done becomes active again if seeds are given; a stopped one,
    if some of them are new to it. If its links now reach further than before, stored pages are read
    again for links, without a fetch: see ``/rounds``. Seeds for a Redis node that is away are kept,
    and queued when it is back.
    """
    crawl, is_new = seeding.create(service, body)
    return Answer(201 if is_new else 200, crawl)


def list_crawls(service: Service) -> list[Crawl]:
    """List all crawls, oldest first."""
    return service.store.crawls()


def get_crawl(service: Service, crawl: str) -> Crawl:
    """Get one crawl with its options, roots and state."""
    return service.store.crawl(crawl)


def patch_crawl(service: Service, crawl: str, body: CrawlChange) -> Crawl:
    """Change some options of a crawl, and leave the others as they are.

    Workers follow within a second. If the crawl's ``delay`` or ``slots`` changed, sessions end, and
    unfetched tasks go back; everything else holds from the next page on. New ``seeds`` are queued.
    With a ``revision`` the answer is 409 if the crawl has another one by now.
    """
    return changing.change(service, crawl, body.options, revision=body.revision, by=body.by)


def delete_crawl(service: Service, crawl: str) -> Crawl:
    """Delete a crawl with all its content, in the background.

    The crawl is unknown from now on, and its name is free. ``/v1/purges`` shows the progress; if a
    broker dies, the next one continues.
    """
    found = service.store.crawl(crawl)
    service.purge(found)
    return found


def purge_host(service: Service, crawl: str, host: str) -> Purge:
    """Drop the waiting URLs of a host in a crawl, in the background. Idempotent.

    Each URL becomes excluded, with the kind ``purged``. Stored pages stay, leased URLs are
    finished, and URLs found later are queued as usual.
    """
    return service.purge(service.store.crawl(crawl), host_name(host))


def list_purges(service: Service) -> list[Purge]:
    """List deletions under way, oldest first, with their progress and the Redis nodes they wait
    for.

    A deletion that waits goes on by itself when these nodes are back.
    """
    return service.purges()


def pause_crawl(service: Service, crawl: str) -> Crawl:
    """Lease no more URLs of this crawl; leased ones are finished. Idempotent."""
    return crawl_actions.pause(service, crawl)


def stop_crawl(service: Service, crawl: str, body: StopRequest) -> Crawl:
    """End a crawl: lease no more of it. It is done (``stopped``) once nothing of it is leased.

    Until then it is paused, with the reason ``stopping``. Waiting URLs stay where they are. Leased
    ones are finished, or with ``now`` given back, within a third of a lease. Only resuming it, new
    seeds or a round make it active again; links that are found late do not. A crawl that is done at
    a limit stays as it is. Idempotent.
    """
    return crawl_actions.stop(service, crawl, now=body.now)


def resume_crawl(service: Service, crawl: str) -> Crawl:
    """Lease URLs of this crawl again, also after a stop or after a limit was raised. Idempotent."""
    return crawl_actions.resume(service, crawl)


def list_periods(service: Service, crawl: str) -> list[Period]:
    """List the latest hundred periods of a crawl that begins again, the last one first."""
    return service.store.periods(service.store.crawl(crawl).id)


def begin_round(service: Service, crawl: str) -> Round:
    """Ask again for all of a crawl: each stored page, and each URL without one.

    Each page stays until its new version is there; if none comes, it stays the latest. New links
    are followed. A crawl that was done or stopped becomes active again. Idempotent: a round under
    way goes on. A crawl with ``max_pages``, ``max_bytes``, ``max_seconds``, ``host_pages`` or
    ``shape_pages`` is refused, since these limits also count what is fetched again.
    """
    return seeding.begin_round(service, service.store.crawl(crawl))


def list_rounds(service: Service, crawl: str) -> list[Round]:
    """List the last rounds of a crawl over its stored pages, with their progress.

    ``read``: stored pages are read again for links that changed options now allow, without a
    request. ``fetch``: all pages are fetched again. ``total`` is -1 if it is not counted: in a
    crawl with more than 20,000 pages.
    """
    return seeding.rounds(service, service.store.crawl(crawl))


def seed_urls(service: Service, crawl: str, body: SeedRequest, query: SeedQuery) -> SeedReply:
    """Queue URLs of a crawl: JSON, NDJSON (a URL or a seed a line), or plain lines of URLs.

    The answer comes when all are durable, and queued except those that are ``pending``: these wait
    for a Redis node that is away. Idempotent: a URL that was seen is a ``duplicate``, unless
    ``force`` or ``if_changed`` queues it ``again``.
    """
    if_changed = body.if_changed or query.if_changed
    force = body.force or query.force or if_changed
    return seeding.seed(service, crawl, body.urls, force, if_changed=if_changed)
