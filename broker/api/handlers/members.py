"""Members, and the orders of nodes."""

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
from greencrawl.schema.records import MemberReply, MemberRequest, NodeOrders, Orders


def follow_orders(service: Service, body: MemberRequest) -> MemberReply:
    """Report that a process is there, and return its orders.

    It waits up to ``wait`` seconds until the orders are newer than ``revision``, or options of a
    crawl are changed. Idempotent.
    """
    return service.follow(body)


def list_members(service: Service, query: MembersQuery) -> MembersReply:
    """List the members: their last reports, and the orders of their nodes."""
    found = service.members.list(gone=query.gone)
    if query.node:
        found = [one for one in found if one.node == query.node]
    return MembersReply(tuple(found))


def get_orders(service: Service) -> Orders:
    """Get the orders of nodes in force; ``*`` stands for all nodes."""
    return service.members.refresh()


def patch_orders(service: Service, body: OrderRequest) -> NodeOrders:
    """Order options for a node, or for all by ``*``; an order holds until it is ``unset``.

    The node's processes follow within a second; a worker's also while no broker answers. Brokers
    and loggers accept only ``log_level``. With a ``revision`` the answer is 409 if the node's
    orders have another one by now.

    ``forget`` must be the only option: it forgets the members of a node and its orders, which ends
    the alert that the node is lost. The answer is 409 unless all of them have left or are lost.
    """
    if body.forget and body != OrderRequest(body.member, by=body.by, forget=True):
        raise InvalidConfig([("forget", "must be the only order in a request")])
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
        raise HttpProblem(409, f"the orders of {body.member} have another revision by now")
    return found


def list_orders_log(service: Service, query: OrdersLogQuery) -> OrdersLogReply:
    """List who ordered what and when, and who changed options of crawls, the latest first."""
    found = service.members.log(
        query.limit, before=query.before, node=query.member, crawl=query.crawl
    )
    following = found[-1].revision if len(found) == query.limit else 0
    return OrdersLogReply(tuple(found), following)
