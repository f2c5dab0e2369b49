"""The logical time that one process expects of a node, and what it does if the node disagrees.

A *reading* is a time that the node told, between a call's sending and the reading of its reply. It
is as uncertain as that took, and no more: the time was told somewhere in between. Readings narrow
each other down, so that what is expected is as exact as the quickest exchanges of late, plus what
two clocks may drift apart since. The time that is expected goes on by our monotonic clock.

A reading may contradict what is expected. Then one side is wrong: the node's clock was set, by
however little, or ours went on while we were suspended. Only the holder of the node's clock duty
sets it, which raises the node's *jumps*, whereupon everybody takes its time. All others say that
they doubt it and wait, until the holder has *vouched* for the node's time again by a beat of its
own; then they take it. So if two disagree, one corrects, and always the same one.

A script does nothing where it finds a time later than the caller expects by more than
:data:`LATE_MS`, or earlier. That is no verdict, since the call may have been late. It may be
repeated as late as calls are just then.
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
"""A call may find the node's time so far ahead of what is expected. If it finds more it is repeated
by what the clock shows then, at last with :data:`TOLERANCE_MS`."""
TOLERANCE_MS = 2000
"""No call may be later than this."""
SLACK_MS = 20
"""By so much clocks may differ beyond their errors and drift without anything being set."""
DRIFT_MS_PER_SECOND = 0.5
"""How fast two clocks part or meet, at most, while a time server slows or hurries one of them."""
LONG_SECONDS = 60.0
"""After so long without a reading the time is read, though there may be nothing to ask the node."""
SLOW_SECONDS = 0.5
"""Between sending and reading: by a longer exchange a clock is rather set back too far."""
READINGS = 3
"""Attempts at a quicker one."""
WAIT_SECONDS = 2.0
"""How long a call waits for the holder of the duty before it fails."""
LOOK_SECONDS = 0.05

DOUBT = b"clock"
"""Published where wake-ups are, with the seconds for which somebody has known another time than the
node's."""

_READ = f"""
redis.call('DEL', '{keys.NIL}')
local t = redis.call('TIME')
local o = redis.call('HMGET', KEYS[1], 'offset', 'jumps', 'vouched', 'moved')
local jumps = o[2] or '0'
return {{t[1] * 1000 + math.floor(t[2] / 1000), o[1] or '0', jumps, o[3] or '0', o[4] or jumps}}
"""

_SET = f"""
redis.call('DEL', '{keys.NIL}')
local field, epoch = 'duty:' .. ARGV[4], tonumber(ARGV[5])
local known = tonumber(redis.call('HGET', KEYS[1], field) or 0)
if epoch < known then return 0 end
local o = redis.call('HMGET', KEYS[1], 'offset', 'jumps', 'used', 'gap')
if (o[1] or '0') ~= ARGV[1] or (o[2] or '0') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'offset', ARGV[3], 'jumps', ARGV[2] + 1, field, epoch)
local t = redis.call('TIME')
local away = t[1] * 1000 + math.floor(t[2] / 1000) - (o[3] or 0)
if o[3] and math.abs(away) > tonumber(o[4] or 0) then
  redis.call('HSET', KEYS[1], 'used', o[3] + ARGV[1] - ARGV[3])
end
return 1
"""
"""ARGV: offset and jumps that were read, the new offset, name and epoch of the duty. 1 if it was
set: to what does not depend on how late this runs. A ``used`` from before the jump goes
with it, so that an outage since stays to be found."""


