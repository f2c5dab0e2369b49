"""Members: who works together, and what nodes are ordered."""

from __future__ import annotations

from greencrawl.broker.api.messages import (
    MembersQuery,
    MembersReply,
    OrderRequest,
    OrdersLogQuery,
    OrdersLogReply,
)
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.service.members import NodeStays, UnknownNode
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import MemberReply, MemberRequest, Ordered, Orders


def follow_orders(service: Service, body: MemberRequest) -> MemberReply:
    """Say that a process is there, and learn its orders.

    Waits up to ``wait`` seconds until they are others than those of ``revision``, or until options
    of a crawl are changed. Idempotent.
    """
    return service.follow(body)


def list_members(service: Service, query: MembersQuery) -> MembersReply:
    """The processes that work together: what they told last, and what their nodes are ordered."""
    found = service.members.list(gone=query.gone)
    if query.node:
        found = [one for one in found if one.node == query.node]
    return MembersReply(tuple(found))


def get_orders(service: Service) -> Orders:
    """The orders of nodes now; ``*`` stands for all of them."""
    return service.members.refresh()


def patch_orders(service: Service, body: OrderRequest) -> Ordered:
    """Order a node, or all by ``*``: what is named changes, and holds until it is ``unset``.

    Its processes follow within a second, and those of a worker also while no broker answers.
    Brokers and loggers may be ordered ``log_level`` alone. With a ``revision`` it is answered 409
    if the node's orders have another one by now.

    With ``forget``, and nothing else, the members of the node are forgotten and what it is ordered,
    which ends the alert that it is lost; 409 unless all of them have left or are lost.
    """
    if body.forget and body != OrderRequest(body.member, by=body.by, forget=True):
        raise InvalidConfig([("forget", "stands alone: order nothing with it")])
    try:
        if body.forget:
            return service.members.forget(body.member, body.by)
        found = service.members.order(
            body.member, body.options, body.unset, by_whom=body.by, revision=body.revision
        )
    except UnknownNode as error:
        raise HttpProblem(404, str(error)) from error
    except NodeStays as error:
        raise HttpProblem(409, str(error)) from error
    if found is None:
        raise HttpProblem(409, f"the orders of {body.member} are of another revision by now")
    return found


def list_orders_log(service: Service, query: OrdersLogQuery) -> OrdersLogReply:
    """Who ordered what and when, and who changed options of crawls, the latest first."""
    found = service.members.log(
        query.limit, before=query.before, node=query.member, crawl=query.crawl
    )
    following = found[-1].revision if len(found) == query.limit else 0
    return OrdersLogReply(tuple(found), following)
