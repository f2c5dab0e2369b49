"""What one process expects a node's logical time to be, and what it does where the node disagrees.

A *reading* is a time that the node told, between a call's sending and the reading of its reply. It
is as uncertain as that took, and no more: the time was told somewhere in between. Readings narrow
each other down, so that what is expected is as exact as the quickest exchanges of late, plus what
two clocks may drift apart since. The time that is expected goes on by our monotonic clock.

A reading that cannot be true together with what is expected says that somebody is wrong: the node's
clock was set, by however little, or ours went on while we were suspended. Only the holder of the
node's clock duty sets it, which raises the node's *jumps*, whereupon everybody takes its time. All
others say that they doubt it and wait, until the holder has *vouched* for the node's time again by
a beat of its own; then they take it. So of two that disagree one corrects, and always the same.

A script does nothing where the time it finds is further from the expected one than
:data:`LATE_MS`. That is no verdict, since the call may have been late. Its caller reads the clock,
which tells the two apart, and calls again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gevent

from greencrawl.broker.frontier.nodes import keys
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Duty

log = logger("frontier")

LATE_MS = 100
"""A call that finds the node's time further from what it expects is refused: late, or a jump."""
TOLERANCE_MS = 2000
"""The same for the call after that, before which the clock was read and found right."""
SLACK_MS = 20
"""By so much clocks may differ beyond their errors and drift without anything being set."""
DRIFT_MS_PER_SECOND = 0.5
"""How fast two clocks part or meet, at most, while a time server slows or hurries one of them."""
SLOW_SECONDS = 0.5
"""Between sending and reading: no time is taken over, or set, by a longer exchange."""
READINGS = 3
"""Attempts at a quicker one."""
WAIT_SECONDS = 1.0
"""How long a call waits for the holder of the duty before it fails."""
LOOK_SECONDS = 0.05

DOUBT = b"clock"
"""Published where wake-ups are: somebody expects another time than the node's."""

_READ = f"""
redis.call('DEL', '{keys.NIL}')
local o = redis.call('HMGET', KEYS[1], 'offset', 'jumps', 'vouched')
local t = redis.call('TIME')
return {{t[1] * 1000 + math.floor(t[2] / 1000), o[1] or '0', o[2] or '0', o[3] or '0'}}
"""

_SET = f"""
redis.call('DEL', '{keys.NIL}')
local field, epoch = 'duty:' .. ARGV[4], tonumber(ARGV[5])
local known = tonumber(redis.call('HGET', KEYS[1], field) or 0)
if epoch < known then return 0 end
local o = redis.call('HMGET', KEYS[1], 'offset', 'jumps')
if (o[1] or '0') ~= ARGV[1] or (o[2] or '0') ~= ARGV[2] then return 0 end
local t = redis.call('TIME')
redis.call('HSET', KEYS[1], 'offset', ARGV[3], 'jumps', ARGV[2] + 1, field, epoch,
           'used', t[1] * 1000 + math.floor(t[2] / 1000))
return 1
"""
"""ARGV: offset and jumps that were read, the new offset, name and epoch of the duty. 1 if it was
set: to what does not depend on how late this runs."""


class Exchange(NamedTuple):
    """When a call was sent and its last reply read, in monotonic seconds; the jumps known then."""

    sent: float
    read: float
    jumps: int = 0

    def at(self, ms: float) -> Reading:
        """A reading of a time told in this exchange, in whole ms."""
        error_ms = (self.read - self.sent) * 500 + 1
        return Reading(ms - (self.sent + self.read) * 500, error_ms, self.read, self.jumps)


class Reading(NamedTuple):
    """Logical ms of a node minus this machine's monotonic ms, give or take ``error_ms``."""

    base_ms: float
    error_ms: float
    at: float
    """Monotonic seconds."""
    jumps: int = 0

    @property
    def is_quick(self) -> bool:
        """Whether its call was answered within :data:`SLOW_SECONDS`."""
        return self.error_ms <= SLOW_SECONDS * 500 + 1

    def apart_ms(self, later: Reading) -> float:
        """By how much the other is further off than both errors and a drift explain; else 0."""
        off_ms = later.base_ms - self.base_ms
        explained_ms = self._error_ms(later.at) + later.error_ms
        return max(off_ms - explained_ms, 0.0) + min(off_ms + explained_ms, 0.0)

    def narrowed(self, later: Reading) -> Reading:
        """What both say together; the quicker one where they differ by a little."""
        error_ms = self._error_ms(later.at)
        least = max(self.base_ms - error_ms, later.base_ms - later.error_ms)
        most = min(self.base_ms + error_ms, later.base_ms + later.error_ms)
        if least <= most:
            return later._replace(base_ms=(least + most) / 2, error_ms=(most - least) / 2)
        return later if later.is_quick else self

    def _error_ms(self, at: float) -> float:
        drift_ms = max(at - self.at, 0.0) * DRIFT_MS_PER_SECOND
        return self.error_ms + min(drift_ms, TOLERANCE_MS)


