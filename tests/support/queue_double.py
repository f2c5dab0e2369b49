"""A frontier in a few dictionaries, for tests of the HTTP API that change its answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from greencrawl.broker.frontier.admission import Admitted
from greencrawl.broker.frontier.coordination.activity import ActivityEvent
from greencrawl.broker.frontier.coordination.members import Beat, BeatStatus
from greencrawl.broker.frontier.coordination.outages import Outage
from greencrawl.broker.frontier.overflow import PartitionMemory
from greencrawl.broker.frontier.recovery.vitals import NodeVitals
from greencrawl.broker.frontier.scans import Counts
from greencrawl.broker.frontier.scripts.partition import Mode, state_of
from greencrawl.broker.service.service import Service
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.net.urls import fingerprint, partition_of
from greencrawl.schema.records import (
    Admission,
    Crawl,
    CrawlStats,
    Duty,
    Facts,
    HostPatch,
    HostState,
    LeaseReply,
    LeaseRequest,
    NodeAway,
    NodeFull,
    NodeRepair,
    ReconcileReply,
    ReconcileRequest,
    Session,
    Stamp,
    UrlState,
)
from greencrawl.store import open_store


@dataclass(frozen=True)
class Sums:
    waiting: int = 0
    leased: int = 0
    later: int = 0
    admitted: int = 0
    finished: int = 0
    stored: int = 0
    bytes: int = 0
    requeued: int = 0

    @property
    def open(self) -> int:
        return self.waiting + self.leased + self.later


@dataclass
class QueueDouble:
    """``away`` makes every call raise Unavailable; ``broken`` makes it raise that exception."""

    away: bool = False
    broken: Exception | None = None
    crawls: dict[int, Crawl] = field(default_factory=dict)
    seen: dict[int, list[str]] = field(default_factory=dict)
    sums: dict[int, Sums | None] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    """The states in every partition, and the received versions: see ``lua/crawls/crawl.lua``."""
    told: list[tuple[int, str]] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)
    repaired: list[bool] = field(default_factory=list)
    scans: int = 0
    still: dict[int, float] = field(default_factory=dict)
    rests: tuple[int, float] = (0, 0.0)
    at_work: int = 1
    claimed_twice: tuple[str, ...] = ()
    sessions: tuple[Session, ...] = ()
    last: Any = None
    activity: ActivityEvent = field(default_factory=ActivityEvent)
    announced: list[tuple[bytes, Collection[int]]] = field(default_factory=list)
    overflowing: ActivityEvent = field(default_factory=ActivityEvent)
    ordering: ActivityEvent = field(default_factory=ActivityEvent)
    beats: BeatsDouble = field(default_factory=lambda: BeatsDouble())
    outages: OutagesDouble = field(default_factory=lambda: OutagesDouble())
    full: bool = False
    memories: dict[int, PartitionMemory] = field(default_factory=dict)
    refilled: list[tuple[int, int, str]] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    """Partitions of another node, which is away."""
    lost_node: str = ""
    """Id of a node that is away: URLs with "lost" in them belong there."""
    admissions: int = 0

    def holding(self, duty: Duty) -> QueueDouble:
        return self

    def announce(self, what: bytes, crawls: Collection[int]) -> None:
        self.announced.append((what, crawls))

    def _check(self) -> None:
        if self.away:
            raise Unavailable("redis is away")
        if self.broken is not None:
            raise self.broken

    def fingerprint(self, url: str) -> int:
        return fingerprint(url)

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
        self._check()
        self.admissions += 1
        crawl_id, force = crawl, mode is Mode.FORCE
        if crawl_id not in self.crawls and partial:  # only the store has the crawl as yet
            return Admitted([False] * len(items), 0, {}, {"untold"}, range(len(items)))
        if crawl_id not in self.crawls:
            raise UnknownCrawl(f"no crawl {crawl_id}")
        seen = self.seen.setdefault(crawl_id, [])
        flags = []
        missed = {
            i for i, item in enumerate(items) if partial and self.lost_node and "lost" in item.url
        }
        for i, item in enumerate(items):
            if i in missed:
                flags.append(False)
                continue
            flags.append(item.url not in seen)
            if force or flags[-1]:
                seen.append(item.url)
        before = self.sums.get(crawl_id) or Sums()
        self.sums[crawl_id] = replace(before, admitted=len(seen), waiting=len(seen))
        self.activity.set()
        away = [self.lost_node] if missed else []
        return Admitted(flags, self.ticks[-1] if self.ticks else 0, {}, away, missed)

    def owed(self) -> bool:
        return False

    def nodes_away(self) -> dict[str, NodeAway]:
        if not self.lost_node:
            return {}
        return {self.lost_node: NodeAway("redis://b", 1000, "Redis at redis://b is away")}

    def nodes_full(self) -> tuple[NodeFull, ...]:
        return (NodeFull("redis://a", 900_000, 1_000_000),) if self.full else ()

    def partition_memory(
        self, partition: int, most: int = 50, crawls: Sequence[int] = ()
    ) -> PartitionMemory:
        self._check()
        if partition in self.lost:
            raise Unavailable("redis is away")
        return self.memories.get(partition, PartitionMemory(0, 0, False, []))

    def under(self, partition: int) -> tuple[str, int]:
        return ("away" if partition in self.lost else "node"), 1

    def refill(self, crawl: int, partition: int, host: str) -> int:
        self._check()
        self.refilled.append((crawl, partition, host))
        return 1

    def watch_memory(self) -> None:
        pass

    def put_crawl(self, crawl: Crawl) -> None:
        self._tell(crawl, state_of(crawl))

    def _tell(self, crawl: Crawl, state: str) -> None:
        self._check()
        if crawl.id in self.crawls and crawl.version < self.crawls[crawl.id].version:
            return
        self.crawls[crawl.id], self.states[crawl.id] = crawl, state
        self.told.append((crawl.id, state))

    def drop_crawl(self, crawl: int) -> None:
        self._check()
        self.crawls.pop(crawl, None)

    def partition_of(self, host: str) -> int:
        return partition_of(host, 64)

    def stop_leasing(self, crawl: Crawl) -> None:
        self._tell(crawl, "stop")

    def shut(self, crawl: Crawl) -> None:
        self._tell(crawl, "done")

    def count(self, crawls: Sequence[Crawl]) -> Counts | None:
        return None if self.away or self.lost_node else {crawl.id: {} for crawl in crawls}

    def look(
        self, crawl: Crawl, counts: Counts | None = None
    ) -> tuple[Sums, frozenset[str]] | None:
        self.scans += 1
        sums = self.sums.get(crawl.id, Sums())
        known = self.crawls.get(crawl.id)
        if known is None or known.version < crawl.version:
            self.put_crawl(crawl)
            return None
        if self.away or sums is None or known.version != crawl.version:
            return None
        return sums, frozenset({self.states[crawl.id]})

    def idle_crawls(self, within: float) -> tuple[dict[int, float], bool]:
        return {crawl: ago for crawl, ago in self.still.items() if ago <= within}, not self.away

    def lease(self, request: LeaseRequest) -> LeaseReply:
        self._check()
        self.last = request
        return LeaseReply(self.sessions)

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        self._check()
        self.last = request
        return ReconcileReply(sessions=1, tasks=2)

    def extend(self, items: Sequence[Any], ttl: float) -> list[Any]:
        self._check()
        self.last = ttl
        return ["ok" for _ in items]

    def close_sessions(self, items: Sequence[Any]) -> list[Any]:
        self._check()
        self.last = items
        return ["ok" for _ in items]

    def finish(self, items: Sequence[Any]) -> list[Any]:
        self._check()
        self.last = items
        return ["stale" for _ in items]

    def release(self, items: Sequence[Any]) -> list[Any]:
        self._check()
        self.last = items
        return ["gone" for _ in items]

    def stats_of(self, crawls: Sequence[Crawl], counts: Counts | None = None) -> list[CrawlStats]:
        return [self.stats(crawl) for crawl in crawls]

    def stats(self, crawl: Crawl, counts: Counts | None = None) -> CrawlStats:
        self._check()
        sums = self.sums.get(crawl.id) or Sums()
        return CrawlStats(
            crawl=crawl.name, state=crawl.state, waiting=sums.waiting, leased=sums.leased
        )

    def host(self, host: str) -> HostState:
        self._check()
        delay = 0.0 if host != "slow.example" else 4.0
        return HostState(host=host, partition=partition_of(host, 64), kept_delay=delay)

    def patch_host(self, host: str, patch: HostPatch) -> HostState:
        self._check()
        self.last = patch
        return HostState(host=host, partition=0, delay=patch.delay or 0.0)

    def slowest(self, limit: int = 5) -> list[HostState]:
        return [HostState(host="slow.example", partition=1, latency=2.0)][:limit]

    def resting(self) -> tuple[int, float]:
        return self.rests

    def workers(self) -> tuple[int, tuple[str, ...]]:
        return self.at_work, self.claimed_twice

    def find_url(self, crawl: Crawl, url: str, stored_ms: int = 0) -> UrlState:
        self._check()
        if self.lost_node and "lost" in url:
            raise Unavailable("Redis at redis://b is away")
        waiting = url in self.seen.get(crawl.id, [])
        why = "It waits for its turn." if waiting else ""
        return UrlState(
            crawl=crawl.name, url=url, state="waiting" if waiting else "unseen", why=why
        )

    def tick(self, stamp: Stamp) -> None:
        self.ticks.append(stamp.clock)

    def repair(self, everything: bool) -> None:
        self._check()
        self.repaired.append(everything)

    def repairs(self) -> list[NodeRepair]:
        return [NodeRepair(node="redis://a", phase="done" if self.repaired else "none")]

    def ready(self) -> str | None:
        return "redis://a is away" if self.away else None

    lease_calls_waiting = 3

    def vitals(self) -> list[NodeVitals]:
        return [NodeVitals(id="a", node="redis://a", up=not self.away, epoch=2, used_bytes=1000)]


class OutagesDouble:
    """A note of an outage of the store; ``now_writable`` stands for one of the last seconds."""

    def __init__(self) -> None:
        self.now_writable = False
        self.note: Outage | None = None

    def writable(self) -> None:
        self.now_writable = True

    def begin(self, outage: Outage) -> bool:
        if self.now_writable or self.note is not None:
            return False
        self.note = outage
        return True

    def note_told(self, outage: Outage) -> None:
        self.note = Outage(outage.at_ms, outage.text, told=True)

    def open(self) -> Outage | None:
        return self.note

    def end(self) -> None:
        self.note = None


class BeatsDouble:
    """Heartbeats in a dictionary, which do not expire; ``away`` makes every call raise
    Unavailable."""

    def __init__(self) -> None:
        self.away = False
        self.known: dict[str, Beat] = {}

    def beat(self, member: str, incarnation: int, facts: Facts) -> BeatStatus:
        if self.away:
            raise Unavailable("redis is away")
        known = self.life(member)
        if known > incarnation:
            return "older"
        self.known[member] = Beat(incarnation, epoch_ms(), facts)
        return "known" if known == incarnation else "new"

    def life(self, member: str) -> int:
        return 0 if self.away or member not in self.known else self.known[member].incarnation

    def gone(self, member: str, incarnation: int) -> None:
        if member in self.known and self.known[member].incarnation == incarnation:
            del self.known[member]

    def heard(self, members: Iterable[str]) -> dict[str, Beat]:
        return {} if self.away else {one: self.known[one] for one in members if one in self.known}


class Parts:
    """A broker's service over such a frontier and a SQLite file; ``now`` is its clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.queue = QueueDouble()
        self.store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
        self.service = Service(self.queue, self.store, clock=lambda: self.now)
