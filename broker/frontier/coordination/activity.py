"""Brokers tell each other what goes on, so the holder of a duty hears what others did.

Messages go out on the channel of wake-ups, but are not counted. If one is lost while a connection
breaks, the scan that follows makes up for it.
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
"""The message that somebody needs quota for these crawls (``quotas.py``), for the broker that
shares it out."""
ORDERS = b"orders"
"""Somebody ordered something: all that is ordered is to be read again."""
ANY, NONE = 0, -1
"""Instead of a crawl's number: it is not known which; it concerns none."""
MOST = 100
"""Crawls that are named in a message; if there are more, it names :data:`ANY`."""


class ActivityEvent(Event):
    """Set by what goes on in crawls: here, which :meth:`take_own` tells apart, or elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._crawls: set[int] = set()
        self._own: set[int] = set()

    def set(self, crawl: int = ANY) -> None:
        """Something was done here."""
        self._own.add(crawl)
        self.hear((crawl,))

    def hear(self, crawls: Iterable[int] = (ANY,)) -> None:
        """Another process has said so."""
        self._crawls.update(crawls)
        super().set()

    def take(self) -> frozenset[int]:
        """Which crawls there was something of since this was asked last; the event is cleared."""
        self.clear()
        crawls = frozenset(self._crawls)
        self._crawls.clear()
        self._own.clear()
        return crawls

    def take_own(self) -> frozenset[int]:
        """Those of them of which something was done here."""
        own = frozenset(self._own)
        self._own.clear()
        return own


def message(what: bytes, crawls: Collection[int]) -> bytes:
    """What is published of them."""
    named = crawls if len(crawls) <= MOST else (ANY,)
    return b" ".join([what, *(b"%d" % crawl for crawl in sorted(named))])


def announce(nodes: Sequence[Node], what: bytes, crawls: Collection[int]) -> None:
    """Tell the other brokers of it. One that is not heard finds out in time; raises nothing."""
    for node in nodes:  # a broker may be cut off from some
        with suppress(Unavailable):
            node.command("PUBLISH", keys.WAKE, message(what, crawls))
