"""The client of the broker's HTTP API, for workers and for the command.

The client uses one address until a call fails there, or until the broker reports that a Redis node
is away; then it uses the next address. A request that may have been processed is never sent again:
a lost answer is :class:`Unavailable`. The caller knows what to do then (a worker reconciles, a
person asks again); the client does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from greencrawl.broker import answers
from greencrawl.broker.api.messages import (
    ChangesReply,
    CrawlChange,
    DeadReply,
    HookCounts,
    HooksReply,
    MembersReply,
    OrderRequest,
    OrdersLogReply,
    PageReply,
    PagesReply,
    ParkedReply,
    ReleaseParkedRequest,
    RepairReply,
    RepairRequest,
    RequeueRequest,
    StopRequest,
)
from greencrawl.schema.errors import InvalidConfig, Refused, Unavailable
from greencrawl.schema.logs.records import LogsQuery, LogsReply, parameters
from greencrawl.schema.records import (
    Alert,
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
    MemberReply,
    MemberRequest,
    NodeOrders,
    Orders,
    Period,
    Purge,
    ReconcileReply,
    ReconcileRequest,
    ReleaseRequest,
    Round,
    Sample,
    SeedReply,
    SeedRequest,
    Stats,
    UrlState,
)
from greencrawl.schema.transport import KeepAlive, Lost, Reply, Transport
from greencrawl.schema.wire import to_json

T = TypeVar("T")

LEASE_MARGIN_SECONDS = 10.0
"""How much later than its wait a lease's answer may come."""
CHANGES_SECONDS = 60.0
"""Time-out of a list of changes, which reads many pages."""
SEED_SECONDS = 300.0
"""Time-out of a batch of seeds. The answer comes when all seeds are durable and queued, except
those for nodes that are away. A large batch takes long."""
IDEMPOTENT = frozenset({"GET", "DELETE"})


