"""The frontier: what waits to be fetched, and who holds which host.

Workers use :meth:`Frontier.admit` and the robots cache directly; leasing, finishing and seeding go
through the broker, which calls the rest. Every method raises
:class:`schema.errors.Unavailable` when Redis is away or closed: nothing is lost by calling again,
since scripts are idempotent under their fingerprints and tokens.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import gevent
import msgspec

from greencrawl.broker.frontier import partition as part
from greencrawl.broker.frontier.brokers import duties as names
from greencrawl.broker.frontier.brokers.duties import Duties
from greencrawl.broker.frontier.brokers.fence import WORD_SECONDS, Word
from greencrawl.broker.frontier.brokers.news import ACTIVITY, OVERFLOW, QUOTA, Stirring, message
from greencrawl.broker.frontier.brokers.quotas import Quotas, row_of, wanted
from greencrawl.broker.frontier.brokers.wake_ups import Waking
from greencrawl.broker.frontier.brokers.workers import Roll
from greencrawl.broker.frontier.leasing import TEND_MOST, Leasing
from greencrawl.broker.frontier.nodes import keys, memory
from greencrawl.broker.frontier.nodes.node import UNTIMED, Fenced, Full, Moved, Node, Restarted
from greencrawl.broker.frontier.nodes.ring import assemble
from greencrawl.broker.frontier.partition import Mode
from greencrawl.broker.frontier.recovery.debts import Debts
from greencrawl.broker.frontier.recovery.opening import Recovery, mark_clean, settled
from greencrawl.broker.frontier.totals import Scan, total
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.crawl_cache import Kept
from greencrawl.schema.errors import DutyLost, GreencrawlError, Unavailable, UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.net import urls
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Crawl,
    CrawlStats,
    Duty,
    ExtendItem,
    FinishItem,
    HostPatch,
    HostState,
    ItemStatus,
    LeaseReply,
    LeaseRequest,
    Mark,
    NodeAway,
    NodeRepair,
    Overflow,
    ReconcileReply,
    ReconcileRequest,
    ReleaseItem,
    Stamp,
    Totals,
    UrlState,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store

log = logger("frontier")

BATCH = 128
"""URLs or tasks a script call: some 10 µs of the server each, so that none stalls it for long."""
FEW = 32
"""The same for sessions and hosts, which may bring dozens of tasks each."""
PIPELINED = 512
"""Calls of a round trip to a node, where there are many."""
NEED_WORD = frozenset({"open", "extend", "tend", "beat"})
"""Scripts that are not run without a word of the store."""
_BY_TASK = frozenset({"finish", "extend"})
STILL_MS = 60_000
"""A note that nothing of a crawl is leased in a partition is dropped after that."""
FULL_SECONDS = 1.0
KNOWN_SECONDS = 2.0
KNOWN_MOST, KNOWN_IDLE_SECONDS = 1000, 300.0
"""Crawls whose rows are kept, and how long after they were asked for last."""
SLOWEST = 64

_NEW, _BEYOND = b"12"
"""Flags of ``lua/queue/admit.lua``."""

Row = tuple[int, str, Any]
"""(fingerprint, host, item)."""
Grouped = dict[int, list[tuple[int, Row]]]
"""By partition: (what the caller tells it by, row)."""
Counts = dict[int, dict[int, list[Any]]]
"""By crawl and partition: what ``lua/crawls/count.lua`` answers."""


class Room(NamedTuple):
    """Bytes of tasks in a partition and its budget (0: none); whether its node is near its limit;
    (crawl, host) of hosts that run low while more of them waits in the overflow; crawls that have
    nothing to lease there now, and could take in something.
    """

    used: int
    budget: int
    full: bool
    dry: list[tuple[int, str]]
    idle: Sequence[int] = ()


Item = TypeVar("Item", bound=FinishItem | CloseItem | ExtendItem | ReleaseItem)


class Admitted(list[bool]):
    """True for each URL that was not seen before.

    ``tick`` is the largest of the nodes that were asked, ``epochs`` those under which they were.
    ``away`` are nodes that could not be asked, and ``missed`` the numbers of their URLs.
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
    """Nodes that could not be asked, and the numbers of what belongs there."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.numbers: set[int] = set()

    def add(self, node: Node, rows: Iterable[tuple[int, Row]]) -> None:
        self.nodes.add(node.id)
        self.numbers.update(i for i, _ in rows)


class Frontier:
    """One process's view of the frontier on one or several Redis nodes.

    ``create`` is for brokers: it makes the frontier if there is none and reopens nodes that were
    restarted. A worker joins what is there. Raises FrontierMismatch, Unavailable.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        store: Store,
        *,
        partitions: int = 64,
        lease_seconds: float = 60.0,
        request_seconds: float = 60.0,
        host_bytes: int = memory.HOST_BYTES,
        create: bool = False,
        duties: Duties | None = None,
        word_seconds: float = WORD_SECONDS,
    ) -> None:
        """``duties`` of this broker, which begin and end with the frontier; its own by default."""
        self._store = store
        self.duties = duties or Duties(store)
        self._duty: Duty | None = None
        self._fullness = 0.0
        """When it was last read whether nodes are near their limits."""
        self._host_budget = host_bytes
        self._create = create
        self._request_ms = round(request_seconds * 1000)
        self.gap_ms = round(min(15.0, lease_seconds / 2) * 1000)
        nodes = [Node(address) for address in addresses]
        self.identity, self.nodes = assemble(nodes, store, partitions, create=create)
        self._node_of = [self.nodes[i] for i in self.identity.placement]
        self.roll = Roll(self.nodes)
        self._crawls: Kept[int, tuple[float, Crawl]] = Kept(KNOWN_MOST, KNOWN_IDLE_SECONDS)
        self._slowest: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._greenlets: list[gevent.Greenlet[..., Any]] = []
        self.activity = Stirring()
        """Set whenever something was admitted, leased or finished, here or by another broker."""
        self.overflowing = Stirring()
        """Set when something waits in the overflow, as far as this process knows."""
        self.leasing = Leasing(
            self._calls,
            lambda p: self._node_of[p].now_ms(),
            self._known,
            lambda crawl: self._waking.opened(crawl),
            request_seconds,
            self._left_out,
        )
        self._word = Word(store.clock, self._told, word_seconds)
        self.rest_ms = round(lease_seconds * 1000) + self._request_ms + self._word.margin_ms
        """How long a node may not open sessions after it was taken over."""
        self.recovery = Recovery(self, store)
        self._debts = Debts(self, store, self.duties)
        self._quotas = Quotas(self._calls, store, self.duties, self.partitions)
        self._waking = Waking(
            self._calls,
            self._run,
            self.leasing,
            store,
            self.nodes,
            self.recovery.reopen,
            self._quotas.want,
            self.duties,
            {ACTIVITY: self.activity, OVERFLOW: self.overflowing},
        )
        if create:
            for node in self.nodes:
                self.duties.want(names.clock(node.id))
                node.clock.duty = partial(self.duties.take, names.clock(node.id))
                try:
                    self.recovery.meet(node)
                except Unavailable:
                    if not self._spared(node):
                        raise
            self.watch_memory()

    # -- identity

    def fingerprint(self, canonical: str) -> int:
        """Signed 64-bit fingerprint of a canonical URL under this frontier's secret."""
        return urls.fingerprint(canonical, self.identity.secret)

    def partition_of(self, host: str) -> int:
        return urls.partition_of(host, self.identity.partitions)

    @property
    def partitions(self) -> range:
        return range(self.identity.partitions)

    def partitions_on(self, node: Node) -> list[int]:
        return [p for p in self.partitions if self._node_of[p] is node]

    # -- duties

    def holding(self, duty: Duty) -> Frontier:
        """This frontier, for the holder of a duty: its calls raise DutyLost once it passed on."""
        held = copy.copy(self)
        held._duty, held._store = duty, self._store.under(duty)
        return held

    def announce(self, what: bytes, crawls: Collection[int]) -> None:
        """Tell the other brokers of it. One that is not heard finds out in time; raises nothing."""
        for node in self.nodes:  # a broker may be cut off from some
            with suppress(Unavailable):
                node.command("PUBLISH", keys.WAKE, message(what, crawls))

    # -- calls

    def _calls(
        self,
        script: str,
        calls: dict[int, bytes],
        *,
        partial: bool = False,
        duty: Duty | None = None,
        failed: dict[int, Unavailable] | None = None,
    ) -> dict[int, list[Any]]:
        """Run a script on several partitions: one round trip a node, nodes side by side.

        ``partial``: see :class:`broker.frontier.leasing.Calls`; ``failed`` takes why each node
        that was left out was. Raises DutyLost where another broker has taken ``duty``.
        """
        by_node: dict[int, list[int]] = {}
        for p in calls:
            by_node.setdefault(self.identity.placement[p], []).append(p)

        def ask(index: int) -> dict[int, list[Any]] | Exception:
            on = by_node[index]
            try:
                replies = self._run(self.nodes[index], script, [(p, calls[p]) for p in on], duty)
            except (GreencrawlError, RuntimeError) as error:  # a greenlet would print it
                return error
            return dict(zip(on, replies, strict=True))

        if len(by_node) == 1:
            answers = [ask(next(iter(by_node)))]
        else:
            jobs = [gevent.spawn(ask, index) for index in by_node]
            try:
                gevent.joinall(jobs)
            finally:
                gevent.killall(jobs)
            answers = [job.get() for job in jobs]
        found: dict[int, list[Any]] = {}
        errors: dict[int, Exception] = {}
        for index, answer in zip(by_node, answers, strict=True):
            if isinstance(answer, Exception):
                errors[index] = answer
            else:
                found |= answer
        for index, error in errors.items():
            away = isinstance(error, Unavailable) and not isinstance(error, DutyLost)
            if not (partial and away and (found or self._others_serve(by_node))):
                raise error
            if failed is not None and isinstance(error, Unavailable):
                failed[index] = error
        return found

    def _others_serve(self, asked: Collection[int]) -> bool:
        """Whether a node with partitions may answer, other than those that were just asked."""
        return any(
            index not in asked and not self.nodes[index].breaker.since_ms
            for index in set(self.identity.placement)
        )

    def _spared(self, node: Node) -> bool:
        """Whether a node is away while another serves: what it misses it is told when it is back.

        By its listener it is met then, by its debts and the scans it is told of crawls.
        """
        return bool(node.breaker.since_ms) and self._others_serve((self.nodes.index(node),))

    def _left_out(self, partition: int) -> bool:
        """Whether a partition's node is away while another serves."""
        return self._spared(self._node_of[partition])

    def nodes_away(self) -> dict[str, NodeAway]:
        """By their ids the nodes that do not answer, or that nothing may be asked of."""
        found = {}
        for node in self.nodes:
            if node.breaker.since_ms:
                found[node.id] = NodeAway(node.shown, node.breaker.since_ms, node.breaker.why)
            elif why := self.recovery.refused.get(node.id):
                found[node.id] = NodeAway(node.shown, 0, why)
        return found

    def _run(
        self,
        node: Node,
        script: str,
        calls: list[tuple[int, bytes]],
        duty: Duty | None = None,
    ) -> list[list[Any]]:
        self.recovery.check(node)
        duty = duty or self._duty
        beats = script not in UNTIMED
        if beats and self._create:
            if script in NEED_WORD:
                self._fenced(node)
            else:
                beats = self._word.heard()
        try:
            return node.run(script, calls, duty, beats=beats)
        except Moved:  # another broker has reopened it, or it was away when we began
            if self._create and not node.epoch:
                self.recovery.reopen(node)
            else:
                node.adopt(node.owner())
            raise
        except Restarted:
            if self._create:
                self.recovery.reopen(node)
            else:
                node.adopt(node.owner())
            raise

    def _fenced(self, node: Node) -> None:
        """Raises Unavailable unless the store has said of late that this is the node it knows."""
        try:
            node.follow(self._word.epoch(node.id))
        except Fenced:
            self.recovery.reopen(node)
            raise

    def _told(self, stamp: Stamp) -> None:
        """Compare each node with what the store has just said."""
        for node in self.nodes:
            try:
                self.recovery.compare(node, stamp)
            except Unavailable as error:
                log.info("not_compared", node=node.shown, reason=str(error))

    def _batched(
        self, script: str, head: list[Any], items: Sequence[Item], row: Callable[[Item], list[Any]]
    ) -> tuple[list[Any], list[tuple[int, list[Any]]]]:
        """Send items by partition in batches; returns statuses in order, and the replies.

        Those whose node does not answer are "away", and the rest of them are not sent to it.
        """
        size = BATCH if script in _BY_TASK else FEW
        by_partition: dict[int, list[int]] = {}
        statuses: list[Any] = ["stale"] * len(items)
        for i, item in enumerate(items):
            p = int(item.session.partition("/")[0])
            if p < self.identity.partitions:
                by_partition.setdefault(p, []).append(i)
        replies: list[tuple[int, list[Any]]] = []
        while by_partition:
            batch = {p: due[:size] for p, due in by_partition.items()}
            by_partition = {p: d[size:] for p, d in by_partition.items() if len(d) > size}
            calls: dict[int, bytes] = {}
            for p, numbers in batch.items():
                calls[p] = to_msgpack([*head, *(row(items[i]) for i in numbers)])
            found = self._calls(script, calls, partial=True)
            for p, reply in found.items():
                for i, status in zip(batch[p], reply[1], strict=True):
                    statuses[i] = status.decode()
                replies.append((p, reply))
            for p in calls.keys() - found.keys():
                for i in (*batch[p], *by_partition.pop(p, ())):
                    statuses[i] = "away"
        return statuses, replies

    # -- used by workers too

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
        """Queue what is new of ``items`` (canonical URLs).

        What is beyond the memory budget waits in the store's overflow instead.
        ``stamp`` is that of their rows in the log: a node is asked only under an epoch that is not
        below the one read with it. The caller compares it with the tick returned: if that is more
        than MARGIN ahead it has to write the rows again, and admit again. Idempotent; FORCE is so
        only for a ``batch`` (its number in the log of seeds). ``partial``: what belongs to a node
        that cannot be asked is left out, and named in the answer. Raises UnknownCrawl when the
        crawl was deleted.
        """
        grouped = self._grouped(items)
        away = _Missed() if partial else None
        asked = {node.id: node for node in map(self._node_of.__getitem__, grouped)}
        if stamp is not None:
            for name, node in list(asked.items()):
                try:
                    node.follow(stamp.epochs.get(name, 0))
                except Unavailable:
                    if away is None or not self._others_serve((self.nodes.index(node),)):
                        raise
                    for p in self.partitions_on(node):
                        away.add(node, grouped.pop(p, ()))
        epochs = {name: int(node.epoch or 0) for name, node in asked.items()}
        new, newest = [False] * len(items), 0
        beyond: list[tuple[int, Row]] = []
        for rows, flags, tick in self._admit(crawl, grouped, mode, batch, away):
            newest = max(newest, tick)
            for (i, row), flag in zip(rows, flags, strict=True):
                new[i] = flag == _NEW
                if flag == _BEYOND:
                    beyond.append((i, row))
        if beyond:
            for (i, _), fresh in zip(beyond, self._overflow(crawl, beyond), strict=True):
                new[i] = fresh
        self.activity.set(crawl)
        if away is None:
            return Admitted(new, newest, epochs)
        return Admitted(new, newest, epochs, away.nodes, away.numbers)

    def away_of(self, items: Iterable[Admission]) -> frozenset[str]:
        """Those nodes which ``items`` belong to and which are known not to answer, while others do.

        It costs next to nothing as long as all answer, and ends when all that do not are found.
        """
        if not any(node.breaker.since_ms for node in self.nodes):
            return frozenset()
        away = {node.id for node in self.nodes if self._spared(node)}
        found: set[str] = set()
        hosts: set[str] = set()
        for item in items:
            host = urls.host_of(item.url)
            if host in hosts:
                continue
            hosts.add(host)
            found |= {self._node_of[self.partition_of(host)].id} & away
            if found == away:
                break
        return frozenset(found)

    def nodes_of(self, items: Iterable[Admission]) -> frozenset[str]:
        """Ids of the nodes which ``items`` belong to."""
        partitions = {self.partition_of(urls.host_of(item.url)) for item in items}
        return frozenset(self._node_of[p].id for p in partitions)

    def admit_rows(self, crawl: int, rows: Grouped) -> None:
        """:meth:`admit` for one who has their fingerprints already, and wants no answer."""
        beyond: list[tuple[int, Row]] = []
        for some, flags, _ in self._admit(crawl, rows, Mode.NEW, 0):
            if _BEYOND in flags:
                beyond += [row for row, flag in zip(some, flags, strict=True) if flag == _BEYOND]
        if beyond:
            self._overflow(crawl, beyond)
        self.activity.set(crawl)

    def mark_settled(self, crawl: int, marks: Sequence[Mark]) -> None:
        """Count as seen and finished what a node is told of the past; idempotent.

        Raises UnknownCrawl when the crawl was deleted.
        """
        for _ in self._admit(crawl, self._grouped(marks), Mode.MARK, 0):
            pass

    def _admit(
        self,
        crawl: int,
        grouped: Grouped,
        mode: Mode,
        batch: int,
        away: _Missed | None = None,
    ) -> Iterator[tuple[list[tuple[int, Row]], bytes, int]]:
        """Call the script in batches; yields (index, row) with a reply's flags and tick.

        What cannot be asked goes to ``away``, if that is given.
        """
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
            except Full as error:  # it may have taken some of them, and knows them then
                if mode is not Mode.NEW:
                    raise
                log.warning("overflowing", reason=str(error))
                for rows in round_.values():
                    yield rows, bytes([_BEYOND]) * len(rows), 0
                continue
            for p, reply in replies.items():
                if reply[0] == b"GONE":
                    wrong = self._unknown(crawl, p)
                    if away is None or isinstance(wrong, UnknownCrawl):
                        raise wrong
                    away.add(self._node_of[p], [*round_[p], *grouped.pop(p, ())])
                    continue
                if reply[0] == b"DONE":
                    done = max(done, reply[2])
                    grouped[p] = round_[p] + grouped.get(p, [])
                    continue
                if self._create:
                    self.leasing.note(p, crawl, reply[3])
                yield round_[p], reply[2], reply[1]
            for p in round_.keys() - replies.keys():
                if mode is Mode.NEW and isinstance(failed[self.identity.placement[p]], Full):
                    yield round_[p], bytes([_BEYOND]) * len(round_[p]), 0
                elif away is not None:
                    away.add(self._node_of[p], [*round_[p], *grouped.pop(p, ())])
            if done:
                self._reopen(crawl, done)

    def _reopen(self, crawl: int, version: int) -> None:
        """Make a crawl that is done in Redis since ``version`` active again: first in the store.

        Raises UnknownCrawl, Unavailable.
        """
        known = self._store.reopen(crawl, version)
        if known.version < version:
            raise Unavailable(f"the store knows crawl {crawl} at an earlier version than Redis")
        self.put_crawl(known)

    def _unknown(self, crawl: int, partition: int) -> GreencrawlError:
        """What is wrong where a node does not know a crawl: it was deleted, or not told yet.

        A node that was away or is being refilled has not been told of all that came meanwhile: it
        is told now, for the next time.
        """
        node = self._node_of[partition]
        try:
            self.tell(self._store.crawl(crawl), node)
        except UnknownCrawl:
            return UnknownCrawl(f"crawl {crawl} was deleted")
        except Unavailable as error:
            return error
        return Unavailable(f"Redis at {node.shown} has not been told of crawl {crawl} yet")

    def _grouped(self, items: Sequence[Admission | Mark]) -> Grouped:
        """(index, row) of each item by partition."""
        secret, partitions = self.identity.secret, self.identity.partitions
        grouped: Grouped = {}
        for i, item in enumerate(items):
            host = urls.host_of(item.url)
            row = (urls.fingerprint(item.url, secret), host, item)
            grouped.setdefault(urls.partition_of(host, partitions), []).append((i, row))
        return grouped

    # -- beyond the budget

    def _overflow(self, crawl: int, beyond: Sequence[tuple[int, Row]]) -> list[bool]:
        """Commit rows to the store's overflow, and only then mark them as known."""
        rows = [row for _, row in beyond]
        spilled = [
            Overflow(fingerprint, self.partition_of(host), item) for fingerprint, host, item in rows
        ]
        self._store.put_overflow(crawl, spilled)
        self.overflowing.set()
        return self._mark(crawl, rows)

    def _mark(self, crawl: int, rows: Sequence[Row]) -> list[bool]:
        """Mark rows of the overflow as known; a mark that finds no room is harmless."""
        fresh = [True] * len(rows)
        by_partition: dict[int, list[int]] = {}
        for i, (_, host, _) in enumerate(rows):
            by_partition.setdefault(self.partition_of(host), []).append(i)
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
                log.info("unmarked", reason=str(error))
                continue
            for p, reply in replies.items():
                if reply[0] == b"GONE":
                    raise self._unknown(crawl, p)
                if reply[0] == b"DONE":
                    done = max(done, reply[2])
                    by_partition[p] = round_[p] + by_partition.get(p, [])
                    continue
                for i, flag in zip(round_[p], reply[1], strict=True):
                    fresh[i] = flag == _NEW
            if done:
                self._reopen(crawl, done)
        return fresh

    def mark_spilled(self, crawl: int, rows: Sequence[Overflow]) -> None:
        """Let a node know what waits in the overflow; idempotent. Raises UnknownCrawl."""
        self._mark(crawl, [self._row(row) for row in rows])
        self.overflowing.set()

    @staticmethod
    def _row(spilled: Overflow) -> Row:
        return (spilled.fingerprint, urls.host_of(spilled.item.url), spilled.item)

    def room(self, partition: int, most: int = 50, crawls: Sequence[int] = ()) -> Room:
        """What a partition could take from the overflow now, and which of ``crawls`` need it.

        Raises Unavailable.
        """
        reply = self._calls("dry", {partition: to_msgpack([most, *crawls])})[partition]
        _, used, budget, full, members, idle = reply
        dry = [member.decode().split("\n", 1) for member in members]
        return Room(used, budget, bool(full), [(int(crawl), host) for crawl, host in dry], idle)

    def under(self, partition: int) -> tuple[str, int]:
        """The node of a partition, and the epoch under which it is asked now."""
        node = self._node_of[partition]
        return node.id, int(node.epoch or 0)

    def refill(self, crawl: int, partition: int, host: str, most: int = 1024) -> int:
        """Bring tasks of a host back from the overflow, the best first, until ``most`` or no room.

        Returns how many came. Idempotent, and harmless when two brokers do it at once: what was
        brought is known to the seen-set, and rows are told by the node's epoch. Raises Unavailable.
        """
        node = self._node_of[partition]
        brought, epoch = 0, int(node.epoch or 0)
        while brought < most:
            found = self._store.overflow(crawl, partition, host, BATCH)
            items = [row.item for row in found]
            admitting = self._admit(crawl, self._grouped(items), Mode.REFILL, 0)
            flags = b"".join(flags for _, flags, _ in admitting)
            taken = [row for row, flag in zip(found, flags, strict=True) if flag != _BEYOND]
            if taken:
                self._store.overflow_taken(taken, node.id, epoch)
            brought += len(taken)
            if len(taken) < len(found) or len(found) < BATCH:
                left = [row for row, flag in zip(found, flags, strict=True) if flag == _BEYOND]
                level = chr(part.LEVEL_A + left[0].item.level) if left else ""
                args = to_msgpack([crawl, host, level])
                self._calls("level", {partition: args})
                break
        if brought:
            self.activity.set(crawl)
        return brought

    def watch_memory(self) -> None:
        """Write each node's budget into its owner record, and whether it is near its limit."""
        for node in self.nodes:
            if count := len(self.partitions_on(node)):
                with suppress(Unavailable):
                    memory.watch(node, count, self._host_budget, self._duty)

    @property
    def full(self) -> bool:
        """Whether some node is near its memory limit: no further seeds are taken.

        One broker looks at their memory and notes it there; it is read at most once a second.
        """
        if monotonic() - self._fullness >= FULL_SECONDS:
            self._fullness = monotonic()
            for node in self.nodes:
                with suppress(Unavailable):
                    node.full = node.command("HGET", keys.OWNER, "full") == b"1"
        return any(node.full for node in self.nodes)

    def robots_get(self, origin: str) -> bytes | None:
        """What :meth:`robots_put` kept for an origin, or None."""
        p = self.partition_of(urls.host_of(origin + "/"))
        value: bytes | None = self._node_of[p].command("GET", keys.robots(p, origin))
        return value

    def robots_put(self, origin: str, value: bytes, seconds: int, *, needed: bool = False) -> bool:
        """Keep an origin's robots.txt for all workers, for ``seconds`` at most.

        False where there is no room, and nothing was kept: it is a cache, and older ones go for
        newer ones. ``needed``: another session waits for it, so it is kept in any case, for some
        minutes.
        """
        p = self.partition_of(urls.host_of(origin + "/"))
        args = to_msgpack([origin, part.blob(value), max(seconds, 1), int(needed)])
        try:
            return bool(self._calls("robots_put", {p: args})[p][1])
        except Full:
            return False

    # -- logins, which workers share; what is sealed has no meaning here

    def _script(self, script: str, name: str, *args: Any) -> list[Any]:
        """Run a script in the partition of ``name``, which is its first argument."""
        p = self.partition_of(name)
        return self._calls(script, {p: to_msgpack([name, *args])})[p]

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        """Generation and sealed state of what :meth:`login_put` kept last, or None."""
        p = self.partition_of(name)
        command = ("HMGET", keys.login(p, name), "generation", "sealed")
        generation, sealed = self._node_of[p].command(*command)
        return None if sealed is None else (int(generation), sealed)

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        """Become the one who logs in under ``name`` for ``seconds``, or go on being it.

        Returns 0 if another is. Otherwise how many claims there were since the last that ended in
        :meth:`login_put` or :meth:`login_drop`, this one included: what is more than one took its
        process along, or too long.
        """
        return int(self._script("login_claim", name, token, _ms(seconds))[1])

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        """Keep what a login left behind, for ``seconds``.

        False, and nothing is kept, if ``token`` does not hold the claim (any more), or what is
        kept has as high a generation. The claim goes on.
        """
        args = (token, generation, part.blob(sealed), _ms(seconds))
        return bool(self._script("login_put", name, *args)[1])

    def login_drop(self, name: str, token: str) -> None:
        """Give a claim back; one that another holds stays."""
        self._script("login_drop", name, token)

    def errand_put(self, host: str, errand_id: str, sealed: bytes, seconds: float) -> None:
        """Leave a request for whoever holds ``host``, who may take it within ``seconds``."""
        self._script("errand_put", host, errand_id, part.blob(sealed), _ms(seconds))

    def errand_take(self, host: str) -> tuple[str, bytes] | None:
        """Id and sealed request of what has waited longest for ``host``, or None. Taken once."""
        _, errand_id, sealed = self._script("errand_take", host)
        return (errand_id.decode(), sealed) if errand_id else None

    def errand_answer(self, host: str, errand_id: str, sealed: bytes, seconds: float) -> None:
        """Keep the answer to a request that was taken, for ``seconds``."""
        self._script("errand_answer", host, errand_id, part.blob(sealed), _ms(seconds))

    def errand_answered(self, host: str, errand_id: str) -> bytes | None:
        """The sealed answer, or None as long as there is none."""
        p = self.partition_of(host)
        _, answer = keys.errand(p, host, errand_id)
        value: bytes | None = self._node_of[p].command("GET", answer)
        return value

    def errand_withdraw(self, host: str, errand_id: str) -> bool:
        """Withdraw a request; False if it was taken, and its answer may be on its way."""
        p = self.partition_of(host)
        request, _ = keys.errand(p, host, errand_id)
        return bool(self._node_of[p].command("DEL", request))

    def errand_drop(self, host: str, errand_id: str) -> None:
        """Withdraw a request, unless it was taken, and forget its answer."""
        p = self.partition_of(host)
        self._node_of[p].command("DEL", *keys.errand(p, host, errand_id))

    # -- crawls

    def _known(self, crawl: int) -> Crawl | None:
        """A crawl as the store has had it a moment ago: another broker may have changed it."""
        at, known = self._crawls.get(crawl) or (-KNOWN_SECONDS, None)
        if monotonic() - at < KNOWN_SECONDS:
            return known
        try:
            known = self._store.crawl(crawl)
        except UnknownCrawl:
            self._crawls.drop(crawl)
            return None
        except Unavailable:
            if known is None:
                raise
        self._note(known)
        return known

    def _note(self, crawl: Crawl) -> None:
        """Keep what the store has told of a crawl, unless something later is known."""
        _, known = self._crawls.get(crawl.id) or (0.0, crawl)
        later = known if known.version > crawl.version else crawl
        self._crawls[crawl.id] = (monotonic(), later)

    def put_crawl(self, crawl: Crawl) -> None:
        """Make a crawl, its state and its politeness known to every partition.

        One that has heard of a later version is left as it is. Nodes that are away are owed it.
        """
        self._note(crawl)
        self._tell(crawl, part.state_of(crawl), self.partitions, partial=True)

    def tell(self, crawl: Crawl, node: Node) -> None:
        """:meth:`put_crawl` on one node only."""
        self._tell(crawl, part.state_of(crawl), self.partitions_on(node))

    def tell_node(self, crawls: Iterable[Crawl], node: Node, *, afresh: bool = False) -> None:
        """:meth:`tell` of many, in few round trips. ``afresh``: their quotas count no more."""
        on, calls = self.partitions_on(node), []
        for crawl in crawls:
            args = part.crawl_args(crawl, part.state_of(crawl), afresh)
            calls += [(p, crawl.id, args) for p in on]
        for start in range(0, len(calls), PIPELINED):
            some = calls[start : start + PIPELINED]
            replies = self._run(node, "crawl", [(p, args) for p, _, args in some])
            for (p, crawl_id, _), (_, due, tend) in zip(some, replies, strict=True):
                self.leasing.note(p, crawl_id, due)
                self.leasing.note(p, 0, tend)
        self.activity.set()

    def told(self, node: Node) -> list[dict[int, int]]:
        """For each of a node's partitions the crawls it was told of, and their versions then."""
        on = self.partitions_on(node)
        replies = self._calls("told", dict.fromkeys(on, to_msgpack([])))
        told = [part.fields(reply[1]) for reply in replies.values()]
        return [{int(crawl): int(version) for crawl, version in one.items()} for one in told]

    def _tell(
        self, crawl: Crawl, state: str, partitions: Iterable[int], *, partial: bool = False
    ) -> None:
        calls = dict.fromkeys(partitions, part.crawl_args(crawl, state))
        replies = self._calls("crawl", calls, partial=partial)
        for p, (_, due, tend) in replies.items():
            self.leasing.note(p, crawl.id, due)
            self.leasing.note(p, 0, tend)
        if len(replies) < len(calls):
            self._store.owe({self._node_of[p].id for p in calls.keys() - replies.keys()})
        self.activity.set(crawl.id)

    def stop_leasing(self, crawl: Crawl) -> None:
        """No further session for this crawl, at every broker (a limit was reached)."""
        self._tell(crawl, "stop", self.partitions, partial=True)

    def shut(self, crawl: Crawl) -> None:
        """Take nothing in for this crawl any more, which is about to be finished.

        Whoever comes with something new reopens it in the store, whereby its version rises.
        """
        self._tell(crawl, "done", self.partitions)

    def drop_crawl(
        self, crawl: int, node: Node | None = None, between: Callable[[], None] | None = None
    ) -> None:
        """Delete a crawl in bounded steps; from the first on it is gone to everybody.

        ``node``: what one node has of it. ``between`` is called after each step.
        """
        self._crawls.drop(crawl)
        self._quotas.forget(crawl)
        args = to_msgpack([crawl, FEW])
        left = set(self.partitions if node is None else self.partitions_on(node))
        while left:
            replies = self._calls("purge", dict.fromkeys(left, args))
            left = {p for p, reply in replies.items() if reply[1]}
            if between is not None:
                between()

    def drain(self, crawl: int, host: str, gone: part.Drain, at: int) -> part.Drained:
        """Let go of tasks of a host that were settled, and name the next (``lua/queue/drain.lua``).

        Raises UnknownCrawl and Unavailable.
        """
        p = self.partition_of(host)
        fingerprints = [str(fingerprint) for fingerprint in gone.overflow]
        args = [crawl, host, BATCH, gone.waiting, gone.later, fingerprints, at]
        reply = self._calls("drain", {p: to_msgpack(args)})[p]
        if reply[0] == b"GONE":
            raise UnknownCrawl(f"crawl {crawl} was deleted")
        self.activity.set(crawl)
        return part.drained(reply)

    def scan(self, crawl: int) -> Totals | None:
        """Counters of the crawl as the store has it now; None if :meth:`look` is void."""
        found = self.look(self._store.crawl(crawl))
        return None if found is None else found.totals

    def count(self, crawls: Sequence[Crawl]) -> Counts | None:
        """Counters of some dozens of crawls at most, for :meth:`look`; None if that is to ask.

        It costs a node little more than those of one: what a script needs to begin is half of it.
        """
        ids = [crawl.id for crawl in crawls]
        try:
            replies = self._calls("count", dict.fromkeys(self.partitions, to_msgpack(ids)))
        except Unavailable:
            return None
        found: Counts = {id_: {} for id_ in ids}
        for p, reply in replies.items():
            for id_, row in zip(ids, part.counted(reply), strict=True):
                found[id_][p] = row
        return found

    def look(self, crawl: Crawl, counts: Counts | None = None) -> Scan | None:
        """Counters over all partitions, and the states that they have the crawl in.

        ``counts`` are those that :meth:`count` has just found; without them they are asked for.

        None, and the scan is void, when a node did not answer or is still owed what SQL holds, and
        when a partition does not know the crawl or has it at another version than ``crawl``'s: if
        that is an older one it is told again.
        """
        if any(node.breaker.since_ms for node in self.nodes):
            return None
        try:
            totals, replies = self._sum(crawl.id, counts)
            owed = {
                self.identity.placement[p]: reply[4] for p, reply in replies.items() if reply[4]
            }
            for index, how in owed.items():
                if self._create and how == 1:
                    self.recovery.reopen(self.nodes[index])  # unless somebody is at it
            behind = [p for p, (*_, version) in replies.items() if version < crawl.version]
            if behind:
                log.info("told_again", crawl=crawl.name, partitions=len(behind))
                self._tell(crawl, part.state_of(crawl), behind)
            ahead = max(version for *_, version in replies.values())
            if ahead > crawl.version and self._store.crawl(crawl.id).version < ahead:
                log.warning("store_behind", crawl=crawl.name, version=ahead)  # an older copy of it
                self.put_crawl(self._store.reopen(crawl.id, ahead))
        except Unavailable as error:
            log.info("scan_void", reason=str(error))
            return None
        self._waking.scanned(crawl.id, totals.leased)
        if wanted(crawl, {p: row_of(reply) for p, reply in replies.items()}):
            self._quotas.want(crawl.id)
            if not self.duties.get(names.QUOTAS):  # what it was told before it may not have heard
                self.announce(QUOTA, [crawl.id])
        if owed or any(version != crawl.version for *_, version in replies.values()):
            return None
        return Scan(totals, frozenset(state.decode() for *_, state, _ in replies.values()))

    def stilled(self, within: float) -> tuple[dict[int, float], bool]:
        """Crawls of which nothing was leased any more somewhere → how many seconds ago.

        Only if that was ``within`` so many seconds, and as far as nodes answer: whether all do.
        """
        found: dict[int, float] = {}
        answered = True
        for node in self.nodes:
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

    def _sum(
        self, crawl: int, counts: Counts | None = None, *, partial: bool = False
    ) -> tuple[Totals, dict[int, list[Any]]]:
        """Counters of a crawl, and what each partition has answered. Raises Unavailable."""
        if counts is None:
            calls = dict.fromkeys(self.partitions, to_msgpack([crawl]))
            replies = self._calls("count", calls, partial=partial)
        else:
            replies = counts[crawl]
        totals = total(flat for _, flat, *_ in replies.values())
        if totals.overflow:
            self.overflowing.set()
        return totals, replies

    def stats(self, crawl: Crawl) -> CrawlStats:
        """Counters of a crawl, as far as nodes answer; raises Unavailable if none does."""
        totals, _ = self._sum(crawl.id, partial=True)
        counts = msgspec.structs.asdict(totals)
        return CrawlStats(crawl=crawl.name, state=crawl.state, reason=crawl.reason, **counts)

    # -- sessions

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Open sessions, waiting for the first up to ``request.wait`` seconds."""
        self._word.check()  # else the caller would wait here, while another broker may serve it
        reply = self.leasing.lease(request)
        if not reply.superseded:
            self.roll.at_work(request.worker, request.incarnation)
        for session in reply.sessions:
            self.activity.set(session.crawl)
        return reply

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        """Release this worker's sessions up to (incarnation, sequence) but those it holds.

        The answer names the nodes that could not be asked: there it is still to be done.
        """
        gone = request.incarnation if request.leaving else -1
        sessions = tasks = superseded = 0
        left = set(self.partitions)
        away: set[int] = set()
        told: set[int] = set()
        late = False
        while left:
            args = part.reconcile_args(request, self._request_ms, FEW, gone)
            replies = self._calls("reconcile", dict.fromkeys(left, args), partial=True)
            away.update(self.identity.placement[p] for p in left - replies.keys())
            left.clear()
            old: dict[int, int] = {}
            for p, reply in replies.items():
                if reply[0] == b"OLD":
                    old[p], late = reply[2], late or not reply[2]
                    continue
                sessions, tasks = sessions + reply[1], tasks + reply[2]
                gone = max(gone, reply[4])
                if reply[3]:
                    left.add(p)
            # A node that was away did not hear that the later one has left; it is told once.
            unaware = {p for p, newer in old.items() if 0 < newer <= gone} - told
            told |= unaware
            left |= unaware
            superseded = max([superseded, *(newer for p, newer in old.items() if p not in unaware)])
        if not late:
            self._enrol(request, superseded)
        nodes = tuple(self.nodes[i].shown for i in sorted(away))
        return ReconcileReply(sessions, tasks, nodes, superseded)

    def _enrol(self, request: ReconcileRequest, superseded: int) -> None:
        if superseded:
            self.roll.refused(request.worker)
        elif request.leaving:
            self.roll.left(request.worker, request.incarnation)
        else:
            self.roll.at_work(request.worker, request.incarnation, begins=True)

    def extend(self, items: Sequence[ExtendItem], ttl: float) -> list[ItemStatus]:
        """Keep sessions for another ``ttl`` seconds."""
        head = [round(ttl * 1000), self._request_ms]
        return self._batched(
            "extend", head, items, lambda i: [i.token, i.session.partition("/")[2]]
        )[0]

    def close_sessions(self, items: Sequence[CloseItem]) -> list[ItemStatus]:
        """Free hosts and keep what was learnt of them; blocks are written through to the store."""
        head = [part.LONGEST_BLOCK_SECONDS * 1000, part.FIRST_BACKOFF_SECONDS * 1000]
        statuses, replies = self._batched("close", head, items, part.close_row)
        blocks: dict[int, list[tuple[int, int]]] = {}
        for p, (now, _, until, tend) in replies:
            blocks.setdefault(p, []).extend((now, ms) for ms in until)
            self.leasing.note(p, 0, tend)
        seen: dict[int, int] = {}
        for item, status in zip(items, statuses, strict=True):
            if status == "away":
                continue
            p, host = int(item.session.partition("/")[0]), item.session.partition("/")[2]
            n = seen[p] = seen.get(p, -1) + 1
            now, until = blocks[p][n] if p in blocks else (0, 0)
            if until:
                self._store.put_block(host, epoch_ms() + until - now, item.report.failed)
            if item.report.requests:
                self._slowest[host] = (item.report.latency, item.report.requests)
                self._slowest.move_to_end(host)
        while len(self._slowest) > SLOWEST:
            self._slowest.popitem(last=False)
        return statuses

    def finish(self, items: Sequence[FinishItem]) -> list[ItemStatus]:
        """Settle tasks under their session's token."""
        statuses, replies = self._batched("finish", [], items, part.finish_row)
        for p, (_, _, tend, crawls) in replies:
            self.leasing.note(p, 0, tend)
            for crawl in crawls:
                self.activity.set(crawl)
        return statuses

    def release(self, items: Sequence[ReleaseItem]) -> list[ItemStatus]:
        """Hand back unfetched tasks, uncharged."""
        return self._batched("release", [], items, part.release_row)[0]

    # -- questions and operations

    def host(self, host: str) -> HostState:
        """What is known of a host; raises Unavailable."""
        return self.patch_host(host, HostPatch())

    def patch_host(self, host: str, patch: HostPatch) -> HostState:
        """Set a host's least delay, or block it for some seconds (0 lifts either).

        Both are in the store when this returns. Where it raises Unavailable a delay may be in the
        store alone, and comes into force when it is set again, or when the node is refilled.
        """
        delay = -1 if patch.delay is None else round(patch.delay * 1000)
        block = -1 if patch.block is None else round(patch.block * 1000)
        if delay >= 0:
            self._store.put_delay(host, delay)
        state = self._ask_host(host, delay, block)
        while delay >= 0 and (present := self._store.delay(host)) != delay:
            delay = present  # another has set it meanwhile, and may have told Redis before
            state = self._ask_host(host, delay, -1)
        if patch.block:
            self._store.put_block(host, epoch_ms() + round(state.blocked_in * 1000), "operator")
        elif patch.block is not None:
            self._store.lift_block(host)
        return state

    def _ask_host(self, host: str, delay_ms: int, block_ms: int) -> HostState:
        """Set what is not -1."""
        p = self.partition_of(host)
        args = to_msgpack([host, delay_ms, block_ms])
        now, flat, waiting, why = self._calls("host", {p: args})[p]
        return part.host_state(host, p, now, part.fields(flat), waiting, why.decode())

    def delay_again(self, node: Node, delays: Mapping[str, int]) -> None:
        """Put operators' delays from the store, host → ms, back in force at a node's hosts."""
        self._set_hosts(node, ((host, delay_ms, -1) for host, delay_ms in delays.items()))

    def block_again(self, node: Node, blocks: Iterable[tuple[str, int]]) -> None:
        """Put blocks from the store, (host, epoch ms), back in force at a node's hosts.

        Those that are past, or shorter than the one in force, change nothing.
        """
        now = epoch_ms()
        some = ((host, -1, until_ms - now) for host, until_ms in blocks if until_ms > now)
        self._set_hosts(node, some)

    def _set_hosts(self, node: Node, rows: Iterable[tuple[str, int, int]]) -> None:
        """Set (host, delay ms or -1, block ms or -1) at those of the hosts that are the node's."""
        on, calls = set(self.partitions_on(node)), []
        for row in rows:
            p = self.partition_of(row[0])
            if p in on:
                calls.append((p, to_msgpack(row)))
        for start in range(0, len(calls), PIPELINED):
            self._run(node, "host", calls[start : start + PIPELINED])

    def slowest(self, limit: int = 5) -> list[HostState]:
        """Hosts of recent sessions at this broker, the longest latency first."""
        top = sorted(self._slowest.items(), key=lambda item: -item[1][0])[:limit]
        return [
            HostState(host=host, partition=self.partition_of(host), latency=latency)
            for host, (latency, _) in top
        ]

    def resting(self) -> tuple[int, float]:
        """Hosts that rest since a worker's process died, and for how many seconds at most.

        Nodes that are away are left out.
        """
        hosts, longest = 0, 0.0
        for node in self.nodes:
            with suppress(Unavailable):
                count, till = node.command("HMGET", keys.OWNER, "crash_hosts", "crash_till")
                left = (int(till or 0) - node.now_ms()) / 1000 if till else 0.0
                if left > 0:
                    hosts, longest = hosts + int(count), max(longest, left)
        return hosts, longest

    def workers(self) -> tuple[int, tuple[str, ...]]:
        """How many worker processes are at work, and the names that two of them claim."""
        return len(self.roll.workers()), tuple(sorted(self.roll.claimed_twice()))

    def where(self, crawl: Crawl, url: str) -> UrlState:
        """Where a canonical URL stands in Redis: waiting, leased, later, seen or unseen."""
        host = urls.host_of(url)
        p = self.partition_of(host)
        args = [crawl.id, host, str(self.fingerprint(url)), urls.task_path(url)]
        now, seen, place, detail, more = self._calls("where", {p: to_msgpack(args)})[p]
        known = UrlState(crawl=crawl.name, url=url, host=host)
        if place == b"waiting":
            state = self.host(host)
            why = f"waiting: number {detail} of {host}'s queue{_held_up(state)}"
            return msgspec.structs.replace(known, state="waiting", why=why)
        if place == b"leased":
            why = f"leased by worker {detail.decode()}: being fetched or about to be"
            return msgspec.structs.replace(known, state="leased", why=why)
        if place == b"later":
            errors = part.task_of(0, host, "A" + more.decode()).errors
            seconds = max(detail - now, 0) / 1000
            why = f"failed {errors} time(s); the next try is due in {seconds:.0f} s"
            return msgspec.structs.replace(known, state="later", why=why)
        if place == b"overflow":
            why = f"waiting in the overflow: {host} or its node has as much in memory as it may"
            return msgspec.structs.replace(known, state="overflow", why=why)
        if seen:
            return msgspec.structs.replace(known, state="seen", why="admitted to the queue earlier")
        return msgspec.structs.replace(
            known, why="never seen: no seed and no fetched page led to it"
        )

    # -- life

    def start(self) -> None:
        """Begin leasing: make the crawls known, look at all partitions, listen for wake-ups."""
        self.duties.start()
        self._debts.start()
        for node in self.nodes:
            if self.recovery.closed(node):  # a replay tells it of the crawls
                continue
            try:
                settled(node, partial(self._begin, node))
            except Unavailable:
                if not self._spared(node):
                    raise
        self._greenlets = [gevent.spawn(self.leasing.run), gevent.spawn(self._quotas.run)]
        for node in self.nodes:
            self._greenlets += [
                gevent.spawn(self._waking.listen, node, self.partitions_on(node)),
                gevent.spawn(self._waking.beats, node, self.partitions_on(node)),
            ]

    def _begin(self, node: Node) -> None:
        """Tell a node of the crawls, and learn what it has to do."""
        for crawl in self._store.crawls():
            self.tell(crawl, node)
        calls = dict.fromkeys(self.partitions_on(node), to_msgpack([TEND_MOST]))
        for p, (_, _, _, tend) in self._calls("tend", calls).items():
            self.leasing.note(p, 0, tend)

    def stop(self, *, clean: bool = False) -> None:
        """End. ``clean``: this process is about to stop Redis in order, which is noted there."""
        gevent.killall(self._greenlets)
        self._word.stop()
        self.recovery.stop()
        self._debts.stop()
        self.duties.stop()
        for node in self.nodes:
            if clean:
                with suppress(Unavailable):  # then it is not clean
                    mark_clean(node)
            node.breaker.stop()
            node.close()

    def tick(self, stamp: Stamp) -> None:
        """Write the log's clock, just read, to every node as its tick, and follow the epochs.

        A node that does not answer is left out. One that is owed something has not got past where
        that begins: else a copy of it that comes back would not be given what it missed. Raises
        DutyLost, Unavailable.
        """
        owed = self._store.debts()  # read after the clock: a later debt begins there or later
        for node in self.nodes:
            on = self.partitions_on(node)
            debt = owed.get(node.id)
            tick = stamp.clock if debt is None else min(stamp.clock, debt.since)
            try:
                self.recovery.compare(node, stamp)
                self._waking.beat(node, on[0] if on else 0, tick, duty=self._duty)
            except DutyLost:
                raise
            except Unavailable as error:
                log.info("no_tick", node=node.shown, reason=str(error))

    def repair(self, everything: bool) -> None:
        """Give the nodes again what the store's log holds since their ticks, or all of it.

        Goes on in the background; see :meth:`repairs`. Raises Unavailable after the others if that
        could not begin at a node.
        """
        failed: Unavailable | None = None
        for node in self.nodes:
            try:
                self.recovery.repair(node, everything)
            except Unavailable as error:
                failed = error
        if failed is not None:
            raise failed

    def repairs(self) -> list[NodeRepair]:
        """What this process does or did to refill each node."""
        return [self.recovery.report(node) for node in self.nodes]

    def ready(self) -> str | None:
        """None, or why the frontier cannot serve now: no node answers."""
        try:
            self._calls(
                "count",
                {
                    self.partitions_on(n)[0]: to_msgpack([0])
                    for n in self.nodes
                    if self.partitions_on(n)
                },
                partial=True,
            )
        except Unavailable as error:
            return str(error)
        return None

    def metrics(self) -> dict[str, float]:
        """Gauges of this process for Prometheus."""
        return {
            "lease_calls_waiting": self.leasing.waiting,
            "redis_nodes": len(self.nodes),
            "redis_nodes_away": len(self.nodes_away()),
        }


def _ms(seconds: float) -> int:
    """For how long Redis is to keep something: at least for a moment."""
    return max(round(seconds * 1000), 1)


def _held_up(state: HostState) -> str:
    if state.blocked_in > 0:
        why = f" ({state.why})" if state.why else ""
        return f"; the host is blocked for another {state.blocked_in:.0f} s{why}"
    if state.sessions:
        return "; the host is being fetched from now"
    if state.next_in > 0:
        return f"; the host rests for another {state.next_in:.1f} s (delay)"
    return ""
