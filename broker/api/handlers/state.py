"""The state of URLs, hosts, Redis nodes and the broker; orders to slow a host or repair a node."""

from __future__ import annotations

from greencrawl.broker.api.messages import Health, RepairReply, RepairRequest, StatsQuery, UrlQuery
from greencrawl.broker.service import explain, watching
from greencrawl.broker.service.service import Service
from greencrawl.broker.service.shared.queries import host_name
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import HostPatch, HostState, Stats, UrlState


def explain_url(service: Service, query: UrlQuery) -> list[UrlState]:
    """Explain where a URL is, and why it is not fetched yet: one answer for each crawl."""
    return explain.explain(service, query.url, query.crawl)


def get_host(service: Service, host: str) -> HostState:
    """Get delay, slots, blocks and backlog of a host (``example.org``, ``example.org:8080``)."""
    return service.frontier.host(host_name(host))


def patch_host(service: Service, host: str, body: HostPatch) -> HostState:
    """Set a host's least delay, or block it for some seconds; 0 lifts either.

    Both survive the loss of Redis. Open sessions follow at their next extension: within a third of
    a lease, 20 s by default. After a 503, a delay may be in the store and not yet in force: send it
    again.
    """
    return service.frontier.patch_host(host_name(host), body)


def repair(service: Service, body: RepairRequest) -> RepairReply:
    """Give Redis again what the replay log holds since its last tick, or ``all`` of it.

    It goes on in the background; GET shows the progress. Idempotent: a call joins a repair under
    way. Admitting and finishing go on; no session opens meanwhile. If the store lost data, only
    ``all`` is possible, and it empties Redis first.
    """
    service.frontier.repair(body.all)
    return get_repair(service)


def get_repair(service: Service) -> RepairReply:
    """Get how far each Redis node is refilled, by this broker now or the last time."""
    return RepairReply(tuple(service.frontier.repairs()))


def get_stats(service: Service, query: StatsQuery) -> Stats:
    """Get counters of one crawl or of all, the slowest hosts, resting hosts, workers, and alerts.

    These are counters: nothing is scanned. A Redis node that does not answer is not counted;
    ``away`` names it. ``full`` names nodes near their memory limit.
    """
    store = service.store
    crawls = store.crawls() if query.crawl is None else [store.crawl(query.crawl)]
    counters = tuple(map(service.stats, crawls))
    slowest = tuple(service.frontier.slowest())
    rest = service.frontier.resting()
    away = tuple(service.frontier.nodes_away().values())
    workers, twice = service.frontier.workers()
    alerts = tuple(watching.open_alerts(service))
    full = service.frontier.nodes_full()
    return Stats(counters, slowest, *rest, away, workers, twice, alerts, full)


def get_health(service: Service) -> Health:
    """Tell whether this process answers at all; it asks neither Redis nor the store."""
    return Health()


def get_ready(service: Service) -> Health:
    """Tell whether this broker can serve: the store and a Redis node answer.

    ``away`` names the nodes that do not.
    """
    why_not = service.frontier.ready()
    if why_not is not None:
        raise Unavailable(why_not)
    service.store.frontier()
    return Health(away=tuple(node.node for node in service.frontier.nodes_away().values()))
