"""Giving a Redis node what the log holds since some value of its clock, or all of it.

The crawls come first, then what waits in the overflow, marks of what is settled, seeds, the links
of pages, and blocks. All of it is idempotent: one that was cut off is begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from broker.frontier.node import Full, Node
from broker.frontier.partition import Mode
from schema.clock import epoch_ms
from schema.errors import UnknownCrawl
from schema.log import logger
from schema.records import Admission, Crawl, Mark, SeedBatch
from schema.urls import host_of
from store.base import Store

if TYPE_CHECKING:
    from broker.frontier.frontier import Frontier

log = logger("recovery")

CHUNK = 8192
"""Rows put in together: enough that each of many partitions gets some in a call."""


class Course(Protocol):
    """Who is told how far a replay is, in rows of the log."""

    phase: Any
    done: int
    total: int

    def hold(self) -> None:
        """Say after some rows that it goes on; what this raises ends it."""


class Replay:
    """One reading of the log, from ``since`` on, into one node; 0: of all of it."""

    def __init__(
        self, frontier: Frontier, store: Store, node: Node, since: int, course: Course
    ) -> None:
        self._frontier = frontier
        self._store = store
        self._node = node
        self._since = since
        self._course = course
        self._everything = since == 0

    def run(self) -> list[Crawl]:
        """All of it; returns the crawls that the node was told of. Raises Unavailable."""
        course, store, since = self._course, self._store, self._since
        pages, finals, batches = store.log_size(since)
        course.done, course.total = 0, 2 * pages + finals + batches
        crawls = store.crawls()
        for crawl in crawls:
            self._frontier.tell(crawl, self._node)
        self._frontier.respill(self._node)
        put = Putter(self._frontier, self._node, course, {crawl.id for crawl in crawls})
        log.info("replay_begins", node=self._node.shown, since=since, rows=course.total)
        course.phase = "marks"
        self.marks(put)
        course.phase, course.done = "seeds", pages + finals
        self.seeds(put)
        course.phase, course.done = "links", pages + finals + batches
        self.links(put)
        course.phase = "blocks"
        self.blocks(put)
        if not self._everything:
            self._drop_deleted()
        return crawls

    def marks(self, put: Putter) -> None:
        """Pages and final states, as seen and finished."""
        for marks in self._store.log_marks(self._since):
            put.marks(marks)
            self._course.done += len(marks)

    def seeds(self, put: Putter) -> None:
        """Batches of seeds, those that are pending too."""
        for force in (True, False):  # what is forced comes first, and is then queued once
            for batch in self._store.log_seeds(self._since, force=force):
                self._batch(put, batch)
                self._course.done += 1
            put.flush()

    def links(self, put: Putter) -> None:
        """The links of pages."""
        for chunk in self._store.log_links(self._since):
            for crawl, links in chunk:
                put.collect(crawl, links)
            self._course.done += len(chunk)
        put.flush()

    def blocks(self, put: Putter) -> None:
        """Blocks of hosts that are still in force."""
        for host, until_ms, _ in self._store.blocks(epoch_ms()):
            if put.here(host):
                self._frontier.block_until(host, until_ms)

    def _drop_deleted(self) -> None:
        """Delete crawls that the store no longer has, but the node that came back older has."""
        cursor = b"0"
        found: set[int] = set()
        while True:
            cursor, names = self._node.command("SCAN", cursor, "MATCH", "gc:{*}:c:*", "COUNT", 1000)
            ids = (name.rpartition(b":")[2] for name in names)
            found |= {int(number) for number in ids if number.isdigit()}
            self._course.hold()
            if cursor == b"0":
                break
        for crawl in found - {crawl.id for crawl in self._store.crawls()}:
            self._frontier.drop_crawl(crawl, self._node)

    def _batch(self, put: Putter, batch: SeedBatch) -> None:
        """A forced batch queues again what was seen; of the whole past, what was not fetched since.

        A node that has its data knows by the number of the batch what it has queued of it.
        """
        urls, forced = list(batch.urls), []
        if batch.force and self._everything:
            number = {item.url: self._frontier.fingerprint(item.url) for item in urls}
            latest = self._store.stamps(batch.crawl, list(number.values()))
            forced = [item for item in urls if latest.get(number[item.url], 0) <= batch.stamp]
            owed = {item.url for item in forced}
            urls = [item for item in urls if item.url not in owed]
        elif batch.force:
            urls, forced = forced, urls
        put.collect(batch.crawl, urls)
        try:
            put.admissions(batch.crawl, forced, batch=batch.id)
        except Full:  # sessions have to open before there is room: it is pending until then
            self._store.restamp_seeds(batch.id)


class Putter:
    """Puts rows of the log into one node, as far as they belong there."""

    def __init__(self, frontier: Frontier, node: Node, course: Course, crawls: set[int]) -> None:
        self._frontier = frontier
        self._course = course
        self._crawls = crawls
        self._on = set(frontier.partitions_on(node))
        self._all = len(self._on) == len(frontier.partitions)
        self._collected: dict[int, list[Admission]] = {}

    def here(self, host: str) -> bool:
        """Whether the node holds the host's partition."""
        return self._all or self._frontier.partition_of(host) in self._on

    def marks(self, marks: Iterable[Mark]) -> None:
        """Count as seen and finished."""
        by_crawl: dict[int, list[Mark]] = {}
        for mark in marks:
            if self._all or self.here(host_of(mark.url)):
                by_crawl.setdefault(mark.crawl, []).append(mark)
        for crawl, some in by_crawl.items():
            self._put(crawl, some, self._mark)

    def _mark(self, crawl: int, marks: list[Mark]) -> None:
        with suppress(Full):  # what is not marked is at worst fetched again
            self._frontier.mark_settled(crawl, marks)

    def collect(self, crawl: int, items: list[Admission]) -> None:
        """Queue what is new, now or at the latest at :meth:`flush`."""
        collected = self._collected.setdefault(crawl, [])
        collected += items
        if len(collected) >= CHUNK:
            self.admissions(crawl, self._collected.pop(crawl))

    def flush(self) -> None:
        """Put in what was collected."""
        while self._collected:
            self.admissions(*self._collected.popitem())

    def admissions(self, crawl: int, items: list[Admission], batch: int = 0) -> None:
        """Queue what is new; all, with the number of a forced batch."""
        mode = Mode.FORCE if batch else Mode.NEW
        some = items if self._all else [item for item in items if self.here(host_of(item.url))]
        self._put(
            crawl, some, lambda c, chunk: self._frontier.admit(c, chunk, mode=mode, batch=batch)
        )

    def _put(self, crawl: int, items: list[Any], put: Callable[[int, list[Any]], object]) -> None:
        for start in range(0, len(items), CHUNK):
            if crawl not in self._crawls:
                return  # deleted, perhaps just now
            try:
                put(crawl, items[start : start + CHUNK])
            except UnknownCrawl:
                self._crawls.discard(crawl)
            self._course.hold()
