"""Which Redis node holds which partition, and the permanent identity of a frontier.

``uhashring`` only *proposes* the placement when the frontier is created; the table recorded in SQL
decides from then on. A node's id is stored in the node and does not depend on its address: an
address may change.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from uhashring import HashRing

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import FrontierMismatch, Unavailable
from greencrawl.schema.net.suffixes import SUFFIXES
from greencrawl.schema.net.urls import CANONICALISER, CANONICALISERS
from greencrawl.schema.records import FrontierIdentity
from greencrawl.store.base import Store


def propose(node_ids: Sequence[str], partitions: int) -> tuple[int, ...]:
    """Place partitions by consistent hashing: element p is the index of the node of partition p."""
    ring = HashRing(nodes=list(node_ids))
    index = {node: i for i, node in enumerate(node_ids)}
    return tuple(index[ring.get_node(f"partition-{p}")] for p in range(partitions))


def new_identity(nodes: int, partitions: int) -> FrontierIdentity:
    """Make a new identity with random ids and a random secret for the fingerprints."""
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


def _of_another_store(node: Node, frontier: str) -> str:
    """Return the advice for a new store that meets a Redis which serves another store."""
    return (
        f"Redis at {node.shown} holds frontier {frontier}, which this store does not know: it "
        "belongs to another GREENCRAWL_STORE. To go on with that one, give that "
        f"store{_begin_anew(node)}"
    )


def _begin_anew(node: Node) -> str:
    kind, _, path = node.shown.partition("://")
    if kind != "unix":
        return ". To begin anew, give an empty Redis"
    folder = path.rpartition("/")[0]  # the folder of the embedded one
    return (
        ". To begin anew, give another folder by --data or GREENCRAWL_DATA, or delete "
        f"{folder} while nothing runs: what the other store has stays, and fills Redis again when "
        "it is used here"
    )


def _check_rules(identity: FrontierIdentity) -> None:
    ours = {"suffixes": SUFFIXES, "canonicaliser": CANONICALISER, "layout": keys.LAYOUT}
    for name, value in ours.items():
        recorded = getattr(identity, name)
        older = name == "layout" and recorded < value  # this is repaired, see _bring_up_to_date
        if name == "canonicaliser":
            older = recorded in CANONICALISERS  # this stays as it is
        if recorded != value and not older:
            raise FrontierMismatch(
                f"this frontier was made with {name} {recorded}, this program has {value}: "
                "run the version that made it, or start a new data folder"
            )


def assemble(
    nodes: Sequence[Node], store: Store, partitions: int, *, create: bool
) -> tuple[FrontierIdentity, list[Node]]:
    """Match the servers to the recorded identity; return it and the nodes in its order.

    With ``create``, a frontier is made if neither the store nor Redis knows one, and an empty
    server takes the place of a lost one. A server with an older layout is closed, to be emptied and
    refilled when it is opened. A server that does not answer is identified by the address at which
    it was last seen, or by being the only one left. It is adopted when it is back. Raises
    FrontierMismatch for another list of nodes or other rules, Unavailable while there is nothing to
    join.
    """
    owners, error = _owners(nodes)
    identity = store.frontier()
    state = "lost"
    if error is not None and (identity is None or identity.layout < keys.LAYOUT):
        raise error
    if identity is None:
        if not create:
            raise Unavailable("there is no frontier yet: start a broker first")
        for node, owner in zip(nodes, owners, strict=True):
            if owner:
                raise FrontierMismatch(_of_another_store(node, owner.get("frontier", "")))
        state = "new"
        identity = store.create_frontier(new_identity(len(nodes), partitions))
    _check_rules(identity)
    if len(nodes) != len(identity.nodes):
        raise FrontierMismatch(
            f"this frontier was made on {len(identity.nodes)} Redis node(s), {len(nodes)} are "
            "given: give the same ones; moving partitions to other nodes is not possible yet"
        )
    met = store.addresses()
    vacant = _vacant(identity, nodes, owners, met)
    placed: dict[str, Node] = {}
    for node, owner in zip(nodes, owners, strict=True):
        if owner is None:
            node.id = vacant[node]
            placed[node.id] = node
            continue
        if not owner:
            if not create:
                raise Unavailable(
                    f"Redis at {node.shown} is empty: waiting for a broker to open it"
                )
            owner = settle(node, identity.id, vacant[node], state)
        if owner.get("frontier") != identity.id or owner["id"] not in identity.nodes:
            raise FrontierMismatch(
                f"Redis at {node.shown} belongs to frontier {owner.get('frontier')}, "
                f"the store to {identity.id}: give the nodes that this frontier was made on"
                f"{_begin_anew(node)}"
            )
        if owner["id"] in placed:
            raise FrontierMismatch(
                f"Redis at {node.shown} and {placed[owner['id']].shown} are the same node"
            )
        node.adopt(owner)
        placed[owner["id"]] = node
    if identity.layout < keys.LAYOUT:
        identity = _bring_up_to_date(identity, nodes, store, create=create)
    if create:
        here = {i: node.shown for i, node in placed.items() if node.epoch}
        if here.items() - met.items():
            store.put_addresses(here)
    return identity, [placed[i] for i in identity.nodes]


def _owners(nodes: Sequence[Node]) -> tuple[list[dict[str, str] | None], Unavailable | None]:
    """Return each node's owner record, None if it does not answer, and one of the errors.

    Raises Unavailable if none answers.
    """
    owners: list[dict[str, str] | None] = []
    failed: Unavailable | None = None
    for node in nodes:
        try:
            owners.append(node.owner())
        except Unavailable as error:
            owners.append(None)
            failed = error
    if failed is not None and not any(owner is not None for owner in owners):
        raise failed
    return owners, failed


def _vacant(
    identity: FrontierIdentity,
    nodes: Sequence[Node],
    owners: Sequence[dict[str, str] | None],
    met: Mapping[str, str],
) -> dict[Node, str]:
    """Return ids for nodes that are empty or away: by their last known addresses, or because only
    one is left.

    Raises Unavailable if two nodes cannot be distinguished.
    """
    taken = {owner.get("id") for owner in owners if owner}
    free = [i for i in identity.nodes if i not in taken]
    without = [node for node, owner in zip(nodes, owners, strict=True) if not owner]
    by_address = {met[i]: i for i in free if i in met}
    found = {node: by_address[node.shown] for node in without if node.shown in by_address}
    left = [i for i in free if i not in found.values()]
    rest = [node for node in without if node not in found]
    silent = [node for node, owner in zip(nodes, owners, strict=True) if owner is None]
    if len(rest) > 1 and not set(rest).isdisjoint(silent):
        names = " and ".join(node.shown for node in rest)
        raise Unavailable(f"it is not known which nodes {names} are: waiting until they answer")
    return found | dict(zip(rest, left, strict=False))


def _bring_up_to_date(
    identity: FrontierIdentity, nodes: Sequence[Node], store: Store, *, create: bool
) -> FrontierIdentity:
    """Bring a frontier to the new layout: first close all nodes, so that none is open without
    it."""
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
    """Return whether a server's data has an older layout; without a number it has the first one."""
    return int(owner.get("layout", 1)) < keys.LAYOUT


def close_outdated(node: Node) -> None:
    """Close a server whose data has an older layout, until they are deleted. Idempotent."""
    node.command(
        "EVAL",
        "local o = redis.call('HMGET', KEYS[1], 'layout', 'state') "
        "if tonumber(o[1] or 1) < tonumber(ARGV[1]) and o[2] ~= 'emptying' then "
        "redis.call('HSET', KEYS[1], 'state', 'emptying', 'run', '', 'tick', 0) "
        "redis.call('HDEL', KEYS[1], 'clean', 'owed') end",
        1, keys.OWNER, keys.LAYOUT,
    )  # fmt: skip


def settle(node: Node, frontier: str, node_id: str, state: str) -> dict[str, str]:
    """Write an owner record into an empty server, unless another broker was first.

    ``state`` is "new" if the frontier was just made, and "lost" if the server held data.
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
