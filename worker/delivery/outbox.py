"""Messages to the broker, in batches: outcomes of tasks, and the ends of sessions.

An item stays in the outbox until a broker has answered it, however long brokers are away. An item
is dropped only if a broker refuses it as malformed, which is a bug of ours and is logged. Items
whose Redis node is away are postponed and sent again later, while others pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import gevent
from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Refused
from greencrawl.schema.log import logger
from greencrawl.schema.records import ItemsReply, ItemStatus
from greencrawl.worker.session.backoff import delays, until_available

T = TypeVar("T")

log = logger("worker")

BATCH = 256
LINGER_SECONDS = 0.01
_MALFORMED = (400, 413, 422)


class Outbox(Generic[T]):
    """A queue with one sender greenlet; items that are not postponed keep their order.

    ``send`` posts a batch; ``settle`` gets each item's status ("stale" for a refused one).
    ``before`` and ``after`` run around each post that succeeds: named fault points.
    """

    def __init__(
        self,
        what: str,
        send: Callable[[Sequence[T]], ItemsReply],
        settle: Callable[[T, ItemStatus], None],
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
        linger: float = LINGER_SECONDS,
    ) -> None:
        self._what = what
        self._send = send
        self._settle = settle
        self._before = before
        self._after = after
        self._linger = linger
        self._items: list[T] = []
        self._some = Event()
        self._empty = Event()
        self._empty.set()
        self._postponed: list[T] = []
        self._pauses = delays()
        self._try_at = math.inf
        """When postponed items are sent again."""
        self._none_postponed = Event()
        self._none_postponed.set()

    def put(self, item: T) -> None:
        """Queue an item; never block. The number of leased tasks bounds the outbox."""
        self._items.append(item)
        self._some.set()
        self._empty.clear()

    def join(self, timeout: float | None = None, *, postponed_seconds: float = 0.0) -> bool:
        """Wait until all is answered; return False when ``timeout`` seconds were not enough.

        For postponed items it waits ``postponed_seconds`` more: nobody knows how long they will
        take.
        """
        if not self._empty.wait(timeout):
            return False
        return bool(self._none_postponed.wait(postponed_seconds)) if self._postponed else True

    def run(self) -> None:
        """Send for ever; a greenlet runs this."""
        while True:
            left = max(self._try_at - monotonic(), 0) if self._postponed else None
            if self._some.wait(left):
                if len(self._items) < BATCH:
                    gevent.sleep(self._linger)
                self.flush()
            if self._postponed and monotonic() >= self._try_at:
                self._try_postponed()

    def flush(self) -> None:
        """Send one batch; return when it is answered."""
        batch = self._items[:BATCH]
        if batch:
            self._before()
            self._postpone(self._post(batch))
            self._after()
            del self._items[: len(batch)]
        if not self._items:
            self._some.clear()
            self._empty.set()

    def _postpone(self, away: list[T]) -> None:
        if not away:
            return
        if not self._postponed:
            self._pauses = delays()
            self._try_at = monotonic() + next(self._pauses)
            self._none_postponed.clear()
        self._postponed += away

    def _try_postponed(self) -> None:
        """Send the postponed items in batches, until an item's node is still away.

        Such an item moves to the end of the queue, because other nodes may be back.
        """
        while self._postponed:
            batch = self._postponed[:BATCH]
            self._before()
            away = self._post(batch)
            self._after()
            self._postponed = self._postponed[len(batch) :] + away
            if len(away) < len(batch):
                self._pauses = delays()
            if away:
                self._try_at = monotonic() + next(self._pauses)
                return
        self._none_postponed.set()

    def _post(self, batch: Sequence[T]) -> list[T]:
        """Send a batch; return the items whose node is away."""
        for delay in delays():
            try:
                reply = until_available(lambda: self._send(batch), self._what)
            except Refused as error:
                if error.status in _MALFORMED:
                    return self._split(batch, error)
                # Wrong token, a proxy in between …: a person can correct that, so the items wait.
                log.warning("batch_refused", what=self._what, reason=str(error))
                gevent.sleep(delay)
                continue
            away = []
            for item, status in zip(batch, reply.results, strict=True):
                if status == "away":
                    away.append(item)
                else:
                    self._settle(item, status)
            return away
        raise AssertionError("delays never end")

    def _split(self, batch: Sequence[T], error: Refused) -> list[T]:
        """Find the item at fault, so that the others do not fail with it."""
        if len(batch) == 1:
            log.error("item_refused", what=self._what, reason=str(error))
            self._settle(batch[0], "stale")
            return []
        middle = len(batch) // 2
        return self._post(batch[:middle]) + self._post(batch[middle:])
