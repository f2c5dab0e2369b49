"""Tells partitions of crawls: their states, versions and politeness, and their end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from greencrawl.broker.frontier.coordination.activity import ActivityEvent
from greencrawl.broker.frontier.coordination.quotas import Quotas
from greencrawl.broker.frontier.leasing import Leasing
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import FEW, PIPELINED, Scripts
from greencrawl.schema.clock import monotonic
from greencrawl.schema.crawl_cache import CrawlCache
from greencrawl.schema.errors import GreencrawlError, Unavailable, UnknownCrawl
from greencrawl.schema.records import Crawl
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store

KNOWN_SECONDS = 2.0
KNOWN_MOST, KNOWN_IDLE_SECONDS = 1000, 300.0
"""The rows of at most this many crawls are kept, and for this long after their last use."""


class KnownCrawls:
    """Rows of crawls as the store had them a moment ago: another broker may have changed them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._crawls: CrawlCache[int, tuple[float, Crawl]] = CrawlCache(
            KNOWN_MOST, KNOWN_IDLE_SECONDS
        )

    def get(self, crawl: int) -> Crawl | None:
        """Return the crawl, or None if it was deleted. Raises Unavailable if it was never read."""
        at, known = self._crawls.get(crawl) or (-KNOWN_SECONDS, None)
        if monotonic() - at < KNOWN_SECONDS:
            return known
        try:
            known = self._store.crawl(crawl)
        except UnknownCrawl:
            self._crawls.drop(crawl)
            return None
        except Unavailable:
            if known is None:
                raise
        self.note(known)
        return known

    def note(self, crawl: Crawl) -> None:
        """Keep a crawl that was read from the store, unless a later version is known."""
        _, known = self._crawls.get(crawl.id) or (0.0, crawl)
        later = known if known.version > crawl.version else crawl
        self._crawls[crawl.id] = (monotonic(), later)

    def drop(self, crawl: int) -> None:
        """Forget a crawl that was deleted."""
        self._crawls.drop(crawl)


class Crawls:
    """Tells partitions of crawls. Every call may raise Unavailable."""

    def __init__(
        self,
        calls: Scripts,
        placement: Placement,
        store: Store,
        leasing: Leasing,
        quotas: Quotas,
        known: KnownCrawls,
        activity: ActivityEvent,
    ) -> None:
        self._calls = calls
        self._placement = placement
        self._store = store
        self._leasing = leasing
        self._quotas = quotas
        self._known = known
        self._activity = activity

    def put_crawl(self, crawl: Crawl) -> None:
        """Tell every partition of a crawl, its state and its politeness.

        A partition that knows a later version stays as it is. Nodes that are away get it later, as
        a debt.
        """
        self._known.note(crawl)
        self.say(crawl, part.state_of(crawl), self._placement.partitions, partial=True)

    def tell(self, crawl: Crawl, node: Node) -> None:
        """Do :meth:`put_crawl` on one node only."""
        self.say(crawl, part.state_of(crawl), self._placement.partitions_on(node))

    def tell_node(self, crawls: Iterable[Crawl], node: Node, *, afresh: bool = False) -> None:
        """:meth:`tell` a node of many crawls, in few round trips.

        ``afresh``: their quotas are reset.
        """
        on, calls = self._placement.partitions_on(node), []
        for crawl in crawls:
            args = part.crawl_args(crawl, part.state_of(crawl), afresh)
            calls += [(p, crawl.id, args) for p in on]
        for start in range(0, len(calls), PIPELINED):
            some = calls[start : start + PIPELINED]
            replies = self._calls.run(node, "crawl", [(p, args) for p, _, args in some])
            for (p, crawl_id, _), (_, due, maintain_at) in zip(some, replies, strict=True):
                self._leasing.note(p, crawl_id, due)
                self._leasing.note(p, 0, maintain_at)
        self._activity.set()

    def known_crawls(self, node: Node) -> list[dict[int, int]]:
        """Return for each of a node's partitions the crawls that it knows, and their versions."""
        on = self._placement.partitions_on(node)
        replies = self._calls("known_crawls", dict.fromkeys(on, to_msgpack([])))
        told = [part.fields(reply[1]) for reply in replies.values()]
        return [{int(crawl): int(version) for crawl, version in one.items()} for one in told]

    def say(
        self, crawl: Crawl, state: str, partitions: Iterable[int], *, partial: bool = False
    ) -> None:
        """Tell partitions of a crawl and of its state there; see ``lua/crawls/crawl.lua``.

        ``partial``: nodes that are away get it later, as a debt.
        """
        calls = dict.fromkeys(partitions, part.crawl_args(crawl, state))
        replies = self._calls("crawl", calls, partial=partial)
        for p, (_, due, maintain_at) in replies.items():
            self._leasing.note(p, crawl.id, due)
            self._leasing.note(p, 0, maintain_at)
        if len(replies) < len(calls):
            node_of = self._placement.node_of
            self._store.owe({node_of[p].id for p in calls.keys() - replies.keys()})
        self._activity.set(crawl.id)

    def stop_leasing(self, crawl: Crawl) -> None:
        """Open no further session for this crawl, at any broker (a limit was reached)."""
        self.say(crawl, "stop", self._placement.partitions, partial=True)

    def shut(self, crawl: Crawl) -> None:
        """Admit nothing more to this crawl, which is about to be finished.

        A process that has something new reopens the crawl in the store; this raises its version.
        """
        self.say(crawl, "done", self._placement.partitions)

    def reopen(self, crawl: int, version: int) -> None:
        """Make a crawl active again, first in the store; in Redis it is done since ``version``.

        Raises UnknownCrawl, Unavailable.
        """
        known = self._store.reopen(crawl, version)
        if known.version < version:
            raise Unavailable(f"the store knows crawl {crawl} at an earlier version than Redis")
        self.put_crawl(known)

    def unknown(self, crawl: int, partition: int) -> GreencrawlError:
        """Return the error for a crawl that a node does not know: it was deleted, or not yet sent
        there.

        A node that was away or is being refilled may lack the crawl: it gets the crawl now, so that
        the next call succeeds.
        """
        node = self._placement.node_of[partition]
        try:
            self.tell(self._store.crawl(crawl), node)
        except UnknownCrawl:
            return UnknownCrawl(f"crawl {crawl} was deleted")
        except Unavailable as error:
            return error
        return Unavailable(f"Redis at {node.shown} has not been told of crawl {crawl} yet")

    def drop_crawl(
        self, crawl: int, node: Node | None = None, between: Callable[[], None] | None = None
    ) -> None:
        """Delete a crawl in bounded steps; after the first step it is gone for everybody.

        ``node``: delete what one node has of it. ``between`` is called after each step.
        """
        self._known.drop(crawl)
        self._quotas.forget(crawl)
        args = to_msgpack([crawl, FEW])
        placement = self._placement
        left = set(placement.partitions if node is None else placement.partitions_on(node))
        while left:
            replies = self._calls("purge", dict.fromkeys(left, args))
            left = {p for p, reply in replies.items() if reply[1]}
            if between is not None:
                between()