class Exchange(NamedTuple):
    """When a call was sent and its last reply read, in monotonic seconds; the jumps known then."""

    sent: float
    read: float
    jumps: int = 0

    def at(self, ms: float, jumps: int | None = None) -> Reading:
        """A reading of a time told in this exchange, in whole ms; ``jumps``: those it told."""
        error_ms = (self.read - self.sent) * 500 + 1
        known = self.jumps if jumps is None else jumps
        return Reading(ms - (self.sent + self.read) * 500, error_ms, self.read, known)


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

    def error_ms_at(self, at: float) -> float:
        """The error by then, if the clocks have drifted apart."""
        drift_ms = max(at - self.at, 0.0) * DRIFT_MS_PER_SECOND
        return self.error_ms + min(drift_ms, TOLERANCE_MS)

    def apart_ms(self, later: Reading) -> float:
        """By how much the other is further off than both errors and a drift explain; else 0."""
        off_ms = later.base_ms - self.base_ms
        explained_ms = self.error_ms_at(later.at) + later.error_ms
        return max(off_ms - explained_ms, 0.0) + min(off_ms + explained_ms, 0.0)

    def narrowed(self, later: Reading) -> Reading:
        """What both say together; the quicker one where they differ by a little."""
        error_ms = self.error_ms_at(later.at)
        least = max(self.base_ms - error_ms, later.base_ms - later.error_ms)
        most = min(self.base_ms + error_ms, later.base_ms + later.error_ms)
        if least <= most:
            return later._replace(base_ms=(least + most) / 2, error_ms=(most - least) / 2)
        return later if later.is_quick else self


class _Clock(NamedTuple):
    """The node's clock as it was read."""

    reading: Reading
    offset: bytes
    jumps: int
    vouched: int
    moved: int
    """The jumps when logical time was last made to stand still, or the node opened: all take it."""


