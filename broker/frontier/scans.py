"""Counters of crawls, summed over all partitions, and other results of a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.coordination.activity import QUOTA, ActivityEvent, announce
from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.coordination.quotas import Quotas, row_of, wanted
from greencrawl.broker.frontier.coordination.wake_ups import WakeUps
from greencrawl.broker.frontier.crawls import Crawls
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import Scripts
from greencrawl.broker.frontier.scripts.totals import Scan, total
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Crawl, CrawlStats, Totals
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store

log = logger("frontier")

FEW, AT_ONCE = 8, 64
"""When people ask, a round trip covers FEW partitions, or more if these and the crawls make at most
AT_ONCE pairs.

A node serves no other call meanwhile, for about 10 µs a pair.
"""
STILL_MS = 60_000
"""When a crawl has no lease in a partition, this is noted there for this long."""

Counts = dict[int, dict[int, list[Any]]]
"""Crawl → partition → the answer of ``lua/crawls/count.lua``."""


class Scans:
    """Counts crawls; tells a partition of a crawl again if it has an outdated version."""

    def __init__(
        self,
        calls: Scripts,
        placement: Placement,
        store: Store,
        crawls: Crawls,
        wake_ups: WakeUps,
        quotas: Quotas,
        duties: Duties,
        overflowing: ActivityEvent,
        owed: Callable[[Node], None] | None,
    ) -> None:
        """Build the object; ``owed`` is called with a node whose replay is not complete; a worker
        passes nothing."""
        self._calls = calls
        self._placement = placement
        self._store = store
        self._crawls = crawls
        self._wake_ups = wake_ups
        self._quotas = quotas
        self._duties = duties
        self._overflowing = overflowing
        self._owed = owed

    def scan(self, crawl: int) -> Totals | None:
        """Return counters of the crawl in its present version; None if :meth:`look` is void."""
        found = self.look(self._store.crawl(crawl))
        return None if found is None else found.totals

    def count(self, crawls: Sequence[Crawl]) -> Counts | None:
        """Return counters of at most some dozens of crawls, for :meth:`look`; None: ask again.

        For a node several crawls cost little more than one: starting a script is half of the cost.
        """
        try:
            return self._counts(crawls)
        except Unavailable:
            return None

    def _counts(self, crawls: Sequence[Crawl], *, partial: bool = False) -> Counts:
        ids = [crawl.id for crawl in crawls]
        packed, partitions = to_msgpack(ids), list(self._placement.partitions)
        step = max(FEW, AT_ONCE // len(ids)) if partial else len(partitions)
        replies: dict[int, list[Any]] = {}
        for at in range(0, len(partitions), step):
            calls = dict.fromkeys(partitions[at : at + step], packed)
            replies |= self._calls("count", calls, partial=partial)
        found: Counts = {id_: {} for id_ in ids}
        for p, reply in replies.items():
            for id_, row in zip(ids, part.counted(reply), strict=True):
                found[id_][p] = row
        return found

    def look(self, crawl: Crawl, counts: Counts | None = None) -> Scan | None:
        """Return counters over all partitions, and the states of the crawl there.

        ``counts`` are those that :meth:`count` has just found; without them they are asked for.

        The answer is None, and the scan void, in these cases: a node did not answer or is still
        owed what SQL holds; a partition does not know the crawl, or knows another version of it
        than ``crawl``. If that version is older, the partition gets the crawl again.
        """
        placement = self._placement
        if any(node.breaker.since_ms for node in placement.nodes):
            return None
        try:
            totals, replies = self._sum(crawl.id, counts)
            owed = {
                placement.identity.placement[p]: reply[4]
                for p, reply in replies.items()
                if reply[4]
            }
            for index, how in owed.items():
                if self._owed is not None and how == 1:
                    self._owed(placement.nodes[index])  # unless another broker does it
            outdated = [p for p, (*_, version) in replies.items() if version < crawl.version]
            if outdated:
                log.info("crawl_sent_again", crawl=crawl.name, partitions=len(outdated))
                self._crawls.say(crawl, part.state_of(crawl), outdated)
            ahead = max(version for *_, version in replies.values())
            if ahead > crawl.version and self._store.crawl(crawl.id).version < ahead:
                # an older copy of the store
                log.warning("store_outdated", crawl=crawl.name, version=ahead)
                self._crawls.put_crawl(self._store.reopen(crawl.id, ahead))
        except Unavailable as error:
            log.info("scan_discarded", reason=str(error))
            return None
        self._wake_ups.scanned(crawl.id, totals.leased)
        if self._lacks_quota(crawl, replies):
            self._quotas.want(crawl.id)
            if not self._duties.get(names.QUOTAS):  # the partition may have missed earlier changes
                announce(placement.nodes, QUOTA, [crawl.id])
        if owed or any(version != crawl.version for *_, version in replies.values()):
            return None
        return Scan(totals, frozenset(state.decode() for *_, state, _ in replies.values()))

    def idle_crawls(self, within: float) -> tuple[dict[int, float], bool]:
        """Return crawl → how many seconds ago some partition had nothing of it leased any more.

        The answer has only crawls for which that was ``within`` this many seconds, as far as nodes
        answer. It also tells whether all nodes answered.
        """
        found: dict[int, float] = {}
        answered = True
        for node in self._placement.nodes:
            try:
                now = node.now_ms()
                after = round(now - 1000 * within)
                rows = node.command("ZRANGEBYSCORE", keys.STILL, after, "+inf", "WITHSCORES")
                if rows:
                    node.command("ZREMRANGEBYSCORE", keys.STILL, "-inf", round(now - STILL_MS))
            except Unavailable:
                answered = False
                continue
            for crawl, at in zip(rows[::2], rows[1::2], strict=True):
                ago = max(now - float(at), 0.0) / 1000
                found[int(crawl)] = min(ago, found.get(int(crawl), ago))
        return found, answered

    def stats(self, crawl: Crawl, counts: Counts | None = None) -> CrawlStats:
        """Return counters of a crawl, as far as nodes answer; raises Unavailable if none does.

        ``counts`` are those that :meth:`count` has just found.
        """
        return self.stats_of([crawl], counts)[0]

    def stats_of(self, crawls: Sequence[Crawl], counts: Counts | None = None) -> list[CrawlStats]:
        """Return counters of one to some dozens of crawls; this costs little more than one
        crawl."""
        counts = counts or self._counts(crawls, partial=True)
        sums = [self._sum(crawl.id, counts)[0] for crawl in crawls]
        return [
            CrawlStats(
                crawl=crawl.name,
                state=crawl.state,
                reason=crawl.reason,
                wakes_ms=crawl.wakes_ms,
                fetched=totals.stored,
                **msgspec.structs.asdict(totals),
            )
            for crawl, totals in zip(crawls, sums, strict=True)
        ]

    def ready(self) -> str | None:
        """Return why the frontier cannot serve now (no node answers); None if it can."""
        held = [on for node in self._placement.nodes if (on := self._placement.partitions_on(node))]
        try:
            self._calls("count", {on[0]: to_msgpack([0]) for on in held}, partial=True)
        except Unavailable as error:
            return str(error)
        return None

    def _lacks_quota(self, crawl: Crawl, replies: dict[int, list[Any]]) -> bool:
        try:
            return wanted(crawl, {p: row_of(reply) for p, reply in replies.items()}, self._store)
        except Unavailable as error:  # the next look finds it
            log.info("quotas_delayed", reason=str(error))
            return False

    def _sum(self, crawl: int, counts: Counts | None = None) -> tuple[Totals, dict[int, list[Any]]]:
        """Return counters of a crawl, and each partition's answer. Raises Unavailable."""
        if counts is None:
            calls = dict.fromkeys(self._placement.partitions, to_msgpack([crawl]))
            replies = self._calls("count", calls)
        else:
            replies = counts[crawl]
        totals = total(flat for _, flat, *_ in replies.values())
        if totals.overflow:
            self._overflowing.set()
        return totals, replies
