"""The frontier: its Redis nodes, their debts, and the memory of its partitions."""

from __future__ import annotations

from msgspec import Struct

from greencrawl.monitor.page_request import Action, Data, Form, PageRequest, Redirect, View
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Debt, NodeAway, NodeRepair

MEMORY_SECONDS = 5.0
"""Seconds between two reads of memory, which ask each partition."""


class Node(Struct, frozen=True, kw_only=True):
    """A Redis node for its row; ``used`` and ``budget`` in bytes, -1 if not known."""

    id: str
    address: str
    partitions: int
    used: int
    budget: int
    full: bool
    away: NodeAway | None
    debt: Debt | None


class Memory(Struct, frozen=True):
    """The memory of a partition, in bytes; ``budget`` 0: none. -1 if its node does not answer."""

    node: str
    used: int = -1
    budget: int = -1
    full: bool = False


def part(request: PageRequest) -> Data:
    """Return nodes, repairs and partitions."""
    store, frontier = request.service.store, request.service.frontier
    identity = store.frontier()
    memory = request.shared.get("memory", lambda: _memory(request), MEMORY_SECONDS)
    away, debts, addresses = frontier.nodes_away(), store.debts(), store.addresses()
    nodes = []
    for node in identity.nodes if identity is not None else ():
        own = [one for one in memory if one.node == node]
        known = [one for one in own if one.used >= 0]
        nodes.append(
            Node(
                id=node,
                address=addresses.get(node, ""),
                partitions=len(own),
                used=sum(one.used for one in known) if known else -1,
                budget=sum(one.budget for one in known) if known else -1,
                full=any(one.full for one in known),
                away=away.get(node),
                debt=debts.get(node),
            )
        )
    repairs: list[NodeRepair] = frontier.repairs()
    return {
        "nodes": nodes,
        "repairs": [one for one in repairs if one.phase != "none"],
        "memory": list(enumerate(memory)),
        "full": frontier.full,
    }


def _memory(request: PageRequest) -> list[Memory]:
    identity = request.service.store.frontier()
    found = []
    for partition in range(identity.partitions if identity is not None else 0):
        assert identity is not None
        node = identity.nodes[identity.placement[partition]]
        try:
            memory = request.service.frontier.partition_memory(partition, 1)
            found.append(Memory(node, memory.used, memory.budget, memory.full))
        except Unavailable:
            found.append(Memory(node))
    return found


def repair(request: PageRequest, form: Form) -> Redirect:
    """Repair Redis: send it again what it may have missed, or with ``all`` everything."""
    request.service.frontier.repair(form.text("all") == "1")
    return Redirect("/monitor/frontier", "repairing")


VIEWS = (View(name="frontier", path="/monitor/frontier", part=part, nav=True),)
ACTIONS = (Action(path="/monitor/frontier/repair", run=repair),)
