"""The table of the HTTP API: each method of each path, who may call it, and its function.

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


class Operation(Struct, frozen=True):
    """One method of one path. ``statuses`` are the statuses of success, the usual one first.

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
        """Return the operation's id in OpenAPI and in metrics."""
        return self.run.__name__


_OK, _CREATED, _ACCEPTED = HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED
_CONFLICT, _TOO_LONG = HTTPStatus.CONFLICT, HTTPStatus.REQUEST_URI_TOO_LONG
_FULL = HTTPStatus.TOO_MANY_REQUESTS
_ADMIN, _WORKER, _ANY, _OPEN = Role.ADMIN, Role.WORKER, Role.ANY, Role.OPEN

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/crawls",
        _ADMIN,
        crawls.create_crawl,
        problems=(_CONFLICT, _FULL),
        statuses=(_CREATED, _OK),
    ),
    Operation("GET", "/v1/crawls", _ANY, crawls.list_crawls),
    Operation("GET", "/v1/crawls/{crawl}", _ANY, crawls.get_crawl),
    Operation(
        "PATCH", "/v1/crawls/{crawl}", _ADMIN, crawls.patch_crawl, problems=(_CONFLICT, _FULL)
    ),
    Operation("DELETE", "/v1/crawls/{crawl}", _ADMIN, crawls.delete_crawl, statuses=(_ACCEPTED,)),
    Operation(
        "DELETE",
        "/v1/crawls/{crawl}/hosts/{host}",
        _ADMIN,
        crawls.purge_host,
        statuses=(_ACCEPTED,),
    ),
    Operation("GET", "/v1/purges", _ANY, crawls.list_purges),
    Operation(
        "POST", "/v1/crawls/{crawl}/urls", _ADMIN, crawls.seed_urls, problems=(_CONFLICT, _FULL)
    ),
    Operation(
        "POST", "/v1/crawls/{crawl}/pause", _ADMIN, crawls.pause_crawl, problems=(_CONFLICT,)
    ),
    Operation("POST", "/v1/crawls/{crawl}/stop", _ADMIN, crawls.stop_crawl),
    Operation(
        "POST", "/v1/crawls/{crawl}/resume", _ADMIN, crawls.resume_crawl, problems=(_CONFLICT,)
    ),
    Operation("GET", "/v1/crawls/{crawl}/periods", _ANY, crawls.list_periods),
    Operation(
        "POST", "/v1/crawls/{crawl}/rounds", _ADMIN, crawls.begin_round, problems=(_CONFLICT,)
    ),
    Operation("GET", "/v1/crawls/{crawl}/rounds", _ANY, crawls.list_rounds),
    Operation(
        "GET", "/v1/crawls/{crawl}/changes", _ADMIN, pages.list_changes, problems=(_TOO_LONG,)
    ),
    Operation("GET", "/v1/crawls/{crawl}/samples", _ANY, watching.list_samples),
    Operation("GET", "/v1/alerts", _ANY, watching.list_alerts),
    Operation("POST", "/v1/lease", _WORKER, leases.lease),
    Operation("POST", "/v1/reconcile", _WORKER, leases.reconcile),
    Operation("POST", "/v1/sessions/extend", _WORKER, leases.extend_sessions),
    Operation("POST", "/v1/sessions/close", _WORKER, leases.close_sessions),
    Operation("POST", "/v1/members", _WORKER, members.follow_orders),
    Operation("GET", "/v1/members", _ANY, members.list_members),
    Operation("GET", "/v1/orders", _ANY, members.get_orders),
    Operation(
        "PATCH",
        "/v1/orders",
        _ADMIN,
        members.patch_orders,
        problems=(HTTPStatus.NOT_FOUND, _CONFLICT),
    ),
    Operation("GET", "/v1/orders/log", _ANY, members.list_orders_log),
    Operation("POST", "/v1/finish", _WORKER, leases.finish_tasks),
    Operation("POST", "/v1/release", _WORKER, leases.release_tasks),
    Operation("GET", "/v1/urls", _ANY, state.explain_url, problems=(_TOO_LONG,)),
    Operation("GET", "/v1/hosts/{host}", _ANY, state.get_host),
    Operation("PATCH", "/v1/hosts/{host}", _ADMIN, state.patch_host),
    Operation("GET", "/v1/dead", _ANY, failures.list_dead),
    Operation("GET", "/v1/crawls/{crawl}/hooks", _ADMIN, failures.count_hook_failures),
    Operation("GET", "/v1/hooks", _ADMIN, failures.list_hook_failures, problems=(_TOO_LONG,)),
    Operation("GET", "/v1/pages", _ADMIN, pages.list_pages, problems=(_TOO_LONG,)),
    Operation("GET", "/v1/pages/{id}", _ADMIN, pages.get_page),
    Operation("GET", "/v1/pages/{id}/text", _ADMIN, pages.get_page_text),
    Operation("GET", "/v1/pages/{id}/body", _ADMIN, pages.get_page_body, problems=(_TOO_LONG,)),
    Operation("POST", "/v1/dead/requeue", _ADMIN, failures.requeue_dead, problems=(_CONFLICT,)),
    Operation("GET", "/v1/parked", _ANY, parked.list_parked),
    Operation("POST", "/v1/parked/release", _ADMIN, parked.release_parked, problems=(_CONFLICT,)),
    Operation("POST", "/v1/repair", _ADMIN, state.repair, statuses=(_ACCEPTED,)),
    Operation("GET", "/v1/repair", _ADMIN, state.get_repair),
    Operation("GET", "/v1/stats", _ANY, state.get_stats),
    Operation("GET", "/v1/logs", _ADMIN, logs.list_logs, problems=(_TOO_LONG,)),
    Operation("GET", "/healthz", _OPEN, state.get_health),
    Operation("GET", "/readyz", _OPEN, state.get_ready),
)
"""All operations but ``/metrics`` and ``/openapi.json``, which ``greencrawl.broker.api.app``
adds."""
