"""The robots.txt files that workers share: a cache in Redis, within a budget of its own."""

from __future__ import annotations

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.failures import Full
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import Scripts
from greencrawl.schema.net import urls
from greencrawl.schema.wire import to_msgpack


class Robots:
    """robots.txt by origin, such as ``https://host:port``. Every call may raise Unavailable."""

    def __init__(self, calls: Scripts, placement: Placement) -> None:
        self._calls = calls
        self._placement = placement

    def robots_get(self, origin: str) -> bytes | None:
        """Return what :meth:`robots_put` kept for an origin, or None."""
        p = self._placement.partition_of(urls.host_of(origin + "/"))
        node = self._placement.node_of[p]
        value: bytes | None = node.command("GET", keys.robots(p, origin))
        return value

    def robots_put(self, origin: str, value: bytes, seconds: int, *, needed: bool = False) -> bool:
        """Keep an origin's robots.txt for all workers, for at most ``seconds``.

        False if there is no room, and nothing was kept: in this cache newer files displace older
        ones. ``needed``: another session waits for it, so it is kept in any case, for some minutes.
        """
        p = self._placement.partition_of(urls.host_of(origin + "/"))
        args = to_msgpack([origin, part.blob(value), max(seconds, 1), int(needed)])
        try:
            return bool(self._calls("robots_put", {p: args})[p][1])
        except Full:
            return False
