"""When this process was busy with one thing, so that answers waited: no fault of their hosts'.

While a page is parsed, no socket is looked at. An answer that comes meanwhile is seen at the next
turn of the loop, so of its wait the stretch before that turn is ours. A stretch at whose end the
answer was still to come counts as its host's, as all else does.
"""

from __future__ import annotations

from collections import deque
from time import time

import gevent

from greencrawl.schema.clock import Clock, monotonic

LEAST_SECONDS = 0.02
"""Shorter stretches are not noted: they are what every page takes."""
AT_ONCE_SECONDS = 0.05
"""A look that came no later after a stretch did not wait for anything: others were run first."""
_KEPT = 64


class Blocked:
    """The stretches of late of one process. Not locked: its methods never yield to the hub."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._loop = gevent.get_hub().loop
        self._late: deque[tuple[int, int, float, float]] = deque(maxlen=_KEPT)
        self.count = 0
        """How many there were: whoever sees it rise has been waiting meanwhile."""
        self.seconds = 0.0
        """How long they took together."""

    def begin(self) -> tuple[float, int]:
        """The argument for :meth:`end`."""
        return self._clock(), self._loop.iteration

    def end(self, begun: tuple[float, int]) -> None:
        """A stretch is over, unless others ran meanwhile: then nobody was held up."""
        began, turn = begun
        now = self._clock()
        if now - began >= LEAST_SECONDS and self._loop.iteration == turn:
            self.count += 1
            self.seconds += now - began
            self._late.append((self.count, turn, began, now))

    def before_this(self, count: int) -> float:
        """Seconds of the stretches after number ``count`` by whose end that had come for which the
        caller waited: it was seen at the loop's next look, or before they began.
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
        """Seconds of the stretches after number ``count``."""
        return sum(ended - began for number, _, began, ended in self._late if number > count)

    def since(self, moment: float) -> float:
        """Seconds of all stretches after ``moment``."""
        return sum(
            ended - max(began, moment) for _, _, began, ended in self._late if ended > moment
        )


_of_hub: dict[object, Blocked] = {}


def blocked() -> Blocked:
    """That of this thread's hub."""
    hub = gevent.get_hub()
    found = _of_hub.get(hub)
    if found is None:
        found = _of_hub[hub] = Blocked()
    return found
