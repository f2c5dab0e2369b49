"""The calls of workers: lease, extend and close sessions, and settle tasks."""

from __future__ import annotations

from greencrawl.broker.service.service import Service
from greencrawl.schema import crash_points
from greencrawl.schema.records import (
    CloseRequest,
    ExtendRequest,
    FinishRequest,
    ItemsReply,
    LeaseReply,
    LeaseRequest,
    ReconcileReply,
    ReconcileRequest,
    ReleaseRequest,
)


def lease(service: Service, body: LeaseRequest) -> LeaseReply:
    """Lease sessions with due hosts. Waits up to ``wait`` seconds until there are some.

    If a worker sends its latest request again, both get the same answer. If an answer was lost,
    reconcile. An empty answer is no error: ask again.
    """
    reply = service.lease(body)
    if reply.sessions:
        crash_points.point("broker.after_lease_script")
    return reply


def reconcile(service: Service, body: ReconcileRequest) -> ReconcileReply:
    """State what a worker holds; everything else up to its sequence is released, without a failure.

    Idempotent. Leases of that sequence or an earlier one that are still on their way open nothing.
    """
    return service.reconcile(body)


def extend_sessions(service: Service, body: ExtendRequest) -> ItemsReply:
    """Extend the deadlines of sessions to ``ttl`` seconds from when this was sent. Idempotent."""
    return ItemsReply(tuple(service.frontier.extend(body.items, body.ttl)))


def close_sessions(service: Service, body: CloseRequest) -> ItemsReply:
    """Free hosts, and report what was learnt of them. Unfinished tasks stay under the token.

    Idempotent: a second close is answered ``stale``.
    """
    results = service.frontier.close_sessions(body.items)
    crash_points.point("broker.after_close_script")
    return ItemsReply(tuple(results))


def finish_tasks(service: Service, body: FinishRequest) -> ItemsReply:
    """Settle tasks: done, retry later, or dead. The results are already in the store.

    Idempotent: a task that is finished, or under a token that is not current, is answered
    ``stale``, and nothing changes.
    """
    results = service.frontier.finish(body.items)
    crash_points.point("broker.after_finish_script")
    return ItemsReply(tuple(results))


def release_tasks(service: Service, body: ReleaseRequest) -> ItemsReply:
    """Hand back tasks that were not fetched; they are queued again, without a failure.
    Idempotent."""
    return ItemsReply(tuple(service.frontier.release(body.items)))
