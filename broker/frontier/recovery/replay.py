"""Gives a Redis node what the replay log holds since some value of its clock, or all of it.

The crawls come first, then what was queued from the overflow, marks of what is settled, seeds, the
links of pages, operators' delays, and blocks. All of it is idempotent: a replay that was cut off
starts again. The cost of a window depends on what happened in it, not on what the store or the node
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

import gevent

from greencrawl.broker.frontier.admission import Admitting, Grouped, Spill
from greencrawl.broker.frontier.crawls import Crawls
from greencrawl.broker.frontier.hosts import Hosts
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.failures import Full
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.recovery.sent_filter import MOST_BYTES, SentFilter
from greencrawl.broker.frontier.scripts.partition import Mode
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Admission, Crawl, Mark, SeedBatch
from greencrawl.store.base import Store

log = logger("recovery")

CHUNK = 2048
"""Rows put in together: some for each of many partitions, and a few milliseconds of work."""
MOST_COMPARED = 100_000
"""URLs of forced batches that are compared with one another: they take some 30 MB meanwhile."""
HOLD_SECONDS = 1.0
"""Least seconds between two signs of life."""
YIELD_SECONDS = 0.003
"""How long other greenlets wait at a time, unless a page takes longer."""


Forced = dict[tuple[int, Admission], int]
"""(crawl, task) → number of a batch."""


class Parts(NamedTuple):
    """The parts of the frontier that a replay uses to give a node what it lacks."""

    placement: Placement
    crawls: Crawls
    spill: Spill
    admitting: Admitting
    hosts: Hosts


class ReplayProgress(Protocol):
    """Receives the progress of a replay, in rows of the replay log."""

    phase: Any
    done: int
    total: int

    def hold(self) -> None:
        """Note after some rows that the replay goes on; an exception here ends it."""


class Replay:
    """Reads the replay log into one node: what was stamped ``since`` or later, or everything."""

    def __init__(
        self, parts: Parts, store: Store, node: Node, since: int, progress: ReplayProgress,
        *, everything: bool = False,
    ) -> None:  # fmt: skip
        self._parts = parts
        self._store = store
        self._node = node
        self._since = since
        self._progress = progress
        self._everything = everything

    def run(self) -> list[Crawl]:
        """Give the node all that it needs before sessions may open; return the crawls.

        Raises Unavailable.
        """
        progress, store, since = self._progress, self._store, self._since
        pages, finals, batches = store.replay_size(since)
        progress.done, progress.total = 0, 2 * pages + finals + batches
        crawls = store.crawls()
        self.tell(crawls)
        self._free()
        if self._everything:  # otherwise an empty node would take waiting URLs for new
            self.respill()
        put = ReplaySender(self._parts, self._node, progress, {crawl.id for crawl in crawls}, pages)
        log.info("replay_started", node=self._node.shown, since=since, rows=progress.total)
        progress.phase = "marks"
        self.marks(put)
        progress.phase, progress.done = "seeds", pages + finals
        self.seeds(put)
        progress.phase, progress.done = "links", pages + finals + batches
        self.links(put)
        progress.phase = "blocks"
        self.delays()
        self.blocks()
        return crawls

    def tell(self, crawls: list[Crawl]) -> None:
        """Tell the node of its crawls, and delete those that the store no longer has.

        A crawl is not told again if it is done, has no quota that could be outdated, and is known
        in its present version in each partition.
        """
        told = self._parts.crawls.known_crawls(self._node)
        changed = [
            crawl for crawl in crawls
            if not crawl.ended or crawl.options.max_pages
            or any(one.get(crawl.id) != crawl.version for one in told)
        ]  # fmt: skip
        self._parts.crawls.tell_node(changed, self._node, afresh=True)
        found = set().union(*told)
        if not self._everything and not self._node.command("HGET", keys.OWNER, "listed"):
            found |= self._records()
        # This is read last: all that the node knew was in the store before.
        for crawl in found - {crawl.id for crawl in self._store.crawls()}:
            self._parts.crawls.drop_crawl(crawl, self._node, self._progress.hold)

    def _records(self) -> set[int]:
        """Return crawls that the node has records of, as the previous version wrote them."""
        cursor = b"0"
        found: set[int] = set()
        while True:
            cursor, names = self._node.command("SCAN", cursor, "MATCH", "gc:{*}:c:*", "COUNT", 1000)
            ids = (name.rpartition(b":")[2] for name in names)
            found |= {int(number) for number in ids if number.isdigit()}
            self._progress.hold()
            if cursor == b"0":
                return found

    def _free(self) -> None:
        """Offer again what the node may have forgotten after taking it from the overflow.

        A row is queued in Redis first, and then noted as queued in SQL. If a node comes back with
        its tick at T, all that it knows was written after T was read. So whatever it forgot is
        noted at T or later. Rows that were noted before T are queued in the node, or were settled
        since. The node may know a waiting row as spilled, as queued, or not at all; if it is
        queued, the seen-set refuses it when it is brought again. See decision 24.

        Likewise, all rows of a calendar that were on their way under an earlier epoch are due
        again. The node does not queue a URL again if it remembers it.
        """
        for p in self._parts.placement.partitions_on(self._node):
            self._store.free_overflow(p, 0 if self._everything else self._since)
            self._store.free_calendar(p, int(self._node.epoch or 0))
            self._progress.hold()

    def respill(self) -> int:
        """Tell the node what began to wait in the overflow meanwhile; return how many rows.

        Only counters and the order of arrival depend on it: a row is brought back whether the node
        knows it or not. So in the replay of a window this comes last, when sessions open already.
        """
        count = 0
        for p in self._parts.placement.partitions_on(self._node):
            if self._everything:
                found = self._store.overflow_of(p)
            else:
                found = self._store.overflow_since(p, self._since)
            for crawl, rows in found:
                with suppress(UnknownCrawl):
                    self._parts.spill.mark_spilled(crawl, rows)
                count += len(rows)
                if self._everything:
                    self._progress.hold()
        return count

    def marks(self, put: ReplaySender) -> None:
        """Put in pages and final states, as seen and finished."""
        for marks in self._store.replay_marks(self._since):
            put.marks(marks)
            self._progress.done += len(marks)

    def seeds(self, put: ReplaySender) -> None:
        """Put in batches of seeds, also pending ones."""
        last = self._last_forced()
        for force in (True, False):  # forced batches first: so their URLs are queued once
            for batch in self._store.replay_seeds(self._since, force=force):
                self._batch(put, batch, last)
                self._progress.done += 1
            put.flush()

    def _last_forced(self) -> Forced:
        """Return the latest batch that forces each task; none if there are very many tasks.

        One request serves all batches that were made before it. A batch may have a new stamp, but
        its number stays: if the node knows the latest batch, it queued the task after all other
        batches were made.
        """
        last: Forced = {}
        count, held = 0, monotonic()
        for batch in self._store.replay_seeds(self._since, force=True):
            count += len(batch.urls)
            if count > MOST_COMPARED:
                return {}
            for item in batch.urls:
                key = batch.crawl, item
                last[key] = max(batch.id, last.get(key, 0))
            if monotonic() - held > HOLD_SECONDS:
                self._progress.hold()
                held = monotonic()
        return last

    def links(self, put: ReplaySender) -> None:
        """Put in the links of pages; leases are served meanwhile."""
        for chunk in self._store.replay_links(self._since):
            for crawl, links in chunk:
                put.links(crawl, links)
            self._progress.done += len(chunk)
            put.let_others_run()
        put.flush()

    def delays(self) -> None:
        """Put in the least delays that operators have set.

        A process that changes a delay writes it to SQL first, then to Redis. If SQL was read here
        before that, the process writes to Redis later than this replay does, and its value stays.
        """
        given: dict[str, int] = {}
        while (found := self._store.delays()) != given:
            changed = dict.fromkeys(given.keys() - found, 0)
            changed |= {host: ms for host, ms in found.items() if given.get(host) != ms}
            self._parts.hosts.delay_again(self._node, changed)
            self._progress.hold()
            given = found

    def blocks(self) -> None:
        """Put in blocks of hosts that are still in force."""
        found = self._store.blocks(epoch_ms())
        self._parts.hosts.block_again(self._node, [(host, until_ms) for host, until_ms, _ in found])

    def _batch(self, put: ReplaySender, batch: SeedBatch, last: Forced) -> None:
        """Put in a batch; a forced one queues seen URLs again, in a full replay only those not
        fetched since.

        A node that kept its data knows by the number of a batch which of its URLs it has queued.
        """
        urls, forced = list(batch.urls), []
        if batch.force and self._everything:
            number = {item.url: self._parts.placement.fingerprint(item.url) for item in urls}
            latest = self._store.stamps(batch.crawl, list(number.values()))
            forced = [item for item in urls if latest.get(number[item.url], 0) <= batch.stamp]
            owed = {item.url for item in forced}
            urls = [item for item in urls if item.url not in owed]
        elif batch.force:
            urls, forced = forced, urls
        put.links(batch.crawl, urls)
        forced = [item for item in forced if last.get((batch.crawl, item), 0) <= batch.id]
        try:
            put.forced(batch.crawl, forced, batch.id)
        except Full:  # there is room once sessions open: the batch is pending until then
            self._store.restamp_seeds(batch.id)


class ReplaySender:
    """Puts rows of the replay log into one node, as far as they belong there.

    ``pages`` is about how many the replay log has; ``most_bytes`` is the memory for remembering
    links that were put in already.
    """

    def __init__(
        self, parts: Parts, node: Node, progress: ReplayProgress, crawls: set[int],
        pages: int = 100_000, most_bytes: int = MOST_BYTES,
    ) -> None:  # fmt: skip
        placement = parts.placement
        self._placement = placement
        self._admitting = parts.admitting
        self._progress = progress
        self._crawls = crawls
        self._on = set(placement.partitions_on(node))
        self._known = SentFilter(
            placement.identity.secret,
            pages,
            most_bytes // len(placement.nodes),
            version=placement.identity.canonicaliser,
        )
        self._rows: dict[int, Grouped] = {}
        self._collected = 0
        self._held = self._yielded = monotonic()

    def here(self, host: str) -> bool:
        """Return whether the node holds the host's partition."""
        return self._placement.partition_of(host) in self._on

    def marks(self, marks: Iterable[Mark]) -> None:
        """Count URLs as seen and finished."""
        by_crawl: dict[int, list[Mark]] = {}
        for mark in marks:
            if self.here(host_of(mark.url)):
                by_crawl.setdefault(mark.crawl, []).append(mark)
        for crawl, some in by_crawl.items():
            self._put(crawl, partial(self._mark, crawl, some))

    def _mark(self, crawl: int, marks: list[Mark]) -> None:
        with suppress(Full):  # an unmarked page is at worst fetched again
            self._admitting.mark_settled(crawl, marks)
            self._known.note(crawl, (mark.url for mark in marks))

    def links(self, crawl: int, links: Iterable[Admission]) -> None:
        """Queue new links, now or at the latest at :meth:`flush`."""
        if crawl not in self._crawls:
            return
        rows = self._rows.setdefault(crawl, {})
        for number, link in self._known.unknown(crawl, links):
            host = host_of(link.url)
            partition = self._placement.partition_of(host)
            if partition in self._on:
                rows.setdefault(partition, []).append((0, (number, host, link)))
                self._collected += 1
        if self._collected >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Put in what was collected."""
        collected, self._rows, self._collected = self._rows, {}, 0
        for crawl, rows in collected.items():
            self._put(crawl, partial(self._admitting.admit_rows, crawl, rows))

    def forced(self, crawl: int, items: list[Admission], batch: int) -> None:
        """Queue all URLs, with the number of a forced batch. Raises Full."""
        some = [item for item in items if self.here(host_of(item.url))]
        admit = partial(self._admitting.admit, mode=Mode.FORCE, batch=batch)
        for start in range(0, len(some), CHUNK):
            self._put(crawl, partial(admit, crawl, some[start : start + CHUNK]))

    def _put(self, crawl: int, put: Callable[[], object]) -> None:
        if crawl in self._crawls:  # otherwise it was deleted, perhaps just now
            try:
                put()
            except UnknownCrawl:
                self._crawls.discard(crawl)
            self._hold()

    def _hold(self) -> None:
        self._progress.hold()
        self._held = self._yielded = monotonic()

    def let_others_run(self) -> None:
        """Let other greenlets run: known links make no calls that would."""
        now = monotonic()
        if now - self._held > HOLD_SECONDS:
            self._hold()
        elif now - self._yielded > YIELD_SECONDS:
            gevent.sleep(0)
            self._yielded = monotonic()
