"""The operations of the HTTP API, one function each, and the table that says where they are.

A handler's signature is its contract: ``body`` and ``query`` are decoded to the annotated record
before it is called, other parameters come from the path, and the annotated result is encoded. Both
the routes (``broker.api.app``) and the OpenAPI document (``broker.api.openapi``) are
made from the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from greencrawl.broker.api.messages import (
    Answer,
    DeadLetter,
    DeadQuery,
    DeadReply,
    Health,
    HookCounts,
    HooksQuery,
    HooksReply,
    PageReply,
    PagesQuery,
    PagesReply,
    RepairReply,
    RepairRequest,
    RequeueRequest,
    SeedQuery,
    StatsQuery,
    Text,
    UrlQuery,
)
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.api.security import Role
from greencrawl.broker.service import explain, pages, seeding
from greencrawl.broker.service.service import Service
from greencrawl.schema import crash_points
from greencrawl.schema.errors import InvalidConfig, InvalidUrl, Unavailable
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import (
    CloseRequest,
    Crawl,
    CreateCrawl,
    ExtendRequest,
    FinishRequest,
    HostPatch,
    HostState,
    ItemsReply,
    LeaseReply,
    LeaseRequest,
    PageFilter,
    Purge,
    ReconcileReply,
    ReconcileRequest,
    ReleaseRequest,
    SeedReply,
    SeedRequest,
    Stats,
    UrlState,
)
from greencrawl.schema.text.moments import since_ms, status_range
from greencrawl.schema.text.patterns import Pattern


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path. ``statuses`` are its successes, the usual one first.

    ``problems`` are failures beyond those that follow from role, body and path.
    """

    method: str
    path: str
    role: Role
    run: Callable[..., Any]
    statuses: tuple[HTTPStatus, ...] = (HTTPStatus.OK,)
    problems: tuple[HTTPStatus, ...] = ()

    @property
    def name(self) -> str:
        """The operation's id in OpenAPI and in metrics."""
        return self.run.__name__


# --- crawls -----------------------------------------------------------------------------------


def create_crawl(service: Service, body: CreateCrawl) -> Answer[Crawl]:
    """Create a crawl, or update the options of the one with this name, and queue its seeds.

    Idempotent. The seeds' hosts (or domains, or prefixes) become the roots of its scope. Roots
    are only ever added. A crawl that was done becomes active again if seeds are given. Seeds for a
    Redis node that is away are kept, and queued when it is back.
    """
    crawl, is_new = seeding.create(service, body)
    return Answer(201 if is_new else 200, crawl)


def list_crawls(service: Service) -> list[Crawl]:
    """All crawls, oldest first."""
    return service.store.crawls()


def get_crawl(service: Service, crawl: str) -> Crawl:
    """One crawl with its options, roots and state."""
    return service.store.crawl(crawl)


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
    return service.purge(service.store.crawl(crawl), _host(host))


def list_purges(service: Service) -> list[Purge]:
    """Deletions under way, oldest first, how far they are, and for which Redis nodes they wait.

    One that waits goes on by itself when these are back.
    """
    return service.purges()


def pause_crawl(service: Service, crawl: str) -> Crawl:
    """Lease no more URLs of this crawl; what is leased is finished. Idempotent."""
    while True:
        found = service.store.crawl(crawl)
        if found.state == "done":
            why = f"crawl {crawl} is done ({found.reason}); there is nothing to pause"
            raise HttpProblem(409, why)
        changed = service.store.set_state(found.id, "paused", version=found.version)
        if changed.state == "paused":  # else it was changed meanwhile: it may be done
            service.frontier.put_crawl(changed)
            return changed


def resume_crawl(service: Service, crawl: str) -> Crawl:
    """Lease URLs of this crawl again, also after a limit was raised. Idempotent."""
    changed = service.store.set_state(service.store.crawl(crawl).id, "active")
    service.frontier.put_crawl(changed)
    return changed


def seed_urls(service: Service, crawl: str, body: SeedRequest, query: SeedQuery) -> SeedReply:
    """Queue URLs of a crawl: JSON, NDJSON (a URL or a seed a line), or plain lines of URLs.

    Answered when all are durable, and queued but for what is ``pending``: that waits for a Redis
    node that is away. Idempotent: a URL that was seen is a duplicate.
    """
    return seeding.seed(service, crawl, body.urls, body.force or query.force)


# --- leases (workers) ---------------------------------------------------------------------------


