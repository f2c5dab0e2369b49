"""The state of a frontier's Redis nodes for monitoring; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from greencrawl.broker.frontier.nodes import memory
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.recovery.opening import Recovery
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import NodeFull, NodeRepair


class NodeVitals(Struct, frozen=True, kw_only=True):
    """One node; if it does not answer, only ``up`` and the last known epoch are set.

    ``node`` is its address as it is shown, ``used_bytes`` of ``limit_bytes`` its memory. ``full``
    says that it is near the limit, so that no further seeds are taken.
    """

    id: str
    node: str
    up: bool
    epoch: int = 0
    used_bytes: int = 0
    limit_bytes: int = 0
    full: bool = False
    repair: NodeRepair | None = None


def look(node: Node, recovery: Recovery) -> NodeVitals:
    """Ask a node, unless it is known to be away. Raises nothing."""
    epoch = int(node.epoch or 0)
    if node.id in recovery.nodes_away():
        return NodeVitals(id=node.id, node=node.shown, up=False, epoch=epoch)
    try:
        used, limit = memory.used_and_limit(node)
    except Unavailable:
        return NodeVitals(id=node.id, node=node.shown, up=False, epoch=epoch)
    return NodeVitals(
        id=node.id,
        node=node.shown,
        up=True,
        epoch=epoch,
        used_bytes=used,
        limit_bytes=limit,
        full=node.full,
        repair=recovery.report(node),
    )


def near_limit(known: Iterable[NodeVitals]) -> tuple[NodeFull, ...]:
    """Return the nodes near their memory limit."""
    return tuple(NodeFull(one.node, one.used_bytes, one.limit_bytes) for one in known if one.full)
