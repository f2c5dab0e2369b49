"""The table of the HTTP API: each method of each path, who may call it, and the function that runs.

A handler's signature is its contract. ``body`` and ``query`` are decoded to the annotated record
before it is called. Other parameters come from the path. The annotated result is encoded. Both the
routes (``greencrawl.broker.api.app``) and the OpenAPI document (``greencrawl.broker.api.openapi``)
are made from the table.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from greencrawl.broker.api.handlers import (
    crawls,
    failures,
    leases,
    logs,
    members,
    pages,
    parked,
    state,
    watching,
)
from greencrawl.broker.api.security import Role


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


_OK, _CREATED, _ACCEPTED = HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED
_CONFLICT, _TOO_LONG = HTTPStatus.CONFLICT, HTTPStatus.REQUEST_URI_TOO_LONG
_FULL = HTTPStatus.TOO_MANY_REQUESTS

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path="/v1/crawls",
        role=Role.ADMIN,
        run=crawls.create_crawl,
        problems=(_CONFLICT, _FULL),
        statuses=(_CREATED, _OK),
    ),
    Operation(method="GET", path="/v1/crawls", role=Role.ANY, run=crawls.list_crawls),
    Operation(method="GET", path="/v1/crawls/{crawl}", role=Role.ANY, run=crawls.get_crawl),
    Operation(
        method="PATCH",
        path="/v1/crawls/{crawl}",
        role=Role.ADMIN,
        run=crawls.patch_crawl,
        problems=(_CONFLICT, _FULL),
    ),
    Operation(
        method="DELETE",
        path="/v1/crawls/{crawl}",
        role=Role.ADMIN,
        run=crawls.delete_crawl,
        statuses=(_ACCEPTED,),
    ),
    Operation(
        method="DELETE",
        path="/v1/crawls/{crawl}/hosts/{host}",
        role=Role.ADMIN,
        run=crawls.purge_host,
        statuses=(_ACCEPTED,),
    ),
    Operation(method="GET", path="/v1/purges", role=Role.ANY, run=crawls.list_purges),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/urls",
        role=Role.ADMIN,
        run=crawls.seed_urls,
        problems=(_CONFLICT, _FULL),
    ),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/pause",
        role=Role.ADMIN,
        run=crawls.pause_crawl,
        problems=(_CONFLICT,),
    ),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/stop",
        role=Role.ADMIN,
        run=crawls.stop_crawl,
    ),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/resume",
        role=Role.ADMIN,
        run=crawls.resume_crawl,
        problems=(_CONFLICT,),
    ),
    Operation(
        method="GET", path="/v1/crawls/{crawl}/periods", role=Role.ANY, run=crawls.list_periods
    ),
    Operation(
        method="POST",
        path="/v1/crawls/{crawl}/rounds",
        role=Role.ADMIN,
        run=crawls.begin_round,
        problems=(_CONFLICT,),
    ),
    Operation(
        method="GET", path="/v1/crawls/{crawl}/rounds", role=Role.ANY, run=crawls.list_rounds
    ),
    Operation(
        method="GET",
        path="/v1/crawls/{crawl}/changes",
        role=Role.ADMIN,
        run=pages.list_changes,
        problems=(_TOO_LONG,),
    ),
    Operation(
        method="GET", path="/v1/crawls/{crawl}/samples", role=Role.ANY, run=watching.list_samples
    ),
    Operation(method="GET", path="/v1/alerts", role=Role.ANY, run=watching.list_alerts),
    Operation(method="POST", path="/v1/lease", role=Role.WORKER, run=leases.lease),
    Operation(method="POST", path="/v1/reconcile", role=Role.WORKER, run=leases.reconcile),
    Operation(
        method="POST", path="/v1/sessions/extend", role=Role.WORKER, run=leases.extend_sessions
    ),
    Operation(
        method="POST", path="/v1/sessions/close", role=Role.WORKER, run=leases.close_sessions
    ),
    Operation(method="POST", path="/v1/members", role=Role.WORKER, run=members.follow_orders),
    Operation(method="GET", path="/v1/members", role=Role.ANY, run=members.list_members),
    Operation(method="GET", path="/v1/orders", role=Role.ANY, run=members.get_orders),
    Operation(
        method="PATCH",
        path="/v1/orders",
        role=Role.ADMIN,
        run=members.patch_orders,
        problems=(HTTPStatus.NOT_FOUND, _CONFLICT),
    ),
    Operation(method="GET", path="/v1/orders/log", role=Role.ANY, run=members.list_orders_log),
    Operation(method="POST", path="/v1/finish", role=Role.WORKER, run=leases.finish_tasks),
    Operation(method="POST", path="/v1/release", role=Role.WORKER, run=leases.release_tasks),
    Operation(
        method="GET", path="/v1/urls", role=Role.ANY, run=state.explain_url, problems=(_TOO_LONG,)
    ),
    Operation(method="GET", path="/v1/hosts/{host}", role=Role.ANY, run=state.get_host),
    Operation(method="PATCH", path="/v1/hosts/{host}", role=Role.ADMIN, run=state.patch_host),
    Operation(method="GET", path="/v1/dead", role=Role.ANY, run=failures.list_dead),
    Operation(
        method="GET",
        path="/v1/crawls/{crawl}/hooks",
        role=Role.ADMIN,
        run=failures.count_hook_failures,
    ),
    Operation(
        method="GET",
        path="/v1/hooks",
        role=Role.ADMIN,
        run=failures.list_hook_failures,
        problems=(_TOO_LONG,),
    ),
    Operation(
        method="GET", path="/v1/pages", role=Role.ADMIN, run=pages.list_pages, problems=(_TOO_LONG,)
    ),
    Operation(method="GET", path="/v1/pages/{id}", role=Role.ADMIN, run=pages.get_page),
    Operation(method="GET", path="/v1/pages/{id}/text", role=Role.ADMIN, run=pages.get_page_text),
    Operation(
        method="GET",
        path="/v1/pages/{id}/body",
        role=Role.ADMIN,
        run=pages.get_page_body,
        problems=(_TOO_LONG,),
    ),
    Operation(
        method="POST",
        path="/v1/dead/requeue",
        role=Role.ADMIN,
        run=failures.requeue_dead,
        problems=(_CONFLICT,),
    ),
    Operation(method="GET", path="/v1/parked", role=Role.ANY, run=parked.list_parked),
    Operation(
        method="POST",
        path="/v1/parked/release",
        role=Role.ADMIN,
        run=parked.release_parked,
        problems=(_CONFLICT,),
    ),
    Operation(
        method="POST", path="/v1/repair", role=Role.ADMIN, run=state.repair, statuses=(_ACCEPTED,)
    ),
    Operation(method="GET", path="/v1/repair", role=Role.ADMIN, run=state.get_repair),
    Operation(method="GET", path="/v1/stats", role=Role.ANY, run=state.get_stats),
    Operation(
        method="GET",
        path="/v1/logs",
        role=Role.ADMIN,
        run=logs.list_logs,
        problems=(_TOO_LONG,),
    ),
    Operation(method="GET", path="/healthz", role=Role.OPEN, run=state.get_health),
    Operation(method="GET", path="/readyz", role=Role.OPEN, run=state.get_ready),
)
"""All but ``/metrics`` and ``/openapi.json``: ``greencrawl.broker.api.app`` adds these itself."""
