"""The logical time that one process expects of a node, and what it does if the node disagrees.

A *reading* is a time that the node told between the sending of a call and the reading of its reply.
Its error is the time between these two. Several readings reduce the error. So the expected time is
as exact as the quickest recent exchanges, plus the drift of the two clocks since. The expected time
advances by our monotonic clock.

A reading may contradict the expected time. Then one side is wrong: the node's clock was set, or our
process was suspended while our clock went on. Only the holder of the node's clock duty sets the
clock. This raises the node's *jumps*, and then all processes accept its time. All others report
their doubt and wait, until the holder has *vouched* for the node's time again by a heartbeat of its
own; then they accept it. So if two processes disagree, always the same one corrects.

A script does nothing if it finds a time that is later than the caller expects by more than
:data:`LATE_MS`, or earlier. This proves no error, since the call may have been late. The call may
be repeated; then it allows for how late calls are at that moment.
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
"""How far ahead of the expected time a call may find the node's time.

If it finds more, it is repeated with a larger allowance, which depends on the clock, and at last
with :data:`TOLERANCE_MS`.
"""
TOLERANCE_MS = 2000
"""No call may be later than this."""
SLACK_MS = 20
"""How much clocks may differ beyond their errors and drift if none was set."""
DRIFT_MS_PER_SECOND = 0.5
"""How fast two clocks may drift apart, at most, while a time server adjusts one of them."""
LONG_SECONDS = 60.0
"""After this long without a reading the time is read, even without another call to the node."""
SLOW_SECONDS = 0.5
"""Seconds from sending to reading. After a slower exchange the clock is set back by the possible
error as well."""
READINGS = 3
"""Attempts at a quicker reading."""
WAIT_SECONDS = 2.0
"""How long a call waits for the holder of the duty before it fails."""
LOOK_SECONDS = 0.05

DOUBT = b"clock"
"""Published on the channel of wake-ups, with the seconds for which a process has known another
time."""

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
"""Sets a node's offset if it still is the one that was read.

ARGV: offset and jumps that were read, the new offset, name and epoch of the duty. It returns 1 if
the offset was set. The new offset does not depend on how late this runs. A ``used`` from before the
jump is moved with it, so that an outage since is still found.
"""


class Exchange(NamedTuple):
    """When a call was sent and its last reply read, in monotonic seconds; the jumps known then."""

    sent: float
    read: float
    jumps: int = 0

    def at(self, ms: float, jumps: int | None = None) -> Reading:
        """Return a reading of a time (whole ms) that a reply of this exchange had; ``jumps`` are
        those of the same reply."""
        error_ms = (self.read - self.sent) * 500 + 1
        known = self.jumps if jumps is None else jumps
        return Reading(ms - (self.sent + self.read) * 500, error_ms, self.read, known)


class Reading(NamedTuple):
    """Logical ms of a node minus this machine's monotonic ms, with an error of ``error_ms``."""

    base_ms: float
    error_ms: float
    at: float
    """Monotonic seconds."""
    jumps: int = 0

    @property
    def is_quick(self) -> bool:
        """Return whether the reading's call was answered within :data:`SLOW_SECONDS`."""
        return self.error_ms <= SLOW_SECONDS * 500 + 1

    def error_ms_at(self, at: float) -> float:
        """Return the error at a later moment, if the clocks have drifted apart since."""
        drift_ms = max(at - self.at, 0.0) * DRIFT_MS_PER_SECOND
        return self.error_ms + min(drift_ms, TOLERANCE_MS)

    def apart_ms(self, later: Reading) -> float:
        """Return how far ``later`` is apart beyond both errors and the drift; 0 if it is not."""
        off_ms = later.base_ms - self.base_ms
        explained_ms = self.error_ms_at(later.at) + later.error_ms
        return max(off_ms - explained_ms, 0.0) + min(off_ms + explained_ms, 0.0)

    def narrowed(self, later: Reading) -> Reading:
        """Return what both readings allow; if nothing, the later one if it was quick, else this
        one."""
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
    """The jumps when logical time last stood still, or the node was opened: all accept it."""


