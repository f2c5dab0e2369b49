"""Times when this process was busy with one thing, so that answers waited; this does not count
against hosts.

While a page is parsed, no socket is read. An answer that comes meanwhile is seen at the next turn
of the loop. So the busy time before that turn is our part of the answer's wait. If the answer had
still not come at the end of a busy time, the busy time counts as the host's time.
"""

from __future__ import annotations

from collections import deque
from time import time

import gevent

from greencrawl.schema.clock import Clock, monotonic

LEAST_SECONDS = 0.02
"""Shorter busy times are not noted: every page causes some."""
AT_ONCE_SECONDS = 0.05
"""A read that came within this time after a busy time did not wait: others ran first."""
_KEPT = 64


class Blocked:
    """The recent busy times of one process. It has no lock: its methods never yield to the hub."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._loop = gevent.get_hub().loop
        self._late: deque[tuple[int, int, float, float]] = deque(maxlen=_KEPT)
        self.count = 0
        """How many there were: a caller that sees it rise has waited meanwhile."""
        self.seconds = 0.0
        """Their sum in seconds."""

    def begin(self) -> tuple[float, int]:
        """Return the argument for :meth:`end`."""
        return self._clock(), self._loop.iteration

    def end(self, begun: tuple[float, int]) -> None:
        """Note the end of a busy time, unless other greenlets ran meanwhile: then no answer
        waited."""
        began, turn = begun
        now = self._clock()
        if now - began >= LEAST_SECONDS and self._loop.iteration == turn:
            self.count += 1
            self.seconds += now - began
            self._late.append((self.count, turn, began, now))

    def before_this(self, count: int) -> float:
        """Return the seconds of busy times after number ``count`` in which an answer waited.

        The answer arrived before the end of a busy time: the loop saw it at its next turn, or
        before the busy time began.
        """
        turn = self._loop.iteration
        seen = self._clock() - max(time() - self._loop.now(), 0.0)
        return sum(
            ended - began
            for number, turned, began, ended in self._late
            if number > count
            and (turned == turn or (turned == turn - 1 and seen - ended < AT_ONCE_SECONDS))
        )

    def after(self, count: int) -> float:
        """Return the seconds of the busy times after number ``count``."""
        return sum(ended - began for number, _, began, ended in self._late if number > count)

    def since(self, moment: float) -> float:
        """Return the seconds of all busy times after ``moment``."""
        return sum(
            ended - max(began, moment) for _, _, began, ended in self._late if ended > moment
        )


_of_hub: dict[object, Blocked] = {}


def blocked() -> Blocked:
    """Return the :class:`Blocked` of this thread's hub."""
    hub = gevent.get_hub()
    found = _of_hub.get(hub)
    if found is None:
        found = _of_hub[hub] = Blocked()
    return found
