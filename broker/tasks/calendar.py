"""Queues what is due in the calendars of crawls that begin again, while there is room in memory.

One broker does it, under a duty. It goes through the due rows of a crawl in a partition by date and
host, some of each host at a time, and then starts again. So a host with a million pages does not
delay others, nor does a host that takes no more for now. After the node has taken URLs, they are
noted as on their way. If the broker dies in between, the next broker offers these URLs again, and
the node knows them. Rows that the node does not take stay in the store, so Redis does not grow with
them.
"""

from __future__ import annotations

from functools import partial

from greencrawl.broker.frontier.admission import HOST_BUSY, HOST_DOWN, NO_ROOM
from greencrawl.broker.frontier.coordination.duties import CALENDAR
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.duty_task import DutyTask
from greencrawl.schema.net.scope import level_for
from greencrawl.schema.records import Admission, Due, Order

BUSY_SECONDS = 0.1
"""Seconds between two passes while there is something to queue."""
IDLE_SECONDS = 0.5
"""Seconds between two passes while nothing is due, or nothing could be queued."""
BATCH = 128
"""Rows that are queued in a call."""
OF_HOST = 64
"""Rows of one host in a call, unless there are no others."""
FEW = 8
"""A partition that took less than this part of a call is not asked for a while."""
CALLS = 4
"""Calls for one partition in a pass."""

_FIRST = (0, 0, -(2**63))
_LAST = 2**63 - 1

Place = tuple[int, int, int]


class Calendar(DutyTask):
    """The task of the calendars. It begins with a look into the store."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, CALENDAR, "calendar")
        self._after: dict[tuple[int, int], Place] = {}
        """(crawl, partition) → how far it was read."""
        self._rests: dict[tuple[int, int], float] = {}
        """(crawl, partition) → when it is asked again, since it took almost nothing."""

    def _run(self) -> None:
        stopping = self._own.stopping
        while not stopping.is_set():
            if self._own.duties.wait(CALENDAR, IDLE_SECONDS, stopping.is_set):
                stopping.wait(self._tried(self._look, IDLE_SECONDS, IDLE_SECONDS))

    def _look(self) -> float:
        places = self._own.store.calendar_places()
        return BUSY_SECONDS if places and self.step(places) else IDLE_SECONDS

    def step(self, places: list[tuple[int, int]]) -> int:
        """Run one pass over (crawl, partition) where rows are due; return how many were queued.

        It does nothing if another broker has the duty. Nodes that are away, or are being refilled,
        are left out. Raises Unavailable if the pass ends at that, and DutyLost if another has
        taken the duty since.
        """
        if not self._held():
            return 0
        self._after = {place: self._after[place] for place in places if place in self._after}
        self._rests = {place: self._rests[place] for place in places if place in self._rests}
        orders: dict[int, Order] = {
            crawl.id: crawl.options.order for crawl in self._service.store.crawls()
        }
        return self._in_each(
            (partition, partial(self._partition, crawl, partition, orders[crawl]))
            for crawl, partition in places
            if crawl in orders
        )

    def _partition(self, crawl: int, partition: int, order: Order) -> int:
        """Make some calls for one partition, until it is complete or takes no more."""
        queued, place = 0, (crawl, partition)
        if self._own.clock() < self._rests.get(place, 0.0):
            return 0
        for _ in range(CALLS):
            after = self._after.get(place, _FIRST)
            found = self._service.store.calendar_due(crawl, partition, after, BATCH)
            rows, after = _spread(found)
            if not rows:
                self._after.pop(place, None)
                break
            flags = self._ask(crawl, partition, rows, order)
            taken = sum(flag not in (HOST_BUSY, NO_ROOM, HOST_DOWN) for flag in flags)
            queued += taken
            if taken * FEW < len(flags):
                self._rests[place] = self._own.clock() + IDLE_SECONDS
            if NO_ROOM in flags:  # it goes on there
                break
            self._after[place] = after
            if len(found) < BATCH and len(rows) == len(found):
                self._after.pop(place)
                break
        return queued

    def _ask(self, crawl: int, partition: int, rows: list[Due], order: Order) -> bytes:
        """Queue rows; those that cannot be asked for any more are dropped."""
        store = self._service.store
        if lost := [row for row in rows if row.item is None]:
            store.drop_calendar(crawl, lost)
        wanted = [(row, _queued(row.item, order)) for row in rows if row.item is not None]
        if not wanted:
            return b""
        some, items = zip(*wanted, strict=True)
        flags = self._service.frontier.ask_again(crawl, partition, some, items)
        pairs = zip(some, flags, strict=True)
        down = {row.after[:2]: row for row, flag in pairs if flag == HOST_DOWN}
        for row in down.values():
            store.postpone_calendar(crawl, partition, row)
        return flags


def _queued(item: Admission, order: Order) -> Admission:
    level = level_for(order, item.depth, None, item.url)
    return Admission(item.url, item.depth, level, kind=item.kind)


def _spread(found: list[Due]) -> tuple[list[Due], Place]:
    """Select from ordered rows at most some of a host at a date; return them and the place after
    them.

    Rows of the last host that are left out are after that place, so that the walk goes on.
    """
    rows: list[Due] = []
    at: tuple[int, int] | None = None
    count = 0
    for row in found:
        if row.after[:2] != at:
            at, count = row.after[:2], 0
        count += 1
        if count <= OF_HOST:
            rows.append(row)
    if not rows:
        return rows, _FIRST
    due_s, host, number = found[-1].after
    return rows, (due_s, host, _LAST if count >= OF_HOST else number)
