"""This process's share of the requests that an address or a domain may get.

A host has one session, so its delay is kept wherever it is leased. An address may have thousands of
hosts. Before a request is sent, it takes one *start* of its address and one of its registrable
domain, and a place among the address's connections if it opens one. A start becomes free one window
after the end of its request, not after the beginning: so the next request with this start cannot
arrive within one window, however long both requests were on their way. The number of starts is this
process's share, which the frontier gives for some seconds
(:mod:`greencrawl.broker.frontier.addresses`). One greenlet asks for all shares, many at a time,
before they end. A session that finds no share waits for a moment, or is handed back and gets a time
at which to come again.
"""

from __future__ import annotations

import ipaddress
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache

import gevent
from gevent.event import Event

from greencrawl.broker.frontier import SHARE_SECONDS, Share, ShareRequest
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.net.urls import registrable_domain
from greencrawl.worker.http.addresses import address_name
from greencrawl.worker.session.caps import Caps, NoShare

log = logger("worker")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PATIENCE_SECONDS = 1.0
"""How long a session waits for its start; then its place is of use to others."""
LONGEST_TURN_SECONDS = 300.0
BATCH_SECONDS = 0.005
"""Requests within this long are put into one call."""
TICK_SECONDS = 0.02
"""Seconds between two checks of waiting sessions, while there are any."""
AGAIN_SECONDS = 0.5
"""Seconds between two calls for a larger share while others hold the rest."""
CAPS_SECONDS = 10.0
"""How long the limits of a crawl count at an address after their last use."""
NO_LIMIT = 1 << 30


class _Place:
    """One address or domain. It has no lock: nothing here yields to the hub."""

    __slots__ = (
        "again", "caps", "caps_look", "connections", "connections_cap", "ends", "free_at",
        "make_room", "name", "open", "rate", "sending", "shown", "starts", "starts_cap", "turn",
        "waiting", "window",
    )  # fmt: skip

    def __init__(self, name: str, shown: str) -> None:
        self.name, self.shown = name, shown
        self.rate = math.inf
        self.window = 1.0
        self.caps: dict[tuple[float, int], float] = {}
        self.caps_look = 0.0
        self.starts_cap = self.connections_cap = NO_LIMIT
        self.starts = self.connections = 0
        self.ends = self.again = self.turn = 0.0
        self.sending = self.open = 0
        self.make_room: Callable[[], bool] | None = None
        self.free_at: deque[float] = deque()
        self.waiting: deque[_Waiter] = deque()

    def limit(self, rate: float, connections: int, now: float) -> None:
        """Apply a crawl's limits, 0 for none: the strictest of those used lately."""
        known = (rate, connections) in self.caps
        self.caps[rate, connections] = now
        if known and now < self.caps_look:
            return
        self.caps_look = now + 1
        if len(self.caps) > 1:
            self.caps = {caps: at for caps, at in self.caps.items() if now - at <= CAPS_SECONDS}
        before, self.rate = self.rate, min((r for r, _ in self.caps if r), default=math.inf)
        self.window = max(1.0, 1 / self.rate)
        self.starts_cap = NO_LIMIT if self.rate == math.inf else max(1, math.floor(self.rate))
        self.connections_cap = min((c for _, c in self.caps if c), default=NO_LIMIT)
        if self.rate > before:
            self.turn = 0.0  # turns were further apart

    def used(self, now: float) -> int:
        """Return the starts that are under way, or ended less than a window ago."""
        while self.free_at and self.free_at[0] <= now:
            self.free_at.popleft()
        return self.sending + len(self.free_at)

    def has_room(self, now: float, waiter: _Waiter) -> bool:
        if now >= self.ends or self.used(now) >= min(self.starts, self.starts_cap):
            return False
        if waiter.make_room is None or self.open < self.connections:
            return True
        while self.connections and self.open >= self.connections and waiter.make_room():
            pass
        return self.open < self.connections

    def take(self, waiter: _Waiter) -> None:
        self.sending += 1
        if waiter.make_room is not None:
            self.open += 1
            self.make_room = waiter.make_room

    def closed(self) -> None:
        """Note that a connection to the place was closed."""
        self.open -= 1

    def shrink(self) -> None:
        """Close idle connections beyond the share; those of current requests stay."""
        if self.connections_cap != NO_LIMIT and self.make_room is not None:
            while self.open > self.connections and self.make_room():
                pass

    def next_turn(self, now: float, rate: float) -> float:
        """Return the seconds until the turn of a session that found no room; sessions have turns
        one after another.

        A session whose crawl allows a higher ``rate`` comes when the stricter limit may be
        forgotten.
        """
        each = 0.1 if self.starts_cap == NO_LIMIT else self.window / self.starts_cap
        if not rate or rate > self.rate:
            return min(self.window / 2 + each, CAPS_SECONDS)
        self.turn = max(self.turn, now + self.window / 2) + each
        return min(self.turn - now, LONGEST_TURN_SECONDS)

    def wish(self, now: float) -> ShareRequest:
        """Return the request for the frontier."""
        used, more = self.used(now), 2 * len(self.waiting) + 1
        return ShareRequest(
            self.name, self.window,
            self.starts_cap, used, min(used + more, self.starts_cap),
            self.connections_cap, min(self.sending, self.open),  # idle ones can be closed
            min(self.open + more, self.connections_cap),
        )  # fmt: skip


