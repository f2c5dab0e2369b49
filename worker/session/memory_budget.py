"""The bytes of pages that a process has in hand, under one limit.

Such bytes are being received, wait to be read, or wait to be stored. A request counts what it has
received; its session counts the answer until the writer has it; the writer counts its results. A
body that is not small gets a promise of memory before it is received: its whole declared length, or
twice what has come of it. Beyond :data:`MOST_BYTES`, requests wait for a promise and read nothing,
so that TCP holds their hosts back; the request that needs least goes first. Bodies that are
declared small go on, as far as a reserve lasts.

While requests wait, the others are checked. The request that would need longest to send its data
again is ended, with a failure that says why, until there is room. A request that was promised much
and receives little loses the promise, and waits. A body that comes fast is not ended however large
it is; a request that holds a few KiB is never ended.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent
from gevent.event import Event

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import GreencrawlError

MOST_BYTES = 20 * 1024 * 1024
RESERVE_BYTES = 22 * 1024 * 1024
"""A reserve beyond the limit for bodies declared small: all of it for heads, less for larger
bodies."""
SMALL_BYTES = 256 * 1024
LITTLE_BYTES = 16 * 1024
"""This much is received before anything is known about a body; no request is ended for less."""
WAKE_SECONDS = 0.05
LOOK_SECONDS = 0.5
"""How long a request is watched before it is judged."""
REBUILD_SECONDS = 5.0
"""A request that could receive its data again within this time is never ended."""
PATIENCE_SECONDS = 5.0
"""How long a request waits with its data. Then it gives them up, and is made again later."""
PROMISE_SECONDS = 20.0
"""A request that would need longer to receive its promise loses the promise."""

_UNTOLD = 2**62


class MemoryTimeout(GreencrawlError):
    """Raised when a request has waited too long for memory: this does not count against its
    host."""


class Preempted(Exception):
    """Thrown into the wait of a request that is ended for the memory it holds."""


class MemoryBudget:
    """The account of one process. It has no lock: methods that do not wait do not yield to the
    hub."""

    def __init__(
        self,
        most: int = MOST_BYTES,
        reserve: int = RESERVE_BYTES,
        *,
        small: int = SMALL_BYTES,
        clock: Clock = monotonic,
    ) -> None:
        self.bytes = 0
        """Bytes in hand now."""
        self.taken = 0
        """Bytes in hand, with those promised."""
        self.most = most
        self.small = small
        self.clock = clock
        self.reserve = reserve
        self.last = most + reserve
        self.parts: dict[Part, None] = {}
        """Parts of current requests that hold something or wait; the oldest first."""
        self.favoured: Part | None = None
        """This part may go on even without room."""
        self._looker: gevent.Greenlet[[], None] | None = None

    def add(self, size: int) -> None:
        """Count this many more bytes in hand, or fewer if ``size`` is negative."""
        self.bytes += size
        self.taken += size

    def watch(self) -> None:
        """Start a greenlet that serves waiting requests, until none waits."""
        if self._looker is None:
            self._looker = gevent.spawn(self._look_after)

    def _look_after(self) -> None:
        while any(part.waits for part in self.parts):
            gevent.sleep(WAKE_SECONDS)
            # If most bytes are on their way to the store, ending requests would free little.
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
        """If all requests that hold something wait, let one of them complete."""
        if self.favoured is None and self.most <= self.taken and self.bytes < self.last:
            holding = [part for part in self.parts if part.held]
            waiting = [part for part in holding if part.waits]
            if waiting and all(part.waits or part.held <= LITTLE_BYTES for part in holding):
                self.favoured = min(waiting, key=_missing)  # of equal ones the oldest

    def _wake(self) -> None:
        """Let requests go on if there is room for them; requests that need least go first."""
        for part in sorted([part for part in self.parts if part.waits], key=_missing):
            if part.waits is not None and part.fits():
                part.go_on()
                part.waits.set()


class Part:
    """The part of one request. ``interrupt`` is called in the hub to end its wait for its host.

    Most answers come at once and whole, so nothing is set up before it is needed.
    """

    held = 0
    granted = 1
    """The request may hold this much; only its first read may exceed it."""
    missing: int | None = 0
    """Bytes that have not come yet; None if unknown."""
    paused = 0.0
    """Seconds in which nothing was read for lack of memory."""
    ended = False
    """True if the request is to give up its data, and fail."""
    cut = False
    """True if the request is to fail since nothing has come."""
    waits: Event | None = None
    _listed = False
    _since = 0.0
    _before = _promised = 0

    def __init__(
        self, memory_budget: MemoryBudget, interrupt: Callable[[BaseException], None]
    ) -> None:
        self._memory_budget = memory_budget
        self._interrupt = interrupt

    def hold(self, size: int, missing: int | None) -> None:
        """Note that the request holds ``size`` bytes; ``missing`` are to come, None if unknown."""
        budget = self._memory_budget
        if not self._listed:
            self._listed = True
            budget.parts[self] = None
            self._since = budget.clock()
        budget.add(size - self.held)
        self.held = size
        self.missing = missing
        if self._promised:
            self._promise(self.granted - size)

    def wait_for_room(self, until: float) -> None:
        """Wait until more of it may be received. Raises MemoryTimeout at ``until`` at the
        latest."""
        budget = self._memory_budget
        if self.fits():
            self.go_on()
            return
        self.hold(self.held, self.missing)
        began = budget.clock()
        self.waits = Event()
        budget.watch()
        try:
            if not self.waits.wait(min(until - began, PATIENCE_SECONDS)):
                raise MemoryTimeout(f"no memory for a body within {budget.clock() - began:.1f} s")
        finally:
            self.waits = None
            now = budget.clock()
            self.paused += now - began
            self._since, self._before = now, self.held

    def fits(self) -> bool:
        """Return whether more of it may be received now."""
        budget = self._memory_budget
        if self is budget.favoured:
            return True
        size = self.held + _missing(self)
        if size <= budget.small:
            return budget.bytes < budget.last - budget.reserve * size // budget.small
        return self.held < self.granted or budget.taken < budget.most

    def go_on(self) -> None:
        """Grant the memory that it needs next."""
        if self.held < self.granted:
            return
        if self.missing is None:
            self.grant(max(self._memory_budget.small, 2 * self.held))
        elif self.held + self.missing > self._memory_budget.small:
            self.grant(self.held + self.missing + 1)
        else:
            self.granted = self.held + self.missing + 1

    def grant(self, size: int) -> None:
        """Promise that the request may hold ``size`` bytes."""
        self.granted = size
        self._promise(size - self.held)

    def _promise(self, size: int) -> None:
        self._memory_budget.taken -= self._promised
        self._promised = max(0, size)
        self._memory_budget.taken += self._promised

    def rate(self, now: float) -> float | None:
        """Return the bytes a second since the last check; None while that is not known."""
        seconds = now - self._since
        if self.waits is not None or seconds < LOOK_SECONDS:
            return None
        came = self.held - self._before
        self._since, self._before = now, self.held
        return came / seconds

    def end(self) -> None:
        """Let the request give up its data."""
        self.ended = True
        gevent.get_hub().loop.run_callback(self._end)

    def _end(self) -> None:
        if self._listed:
            self._interrupt(Preempted())

    def cut_off(self) -> bool:
        """Let the request fail though it holds nothing; always True."""
        self.cut = True
        gevent.get_hub().loop.run_callback(self._cut)
        return True

    def _cut(self) -> None:
        if self.cut:
            self._interrupt(Preempted())

    def close(self) -> None:
        """Note that the request holds nothing any more."""
        if not self._listed:
            return
        budget = self._memory_budget
        self._listed = False
        self._promise(0)
        budget.add(-self.held)
        self.held = 0
        del budget.parts[self]
        if budget.favoured is self:
            budget.favoured = None


def _missing(part: Part) -> int:
    return _UNTOLD if part.missing is None else part.missing