def lease(service: Service, body: LeaseRequest) -> LeaseReply:
    """Lease sessions with due hosts. Waits up to ``wait`` seconds until there are some.

    A copy of a worker's latest lease shares its answer. After a lost answer, reconcile. An empty
    answer is no error: ask again.
    """
    reply = service.lease(body)
    if reply.sessions:
        crash_points.point("broker.after_lease_script")
    return reply


def reconcile(service: Service, body: ReconcileRequest) -> ReconcileReply:
    """State what a worker holds; everything else up to its sequence is released, uncharged.

    Idempotent. Leases of that sequence or an earlier one which still are on their way open nothing.
    """
    return service.reconcile(body)


def extend_sessions(service: Service, body: ExtendRequest) -> ItemsReply:
    """Move the deadlines of sessions to ``ttl`` seconds from when this was sent. Idempotent."""
    return ItemsReply(tuple(service.frontier.extend(body.items, body.ttl)))


def close_sessions(service: Service, body: CloseRequest) -> ItemsReply:
    """Free hosts, and report what was learnt of them. Unfinished tasks stay under the token.

    Idempotent: closing again answers ``stale``.
    """
    results = service.frontier.close_sessions(body.items)
    crash_points.point("broker.after_close_script")
    return ItemsReply(tuple(results))


def finish_tasks(service: Service, body: FinishRequest) -> ItemsReply:
    """Settle tasks: done, retry later, or dead. What they brought is already in the store.

    Idempotent: a task that is finished, or under a token that is not current, answers ``stale``
    and changes nothing.
    """
    results = service.frontier.finish(body.items)
    crash_points.point("broker.after_finish_script")
    return ItemsReply(tuple(results))


def release_tasks(service: Service, body: ReleaseRequest) -> ItemsReply:
    """Hand back tasks that were not fetched; they are queued again, uncharged. Idempotent."""
    return ItemsReply(tuple(service.frontier.release(body.items)))


# --- questions and operations ---------------------------------------------------------------------


def explain_url(service: Service, query: UrlQuery) -> list[UrlState]:
    """Where is this URL, and why is it not fetched yet? One answer for each crawl."""
    return explain.explain(service, query.url, query.crawl)


def get_host(service: Service, host: str) -> HostState:
    """Delay, slots, blocks and backlog of a host (``example.org``, ``example.org:8080``)."""
    return service.frontier.host(_host(host))


def patch_host(service: Service, host: str, body: HostPatch) -> HostState:
    """Set a host's least delay, or block it for some seconds; 0 lifts either.

    Both outlive the loss of Redis. Sessions that are open follow when they are extended next:
    within a third of a lease, 20 s by default. Answered 503, a delay may be in the store and not
    yet in force: send it again.
    """
    return service.frontier.patch_host(_host(host), body)


def _host(given: str) -> str:
    """A host as people write it, to the frontier's name of it. Raises InvalidUrl."""
    if any(character in given for character in "/?#@\\"):
        raise InvalidUrl(given, "a host is a name or address, with its port unless 80 or 443")
    return host_of(canonicalise(f"http://{given}/"))


@contextmanager
def _cursor() -> Iterator[None]:
    """Raises InvalidConfig for what the store says is no cursor."""
    try:
        yield
    except ValueError as error:
        raise InvalidConfig([("after", str(error))]) from error


def list_dead(service: Service, query: DeadQuery) -> DeadReply:
    """Dead letters of a crawl: URLs that were given up, and why. A page at a time."""
    crawl = service.store.crawl(query.crawl)
    with _cursor():
        rows = service.store.dead(crawl.id, query.limit, query.after)
    full = len(rows) == query.limit
    return DeadReply(
        tuple(DeadLetter(id=number, letter=final) for number, final in rows),
        next=rows[-1][0] if full else "",
    )


def count_hook_failures(service: Service, crawl: str) -> HookCounts:
    """On how many pages which function of the crawl's hook failed with which message."""
    found = service.store.crawl(crawl)
    return HookCounts(tuple(service.store.hook_counts(found.id)))


def list_hook_failures(service: Service, query: HooksQuery) -> HooksReply:
    """Pages on which a function of a crawl's hook failed with a message. Some at a time."""
    crawl = service.store.crawl(query.crawl)
    with _cursor():
        found = service.store.hook_failures(
            crawl.id, query.function, query.message, after=query.after, limit=query.limit
        )
    full = len(found) == query.limit
    return HooksReply(tuple(failure for _, failure in found), next=found[-1][0] if full else "")


