"""Sends the admissions of concurrent requests to the frontier together.

A batch of 256 URLs meets nearly every partition, and each visit costs as much as several URLs.
While passes are on their way, arriving batches wait; the next pass takes all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import gevent
from gevent.event import Event

from greencrawl.broker.frontier import Admitted
from greencrawl.schema.records import Admission

PASSES = 2
"""Passes of one crawl at a time: one is prepared here while Redis works on the other."""
WORTH = 1024
"""How many URLs must wait before another pass starts beside one that is on its way."""
BATCH = 2048
"""URLs of a pass, unless a single batch has more."""

Admit = Callable[[int, Sequence[Admission]], Admitted]
"""``Frontier.admit``: tells which of a crawl's URLs are new."""


class _Batch:
    def __init__(self, items: Sequence[Admission]) -> None:
        self.items = items
        self.done = Event()
        self.outcome: Admitted | Exception | None = None


class _Crawl:
    """The waiting admissions of one crawl, and its running passes."""

    def __init__(self) -> None:
        self.queue: deque[_Batch] = deque()
        self.waiting = 0
        self.passes = 0

    def put(self, batch: _Batch) -> None:
        self.queue.append(batch)
        self.waiting += len(batch.items)

    def take(self) -> list[_Batch]:
        """Return the batches of the next pass; at least one."""
        taken = [self.queue.popleft()]
        size = len(taken[0].items)
        while self.queue and size + len(self.queue[0].items) <= BATCH:
            size += len(self.queue[0].items)
            taken.append(self.queue.popleft())
        self.waiting -= size
        return taken


class AdmissionBatcher:
    """Merges the batches of one crawl. Each caller gets the flags of its own batch."""

    def __init__(self, admit: Admit) -> None:
        self._admit = admit
        self._crawls: dict[int, _Crawl] = {}

    def admit(self, crawl: int, items: Sequence[Admission]) -> Admitted:
        """Queue the new URLs among ``items``; their rows are in the replay log.

        See ``Frontier.admit``, whose errors it raises.

        If two batches of a pass have the same URL, one of them is told that it was new. Tick and
        epochs are those of the pass: it asked at least the nodes of this batch, after the rows of
        this batch were written. An error fails all batches of the pass: they are repeated, or found
        pending, as if each went alone.
        """
        batch = _Batch(items)
        known = self._crawls.setdefault(crawl, _Crawl())
        known.put(batch)
        if not known.passes or (known.passes < PASSES and known.waiting >= WORTH):
            known.passes += 1
            gevent.spawn(self._run, crawl, known)
        batch.done.wait()
        assert batch.outcome is not None
        if isinstance(batch.outcome, Exception):
            raise batch.outcome
        return batch.outcome

    def _run(self, crawl: int, known: _Crawl) -> None:
        """Run passes until nothing of the crawl waits."""
        try:
            while known.queue:
                self._pass(crawl, known.take())
        finally:
            known.passes -= 1
            if not known.passes:
                del self._crawls[crawl]

    def _pass(self, crawl: int, batches: list[_Batch]) -> None:
        try:
            found = self._admit(crawl, [item for batch in batches for item in batch.items])
        except Exception as error:  # noqa: BLE001 - raised again in each caller
            for batch in batches:
                batch.outcome = error
        else:
            start = 0
            for batch in batches:
                end = start + len(batch.items)
                missed = {i - start for i in found.missed if start <= i < end}
                away = found.away if missed else ()
                batch.outcome = Admitted(found[start:end], found.tick, found.epochs, away, missed)
                start = end
        for batch in batches:
            batch.done.set()