class BrokerClient:
    """Calls brokers at ``addresses`` (``http://host:port``); many greenlets may use it at once.
    Every method raises Unavailable when no broker answers (or one answers 5xx), and Refused when
    one answers 4xx. ``ca`` is a PEM file that verifies ``https`` brokers. ``timeout`` in seconds
    bounds each read and write; for leases the bound is their wait + 10 s. ``transport`` makes a
    connection from an address and ``ca``; None: connections for greenlets."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: str = "",
        *,
        ca: str = "",
        timeout: float = 30.0,
        transport: Callable[[str, str], Transport] | None = None,
    ) -> None:
        if not addresses:
            raise InvalidConfig([("GREENCRAWL_BROKER", "names no broker")])
        made = transport or KeepAlive
        self._addresses = [made(address, ca) for address in addresses]
        self._token = token
        self._timeout = timeout
        self._current = 0

    def disconnect(self) -> None:
        """Close idle connections; the next call opens new ones."""
        for address in self._addresses:
            address.close()

    def _turn_if_away(self, away: bool) -> None:
        """Ask the next broker first: the one that answered cannot reach all Redis nodes."""
        if away:
            self._current = (self._current + 1) % len(self._addresses)

    def _items(self, path: str, request: Any) -> ItemsReply:
        reply = self._call("POST", path, request, ItemsReply)
        self._turn_if_away("away" in reply.results)
        return reply

    # -- workers

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Lease sessions; waits up to ``request.wait`` seconds. After Unavailable, reconcile."""
        seconds = request.wait + LEASE_MARGIN_SECONDS
        reply = self._call("POST", "/v1/lease", request, LeaseReply, seconds)
        self._turn_if_away(reply.lost)
        return reply

    def follow(self, request: MemberRequest) -> MemberReply:
        """Report that a process is there; waits up to ``request.wait`` seconds for new orders."""
        seconds = request.wait + LEASE_MARGIN_SECONDS
        return self._call("POST", "/v1/members", request, MemberReply, seconds)

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        """State what a worker holds; the rest up to its sequence is released. Idempotent."""
        reply = self._call("POST", "/v1/reconcile", request, ReconcileReply)
        self._turn_if_away(bool(reply.away))
        return reply

    def extend(self, request: ExtendRequest) -> ItemsReply:
        """Extend the deadlines of sessions to ``request.ttl`` seconds from when this was sent.
        Returns a status for each. Idempotent."""
        return self._items("/v1/sessions/extend", request)

    def close(self, request: CloseRequest) -> ItemsReply:
        """Free the hosts of sessions; return a status for each, ``stale`` if it is already
        closed."""
        try:
            return self._items("/v1/sessions/close", request)
        except Refused as refused:
            plain = tuple(
                replace(item, report=replace(item.report, traps=b"")) for item in request.items
            )
            if refused.status != 400 or plain == request.items:
                raise
            # a broker of the previous version does not know that field, and has done nothing
            return self._items("/v1/sessions/close", CloseRequest(plain))

    def finish(self, request: FinishRequest) -> ItemsReply:
        """Settle tasks; return a status for each, ``stale`` if it is finished or another
        worker's."""
        return self._items("/v1/finish", request)

    def release(self, request: ReleaseRequest) -> ItemsReply:
        """Hand back tasks that were not fetched; return a status for each session. Idempotent."""
        return self._items("/v1/release", request)

    # -- administrators

    def put_crawl(self, wanted: CreateCrawl) -> Crawl:
        """Create a crawl or update the one of this name, and queue its seeds. Idempotent."""
        return self._call("POST", "/v1/crawls", wanted, Crawl, SEED_SECONDS)

    def crawls(self) -> list[Crawl]:
        """Return all crawls, oldest first."""
        return self._call("GET", "/v1/crawls", None, list[Crawl])

    def crawl(self, name: str) -> Crawl:
        """Return the crawl of this name. Raises Refused if there is none."""
        return self._call("GET", f"/v1/crawls/{quote(name, safe='')}", None, Crawl)

    def seed(self, name: str, request: SeedRequest) -> SeedReply:
        """Queue URLs of a crawl; the answer, an item for each, comes when all are durable."""
        path = f"/v1/crawls/{quote(name, safe='')}/urls"
        return self._call("POST", path, request, SeedReply, SEED_SECONDS)

    def pause(self, name: str) -> Crawl:
        """Lease no more of a crawl. Idempotent; raises Refused if it is done."""
        return self._call("POST", f"/v1/crawls/{quote(name, safe='')}/pause", None, Crawl)

    def change(
        self, name: str, options: Mapping[str, Any], *, revision: int | None = None, by: str = ""
    ) -> Crawl:
        """Set some options of a crawl; None sets the default."""
        request = CrawlChange(dict(options), revision, by)
        path = f"/v1/crawls/{quote(name, safe='')}"
        return self._call("PATCH", path, request, Crawl, SEED_SECONDS)

    def members(self, node: str = "", *, gone: bool = False) -> MembersReply:
        """Return the members; with ``gone`` also those that have left."""
        query = answers.query(node=node or None, gone="true" if gone else None)
        return self._call("GET", "/v1/members" + query, None, MembersReply)

    def logs(self, query: LogsQuery) -> LogsReply:
        """Return log lines; ask again with ``next`` as ``after`` until that is ""."""
        return self._call("GET", "/v1/logs" + parameters(query), None, LogsReply)

    def orders(self) -> Orders:
        """Return the orders of nodes."""
        return self._call("GET", "/v1/orders", None, Orders)

    def order(self, request: OrderRequest) -> NodeOrders:
        """Order options for a node, or for all."""
        return self._call("PATCH", "/v1/orders", request, NodeOrders)

    def orders_log(
        self, *, node: str = "", crawl: str = "", limit: int = 100, before: int = 2**53
    ) -> OrdersLogReply:
        """Return who ordered what, the latest first."""
        query = answers.query(member=node or None, crawl=crawl or None, limit=limit, before=before)
        return self._call("GET", "/v1/orders/log" + query, None, OrdersLogReply)

    def stop(self, name: str, *, now: bool = False) -> Crawl:
        """End a crawl once nothing of it is leased; with ``now`` leased tasks go back.
        Idempotent."""
        path = f"/v1/crawls/{quote(name, safe='')}/stop"
        return self._call("POST", path, StopRequest(now), Crawl)

    def resume(self, name: str) -> Crawl:
        """Lease from a crawl again. Idempotent."""
        return self._call("POST", f"/v1/crawls/{quote(name, safe='')}/resume", None, Crawl)

    def periods(self, name: str) -> list[Period]:
        """Return the periods of a crawl that begins again, the latest first."""
        path = f"/v1/crawls/{quote(name, safe='')}/periods"
        return self._call("GET", path, None, list[Period])

    def begin_round(self, name: str) -> Round:
        """Ask again for all of a crawl. Idempotent."""
        return self._call("POST", f"/v1/crawls/{quote(name, safe='')}/rounds", None, Round)

    def rounds(self, name: str) -> list[Round]:
        """Return the last rounds of a crawl over its stored pages."""
        return self._call("GET", f"/v1/crawls/{quote(name, safe='')}/rounds", None, list[Round])

    def delete(self, name: str) -> Crawl:
        """Delete a crawl; its rows are deleted in the background: see :meth:`purges`."""
        return self._call("DELETE", f"/v1/crawls/{quote(name, safe='')}", None, Crawl)

    def purge_host(self, name: str, host: str) -> Purge:
        """Drop the waiting URLs of a host in a crawl, in the background."""
        path = f"/v1/crawls/{quote(name, safe='')}/hosts/{quote(host, safe='')}"
        return self._call("DELETE", path, None, Purge)

    def purges(self) -> list[Purge]:
        """Return the deletions under way."""
        return self._call("GET", "/v1/purges", None, list[Purge])

    def stats(self, crawl: str | None = None) -> Stats:
        """Return counters of one crawl, or of all, and the workers."""
        return self._call("GET", "/v1/stats" + answers.query(crawl=crawl), None, Stats)

    def samples(self, name: str, since: str = "", *, points: int = 1000) -> list[Sample]:
        """Return at most ``points`` points of a crawl's plots: all, or those from ``since`` on."""
        query = answers.query(since=since or None, points=points)
        path = f"/v1/crawls/{quote(name, safe='')}/samples{query}"
        return self._call("GET", path, None, list[Sample])

    def alerts(self) -> list[Alert]:
        """Return the open alerts."""
        return self._call("GET", "/v1/alerts", None, list[Alert])

    def url(self, url: str, crawl: str | None = None) -> list[UrlState]:
        """Return where a URL is: an answer for each crawl, or for the named one."""
        path = "/v1/urls" + answers.query(url=url, crawl=crawl)
        return self._call("GET", path, None, list[UrlState])

    def host(self, host: str) -> HostState:
        """Return delay, slots, blocks and backlog of ``host[:port]``."""
        return self._call("GET", f"/v1/hosts/{quote(host, safe='')}", None, HostState)

    def patch_host(self, host: str, patch: HostPatch) -> HostState:
        """Set a host's least delay, or block it, in seconds; 0 lifts either. Idempotent."""
        return self._call("PATCH", f"/v1/hosts/{quote(host, safe='')}", patch, HostState)

    def dead(self, crawl: str, limit: int = 100, after: str = "") -> DeadReply:
        """Return up to ``limit`` dead letters of a crawl, beginning after the cursor ``after``."""
        path = "/v1/dead" + answers.query(crawl=crawl, limit=limit, after=after)
        return self._call("GET", path, None, DeadReply)

    def hooks(self, crawl: str) -> HookCounts:
        """Return failures of the crawl's hook by function and message."""
        path = f"/v1/crawls/{quote(crawl, safe='')}/hooks"
        return self._call("GET", path, None, HookCounts)

    def hook_failures(
        self, crawl: str, function: str, message: str, *, limit: int = 100, after: str = ""
    ) -> HooksReply:
        """Return pages on which a function failed with a message."""
        query = answers.query(
            crawl=crawl, function=function, message=message, limit=limit, after=after
        )
        return self._call("GET", "/v1/hooks" + query, None, HooksReply)

    def pages(
        self,
        crawl: str,
        *,
        host: str = "",
        status: str = "",
        since: str = "",
        grep: str = "",
        limit: int = 100,
        after: str = "",
        seconds: float | None = None,
    ) -> PagesReply:
        """Return some stored pages; ask again with ``next`` until it is "". An answer may have few
        pages or none."""
        named = {"host": host, "status": status, "since": since, "grep": grep, "after": after}
        query = answers.query(crawl=crawl, limit=limit, **{k: v for k, v in named.items() if v})
        return self._call("GET", "/v1/pages" + query, None, PagesReply, seconds)

    def page(self, page_id: str) -> PageReply:
        """Return the stored data of a page, and its history."""
        return self._call("GET", f"/v1/pages/{quote(page_id, safe='')}", None, PageReply)

    def page_text(self, page_id: str) -> str:
        """Return a page's text."""
        path = f"/v1/pages/{quote(page_id, safe='')}/text"
        return answers.content(self._send("GET", path)).decode("utf-8", "replace")

    def changes(self, name: str, since: str, *, limit: int = 100, after: str = "") -> ChangesReply:
        """Return pages of a crawl that are new, changed or gone since the moment ``since``."""
        query = urlencode({"since": since, "limit": limit, "after": after})
        path = f"/v1/crawls/{quote(name, safe='')}/changes?{query}"
        return self._call("GET", path, None, ChangesReply, CHANGES_SECONDS)

    def page_body(self, page_id: str, at_ms: int = 0) -> bytes:
        """Return a page's body as it was fetched at ``at_ms`` (Unix time); 0: the latest body."""
        path = f"/v1/pages/{quote(page_id, safe='')}/body" + (f"?at={at_ms}" if at_ms else "")
        return answers.content(self._send("GET", path))

    def requeue(self, crawl: str) -> SeedReply:
        """Queue the dead letters of a crawl again; ``added`` counts them."""
        request = RequeueRequest(crawl)
        return self._call("POST", "/v1/dead/requeue", request, SeedReply, SEED_SECONDS)

    def parked(self, crawl: str, limit: int = 100) -> ParkedReply:
        """Return shapes that URLs of a crawl are parked by."""
        path = "/v1/parked" + answers.query(crawl=crawl, limit=limit)
        return self._call("GET", path, None, ParkedReply)

    def release_parked(self, crawl: str, shape: str | None) -> SeedReply:
        """Release URLs parked by a shape (None: by any shape); ``added`` counts those queued."""
        request = ReleaseParkedRequest(crawl, shape or "", shape is None)
        return self._call("POST", "/v1/parked/release", request, SeedReply, SEED_SECONDS)

    def repair(self, everything: bool) -> RepairReply:
        """Begin to refill Redis from the store; :meth:`repairs` shows the progress."""
        return self._call("POST", "/v1/repair", RepairRequest(everything), RepairReply)

    def repairs(self) -> RepairReply:
        """Return how far each Redis node is refilled."""
        return self._call("GET", "/v1/repair", None, RepairReply)

    def ready(self) -> bool:
        """Return whether some broker is ready: it reaches Redis and the store."""
        return not self.trouble()

    def trouble(self, path: str = "/readyz") -> str:
        """Return why no broker is ready, or alive (``/healthz``); "" if one broker is."""
        try:
            self._call("GET", path, None, Any)
            return ""
        except Unavailable as error:
            return str(error)

    def _call(
        self, method: str, path: str, body: Any, reply: type[T], seconds: float | None = None
    ) -> T:
        return answers.decode(self._send(method, path, body, seconds), reply)

    def _send(
        self, method: str, path: str, body: Any = None, seconds: float | None = None
    ) -> Reply:
        payload = b"" if body is None else to_json(body)
        failures: list[str] = []
        for step in range(count := len(self._addresses)):
            address = self._addresses[index := (self._current + step) % count]
            answer = address.send(method, path, payload, self._token, seconds or self._timeout)
            if isinstance(answer, Reply) and answer.status < 500:
                self._current = index
                return answer
            failures.append(f"{address.url}: {answers.why(answer)}")
            sent = not isinstance(answer, Lost) or answer.sent
            if sent and method not in IDEMPOTENT:
                self._current = (index + 1) % len(self._addresses)
                break
        raise Unavailable("; ".join(failures))
