"""How long who has a duty, and cannot do all of it, keeps it before another broker is to try."""

from __future__ import annotations

from greencrawl.schema.clock import Clock
from greencrawl.schema.records import Duty

FIRST_SECONDS = 5.0
"""For so long something may stand in the way: then another broker is to try. Twice as long the
next time, up to :data:`MOST_SECONDS`: the others may reach no more."""
MOST_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
"""After this time since the duty was left to others, the next time counts as the first again."""


class DutyTimeout:
    """Of one broker with one duty."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._duty: Duty | None = None
        self._seconds = FIRST_SECONDS
        self._since: float | None = None
        self._spent_at: float | None = None

    def hold(self, duty: Duty) -> None:
        """The duty is held. Earlier findings, under another epoch, count no more.

        But if it was left to others a while ago, they probably met the same.
        """
        if duty == self._duty:
            return
        self._duty, self._since = duty, None
        if self._spent_at is None or self._clock() - self._spent_at > FORGOTTEN_SECONDS:
            self._seconds = FIRST_SECONDS

    def helped(self) -> None:
        """All could be done."""
        self._since, self._seconds = None, FIRST_SECONDS

    def hindered(self) -> bool:
        """Something could not be done: whether it has been so for too long; see :meth:`spent`."""
        if self._since is None:
            self._since = self._clock()
        return self.spent(self._since)

    def spent(self, since: float) -> bool:
        """Whether the duty is to be left to others now, of what has stood in the way ``since``.

        The next time it may stand in the way for longer.
        """
        now = self._clock()
        if now - since <= self._seconds:
            return False
        self._seconds, self._spent_at = min(2 * self._seconds, MOST_SECONDS), now
        return True