def list_pages(service: Service, query: PagesQuery) -> PagesReply:
    """Stored pages of a crawl, in the order of storing. Some at a time.

    A request looks at a bounded number of pages: ``next`` may come with few of them, or none.
    """
    crawl = service.store.crawl(query.crawl)
    wanted, pattern = _wanted(query)
    with _cursor():
        look = service.reader.look(crawl.id, wanted, pattern, limit=query.limit, after=query.after)
    return PagesReply(tuple(map(pages.listed, look.pages)), look.next, look.looked_at)


def _wanted(query: PagesQuery) -> tuple[PageFilter, Pattern | None]:
    """What a query asks for. Raises InvalidConfig that names every parameter which is wrong."""
    problems: list[tuple[str, str]] = []

    def read(name: str, parse: Callable[[str], Any], nothing: Any) -> Any:
        given = getattr(query, name)
        try:
            return parse(given) if given else nothing
        except ValueError as error:
            problems.append((name, str(error)))

    wanted = PageFilter(
        host=read("host", _host, ""),
        status=read("status", status_range, PageFilter().status),
        since_ms=read("since", since_ms, 0),
    )
    pattern = read("grep", Pattern, None)
    if problems:
        raise InvalidConfig(problems)
    return wanted, pattern


def get_page(service: Service, id: str) -> PageReply:
    """What is stored of a page, and the history of its fetches, the latest first."""
    return pages.reply(service.store, id)


def get_page_text(service: Service, id: str) -> Text:
    """The text that was found in a page."""
    page = pages.stored(service.store, id, body=False)
    return Text("text/plain; charset=utf-8", page.text.encode("utf-8", "replace"), _INERT)


def get_page_body(service: Service, id: str) -> Text:
    """A page's body as it was fetched, as a file to download and never as a page to show.

    What it is, its own headers say: see the page.
    """
    page = pages.stored(service.store, id, body=True)
    attachment = {"Content-Disposition": f'attachment; filename="{page.id}.bin"'}
    return Text("application/octet-stream", page.body, {**_INERT, **attachment})


