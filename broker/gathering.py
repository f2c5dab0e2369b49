"""Admissions of requests in flight, sent to the frontier together.

A batch of 256 URLs meets nearly every partition, and each visit costs as much as several URLs.
While rounds are on their way, the batches that arrive wait; the next round takes all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import gevent
from gevent.event import Event

from schema.records import Admission

ROUNDS = 2
"""Rounds of one crawl at a time: one is prepared here while Redis works on the other."""
TOGETHER = 4096
"""URLs of a round, unless a single batch brings more."""

Admit = Callable[[int, Sequence[Admission]], list[bool]]
"""``Frontier.admit``: what is new among a crawl's URLs."""


class _Batch:
    def __init__(self, items: Sequence[Admission]) -> None:
        self.items = items
        self.done = Event()
        self.flags: list[bool] = []
        self.error: BaseException | None = None


class Gathering:
    """Merges the batches of one crawl. Each caller gets the flags of its own batch."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self._queues: dict[int, deque[_Batch]] = {}
        self._rounds: dict[int, int] = {}

    def admit(self, crawl: int, items: Sequence[Admission]) -> list[bool]:
        """Queue what is new of ``items``; see ``Frontier.admit``, whose errors it raises.

        Of a URL that two batches of a round bring, one is told that it was new. What fails, fails
        for all batches of the round: they are repeated, or found pending, as if each went alone.
        """
        batch = _Batch(items)
        self._queues.setdefault(crawl, deque()).append(batch)
        if self._rounds.get(crawl, 0) < ROUNDS:
            self._rounds[crawl] = self._rounds.get(crawl, 0) + 1
            gevent.spawn(self._run, crawl)
        batch.done.wait()
        if batch.error is not None:
            raise batch.error
        return batch.flags

    def _run(self, crawl: int) -> None:
        """Rounds until nothing of the crawl waits."""
        try:
            while self._queues[crawl]:
                self._round(crawl, self._take(self._queues[crawl]))
        finally:
            self._rounds[crawl] -= 1
            if not self._rounds[crawl]:
                del self._rounds[crawl], self._queues[crawl]

    @staticmethod
    def _take(queue: deque[_Batch]) -> list[_Batch]:
        batches = [queue.popleft()]
        size = len(batches[0].items)
        while queue and size + len(queue[0].items) <= TOGETHER:
            size += len(queue[0].items)
            batches.append(queue.popleft())
        return batches

    def _round(self, crawl: int, batches: list[_Batch]) -> None:
        try:
            flags = self._admit(crawl, [item for batch in batches for item in batch.items])
        except Exception as error:  # noqa: BLE001 - raised again in each caller
            for batch in batches:
                batch.error = error
        else:
            start = 0
            for batch in batches:
                batch.flags = flags[start : start + len(batch.items)]
                start += len(batch.items)
        for batch in batches:
            batch.done.set()
