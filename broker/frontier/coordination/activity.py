"""Messages between brokers about activity, so that the holder of a duty hears what others did.

Messages are sent on the channel of wake-ups, but are not counted. If a message is lost while a
connection breaks, the next scan finds the activity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from gevent.event import Event

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable

ACTIVITY, OVERFLOW = b"activity", b"overflow"
QUOTA = b"quota"
"""The message that these crawls need quota (``quotas.py``), for the broker that shares it out."""
ORDERS = b"orders"
"""The message that there are new orders: all orders must be read again."""
ANY, NONE = 0, -1
"""Values in place of the id of a crawl: ANY stands for an unknown crawl, NONE for no crawl."""
MOST = 100
"""A message names at most this many crawls; if there are more, it names :data:`ANY`."""


class ActivityEvent(Event):
    """An event set by activity in crawls; :meth:`take_own` has only the activity of this
    process."""

    def __init__(self) -> None:
        super().__init__()
        self._crawls: set[int] = set()
        self._own: set[int] = set()

    def set(self, crawl: int = ANY) -> None:
        """Note activity of this process."""
        self._own.add(crawl)
        self.hear((crawl,))

    def hear(self, crawls: Iterable[int] = (ANY,)) -> None:
        """Note activity of another process."""
        self._crawls.update(crawls)
        super().set()

    def take(self) -> frozenset[int]:
        """Return the crawls with activity since the last call, and clear the event."""
        self.clear()
        crawls = frozenset(self._crawls)
        self._crawls.clear()
        self._own.clear()
        return crawls

    def take_own(self) -> frozenset[int]:
        """Return the crawls with activity of this process."""
        own = frozenset(self._own)
        self._own.clear()
        return own


def message(what: bytes, crawls: Collection[int]) -> bytes:
    """Return the message that names these crawls."""
    named = crawls if len(crawls) <= MOST else (ANY,)
    return b" ".join([what, *(b"%d" % crawl for crawl in sorted(named))])


def announce(nodes: Sequence[Node], what: bytes, crawls: Collection[int]) -> None:
    """Send a message to the other brokers; a broker that misses it learns of it later. Raises
    nothing."""
    for node in nodes:  # a broker may be cut off from some nodes
        with suppress(Unavailable):
            node.command("PUBLISH", keys.WAKE, message(what, crawls))
