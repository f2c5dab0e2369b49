"""Shares of the requests that an address or a domain may get from all worker processes.

A host's session keeps the host's delay, but one machine may have thousands of names. So a worker
process asks for a share of the address that a name leads to: a number of requests that it may start
in any sliding window, and a number of connections. Shares are held for some seconds, and renewed
while they are used. The shares of all processes together are never above the limits, and the share
of a process that died ends by itself (decision 29).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts.calls import Scripts
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.wire import to_msgpack

SHARE_SECONDS = 5.0
"""How long a share is held. Processes that follow one that died wait at least this long."""


class ShareRequest(NamedTuple):
    """A worker process's request for a share of one address or domain, ``name``.

    In a sliding window of ``window`` seconds at most ``starts_cap`` requests may start, over all
    processes. ``…_used`` is what this process uses now. A connection is used while a request is
    under way on it; the process does not give up such a connection. ``…_wanted`` is what it could
    use.
    """

    name: str
    window: float
    starts_cap: int
    starts_used: int
    starts_wanted: int
    connections_cap: int
    connections_used: int
    connections_wanted: int


class Share(NamedTuple):
    """The share that a process got: starts in a window, and connections.

    ``retry_seconds``: in how many seconds the next share of another process ends; 0: no other
    process has a share.
    """

    starts: int
    connections: int
    retry_seconds: float


class Addresses:
    """Shares by the names of addresses and domains."""

    def __init__(self, calls: Scripts, placement: Placement) -> None:
        self._calls = calls
        self._placement = placement

    def shares(self, holder: str, asks: Sequence[ShareRequest]) -> list[Share | None]:
        """Ask for shares for :data:`SHARE_SECONDS`, counted from before this call.

        This takes one round trip a node. The answer has None for each address of a node that is
        away: the share of this address stays as it is until it ends. Raises Unavailable if all
        nodes are away.
        """
        by_partition: dict[int, list[int]] = {}
        for number, ask in enumerate(asks):
            by_partition.setdefault(self._placement.partition_of(ask.name), []).append(number)
        calls = {
            p: to_msgpack([holder, round(SHARE_SECONDS * 1000), [_row(asks[n]) for n in numbers]])
            for p, numbers in by_partition.items()
        }
        found: list[Share | None] = [None] * len(asks)
        failed: dict[int, Unavailable] = {}
        replies = self._calls("shares", calls, partial=True, failed=failed)
        for p, (_, shares) in replies.items():
            for number, (starts, connections, retry_ms) in zip(
                by_partition[p], shares, strict=True
            ):
                found[number] = Share(starts, connections, retry_ms / 1000)
        return found


def _row(ask: ShareRequest) -> list[object]:
    return [
        ask.name, round(ask.window * 1000),
        [ask.starts_cap, ask.starts_used, ask.starts_wanted],
        [ask.connections_cap, ask.connections_used, ask.connections_wanted],
    ]  # fmt: skip
