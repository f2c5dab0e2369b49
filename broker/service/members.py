"""Members and their orders, as one broker knows them.

Each member reports by one call, which waits until there are new orders for it. Orders are in the
store, and each broker has read all of them. It reads them again when another broker announces an
order, and once a second if the number of the latest order has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore
from msgspec.structs import asdict

from greencrawl.broker.frontier.coordination.activity import NONE, ORDERS, ActivityEvent
from greencrawl.broker.frontier.coordination.members import Beats
from greencrawl.schema.clock import Clock, epoch_ms, monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.schema.log import Trouble, logger
from greencrawl.schema.records import (
    ALL,
    FOLLOWED,
    Facts,
    Member,
    MemberKind,
    MemberReply,
    MemberRequest,
    MemberState,
    MemberStatus,
    NodeOptions,
    NodeOrders,
    OptionName,
    OrderChange,
    Orders,
)
from greencrawl.store.base import NEVER, Store

log = logger("members")

LOOK_SECONDS = 1.0
"""Seconds between two checks of the number of the latest order."""
JOINED_MOST = 5000
"""At most this many members are remembered to have joined; beyond that the oldest is looked up
again."""
NO_ROW = -1
"""It replaces the incarnation of a member whose row could not be written."""
LOST = "lost"
"""The reason of a member that is gone without saying so."""

Announce = Callable[[bytes, Collection[int]], None]


class UnknownNode(GreencrawlError, LookupError):
    """Raised for orders to a node that has no member."""


class NodeStays(GreencrawlError):
    """Raised if a node must not be forgotten: it is there, or nobody knows that it is gone."""


class Members:
    """Members and orders; see the module's docstring. A greenlet calls ``run``."""

    def __init__(
        self,
        store: Store,
        beats: Beats,
        ordering: ActivityEvent,
        announce: Announce,
        clock: Clock = monotonic,
    ) -> None:
        self._store = store
        self._beats = beats
        self._ordering = ordering
        self._announce = announce
        self._clock = clock
        self._trouble = Trouble(log, "beat_not_noted", "beats_noted", level="info")
        self._unread = Trouble(log, "orders_not_read", "orders_read", level="info")
        self._orders: Orders | None = None
        self._reading = BoundedSemaphore(1)
        self._changed = Event()
        self._joined: dict[str, int] = {}
        """Member → its incarnation that has a row, or NO_ROW."""
        self.loggers: Callable[[str], tuple[str, ...]] = lambda _: ()
        """Returns the addresses of the loggers that a member is to send to, by its id."""

    # -- orders

    def run(self) -> None:
        """Follow the orders that other brokers announce, for ever."""
        while True:
            self._ordering.wait(LOOK_SECONDS)
            self._ordering.take()
            try:
                self.refresh()
                self._unread.done()
            except Unavailable as error:
                self._unread.failed(reason=str(error))
                gevent.sleep(LOOK_SECONDS)
            except Exception:  # a bug must not leave this broker without messages
                log.exception("orders_not_read")
                gevent.sleep(LOOK_SECONDS)

    def refresh(self) -> Orders:
        """Read the orders, if they have changed, and tell waiting calls. Raises Unavailable."""
        with self._reading:
            known = self._orders
            if known is None or self._store.orders_revision() != known.revision:
                self._orders = known = self._store.orders()
                self._changed.set()
                self._changed.clear()
            return known

    def orders(self) -> Orders:
        """Return all orders, as last read. Raises Unavailable before the first time."""
        return self._orders or self.refresh()

    def order(
        self,
        node: str,
        options: NodeOptions,
        unset: tuple[OptionName, ...] = (),
        *,
        by_whom: str = "",
        revision: int | None = None,
    ) -> NodeOrders | None:
        """Order options for a node, or for all; None if its orders have another revision than
        given.

        Raises UnknownNode if the node has neither a member nor orders, InvalidConfig for an option
        that its kind does not follow, Unavailable.
        """
        if node != ALL:
            kinds = {member.kind for member in self._store.members() if member.node == node}
            if not kinds and all(one.member != node for one in self.refresh().nodes):
                raise UnknownNode(f"no node {node}: `greencrawl nodes` lists them")
            if kinds:
                _check_followed(options, kinds)
        found = self._store.put_orders(node, options, unset, by_whom, epoch_ms(), revision=revision)
        self._tell()
        return found

    def forget(self, node: str, by_whom: str = "") -> NodeOrders:
        """Forget a node that is gone for good, with its members and its orders.

        A node may have orders but no member: members that left long ago are deleted. Raises
        UnknownNode (also for all nodes), NodeStays where one of its members may be there, and
        Unavailable.
        """
        known = [member.id for member in self._store.members() if member.node == node]
        heard = self._beats.heard(known)
        stays = bool(heard) or node == ALL
        found = None if stays else self._store.forget_node(node, by_whom, epoch_ms())
        if found is None and not known:
            raise UnknownNode(f"no node {node}: `greencrawl nodes --gone` lists all")
        if found is None:
            raise NodeStays(
                f"{node} is not known to be gone: stop it, or wait until it is lost, which takes a "
                "minute"
            )
        log.warning("node_forgotten", node=node, by=by_whom)
        self._tell()
        return found

    def crawl_changed(
        self, crawl: int, name: str, changed: Mapping[str, Any], by_whom: str = ""
    ) -> None:
        """Note that options of a crawl were changed: workers are told now. Raises Unavailable."""
        self._store.note_crawl_change(crawl, name, changed, by_whom, epoch_ms())
        self._tell()

    def _tell(self) -> None:
        self.refresh()
        self._announce(ORDERS, (NONE,))

    def log(
        self, limit: int, *, before: int = NEVER, node: str = "", crawl: str = ""
    ) -> list[OrderChange]:
        """Return who ordered what, the latest first. Raises Unavailable."""
        return self._store.orders_log(limit, before=before, member=node, crawl=crawl)

    def options_of(self, node: str) -> tuple[int, NodeOptions]:
        """Return (revision, options) in force for a node: its own options win over those for
        all."""
        own = everybody = NodeOrders(member=node)
        for one in self.orders().nodes:
            if one.member == node:
                own = one
            elif one.member == ALL:
                everybody = one
        revision = max(own.revision, everybody.revision)
        return revision, own.options.over(everybody.options)

    # -- members

    def follow(self, request: MemberRequest) -> MemberReply:
        """Note a member's report; answer when there is something new for it, or when it has waited
        enough.

        Raises Unavailable.
        """
        if request.leaving:
            self.leave(request.id, request.incarnation, request.why or "stopped", request.facts)
            return MemberReply()
        if not self._hear(request):
            return MemberReply(superseded=True)
        until = self._clock() + request.wait
        while True:
            orders = self.orders()
            reply = self._reply(request, orders)
            left = until - self._clock()
            if left <= 0 or reply.revision != request.revision or reply.crawls:
                return reply
            if self._orders is orders:  # otherwise something changed while the answer was made
                self._changed.wait(left)

    def _reply(self, request: MemberRequest, orders: Orders) -> MemberReply:
        revision, options = self.options_of(request.node)
        crawls: dict[int, int] = {}
        if request.crawls:
            # A revision beyond what is known here: the store was restored from an older copy.
            since = request.crawls if request.crawls <= orders.revision + 1 else 0
            crawls = {crawl: at for crawl, at in orders.crawls.items() if at >= since}
        return MemberReply(
            revision=revision,
            options=options,
            crawls=crawls,
            next=orders.revision + 1,
            log_to=self.loggers(request.id),
        )

    def _hear(self, request: MemberRequest) -> bool:
        """Note a member's beat, and its row if it is new; return False if a later life of it is
        known.

        The row is written first: so every member with a beat has a row, whichever broker wrote it.
        """
        who, life = request.id, request.incarnation
        joined = self._joined.get(who) == life
        if not joined:
            known = self._beats.life(who)
            if known > life:
                return False
            if known != life or who in self._joined:
                self._put_row(request)
            self._has_row(who, life)
        try:
            status = self._beats.beat(who, life, request.facts)
        except Unavailable as error:  # people do not see it until the next beat
            self._trouble.failed(member=who, reason=str(error))
            return True
        self._trouble.done()
        if status == "new" and joined:  # it was silent for a while: it may count as lost
            self._joined[who] = NO_ROW
            try:
                self._put_row(request)
            except Exception:
                self._beats.gone(who, life)  # its next beat is new as well, at whichever broker
                raise
            self._has_row(who, life)
        return status != "older"

    def _has_row(self, who: str, life: int) -> None:
        self._joined.pop(who, None)
        self._joined[who] = life
        if len(self._joined) > JOINED_MOST:
            del self._joined[next(iter(self._joined))]

    def _put_row(self, request: MemberRequest) -> None:
        self._store.put_member(
            Member(
                id=request.id, node=request.node, kind=request.kind,
                incarnation=request.incarnation, version=request.version,
                address=request.address, joined_ms=epoch_ms(), facts=request.facts,
            )
        )  # fmt: skip

    def leave(self, member: str, incarnation: int, why: str, facts: Facts) -> None:
        """Record that a member has ended by itself. Raises Unavailable."""
        self._joined.pop(member, None)
        self._beats.gone(member, incarnation)
        self._store.member_left(member, incarnation, why, epoch_ms(), facts)

    def list(self, *, gone: bool = False) -> list[MemberState]:
        """Return members that are there, or should be; with ``gone`` also those that have left or
        are lost.

        Raises Unavailable.
        """
        rows, found = self._store.members(), []
        heard = self._beats.heard(row.id for row in rows)
        for row in rows:
            if row.left_ms and not gone:
                continue
            beat = heard.get(row.id)
            told = {name: getattr(row, name) for name in Member.__struct_fields__}
            if row.left_ms:
                status: MemberStatus = "lost" if row.why == LOST else "left"
                found.append(MemberState(**told, status=status))
            elif beat is not None and beat.incarnation >= row.incarnation:
                told["facts"] = beat.facts
                found.append(MemberState(**told, status="here", heard_ms=beat.heard_ms))
            else:
                found.append(MemberState(**told, status="silent"))
        return found


def _check_followed(options: NodeOptions, kinds: Collection[MemberKind]) -> None:
    """Raise InvalidConfig for an option that no member of these kinds follows."""
    followed = {name for kind in kinds for name in FOLLOWED[kind]}
    what = " and ".join(sorted(kinds))
    problems = [
        (name, f"a {what} accepts only {', '.join(sorted(followed))}")
        for name, value in asdict(options).items()
        if value is not None and name not in followed
    ]
    if problems:
        raise InvalidConfig(problems)
