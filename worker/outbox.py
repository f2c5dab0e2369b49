"""What goes to the broker in batches: outcomes of tasks, and the ends of sessions.

An item stays in the outbox until a broker has answered it, however long brokers are away; nothing
is dropped but what a broker refuses as malformed, which is an error of ours and is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import gevent
from gevent.event import Event

from schema.errors import Refused
from schema.log import logger
from schema.records import ItemsReply, ItemStatus
from worker.backoff import delays, persist

T = TypeVar("T")

log = logger("worker")

BATCH = 256
LINGER_SECONDS = 0.01
_MALFORMED = (400, 413, 422)


class Outbox(Generic[T]):
    """A queue with one sender greenlet; order is kept.

    ``send`` posts a batch; ``settle`` is told each item's status ("stale" for what was refused).
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

    def put(self, item: T) -> None:
        """Queue an item; never blocks. What bounds the outbox is the number of leased tasks."""
        self._items.append(item)
        self._some.set()
        self._empty.clear()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all is answered; False when ``timeout`` seconds were not enough."""
        return bool(self._empty.wait(timeout))

    def run(self) -> None:
        """Send for ever; a greenlet's body."""
        while True:
            self._some.wait()
            if len(self._items) < BATCH:
                gevent.sleep(self._linger)
            self.flush()

    def flush(self) -> None:
        """Send one batch of what there is; returns when it is answered."""
        batch = self._items[:BATCH]
        if batch:
            self._before()
            self._post(batch)
            self._after()
            del self._items[: len(batch)]
        if not self._items:
            self._some.clear()
            self._empty.set()

    def _post(self, batch: Sequence[T]) -> None:
        for delay in delays():
            try:
                reply = persist(lambda: self._send(batch), self._what)
            except Refused as error:
                if error.status in _MALFORMED:
                    self._split(batch, error)
                    return
                # Wrong token, a proxy in between …: a person can mend that, so the items wait.
                log.warning("refused", what=self._what, reason=str(error))
                gevent.sleep(delay)
                continue
            for item, status in zip(batch, reply.results, strict=True):
                self._settle(item, status)
            return

    def _split(self, batch: Sequence[T], error: Refused) -> None:
        """Find the item that is at fault, so that it does not take the others with it."""
        if len(batch) == 1:
            log.error("dropped what the broker refuses", what=self._what, reason=str(error))
            self._settle(batch[0], "stale")
            return
        middle = len(batch) // 2
        self._post(batch[:middle])
        self._post(batch[middle:])
