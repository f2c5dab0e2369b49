"""Brings tasks back from the overflow before a host runs out of them, while there is room in
memory.

A host that ran low comes first. Then, in a partition at half of its budget or less, every host that
waits in SQL has its turn. In a partition above half of its budget, only crawls that have nothing to
lease there have their turn: paused or blocked crawls with many tasks must not stop them. One broker
does it, under a duty; the other brokers announce what they put into the overflow.
"""

from __future__ import annotations

from functools import partial

from greencrawl.broker.frontier.coordination.activity import OVERFLOW, ActivityEvent
from greencrawl.broker.frontier.coordination.duties import REFILL
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.duty_task import DutyTask
from greencrawl.schema.errors import UnknownCrawl

BUSY_SECONDS = 0.1
"""Seconds between two passes while there is something to bring."""
IDLE_SECONDS = 1.0
"""Seconds between two passes while nothing could be brought."""
LOOK_SECONDS = 10.0
"""Seconds between two looks into SQL when no broker announced any overflow."""
LOW_SHARE = 0.5
"""Below this share of its budget a partition takes new hosts."""
HOSTS = 50
"""Hosts of a partition that are refilled in one pass."""


class Refill(DutyTask):
    """The task of refilling. It begins with a look into SQL."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, REFILL, "refill")
        self._after: dict[tuple[int, int], str] = {}

    def stop(self) -> None:
        """See DutyTask; the holder is woken, because it may wait for long."""
        self._overflowing.set()
        super().stop()

    @property
    def _overflowing(self) -> ActivityEvent:
        return self._own.frontier.overflowing

    def _run(self) -> None:
        stopping, duties = self._own.stopping, self._own.duties
        while not stopping.is_set():
            if not duties.wait(REFILL, IDLE_SECONDS, stopping.is_set):
                if own := self._overflowing.take_own():  # the holder cannot know of it
                    self._own.frontier.announce(OVERFLOW, own)
                continue
            wait = self._tried(self._look, IDLE_SECONDS, LOOK_SECONDS)
            self._overflowing.take_own()
            if self._overflowing.is_set():
                stopping.wait(min(wait, IDLE_SECONDS))
            else:
                self._overflowing.wait(wait)

    def _look(self) -> float:
        self._overflowing.clear()
        places = self._own.store.overflow_places()
        if not places:
            return LOOK_SECONDS
        self._overflowing.set()
        return BUSY_SECONDS if self.step(places) else IDLE_SECONDS

    def step(self, places: list[tuple[int, int]]) -> int:
        """Run one pass over (crawl, partition) that have rows; return how many tasks came back.

        It does nothing if another broker has the duty. Nodes that are away are left out. Raises
        Unavailable if the pass ends at that, and DutyLost if another has taken the duty since.
        """
        if not self._held():
            return 0
        self._after = {place: self._after[place] for place in places if place in self._after}
        by_partition: dict[int, list[int]] = {}
        for crawl, partition in places:
            by_partition.setdefault(partition, []).append(crawl)
        return self._in_each(
            (partition, partial(self._partition, partition, crawls))
            for partition, crawls in by_partition.items()
        )

    def _partition(self, partition: int, crawls: list[int]) -> int:
        memory = self._service.frontier.partition_memory(partition, HOSTS, crawls)
        brought = 0
        if not memory.full and (not memory.budget or memory.used < memory.budget):
            for crawl, host in memory.low:
                brought += self._refill(crawl, partition, host)
        low = not memory.full and (not memory.budget or memory.used < memory.budget * LOW_SHARE)
        for crawl in crawls if low else memory.idle:
            brought += self._walk(crawl, partition, through=low)
        return brought

    def _walk(self, crawl: int, partition: int, *, through: bool) -> int:
        """Refill the next few hosts of a crawl in a partition, in the order of their names.

        ``through``: refill all of them. Otherwise it ends at a host that brings nothing, since then
        there is no room; that host is then the last in turn.
        """
        key = (crawl, partition)
        hosts = self._service.store.overflow_hosts(*key, self._after.get(key, ""), HOSTS)
        brought = 0
        for host in hosts:
            self._after[key] = host
            found = self._refill(crawl, partition, host)
            brought += found
            if not found and not through:
                return brought
        if len(hosts) < HOSTS:
            self._after.pop(key, None)
        return brought

    def _refill(self, crawl: int, partition: int, host: str) -> int:
        try:
            return self._service.frontier.refill(crawl, partition, host)
        except UnknownCrawl:
            return 0