class _Waiter:
    """A request that waits to be sent; ``make_room`` is None if it opens no connection."""

    __slots__ = ("has_it", "make_room", "told")

    def __init__(self, make_room: Callable[[], bool] | None) -> None:
        self.make_room = make_room
        self.has_it = False
        self.told = Event()


class Ticket:
    """The permission to send one request. Call :meth:`end` once it is over."""

    __slots__ = ("_clock", "_connecting", "_places")

    def __init__(self, places: list[_Place], connecting: _Place | None, clock: Clock) -> None:
        """Make a ticket; ``connecting``: the place of a connection that is not open yet."""
        self._places = places
        self._connecting = connecting
        self._clock = clock

    def opened(self) -> Callable[[], None]:
        """Note that a connection was opened; return what to call when it is closed."""
        place, self._connecting = self._connecting, None
        return place.closed if place is not None else _nothing

    def end(self) -> None:
        """End the request, or a failed attempt to connect."""
        now = self._clock()
        for place in self._places:
            place.sending -= 1
            place.free_at.append(now + place.window)
        if self._connecting is not None:
            self._connecting.closed()
        self._places, self._connecting = [], None


def _nothing() -> None:
    """Do nothing: a connection that is not counted was closed."""


class Shares:
    """The shares of one process. ``ask`` is the frontier's; ``allow`` has no limits by default."""

    def __init__(
        self,
        ask: Callable[[Sequence[ShareRequest]], list[Share | None]],
        allow: Sequence[Network] = (),
        *,
        clock: Clock = monotonic,
    ) -> None:
        self._ask = ask
        self._allow = tuple(allow)
        self._clock = clock
        self._places: dict[str, _Place] = {}
        self._waiting: dict[_Place, None] = {}
        self._woken = Event()
        self._sender: gevent.Greenlet[[], None] | None = None
        self._own = lru_cache(4096)(self._is_own)

    def enter(
        self,
        host: str,
        address: str,
        caps: Caps,
        *,
        connect: bool,
        deadline: float = math.inf,
        make_room: Callable[[], bool] = bool,
    ) -> Ticket | None:
        """Take what a request to ``host`` at ``address`` needs; None if nothing is limited.

        ``connect``: it will open a connection; if there are too many, ``make_room`` closes an idle
        one, if there is any. Waits for some moments, not beyond ``deadline``. Raises NoShare, which
        says for how long.
        """
        rate, connections, domain_rate = caps if self._own(address) else caps.outside()
        wanted: list[tuple[str, str, float, int]] = []
        if domain_rate:
            domain = registrable_domain(host)
            wanted.append((f"d:{domain}", domain, domain_rate, 0))
        if rate or connections:
            name = address_name(address)
            wanted.append((name, name[2:], rate or 0, connections or 0))
        if not wanted:
            return None
        taken: list[_Place] = []
        connecting: _Place | None = None
        try:
            for name, shown, starts, most in wanted:
                # Get each place only now: a place that nobody has or waits for is forgotten, and
                # then two places of one name would have a share each.
                place = self._place(name, shown, starts, most)
                opens = connect and not name.startswith("d:")
                self._enter(place, make_room if opens else None, deadline, starts)
                taken.append(place)
                connecting = place if opens else None
        except BaseException:
            for place in taken:
                place.sending -= 1  # nothing was sent
            raise
        return Ticket(taken, connecting, self._clock)

    def close(self) -> None:
        """Ask for nothing any more."""
        if self._sender is not None:
            self._sender.kill()

    def _is_own(self, address: str) -> bool:
        found = ipaddress.ip_address(address)
        return any(found in network for network in self._allow)

    def _place(self, name: str, shown: str, rate: float, connections: int) -> _Place:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = _Place(name, shown)
        place.limit(rate, connections, self._clock())
        return place

    def _enter(
        self, place: _Place, make_room: Callable[[], bool] | None, deadline: float, rate: float
    ) -> None:
        now = self._clock()
        waiter = _Waiter(make_room)
        if not place.waiting and place.has_room(now, waiter):
            place.take(waiter)
            return
        known = now < place.ends
        if known and len(place.waiting) >= max(1, place.starts * PATIENCE_SECONDS / place.window):
            raise self._denied(place, now, rate)
        place.waiting.append(waiter)
        self._waiting[place] = None
        self._wake()
        try:
            waiter.told.wait(max(0.0, min(PATIENCE_SECONDS, deadline - now)))
        finally:
            if not waiter.has_it:
                place.waiting.remove(waiter)
        if not waiter.has_it:
            raise self._denied(place, self._clock(), rate)

    def _denied(self, place: _Place, now: float, rate: float) -> NoShare:
        most = [] if place.starts_cap == NO_LIMIT else [
            f"{place.starts_cap} requests in {place.window:g} s"
        ]  # fmt: skip
        if place.connections_cap != NO_LIMIT:
            most.append(f"{place.connections_cap} connections")
        why = f"all hosts there together may have {' and '.join(most)}"
        return NoShare(place.shown, place.next_turn(now, rate), why)

    # -- asking

    def _wake(self) -> None:
        self._woken.set()
        if self._sender is None or self._sender.ready():
            self._sender = gevent.spawn(self._run)

    def _run(self) -> None:
        """Ask for what is needed and let waiting requests go on; end when nothing is held."""
        round_at = 0.0
        while self._places:
            now = self._clock()
            self._woken.wait(TICK_SECONDS if self._waiting else max(0.0, round_at - now))
            if self._woken.is_set():
                self._woken.clear()
                gevent.sleep(BATCH_SECONDS)
            now = self._clock()
            looked_at = list(self._waiting)
            if now >= round_at:
                round_at = now + SHARE_SECONDS / 4
                looked_at = list(self._places.values())
            self._renew(looked_at, now)
            self._let_go_on(self._clock())

    def _renew(self, places: list[_Place], now: float) -> None:
        wanted = []
        for place in places:
            place.shrink()
            used = place.used(now)
            ending = place.ends - now < SHARE_SECONDS / 2
            stuck = any(not place.has_room(now, waiter) for waiter in place.waiting)
            if not used and not place.open and not place.waiting:
                if place.ends <= now and place.turn <= now:
                    del self._places[place.name]
            elif now >= place.again and (ending or (stuck and self._may_grow(place))):
                place.again = now + AGAIN_SECONDS
                wanted.append(place)
        if not wanted:
            return
        try:
            found = self._ask([place.wish(now) for place in wanted])
        except Unavailable as error:
            log.info("shares_not_received", reason=str(error))
            return
        for place, share in zip(wanted, found, strict=True):
            if share is not None:
                place.starts, place.connections = share.starts, share.connections
                place.ends = now + SHARE_SECONDS
                place.shrink()

    def _let_go_on(self, now: float) -> None:
        for place in list(self._waiting):
            for waiter in list(place.waiting):  # a request that has its connection may pass others
                if now >= place.ends or place.used(now) >= min(place.starts, place.starts_cap):
                    break
                if place.has_room(now, waiter):
                    place.waiting.remove(waiter)
                    place.take(waiter)
                    waiter.has_it = True
                    waiter.told.set()
            if not place.waiting:
                del self._waiting[place]

    @staticmethod
    def _may_grow(place: _Place) -> bool:
        return place.starts < place.starts_cap or place.connections < place.connections_cap
