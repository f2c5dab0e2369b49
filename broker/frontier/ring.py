"""Which Redis node holds which partition, and the identity that a frontier keeps for life.

``uhashring`` only *proposes* the placement when the frontier is created; the table recorded in SQL
decides from then on. Node ids live in the nodes, not in their addresses: an address may change.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from uhashring import HashRing

from broker.frontier import keys
from broker.frontier.node import Node
from schema.errors import FrontierMismatch, Unavailable
from schema.records import FrontierIdentity
from schema.suffixes import SUFFIXES
from schema.urls import CANONICALISER
from store.base import Store


def propose(node_ids: Sequence[str], partitions: int) -> tuple[int, ...]:
    """Placement by consistent hashing: element p is the index of the node of partition p."""
    ring = HashRing(nodes=list(node_ids))
    index = {node: i for i, node in enumerate(node_ids)}
    return tuple(index[ring.get_node(f"partition-{p}")] for p in range(partitions))


def new_identity(nodes: int, partitions: int) -> FrontierIdentity:
    """A fresh identity with random ids and a random secret for the fingerprints."""
    ids = tuple(secrets.token_hex(8) for _ in range(nodes))
    return FrontierIdentity(
        id=secrets.token_hex(8),
        secret=secrets.randbits(63),
        partitions=partitions,
        suffixes=SUFFIXES,
        canonicaliser=CANONICALISER,
        layout=keys.LAYOUT,
        nodes=ids,
        placement=propose(ids, partitions),
    )


def _check_rules(identity: FrontierIdentity) -> None:
    ours = {"suffixes": SUFFIXES, "canonicaliser": CANONICALISER, "layout": keys.LAYOUT}
    for name, value in ours.items():
        recorded = getattr(identity, name)
        older = name == "layout" and recorded < value  # which is mended, see _bring_up_to_date
        if recorded != value and not older:
            raise FrontierMismatch(
                f"this frontier was made with {name} {recorded}, this program has {value}: "
                "run the version that made it, or start a new data folder"
            )


def assemble(
    nodes: Sequence[Node], store: Store, partitions: int, *, create: bool
) -> tuple[FrontierIdentity, list[Node]]:
    """Match the servers to the recorded identity; returns it and the nodes in its order.

    With ``create`` a frontier is made if neither the store nor Redis knows one, an empty server
    takes the place of a lost one, and one with an older layout is closed, to be emptied and
    refilled when it is opened. Raises FrontierMismatch for another list of nodes or other rules,
    Unavailable while there is nothing to join.
    """
    owners = [node.owner() for node in nodes]
    identity = store.frontier()
    state = "lost"
    if identity is None:
        if not create:
            raise Unavailable("there is no frontier yet: start a broker first")
        for node, owner in zip(nodes, owners, strict=True):
            if owner:
                raise FrontierMismatch(
                    f"Redis at {node.shown} holds frontier {owner.get('frontier')}, which this "
                    "store does not know: give its store by GREENCRAWL_STORE, or an empty Redis"
                )
        state = "new"
        identity = store.create_frontier(new_identity(len(nodes), partitions))
    _check_rules(identity)
    if len(nodes) != len(identity.nodes):
        raise FrontierMismatch(
            f"this frontier was made on {len(identity.nodes)} Redis node(s), {len(nodes)} are "
            "given: give the same ones; moving partitions to other nodes is not possible yet"
        )
    free = [i for i in identity.nodes if i not in {owner.get("id") for owner in owners}]
    placed: dict[str, Node] = {}
    for node, owner in zip(nodes, owners, strict=True):
        if not owner:
            if not create:
                raise Unavailable(
                    f"Redis at {node.shown} is empty: waiting for a broker to open it"
                )
            owner = settle(node, identity.id, free.pop(0), state)
        if owner.get("frontier") != identity.id or owner["id"] not in identity.nodes:
            raise FrontierMismatch(
                f"Redis at {node.shown} belongs to frontier {owner.get('frontier')}, "
                f"the store to {identity.id}: give the nodes that this frontier was made on"
            )
        if owner["id"] in placed:
            raise FrontierMismatch(
                f"Redis at {node.shown} and {placed[owner['id']].shown} are the same node"
            )
        node.adopt(owner)
        placed[owner["id"]] = node
    if identity.layout < keys.LAYOUT:
        identity = _bring_up_to_date(identity, nodes, store, create=create)
    return identity, [placed[i] for i in identity.nodes]


def _bring_up_to_date(
    identity: FrontierIdentity, nodes: Sequence[Node], store: Store, *, create: bool
) -> FrontierIdentity:
    """Close all nodes first: a server that is open under the new layout must have it."""
    if not create:
        raise Unavailable(
            f"the frontier has layout {identity.layout}: waiting for a broker that brings it to "
            f"{keys.LAYOUT}"
        )
    for node in nodes:
        close_outdated(node)
        node.adopt(node.owner())
    return store.put_layout(keys.LAYOUT)


def outdated(owner: dict[str, str]) -> bool:
    """Whether a server's data has an older layout; what has no number has the first one."""
    return int(owner.get("layout", 1)) < keys.LAYOUT


def close_outdated(node: Node) -> None:
    """Close a server whose data has an older layout, until that is deleted. Idempotent."""
    node.command(
        "EVAL",
        "local o = redis.call('HMGET', KEYS[1], 'layout', 'state') "
        "if tonumber(o[1] or 1) < tonumber(ARGV[1]) and o[2] ~= 'emptying' then "
        "redis.call('HSET', KEYS[1], 'state', 'emptying', 'run', '', 'tick', 0) "
        "redis.call('HDEL', KEYS[1], 'clean', 'owed') end",
        1, keys.OWNER, keys.LAYOUT,
    )  # fmt: skip


def settle(node: Node, frontier: str, node_id: str, state: str) -> dict[str, str]:
    """Write an owner record into an empty server, unless somebody else was first.

    ``state`` is "new" where the frontier was just made, and "lost" where the server held data.
    """
    node.command(
        "EVAL",
        "if redis.call('HEXISTS', KEYS[1], 'id') == 0 then redis.call('DEL', KEYS[1]) "
        "redis.call('HSET', KEYS[1], 'id', ARGV[1], "
        "'frontier', ARGV[2], 'state', ARGV[3], 'epoch', 0, 'run', '', 'offset', 0, 'tick', 0, "
        "'layout', ARGV[4]) end",
        1, keys.OWNER, node_id, frontier, state, keys.LAYOUT,
    )  # fmt: skip
    return node.owner()
