"""Executes a worker's lease once, however often its message arrives.

``lease`` is the only call whose repetition would do harm: each copy would open sessions that its
worker never hears of. A worker has one lease under way at a time, and numbers them. So the latest
number of each worker is enough to detect a copy: a copy with that number shares the answer, one
with an older number gets nothing. If a *reconcile* overtakes copies of a lease, the frontier's
watermark refuses them.

Only one broker knows this: a worker repeats a request to the same address.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import gevent
from gevent.event import Event

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import LeaseReply, LeaseRequest

KEPT_SECONDS = 60.0
"""How long a lease is remembered after it was answered."""
OLD_SECONDS = 1.0
"""How long the answer to an older number is delayed, so that its worker does not ask without
pause."""


class _Call:
    """A lease under way or answered."""

    def __init__(self, number: tuple[int, int]) -> None:
        self.number = number
        self.over = Event()
        self.at = 0.0
        self.answer: LeaseReply | Unavailable = Unavailable("this lease was broken off")


class LeaseDedup:
    """The latest lease of each worker process."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._latest: OrderedDict[str, _Call] = OrderedDict()

    def once(
        self, request: LeaseRequest, lease: Callable[[LeaseRequest], LeaseReply]
    ) -> LeaseReply:
        """Return ``lease(request)``; a copy gets the same answer. Raises Unavailable if ``lease``
        does."""
        number = (request.incarnation, request.sequence)
        known = self._latest.get(request.worker)
        if known is not None and number < known.number:
            gevent.sleep(min(request.wait, OLD_SECONDS))
            newer = known.number[0] if request.incarnation < known.number[0] else 0
            return LeaseReply((), 0.0, superseded=newer)
        if known is not None and number == known.number:
            return self._shared(known)
        call = self._latest[request.worker] = _Call(number)
        self._latest.move_to_end(request.worker)
        try:
            call.answer = lease(request)
            return call.answer
        except Unavailable as error:
            call.answer = error
            raise
        finally:
            call.at = self._clock()
            call.over.set()
            self._forget()

    def current(self, worker: str, incarnation: int) -> None:
        """Note that the frontier accepts this incarnation: a later one, if any, has left."""
        known = self._latest.get(worker)
        if known is not None and known.number[0] > incarnation:
            del self._latest[worker]

    @staticmethod
    def _shared(call: _Call) -> LeaseReply:
        call.over.wait()
        if isinstance(call.answer, Unavailable):
            raise Unavailable(str(call.answer))
        return call.answer

    def _forget(self) -> None:
        """Drop expired entries, the oldest first."""
        while self._latest:
            worker, call = next(iter(self._latest.items()))
            if not call.over.is_set() or self._clock() - call.at < KEPT_SECONDS:
                return
            del self._latest[worker]
