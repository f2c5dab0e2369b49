"""Bytes of pages that a process has in hand, under one bound: what is being received, what waits
to be read, and what waits to be stored.

A request counts what it has received, its session the answer until the writer has it, and the
writer its results. A body that is not small is promised memory before it is received, all that its
length says, or twice what has come of it. Beyond :data:`MOST_BYTES` requests wait for that, and the
kernel holds their hosts back; who needs least goes first. Bodies that say that they are small go
on, as far as a reserve lasts.

While requests wait, the others are looked at. The request that would need longest to send again
what it holds is ended, with a failure that says why, until there is room. A request that was
promised much and sends little loses the promise, and waits. A body that comes fast is not ended
however large it is, and none is that holds a few KiB.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent
from gevent.event import Event

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import GreencrawlError

MOST_BYTES = 20 * 1024 * 1024
RESERVE_BYTES = 22 * 1024 * 1024
"""Beyond that, for bodies that say that they are small: all of it for heads, the less for a body
the larger it is."""
SMALL_BYTES = 256 * 1024
LITTLE_BYTES = 16 * 1024
"""As much is received before anything is known of a body; nobody is ended for less."""
WAKE_SECONDS = 0.05
LOOK_SECONDS = 0.5
"""So long a request is watched before it is judged."""
REBUILD_SECONDS = 5.0
"""Who would send again sooner what he holds is never ended."""
PATIENCE_SECONDS = 5.0
"""So long a request waits with what it holds. Then it gives that back, and is made again later."""
PROMISE_SECONDS = 20.0
"""Who would need longer to send what he was promised loses the promise."""

_UNTOLD = 2**62


class Crowded(GreencrawlError):
    """Raised when a request has waited for memory for too long: no fault of its host's."""


class PutAside(Exception):
    """Thrown into the wait of a request that is ended for the memory it holds."""


