"""The time for which a broker keeps a duty that it cannot do completely, before another tries."""

from __future__ import annotations

from greencrawl.schema.clock import Clock
from greencrawl.schema.records import Duty

FIRST_SECONDS = 5.0
"""Work may be hindered for this long before another broker tries.

The next time it is twice as long, up to :data:`MOST_SECONDS`: the others may have the same problem.
"""
MOST_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
"""If the duty was left to others longer ago than this, the next time counts as the first again."""


class DutyTimeout:
    """The time-out of one broker for one duty."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._duty: Duty | None = None
        self._seconds = FIRST_SECONDS
        self._since: float | None = None
        self._spent_at: float | None = None

    def hold(self, duty: Duty) -> None:
        """Note that the duty is held. Findings under an earlier epoch do not count.

        If the duty was left to others not long ago, they probably had the same problem: then the
        longer time stays.
        """
        if duty == self._duty:
            return
        self._duty, self._since = duty, None
        if self._spent_at is None or self._clock() - self._spent_at > FORGOTTEN_SECONDS:
            self._seconds = FIRST_SECONDS

    def helped(self) -> None:
        """Note that all could be done."""
        self._since, self._seconds = None, FIRST_SECONDS

    def hindered(self) -> bool:
        """Note that something could not be done; return whether this lasts too long: see
        :meth:`spent`."""
        if self._since is None:
            self._since = self._clock()
        return self.spent(self._since)

    def spent(self, since: float) -> bool:
        """Return whether the duty is to be left to others now, after a hindrance ``since``.

        The next hindrance may last longer.
        """
        now = self._clock()
        if now - since <= self._seconds:
            return False
        self._seconds, self._spent_at = min(2 * self._seconds, MOST_SECONDS), now
        return True