class NodeClock:
    """A node's logical time as this process expects it. Safe for many greenlets."""

    def __init__(self, ask: Callable[..., tuple[Any, Exchange]], shown: str) -> None:
        """``ask`` sends the node a command."""
        self._ask = ask
        self._shown = shown
        self.duty: Callable[[], Duty | None] = lambda: None
        """The duty of setting the node's clock, if this broker has it. May raise Unavailable."""
        self._expected: Reading | None = None
        self._since = monotonic()
        """When we came to know the time, but for what agreed with it."""
        self._contradiction: Reading | None = None
        """What a reply told that cannot be true together with what is expected."""
        self._before: Reading | None = None
        """What was expected before the node was opened anew, until it agrees with us again."""
        self.jumps = 0
        """Those of the node's clock that this process knows."""
        self.may_set = False
        """Whether this process may have the duty."""

    @property
    def known_seconds(self) -> float:
        """For how long this process has known the node's time without another's word."""
        return 0.0 if self._expected is None else monotonic() - self._since

    def now_ms(self) -> float:
        """Logical time now. Raises Unavailable if it has to be read first, and cannot be."""
        expected = self._expected or self._take(self._read())
        return expected.base_ms + monotonic() * 1000

    def window_ms(self, late_ms: float) -> tuple[float, float]:
        """The least and the most that a call may find that is sent now. Raises Unavailable."""
        expected = self._expected or self._take(self._read())
        now = monotonic()
        now_ms, error_ms = expected.base_ms + now * 1000, expected.error_ms_at(now)
        return now_ms - error_ms - SLACK_MS, now_ms + min(error_ms + late_ms, TOLERANCE_MS)

    def latest_ms(self) -> float | None:
        """The most that the node may tell now, whatever became of it; None: nothing is known."""
        known, now = self._before or self._expected, monotonic()
        return None if known is None else known.base_ms + now * 1000 + known.error_ms_at(now)

    def prepare(self) -> None:
        """See that a time is expected, was read of late, and is not contradicted.

        Raises Unavailable.
        """
        expected = self._expected or self._take(self._read())
        if self._contradiction is not None or monotonic() - expected.at > LONG_SECONDS:
            self.settle()

    def forget(self) -> None:
        """The node was opened anew: read its time."""
        self._before = self._before or self._expected
        self._expected = self._contradiction = None

    def follow(self, reading: Reading) -> bool:
        """Learn from a time that a reply told; whether it agrees with what is expected."""
        expected = self._expected
        if expected is None or reading.jumps != self.jumps:
            return False  # it tells of a time that was taken over, or set right, since
        if abs(expected.apart_ms(reading)) > SLACK_MS:
            self._contradiction = reading
            return False
        self._expected, self._before = expected.narrowed(reading), None
        return True

    def settle(self, told: Reading | None = None) -> float:
        """Agree with the node, which has refused a call of ours, and ``told`` its time with that.

        Returns how many ms late the call may be that is next. Raises Unavailable as long as this is
        not for us to do.
        """
        if told is None or self._contradiction is not None or not self.follow(told):
            told = self._settled()
        return min(LATE_MS + 4 * told.error_ms, TOLERANCE_MS)  # twice as long as that took

    def _settled(self) -> Reading:
        until, doubted = monotonic() + WAIT_SECONDS, None
        while not isinstance(found := self._agreed(doubted), Reading):
            if doubted is None:
                doubted = found
                seconds = self.known_seconds if self.may_set else 0.0
                log.info("clock_doubted", node=self._shown)
                self._ask("PUBLISH", keys.WAKE, b"%b %.1f" % (DOUBT, seconds))
            if monotonic() > until:
                raise Unavailable(
                    f"the clock of Redis at {self._shown} is not what it was: waiting for the "
                    "broker that sets it"
                )
            gevent.sleep(LOOK_SECONDS)
        return found

    def _agreed(self, doubted: int | None) -> Reading | int:
        """What was read; or as long as another broker has to say something, how often it has.

        ``doubted``: how often it had when we began to disagree.
        """
        jumps = self.jumps
        now = self._read()
        told, expected = now.reading, self._expected
        if jumps != self.jumps:  # another greenlet has settled it while we read
            return told
        if expected is None or now.moved > jumps:
            off_ms = 0.0 if expected is None else told.base_ms - expected.base_ms
            log.warning("clock_taken", node=self._shown, ms=round(off_ms), jumps=now.jumps)
            return self._take(now)
        other = self._contradiction
        if other is not None and other.jumps == now.jumps and other.error_ms < told.error_ms:
            told = other.narrowed(told)
        if abs(expected.apart_ms(told)) <= SLACK_MS:  # the call was late; or it is right again
            self._know(expected.narrowed(told), now.jumps)
            return told
        now = now._replace(reading=told)
        if (duty := self.duty()) is not None:
            return told if self._set(now, expected, duty) else now.vouched
        if doubted is None or now.vouched == doubted:
            return now.vouched
        off_ms = told.base_ms - expected.base_ms
        log.warning("clock_vouched_for", node=self._shown, ms=round(off_ms))
        return self._take(now)

    def _take(self, now: _Clock) -> Reading:
        self._know(now.reading, now.jumps)
        self._since = monotonic()
        return now.reading

    def _know(self, reading: Reading, jumps: int) -> None:
        self._expected, self.jumps = reading._replace(jumps=jumps), jumps
        self._contradiction = None

    def _set(self, now: _Clock, expected: Reading, duty: Duty) -> bool:
        """Make the node's time what this process expects; whether it was ours to set."""
        told = now.reading
        off_ms = round(told.base_ms - expected.base_ms + (0 if told.is_quick else told.error_ms))
        offset = float(now.offset) - off_ms
        command = (now.offset, now.jumps, f"{offset:.0f}", duty.name, duty.epoch)
        done, _ = self._ask("EVAL", _SET, 1, keys.OWNER, *command)
        if done:
            log.warning("clock_set", node=self._shown, jump_ms=-off_ms)
            if self.jumps <= now.jumps:
                self._know(told._replace(base_ms=told.base_ms - off_ms), now.jumps + 1)
        return bool(done)

    def _read(self) -> _Clock:
        """The clock by the first quick reading, or the quickest of some. Raises Unavailable."""
        found: list[_Clock] = []
        for _ in range(READINGS):
            (ms, offset, *counts), when = self._ask("EVAL", _READ, 1, keys.OWNER)
            jumps, vouched, moved = map(int, counts)
            reading = when.at(ms + float(offset), jumps)
            found.append(_Clock(reading, offset, jumps, vouched, moved))
            if reading.is_quick:
                break
        return min(found, key=lambda one: one.reading.error_ms)