class _Clock(NamedTuple):
    """The node's clock as it was read."""

    reading: Reading
    offset: bytes
    jumps: int
    vouched: int


class NodeClock:
    """A node's logical time as this process expects it. Safe for many greenlets."""

    def __init__(self, ask: Callable[..., tuple[Any, Exchange]], shown: str) -> None:
        """``ask`` sends the node a command."""
        self._ask = ask
        self._shown = shown
        self.duty: Callable[[], Duty | None] = lambda: None
        """The duty of setting the node's clock, if this broker has it. May raise Unavailable."""
        self._expected: Reading | None = None
        self._contradicted = False
        """A reply told a time that cannot be true together with what is expected."""
        self.jumps = 0
        """Those of the node's clock that this process knows."""
        self._doubted: int | None = None
        """How often the holder had vouched for the time with which we disagree."""

    def now_ms(self) -> float:
        """Logical time now. Raises Unavailable if it has to be read first, and cannot be."""
        expected = self._expected or self._take(self._quick(self._read()))
        return expected.base_ms + monotonic() * 1000

    def prepare(self) -> None:
        """See that a time is expected, and that nothing contradicts it. Raises Unavailable."""
        self.now_ms()
        if self._contradicted:
            self.settle()

    def forget(self) -> None:
        """Another node stands there now: read its time."""
        self._expected = self._doubted = None
        self._contradicted = False

    def follow(self, reading: Reading) -> None:
        """Learn from what a reply said that was within the tolerance."""
        expected = self._expected
        if expected is None or reading.jumps != self.jumps:
            return  # it tells of a time that was taken over, or set right, since
        self._doubted = None
        if abs(expected.apart_ms(reading)) > SLACK_MS:
            self._contradicted = True
        else:
            self._expected = expected.narrowed(reading)

    def settle(self) -> None:
        """Agree with the node, which has refused a call of ours.

        Raises Unavailable as long as this is not for us to do.
        """
        until, said = monotonic() + WAIT_SECONDS, False
        while not self._agreed():
            if not said:
                said = True
                log.info("clock_doubted", node=self._shown)
                self._ask("PUBLISH", keys.WAKE, DOUBT)
            if monotonic() > until:
                raise Unavailable(
                    f"the clock of Redis at {self._shown} is not what it was: waiting for the "
                    "broker that sets it"
                )
            gevent.sleep(LOOK_SECONDS)

    def _agreed(self) -> bool:
        jumps = self.jumps
        now = self._read()
        if jumps != self.jumps:  # another greenlet has settled it while we read
            return True
        expected = self._expected or now.reading
        off_ms = now.reading.base_ms - expected.base_ms
        if now.jumps != jumps:
            log.warning("clock_taken", node=self._shown, ms=round(off_ms), jumps=now.jumps)
        elif (
            abs(expected.apart_ms(now.reading)) <= SLACK_MS
        ):  # the call was late, not the clock wrong
            self._expected, self._doubted = expected.narrowed(now.reading), None
            self._contradicted = False
            return True
        elif (duty := self.duty()) is not None:
            return self._set(self._quick(now), expected, duty)
        elif self._doubted is None:
            self._doubted = now.vouched
            return False
        elif now.vouched == self._doubted:
            return False
        else:
            log.warning("clock_vouched_for", node=self._shown, ms=round(off_ms))
        self._take(self._quick(now))
        return True

    def _take(self, now: _Clock) -> Reading:
        self._expected, self.jumps, self._doubted = now.reading, now.jumps, None
        self._contradicted = False
        return now.reading

    def _set(self, now: _Clock, expected: Reading, duty: Duty) -> bool:
        """Make the node's time what this process expects; whether it was ours to set."""
        off_ms = round(now.reading.base_ms - expected.base_ms)
        offset = float(now.offset) - off_ms
        command = (now.offset, now.jumps, f"{offset:.0f}", duty.name, duty.epoch)
        done, _ = self._ask("EVAL", _SET, 1, keys.OWNER, *command)
        if done:
            log.warning("clock_set", node=self._shown, jump_ms=-off_ms)
            if self.jumps == now.jumps:
                moved = now.reading.base_ms - off_ms
                self._take(
                    now._replace(jumps=now.jumps + 1, reading=now.reading._replace(base_ms=moved))
                )
        return bool(done)

    def _read(self) -> _Clock:
        """The clock by the first quick reading, or the quickest of some. Raises Unavailable."""
        found: list[_Clock] = []
        for _ in range(READINGS):
            (ms, offset, jumps, vouched), when = self._ask("EVAL", _READ, 1, keys.OWNER)
            reading = when.at(ms + float(offset))._replace(jumps=int(jumps))
            found.append(_Clock(reading, offset, int(jumps), int(vouched)))
            if reading.is_quick:
                return found[-1]
        return min(found, key=lambda one: one.reading.error_ms)

    def _quick(self, now: _Clock) -> _Clock:
        """The same. Raises Unavailable if all that was read took too long."""
        if not now.reading.is_quick:
            raise Unavailable(f"Redis at {self._shown} is too slow to tell the time")
        return now