_INERT = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""With what strangers' content leaves: no browser runs it under the broker's name."""


def requeue_dead(service: Service, body: RequeueRequest) -> SeedReply:
    """Try all dead letters of a crawl again, with their errors forgotten. ``items`` is empty.

    Those that are there now: one that is given up again meanwhile stays a dead letter.
    """
    crawl = service.store.crawl(body.crawl)
    now, added, pending = service.store.tick(), 0, 0
    while (batch := service.store.requeue_dead(crawl.id, before=now)) is not None:
        missed = len(seeding.settle(service, batch).missed)
        added += len(batch.urls) - missed
        pending += missed
    return SeedReply(added=added, duplicate=0, rejected=0, items=(), pending=pending)


def repair(service: Service, body: RepairRequest) -> RepairReply:
    """Give Redis again what the store's log holds since its last tick, or ``all`` of it.

    Goes on in the background; ask by GET how far it is. Idempotent: what is under way is joined.
    Admitting and finishing go on, and no session opens meanwhile. Where the store lost data only
    ``all`` is possible, and empties Redis first.
    """
    service.frontier.repair(body.all)
    return get_repair(service)


def get_repair(service: Service) -> RepairReply:
    """How far each Redis node is refilled, by this broker or as the last that it did."""
    return RepairReply(tuple(service.frontier.repairs()))


def get_stats(service: Service, query: StatsQuery) -> Stats:
    """Counters of one crawl or of all, the slowest hosts, resting hosts, and who works.

    Counters only: nothing is scanned. Of a Redis node that does not answer nothing is counted;
    ``away`` names it.
    """
    store = service.store
    crawls = store.crawls() if query.crawl is None else [store.crawl(query.crawl)]
    counters = tuple(map(service.stats, crawls))
    slowest = tuple(service.frontier.slowest())
    rest = service.frontier.resting()
    away = tuple(service.frontier.nodes_away().values())
    workers, twice = service.frontier.workers()
    return Stats(counters, slowest, *rest, away, workers, twice)


def get_health(service: Service) -> Health:
    """Whether this process answers at all; asks nothing of Redis or the store."""
    return Health()


def get_ready(service: Service) -> Health:
    """Whether this broker can serve: the store and a Redis node answer.

    ``away`` names the nodes that do not.
    """
    why_not = service.frontier.ready()
    if why_not is not None:
        raise Unavailable(why_not)
    service.store.frontier()
    return Health(away=tuple(node.node for node in service.frontier.nodes_away().values()))


_OK, _CREATED, _ACCEPTED = HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED
_CONFLICT, _TOO_LONG = HTTPStatus.CONFLICT, HTTPStatus.REQUEST_URI_TOO_LONG
_FULL = HTTPStatus.TOO_MANY_REQUESTS

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path="/v1/crawls",
        role=Role.ADMIN,
        run=create_crawl,
        problems=(_CONFLICT, _FULL),
        statuses=(_CREATED, _OK),
    ),
    Operation(method="GET", path="/v1/crawls", role=Role.ANY, run=list_crawls),
    Operation(method="GET", path="/v1/crawls/{crawl}", role=Role.ANY, run=get_crawl),
    Operation(
        method="DELETE",
        path="/v1/crawls/{crawl}",
        role=Role.ADMIN,
        run=delete_crawl,
        statuses=(_ACCEPTED,),
    ),
    Operation(
        method="DELETE",
        path="/v1/crawls/{crawl}/hosts/{host}",
        role=Role.ADMIN,
        run=purge_host,
        statuses=(_ACCEPTED,),
    ),
    Operation(method="GET", path="/v1/purges", role=Role.ANY, run=list_purges),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/urls",
        role=Role.ADMIN,
        run=seed_urls,
        problems=(_CONFLICT, _FULL),
    ),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/pause",
        role=Role.ADMIN,
        run=pause_crawl,
        problems=(_CONFLICT,),
    ),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/resume",
        role=Role.ADMIN,
        run=resume_crawl,
        problems=(_CONFLICT,),
    ),
    Operation(method="POST", path="/v1/lease", role=Role.WORKER, run=lease),
    Operation(method="POST", path="/v1/reconcile", role=Role.WORKER, run=reconcile),
    Operation(method="POST", path="/v1/sessions/extend", role=Role.WORKER, run=extend_sessions),
    Operation(method="POST", path="/v1/sessions/close", role=Role.WORKER, run=close_sessions),
    Operation(method="POST", path="/v1/finish", role=Role.WORKER, run=finish_tasks),
    Operation(method="POST", path="/v1/release", role=Role.WORKER, run=release_tasks),
    Operation(method="GET", path="/v1/urls", role=Role.ANY, run=explain_url, problems=(_TOO_LONG,)),
    Operation(method="GET", path="/v1/hosts/{host}", role=Role.ANY, run=get_host),
    Operation(method="PATCH", path="/v1/hosts/{host}", role=Role.ADMIN, run=patch_host),
    Operation(method="GET", path="/v1/dead", role=Role.ANY, run=list_dead),
    Operation(
        method="GET", path="/v1/crawls/{crawl}/hooks", role=Role.ADMIN, run=count_hook_failures
    ),
    Operation(
        method="GET",
        path="/v1/hooks",
        role=Role.ADMIN,
        run=list_hook_failures,
        problems=(_TOO_LONG,),
    ),
    Operation(
        method="GET", path="/v1/pages", role=Role.ADMIN, run=list_pages, problems=(_TOO_LONG,)
    ),
    Operation(method="GET", path="/v1/pages/{id}", role=Role.ADMIN, run=get_page),
    Operation(method="GET", path="/v1/pages/{id}/text", role=Role.ADMIN, run=get_page_text),
    Operation(method="GET", path="/v1/pages/{id}/body", role=Role.ADMIN, run=get_page_body),
    Operation(
        method="POST",
        path="/v1/dead/requeue",
        role=Role.ADMIN,
        run=requeue_dead,
        problems=(_CONFLICT,),
    ),
    Operation(method="POST", path="/v1/repair", role=Role.ADMIN, run=repair, statuses=(_ACCEPTED,)),
    Operation(method="GET", path="/v1/repair", role=Role.ADMIN, run=get_repair),
    Operation(method="GET", path="/v1/stats", role=Role.ANY, run=get_stats),
    Operation(method="GET", path="/healthz", role=Role.OPEN, run=get_health),
    Operation(method="GET", path="/readyz", role=Role.OPEN, run=get_ready),
)
"""All but ``/metrics`` and ``/openapi.json``, which ``broker.api.app`` adds: they are about it."""
