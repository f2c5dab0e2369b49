"""Which node holds which partition, and which nodes serve now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.net import urls
from greencrawl.schema.records import Admission, FrontierIdentity


class Placement:
    """The nodes of a frontier, in the order of its identity, which says what each holds."""

    def __init__(self, identity: FrontierIdentity, nodes: Sequence[Node]) -> None:
        self.identity = identity
        self.nodes = nodes
        self.node_of = [nodes[i] for i in identity.placement]
        """By partition."""
        self.partitions = range(identity.partitions)

    def fingerprint(self, canonical: str) -> int:
        """Return the signed 64-bit fingerprint of a canonical URL under this frontier's secret and
        rules."""
        return urls.fingerprint(canonical, self.identity.secret, self.identity.canonicaliser)

    def partition_of(self, host: str) -> int:
        """Return the partition that a host belongs to."""
        return urls.partition_of(host, self.identity.partitions)

    def partitions_on(self, node: Node) -> list[int]:
        """Return the partitions that a node holds, in order."""
        return [p for p in self.partitions if self.node_of[p] is node]

    def now_ms(self, partition: int) -> float:
        """Return the logical time of a partition's node, in ms."""
        return self.node_of[partition].now_ms()

    def under(self, partition: int) -> tuple[str, int]:
        """Return the id of a partition's node, and the epoch under which it is asked now."""
        node = self.node_of[partition]
        return node.id, int(node.epoch or 0)

    # -- nodes that are away

    def others_serve(self, asked: Collection[int]) -> bool:
        """Return whether a node with partitions may answer, other than those that were just
        asked."""
        return any(
            index not in asked and not self.nodes[index].breaker.since_ms
            for index in set(self.identity.placement)
        )

    def spared(self, node: Node) -> bool:
        """Return whether a node is away while another serves: such a node gets later what it
        missed.

        When the node is back, its listener opens it, and debts and scans give it the crawls.
        """
        return bool(node.breaker.since_ms) and self.others_serve((self.nodes.index(node),))

    def left_out(self, partition: int) -> bool:
        """Return whether a partition's node is away while another serves."""
        return self.spared(self.node_of[partition])

    def away_of(self, items: Iterable[Admission]) -> frozenset[str]:
        """Return nodes of ``items`` that are known to be away, while others answer.

        This costs almost nothing as long as all answer, and ends when all nodes that are away are
        found.
        """
        if not any(node.breaker.since_ms for node in self.nodes):
            return frozenset()
        away = {node.id for node in self.nodes if self.spared(node)}
        found: set[str] = set()
        hosts: set[str] = set()
        for item in items:
            host = urls.host_of(item.url)
            if host in hosts:
                continue
            hosts.add(host)
            found |= {self.node_of[self.partition_of(host)].id} & away
            if found == away:
                break
        return frozenset(found)

    def nodes_of(self, items: Iterable[Admission]) -> frozenset[str]:
        """Return the ids of the nodes of ``items``."""
        partitions = {self.partition_of(urls.host_of(item.url)) for item in items}
        return frozenset(self.node_of[p].id for p in partitions)
