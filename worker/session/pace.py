"""Pacing within a session, and the adaptive delay of a host.

A host's first fetch uses the configured delay; from then on the delay follows how the host
responds. Answers that succeed pull it towards :data:`LATENCY_FACTOR` times their smoothed latency
(a server that takes two seconds a page is left in peace for four). Answers that say "slow down",
server errors and time-outs double it. Failures never count as latency: a server that answers 429 in
a millisecond is not a fast one.
"""

from __future__ import annotations

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.records import Failure, FailureKind, Fetched, HostReport

LATENCY_FACTOR = 2.0
LATENCY_WEIGHT = 0.3
"""Weight of the newest latency in the moving average."""
RECOVERY = 0.5
"""How far the delay goes back to its target with each success."""
FIRST_PENALTY = 1.0
"""The least delay in seconds of a strained host, even if the floor is 0."""
MAX_ADAPTIVE_DELAY = 60.0
MAX_ROBOTS_DELAY = 300.0
"""A longer crawl-delay of robots.txt counts as this: it could stop a crawl for good."""
NEGLIGIBLE = 0.01

_OVERLOADED = frozenset(
    {
        FailureKind.TIMEOUT,
        FailureKind.CONNECT_TIMEOUT,
        FailureKind.RESET,
        FailureKind.RATE_LIMITED,
        FailureKind.UNAVAILABLE,
        FailureKind.SERVER_ERROR,
        FailureKind.REQUEST_TIMEOUT,
    }
)
_UNTOUCHED = frozenset(
    {
        FailureKind.DNS_MISSING,
        FailureKind.DNS_FAILED,
        FailureKind.ADDRESS_FORBIDDEN,
        FailureKind.ROBOTS,
        FailureKind.HOOK,
    }
)
"""Failures before the host sees a request; no delay follows them."""
_SLOW_DOWN = frozenset({408, 425, 429})


class Pace:
    """When the next request of a session may start; it neither waits nor locks.

    When the session opens, the delay is ``delay`` seconds; it never falls below ``floor``
    (``greencrawl.schema.records.Session`` has both). If the floor is 0, latency causes no delay;
    strain causes one, which decays again.
    """

    def __init__(self, delay: float, floor: float, *, clock: Clock = monotonic) -> None:
        self.floor = floor
        """The least delay, robots.txt's crawl-delay included."""
        self._robots_delay = 0.0
        self._delay = max(delay, floor)
        self._latency = 0.0
        self._clock = clock
        self._ended: float | None = None

    @property
    def delay(self) -> float:
        """Return the seconds from the end of one request to the start of the next, as now in
        force."""
        return max(self._delay, self.floor)

    @property
    def latency(self) -> float:
        """Return the moving average of the latency of this session's successes; 0 before the
        first."""
        return self._latency

    def learn_robots_delay(self, seconds: float) -> None:
        """Keep robots.txt's crawl-delay from now on, up to :data:`MAX_ROBOTS_DELAY`.

        The longest counts: http and https of one host have files of their own. If the frontier did
        not know of it, and the session has sent nothing yet, an earlier session may have sent a
        request and died before it could report. Then the host rests for this delay first.
        """
        self._robots_delay = max(self._robots_delay, min(seconds, MAX_ROBOTS_DELAY))
        if self._robots_delay > self.floor:
            self.floor = self._robots_delay
            if self._ended is None:
                self._ended = self._clock()

    def wait_seconds(self) -> float:
        """Return the seconds until a request may start; 0 when it may start now.

        Before the session's first request this is 0, except for :meth:`learn_robots_delay`: the
        frontier leases a host only when the delay after its last session is over.
        """
        if self._ended is None:
            return 0.0
        return max(0.0, self._ended + self.delay - self._clock())

    def note(self, answer: Fetched | Failure) -> None:
        """Note how a request has just ended. Call it for every request, whatever it was for."""
        if isinstance(answer, Fetched):
            overloaded = answer.status >= 500 or answer.status in _SLOW_DOWN
        elif answer.kind in _UNTOUCHED:
            return
        else:
            overloaded = answer.kind in _OVERLOADED
        self._ended = self._clock()
        if overloaded:  # the floor may be above the longest adaptive delay
            self._delay = min(max(FIRST_PENALTY, 2 * self.delay), MAX_ADAPTIVE_DELAY)
        elif isinstance(answer, Fetched) and answer.status < 400:
            self._succeeded(answer.elapsed_ms / 1000)

    def slow_down(self, seconds: float) -> None:
        """Wait this much longer between requests, up to :data:`MAX_ADAPTIVE_DELAY`.

        Successes reduce it again, as they reduce the effect of strain.
        """
        self._delay = max(self._delay, min(self.delay + seconds, MAX_ADAPTIVE_DELAY))

    def report(
        self,
        *,
        robots: bool = False,
        failed: str = "",
        block: float = 0.0,
        requests: int = 0,
        why: str = "",
    ) -> HostReport:
        """Return the report for closing the session; see ``HostReport`` for the arguments.

        The adaptive delay is 0 if nothing above the floor is needed: another crawl may have another
        floor.
        """
        return HostReport(
            delay=self.delay if self.delay > self.floor else 0.0,
            latency=self._latency,
            robots_delay=self._robots_delay,
            robots=robots,
            failed=failed,
            block=block,
            requests=requests,
            why=why,
        )

    def _succeeded(self, elapsed: float) -> None:
        weight = LATENCY_WEIGHT if self._latency else 1.0
        self._latency += weight * (elapsed - self._latency)
        wanted = LATENCY_FACTOR * self._latency if self.floor else 0.0
        target = max(self.floor, min(wanted, MAX_ADAPTIVE_DELAY))
        self._delay += RECOVERY * (target - self._delay)
        if abs(self._delay - target) < NEGLIGIBLE:
            self._delay = target