class NodeClock:
    """A node's logical time as this process expects it. Safe for many greenlets."""

    def __init__(self, ask: Callable[..., tuple[Any, Exchange]], shown: str) -> None:
        """Build the object; ``ask`` sends the node a command."""
        self._ask = ask
        self._shown = shown
        self.duty: Callable[[], Duty | None] = lambda: None
        """Returns the duty of setting the node's clock, if this broker has it.

        May raise Unavailable.
        """
        self._expected: Reading | None = None
        self._since = monotonic()
        """When we learnt the time; readings that agree do not change it."""
        self._contradiction: Reading | None = None
        """A reading that contradicts the expected time."""
        self._before: Reading | None = None
        """The expected time from before the node was opened again, until the node agrees with us
        again."""
        self.jumps = 0
        """The jumps of the node's clock that this process knows."""
        self.may_set = False
        """True if this process may have the duty."""

    @property
    def known_seconds(self) -> float:
        """Return the seconds since this process last took over a time from the node."""
        return 0.0 if self._expected is None else monotonic() - self._since

    def now_ms(self) -> float:
        """Return logical time now. Raises Unavailable if it must be read first, and cannot be."""
        expected = self._expected or self._take(self._read())
        return expected.base_ms + monotonic() * 1000

    def window_ms(self, late_ms: float) -> tuple[float, float]:
        """Return the least and the most that a call sent now may find. Raises Unavailable."""
        expected = self._expected or self._take(self._read())
        now = monotonic()
        now_ms, error_ms = expected.base_ms + now * 1000, expected.error_ms_at(now)
        return now_ms - error_ms - SLACK_MS, now_ms + min(error_ms + late_ms, TOLERANCE_MS)

    def latest_ms(self) -> float | None:
        """Return the latest time that the node may have now; None if nothing is known."""
        known, now = self._before or self._expected, monotonic()
        return None if known is None else known.base_ms + now * 1000 + known.error_ms_at(now)

    def prepare(self) -> None:
        """Make sure that a time is expected, was read lately, and is not contradicted.

        Raises Unavailable.
        """
        expected = self._expected or self._take(self._read())
        if self._contradiction is not None or monotonic() - expected.at > LONG_SECONDS:
            self.settle()

    def forget(self) -> None:
        """Read the time again: the node was reopened."""
        self._before = self._before or self._expected
        self._expected = self._contradiction = None

    def follow(self, reading: Reading) -> bool:
        """Learn from a time that a reply told; return whether it agrees with the expected time."""
        expected = self._expected
        if expected is None or reading.jumps != self.jumps:
            return False  # its time is from before a takeover or a correction
        if abs(expected.apart_ms(reading)) > SLACK_MS:
            self._contradiction = reading
            return False
        self._expected, self._before = expected.narrowed(reading), None
        return True

    def settle(self, told: Reading | None = None) -> float:
        """Agree with the node, which refused our call and ``told`` its time.

        Returns how many ms late the next call may be. Raises Unavailable as long as another broker
        must decide.
        """
        if told is None or self._contradiction is not None or not self.follow(told):
            told = self._settled()
        return min(LATE_MS + 4 * told.error_ms, TOLERANCE_MS)  # twice what that exchange took

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
        """Return what was read; or, as long as another broker must vouch, how often it has vouched.

        ``doubted``: how often it had vouched when we began to disagree.
        """
        jumps = self.jumps
        now = self._read()
        told, expected = now.reading, self._expected
        if jumps != self.jumps:  # another greenlet has settled it meanwhile
            return told
        if expected is None or now.moved > jumps:
            off_ms = 0.0 if expected is None else told.base_ms - expected.base_ms
            log.warning("clock_taken", node=self._shown, ms=round(off_ms), jumps=now.jumps)
            return self._take(now)
        other = self._contradiction
        if other is not None and other.jumps == now.jumps and other.error_ms < told.error_ms:
            told = other.narrowed(told)
        # the call was late; or the time is right again
        if abs(expected.apart_ms(told)) <= SLACK_MS:
            self._know(expected.narrowed(told), now.jumps)
            return told
        now = now._replace(reading=told)
        if (duty := self.duty()) is not None:
            return told if self._set(now, expected, duty) else now.vouched
        if doubted is None or now.vouched == doubted:
            return now.vouched
        off_ms = told.base_ms - expected.base_ms
        log.warning("clock_confirmed", node=self._shown, ms=round(off_ms))
        return self._take(now)

    def _take(self, now: _Clock) -> Reading:
        self._know(now.reading, now.jumps)
        self._since = monotonic()
        return now.reading

    def _know(self, reading: Reading, jumps: int) -> None:
        self._expected, self.jumps = reading._replace(jumps=jumps), jumps
        self._contradiction = None

    def _set(self, now: _Clock, expected: Reading, duty: Duty) -> bool:
        """Set the node's time to what this process expects; return whether we had the duty."""
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
        """Read the clock: the first quick reading, or the quickest of some. Raises Unavailable."""
        found: list[_Clock] = []
        for _ in range(READINGS):
            (ms, offset, *counts), when = self._ask("EVAL", _READ, 1, keys.OWNER)
            jumps, vouched, moved = map(int, counts)
            reading = when.at(ms + float(offset), jumps)
            found.append(_Clock(reading, offset, jumps, vouched, moved))
            if reading.is_quick:
                break
        return min(found, key=lambda one: one.reading.error_ms)