class InHand:
    """The account of one process. Not locked: what does not wait does not yield to the hub."""

    def __init__(
        self,
        most: int = MOST_BYTES,
        reserve: int = RESERVE_BYTES,
        *,
        small: int = SMALL_BYTES,
        clock: Clock = monotonic,
    ) -> None:
        self.bytes = 0
        """In hand now."""
        self.taken = 0
        """The same, with what was promised."""
        self.most = most
        self.small = small
        self.clock = clock
        self.reserve = reserve
        self.last = most + reserve
        self.parts: dict[Part, None] = {}
        """Of requests under way that hold something or wait to; the oldest first."""
        self.favoured: Part | None = None
        """It may go on though there is no room."""
        self._looker: gevent.Greenlet[[], None] | None = None

    def add(self, size: int) -> None:
        """So many more bytes are in hand, or fewer where ``size`` is negative."""
        self.bytes += size
        self.taken += size

    def watch(self) -> None:
        """Have somebody look after those who wait, until nobody does."""
        if self._looker is None:
            self._looker = gevent.spawn(self._look_after)

    def _look_after(self) -> None:
        while any(part.waits for part in self.parts):
            gevent.sleep(WAKE_SECONDS)
            # Where most is on its way to the store, to end requests would free little.
            if sum([max(part.held, part.granted) for part in self.parts]) >= self.most // 2:
                self._judge()
                self._favour()
            self._wake()
        self._looker = None

    def _judge(self) -> None:
        now, excess, slow = self.clock(), self.taken - self.most, []
        excess += min(self.most // 2, sum([_missing(part) for part in self.parts if part.waits]))
        for part in self.parts:
            rate = part.rate(now)
            if rate is None:
                continue
            if part.held > max(LITTLE_BYTES, REBUILD_SECONDS * rate):
                slow.append((part.held / max(rate, 1e-9), part.held, part))
            elif part.granted > PROMISE_SECONDS * rate:
                part.grant(0)
        for _, _, part in sorted(slow, key=lambda one: one[:2], reverse=True):
            if excess < 0:
                break
            excess -= max(part.held, part.granted)
            part.end()

    def _favour(self) -> None:
        """Where all that hold a part wait, let one of them come to its end."""
        if self.favoured is None and self.most <= self.taken and self.bytes < self.last:
            holding = [part for part in self.parts if part.held]
            waiting = [part for part in holding if part.waits]
            if waiting and all(part.waits or part.held <= LITTLE_BYTES for part in holding):
                self.favoured = min(waiting, key=_missing)  # of equals the oldest

    def _wake(self) -> None:
        """Let on who has room, those first who need least."""
        for part in sorted([part for part in self.parts if part.waits], key=_missing):
            if part.waits is not None and part.fits():
                part.go_on()
                part.waits.set()


class Part:
    """What one request holds. ``interrupt`` is called in the hub to end its wait for its host.

    Most answers come at once and whole, so nothing is set up before it is needed.
    """

    held = 0
    granted = 1
    """It may hold this much, except for its first read."""
    missing: int | None = 0
    """Bytes that are still to come; None where nobody says."""
    paused = 0.0
    """Seconds in which nothing was read for want of memory."""
    ended = False
    """Whether it is to give back what it holds, and fail."""
    cut = False
    """Whether it is to fail since nothing has come."""
    waits: Event | None = None
    _listed = False
    _since = 0.0
    _before = _promised = 0

    def __init__(self, in_hand: InHand, interrupt: Callable[[BaseException], None]) -> None:
        self._in_hand = in_hand
        self._interrupt = interrupt

    def hold(self, size: int, missing: int | None) -> None:
        """It holds ``size`` bytes now; so many are ``missing``, None where nobody says."""
        in_hand = self._in_hand
        if not self._listed:
            self._listed = True
            in_hand.parts[self] = None
            self._since = in_hand.clock()
        in_hand.add(size - self.held)
        self.held = size
        self.missing = missing
        if self._promised:
            self._promise(self.granted - size)

    def wait_for_room(self, until: float) -> None:
        """Wait until more of it may be received. Raises Crowded at ``until`` at the latest."""
        in_hand = self._in_hand
        if self.fits():
            self.go_on()
            return
        self.hold(self.held, self.missing)
        began = in_hand.clock()
        self.waits = Event()
        in_hand.watch()
        try:
            if not self.waits.wait(min(until - began, PATIENCE_SECONDS)):
                raise Crowded(f"no memory for a body within {in_hand.clock() - began:.1f} s")
        finally:
            self.waits = None
            now = in_hand.clock()
            self.paused += now - began
            self._since, self._before = now, self.held

    def fits(self) -> bool:
        """Whether more of it may be received now."""
        in_hand = self._in_hand
        if self is in_hand.favoured:
            return True
        size = self.held + _missing(self)
        if size <= in_hand.small:
            return in_hand.bytes < in_hand.last - in_hand.reserve * size // in_hand.small
        return self.held < self.granted or in_hand.taken < in_hand.most

    def go_on(self) -> None:
        """Promise what it needs next."""
        if self.held < self.granted:
            return
        if self.missing is None:
            self.grant(max(self._in_hand.small, 2 * self.held))
        elif self.held + self.missing > self._in_hand.small:
            self.grant(self.held + self.missing + 1)
        else:
            self.granted = self.held + self.missing + 1

    def grant(self, size: int) -> None:
        """Promise that it may hold ``size`` bytes."""
        self.granted = size
        self._promise(size - self.held)

    def _promise(self, size: int) -> None:
        self._in_hand.taken -= self._promised
        self._promised = max(0, size)
        self._in_hand.taken += self._promised

    def rate(self, now: float) -> float | None:
        """Bytes a second that came since the last look; None while that cannot be said."""
        seconds = now - self._since
        if self.waits is not None or seconds < LOOK_SECONDS:
            return None
        came = self.held - self._before
        self._since, self._before = now, self.held
        return came / seconds

    def end(self) -> None:
        """Have it give back what it holds."""
        self.ended = True
        gevent.get_hub().loop.run_callback(self._end)

    def _end(self) -> None:
        if self._listed:
            self._interrupt(PutAside())

    def cut_off(self) -> bool:
        """Have it fail though nothing is held; always True."""
        self.cut = True
        gevent.get_hub().loop.run_callback(self._cut)
        return True

    def _cut(self) -> None:
        if self.cut:
            self._interrupt(PutAside())

    def close(self) -> None:
        """It holds nothing any more."""
        if not self._listed:
            return
        in_hand = self._in_hand
        self._listed = False
        self._promise(0)
        in_hand.add(-self.held)
        self.held = 0
        del in_hand.parts[self]
        if in_hand.favoured is self:
            in_hand.favoured = None


def _missing(part: Part) -> int:
    return _UNTOLD if part.missing is None else part.missing
