"""Admission: new URLs are queued in Redis; URLs beyond its budget wait in the overflow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from greencrawl.broker.frontier.coordination.activity import ActivityEvent
from greencrawl.broker.frontier.crawls import Crawls
from greencrawl.broker.frontier.nodes.failures import Full
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import BATCH, Scripts
from greencrawl.broker.frontier.scripts.partition import Mode
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.net import urls
from greencrawl.schema.records import Admission, Mark, Overflow, Stamp
from greencrawl.store.base import Store

log = logger("frontier")

_NEW, BEYOND = b"12"
HOST_BUSY, NO_ROOM, HOST_DOWN = b"235"
"""Flags of ``lua/queue/admit.lua``."""

Row = tuple[int, str, Any]
"""(fingerprint, host, item)."""
Grouped = dict[int, list[tuple[int, Row]]]
"""By partition: (the caller's index of the row, row)."""


class Admitted(list[bool]):
    """True for each URL that was not seen before.

    ``tick`` is the largest tick of the nodes that were asked; ``epochs`` are the epochs under which
    these nodes were asked. ``away`` are nodes that could not be asked, and ``missed`` the indexes
    of their URLs.
    """

    def __init__(
        self,
        new: Iterable[bool],
        tick: int,
        epochs: Mapping[str, int],
        away: Collection[str] = (),
        missed: Collection[int] = (),
    ) -> None:
        super().__init__(new)
        self.tick = tick
        self.epochs = epochs
        self.away = frozenset(away)
        self.missed = frozenset(missed)


class _Missed:
    """Nodes that could not be asked, and the indexes of the URLs that belong there."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.numbers: set[int] = set()

    def add(self, node: Node, rows: Iterable[tuple[int, Row]]) -> None:
        self.nodes.add(node.id)
        self.numbers.update(i for i, _ in rows)


class Spill:
    """Commits URLs beyond the budget to the store's overflow, and then marks them as known."""

    def __init__(
        self,
        calls: Scripts,
        placement: Placement,
        store: Store,
        crawls: Crawls,
        overflowing: ActivityEvent,
    ) -> None:
        self._calls = calls
        self._placement = placement
        self._store = store
        self._crawls = crawls
        self._overflowing = overflowing

    def put(self, crawl: int, rows: Sequence[Row]) -> list[bool]:
        """Commit rows to the overflow, and only then mark them; return true for each that was
        new."""
        spilled = [
            Overflow(fingerprint, self._placement.partition_of(host), item)
            for fingerprint, host, item in rows
        ]
        self._store.put_overflow(crawl, spilled)
        self._overflowing.set()
        return self._mark(crawl, rows)

    def mark_spilled(self, crawl: int, rows: Sequence[Overflow]) -> None:
        """Tell a node which URLs wait in the overflow; idempotent. Raises UnknownCrawl."""
        self._mark(crawl, [(row.fingerprint, urls.host_of(row.item.url), row.item) for row in rows])
        self._overflowing.set()

    def _mark(self, crawl: int, rows: Sequence[Row]) -> list[bool]:
        """Mark rows of the overflow as known; a mark that finds no room is harmless."""
        fresh = [True] * len(rows)
        by_partition: dict[int, list[int]] = {}
        for i, (_, host, _) in enumerate(rows):
            by_partition.setdefault(self._placement.partition_of(host), []).append(i)
        while by_partition:
            round_ = {p: found[:BATCH] for p, found in by_partition.items()}
            by_partition = {p: found[BATCH:] for p, found in by_partition.items() if found[BATCH:]}
            calls = {
                p: part.mark_args(crawl, [rows[i] for i in found]) for p, found in round_.items()
            }
            done = 0
            try:
                replies = self._calls("mark", calls)
            except Full as error:
                log.info("rows_not_marked", reason=str(error))
                continue
            for p, reply in replies.items():
                if reply[0] == b"GONE":
                    raise self._crawls.unknown(crawl, p)
                if reply[0] == b"DONE":
                    done = max(done, reply[2])
                    by_partition[p] = round_[p] + by_partition.get(p, [])
                    continue
                for i, flag in zip(round_[p], reply[1], strict=True):
                    fresh[i] = flag == _NEW
            if done:
                self._crawls.reopen(crawl, done)
        return fresh


class Admitting:
    """Admits URLs: as new, as settled, or back from the overflow."""

    def __init__(
        self,
        calls: Scripts,
        placement: Placement,
        crawls: Crawls,
        spill: Spill,
        activity: ActivityEvent,
        note: Callable[[int, int, float], None] | None,
    ) -> None:
        """Build the object; ``note`` is called with the time when a host of (partition, crawl) is
        due; workers do not use it."""
        self._calls = calls
        self._placement = placement
        self._crawls = crawls
        self._spill = spill
        self._activity = activity
        self._note = note

    def admit(
        self,
        crawl: int,
        items: Sequence[Admission],
        *,
        mode: Mode = Mode.NEW,
        batch: int = 0,
        stamp: Stamp | None = None,
        partial: bool = False,
    ) -> Admitted:
        """Queue those of ``items`` (canonical URLs) that are new.

        URLs beyond the memory budget wait in the store's overflow instead. ``stamp`` is the stamp
        of their rows in the replay log: a node is asked only under an epoch that is at least the
        one read with the stamp. The caller compares it with the returned tick: if the tick is more
        than MARGIN ahead, the caller must write the rows again, and admit again. The call is
        idempotent; with FORCE only if ``batch`` (the number of the row of the batch) is given. With
        ``partial``, URLs of a node that cannot be asked are left out and named in the answer.
        Raises UnknownCrawl when the crawl was deleted.
        """
        placement = self._placement
        grouped = self._grouped(items)
        away = _Missed() if partial else None
        asked = {node.id: node for node in map(placement.node_of.__getitem__, grouped)}
        if stamp is not None:
            for name, node in list(asked.items()):
                try:
                    node.follow(stamp.epochs.get(name, 0))
                except Unavailable:
                    if away is None or not placement.others_serve((placement.nodes.index(node),)):
                        raise
                    for p in placement.partitions_on(node):
                        away.add(node, grouped.pop(p, ()))
        epochs = {name: int(node.epoch or 0) for name, node in asked.items()}
        new, newest = [False] * len(items), 0
        beyond: list[tuple[int, Row]] = []
        for rows, flags, tick in self._admit(crawl, grouped, mode, batch, away):
            newest = max(newest, tick)
            for (i, row), flag in zip(rows, flags, strict=True):
                new[i] = flag == _NEW
                if flag == BEYOND:
                    beyond.append((i, row))
        if beyond:
            spilled = self._spill.put(crawl, [row for _, row in beyond])
            for (i, _), fresh in zip(beyond, spilled, strict=True):
                new[i] = fresh
        self._activity.set(crawl)
        if away is None:
            return Admitted(new, newest, epochs)
        return Admitted(new, newest, epochs, away.nodes, away.numbers)

    def admit_rows(self, crawl: int, rows: Grouped) -> None:
        """Queue like :meth:`admit`, for a caller that has the fingerprints and needs no answer."""
        beyond: list[Row] = []
        for some, flags, _ in self._admit(crawl, rows, Mode.NEW, 0):
            if BEYOND in flags:
                beyond += [row for (_, row), f in zip(some, flags, strict=True) if f == BEYOND]
        if beyond:
            self._spill.put(crawl, beyond)
        self._activity.set(crawl)

    def admit_again(self, crawl: int, items: Sequence[Admission]) -> bytes:
        """Queue URLs that come back from the overflow; return a flag for each, :data:`BEYOND` if
        there is no room.

        All of them belong to one partition. Raises UnknownCrawl when the crawl was deleted.
        """
        admitting = self._admit(crawl, self._grouped(items), Mode.REFILL, 0)
        return b"".join(flags for _, flags, _ in admitting)

    def admit_due(self, crawl: int, partition: int, items: Sequence[Admission]) -> bytes:
        """Queue URLs that are due in a calendar, all of one partition; return a flag for each.

        When a node takes nothing any more, its remaining URLs get :data:`NO_ROOM`. Raises
        UnknownCrawl when the crawl was deleted, Unavailable.
        """
        rows = self._grouped(items).get(partition, [])
        if len(rows) != len(items):
            raise ValueError("rows of a calendar of another partition")
        flags = b""
        for start in range(0, len(rows), BATCH):
            some = [row for _, row in rows[start : start + BATCH]]
            args = part.admit_args(crawl, Mode.AGAIN, 0, some)
            try:
                reply = self._calls("admit", {partition: args})[partition]
            except Full:
                return flags + bytes([NO_ROOM]) * (len(rows) - len(flags))
            if reply[0] == b"GONE":
                raise self._crawls.unknown(crawl, partition)
            if self._note is not None:
                self._note(partition, crawl, reply[3])
            flags += reply[2]
        return flags

    def mark_settled(self, crawl: int, marks: Sequence[Mark]) -> None:
        """Count URLs as seen and finished when a node learns of the past; idempotent.

        Raises UnknownCrawl when the crawl was deleted. Raises Full at the memory limit; even then
        it counts the URLs that the node knows as waiting in the overflow.
        """
        grouped = self._grouped(marks)
        try:
            for _ in self._admit(crawl, grouped, Mode.MARK, 0):
                pass
        except Full:
            for _ in self._admit(crawl, grouped, Mode.MARK_SPILLED, 0):
                pass
            raise

    def _admit(
        self,
        crawl: int,
        grouped: Grouped,
        mode: Mode,
        batch: int,
        away: _Missed | None = None,
    ) -> Iterator[tuple[list[tuple[int, Row]], bytes, int]]:
        """Call the script in batches; yield (index, row) with a reply's flags and tick.

        Items that cannot be asked about go to ``away``, if it is given.
        """
        placement = self._placement
        while grouped:
            round_ = {p: rows[:BATCH] for p, rows in grouped.items()}
            grouped = {p: rows[BATCH:] for p, rows in grouped.items() if len(rows) > BATCH}
            done = 0
            calls = {
                p: part.admit_args(crawl, mode, batch, (r for _, r in rows))
                for p, rows in round_.items()
            }
            failed: dict[int, Unavailable] = {}
            try:
                replies = self._calls("admit", calls, partial=away is not None, failed=failed)
            except Full as error:  # the node may have taken some URLs, and knows these
                if mode is not Mode.NEW:
                    raise
                log.warning("overflow_started", reason=str(error))
                for rows in round_.values():
                    yield rows, bytes([BEYOND]) * len(rows), 0
                continue
            for p, reply in replies.items():
                if reply[0] == b"GONE":
                    wrong = self._crawls.unknown(crawl, p)
                    if away is None or isinstance(wrong, UnknownCrawl):
                        raise wrong
                    away.add(placement.node_of[p], [*round_[p], *grouped.pop(p, ())])
                    continue
                if reply[0] == b"DONE":
                    done = max(done, reply[2])
                    grouped[p] = round_[p] + grouped.get(p, [])
                    continue
                if self._note is not None:
                    self._note(p, crawl, reply[3])
                yield round_[p], reply[2], reply[1]
            for p in round_.keys() - replies.keys():
                if mode is Mode.NEW and isinstance(failed[placement.identity.placement[p]], Full):
                    yield round_[p], bytes([BEYOND]) * len(round_[p]), 0
                elif away is not None:
                    away.add(placement.node_of[p], [*round_[p], *grouped.pop(p, ())])
            if done:
                self._crawls.reopen(crawl, done)

    def _grouped(self, items: Sequence[Admission | Mark]) -> Grouped:
        """Return (index, row) of each item by partition."""
        identity = self._placement.identity
        secret, partitions, rules = identity.secret, identity.partitions, identity.canonicaliser
        grouped: Grouped = {}
        for i, item in enumerate(items):
            host = urls.host_of(item.url)
            row = (urls.fingerprint(item.url, secret, rules), host, item)
            grouped.setdefault(urls.partition_of(host, partitions), []).append((i, row))
        return grouped
