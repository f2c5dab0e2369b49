"""What one process expects a node's logical time to be, and what it does where the node disagrees.

A *reading* is a time that the node told, between a call's sending and the reading of its reply: it
is as uncertain as that took, and says nothing if that was more than :data:`SLOW_SECONDS`, as when
this process stood still meanwhile. The time that is expected is a reading's, taken at the middle,
plus what passed since by our monotonic clock.

Where the node's time is further off than :data:`TOLERANCE_MS` somebody is wrong: its clock was set,
or ours went on while we were suspended. Only the holder of the node's clock duty sets it, which
raises the node's *jumps*, whereupon everybody takes its time. All others say that they doubt it and
wait, until the holder has *vouched* for the node's time again by a beat of its own; then they take
it. So of two that disagree only one corrects, and always the same.
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

TOLERANCE_MS = 2000
"""Logical time may be so far from what a caller expects; as in ``lua/shared/common.lua``."""
SLOW_SECONDS = 0.5
"""Between sending and reading: a time that was told in a longer exchange says nothing."""
READINGS = 3
"""Attempts at one that says something."""
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
    """When a call was sent and its last reply read, in monotonic seconds; the jumps it told."""

    sent: float
    read: float
    jumps: int = 0

    def at(self, ms: float) -> Reading:
        """A reading of a time told in this exchange."""
        return Reading(ms - (self.sent + self.read) * 500, (self.read - self.sent) * 500)


class Reading(NamedTuple):
    """Logical ms of a node minus this machine's monotonic ms, give or take ``error_ms``."""

    base_ms: float
    error_ms: float

    @property
    def says_something(self) -> bool:
        """Whether its call was fast enough: answered within :data:`SLOW_SECONDS`."""
        return self.error_ms <= SLOW_SECONDS * 500


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
        self._base_ms: float | None = None
        self.jumps = 0
        """Those of the node's clock that this process knows."""
        self._doubted: int | None = None
        """How often the holder had vouched for the time with which we disagree."""

    def now_ms(self) -> float:
        """Logical time now. Raises Unavailable if it has to be read first, and cannot be."""
        base = self._base_ms
        if base is None:
            base = self._take(self._read())
        return base + monotonic() * 1000

    def forget(self) -> None:
        """Another node stands there now: read its time."""
        self._base_ms = self._doubted = None

    def follow(self, reading: Reading) -> None:
        """Take over what a reply said, which is within the tolerance."""
        if reading.says_something:
            self._base_ms, self._doubted = reading.base_ms, None

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
        off_ms = 0.0 if self._base_ms is None else now.reading.base_ms - self._base_ms
        if now.jumps != jumps:
            log.warning("clock_taken", node=self._shown, ms=round(off_ms), jumps=now.jumps)
        elif abs(off_ms) <= TOLERANCE_MS:
            pass  # the call was late, not the clock wrong
        elif (duty := self.duty()) is not None:
            return self._set(now, round(off_ms), duty)
        elif self._doubted is None:
            self._doubted = now.vouched
            return False
        elif now.vouched == self._doubted:
            return False
        else:
            log.warning("clock_vouched_for", node=self._shown, ms=round(off_ms))
        self._take(now)
        return True

    def _take(self, now: _Clock) -> float:
        self._base_ms, self.jumps, self._doubted = now.reading.base_ms, now.jumps, None
        return now.reading.base_ms

    def _set(self, now: _Clock, off_ms: int, duty: Duty) -> bool:
        """Make the node's time what this process expects; whether it was ours to set."""
        offset = float(now.offset) - off_ms
        command = (now.offset, now.jumps, f"{offset:.0f}", duty.name, duty.epoch)
        done, _ = self._ask("EVAL", _SET, 1, keys.OWNER, *command)
        if done:
            log.warning("clock_set", node=self._shown, jump_ms=-off_ms)
            if self.jumps == now.jumps:
                self.jumps, self._doubted = now.jumps + 1, None
        return bool(done)

    def _read(self) -> _Clock:
        """Raises Unavailable, also if all that was read took too long."""
        for _ in range(READINGS):
            (ms, offset, jumps, vouched), when = self._ask("EVAL", _READ, 1, keys.OWNER)
            reading = when.at(ms + float(offset))
            if reading.says_something:
                return _Clock(reading, offset, int(jumps), int(vouched))
        raise Unavailable(f"Redis at {self._shown} is too slow to tell the time")
