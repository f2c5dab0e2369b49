"""Sessions of workers: opens, extends and closes them, and settles or releases their tasks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from greencrawl.broker.frontier.coordination.activity import ActivityEvent
from greencrawl.broker.frontier.coordination.fence import StoreContact
from greencrawl.broker.frontier.coordination.workers import WorkerRegistry
from greencrawl.broker.frontier.leasing import Leasing
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import BATCH, FEW, Scripts
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.records import (
    CloseItem,
    ExtendItem,
    FinishItem,
    HostReport,
    HostState,
    ItemStatus,
    LeaseReply,
    LeaseRequest,
    ReconcileReply,
    ReconcileRequest,
    ReleaseItem,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store

SLOWEST = 64
_BY_TASK = frozenset({"finish", "extend"})

Item = TypeVar("Item", bound=FinishItem | CloseItem | ExtendItem | ReleaseItem)


class Slowest:
    """Latencies of the :data:`SLOWEST` hosts whose sessions closed last at this broker."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._hosts: OrderedDict[str, float] = OrderedDict()

    def note(self, host: str, report: HostReport) -> None:
        """Keep what a session measured, unless it has sent no request."""
        if report.requests:
            self._hosts[host] = report.latency
            self._hosts.move_to_end(host)
            while len(self._hosts) > SLOWEST:
                self._hosts.popitem(last=False)

    def slowest(self, limit: int = 5) -> list[HostState]:
        """Return hosts of recent sessions at this broker, the longest latency first."""
        top = sorted(self._hosts.items(), key=lambda item: -item[1])[:limit]
        return [
            HostState(host=host, partition=self._placement.partition_of(host), latency=latency)
            for host, latency in top
        ]


class Sessions:
    """Calls on sessions.

    Every call may raise Unavailable: calling again under the same tokens loses nothing.
    """

    def __init__(
        self,
        calls: Scripts,
        placement: Placement,
        store: Store,
        leasing: Leasing,
        registry: WorkerRegistry,
        store_contact: StoreContact,
        slowest: Slowest,
        activity: ActivityEvent,
        request_ms: int,
    ) -> None:
        """Build the object; ``request_ms`` is the longest request, which may go on after its
        session ended."""
        self._calls = calls
        self._placement = placement
        self._store = store
        self._leasing = leasing
        self._registry = registry
        self._store_contact = store_contact
        self._slowest = slowest
        self._activity = activity
        self._request_ms = request_ms

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Open sessions, waiting for the first up to ``request.wait`` seconds."""
        # otherwise the caller would wait here, while another broker may serve it
        self._store_contact.check()
        reply = self._leasing.lease(request)
        if not reply.superseded:
            self._registry.at_work(request.worker, request.incarnation)
        for session in reply.sessions:
            self._activity.set(session.crawl)
        return reply

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        """Release sessions up to the sequence that this incarnation does not hold, and all sessions
        of dead incarnations.

        The answer names the nodes that could not be asked: these may not have released all yet.
        """
        placement = self._placement
        gone: set[int] = set()
        sessions = tasks = superseded = 0
        left = set(placement.partitions)
        away: set[int] = set()
        told: set[int] = set()
        late = False
        while left:
            args = part.reconcile_args(request, self._request_ms, FEW, gone)
            replies = self._calls("reconcile", dict.fromkeys(left, args), partial=True)
            away.update(placement.identity.placement[p] for p in left - replies.keys())
            left.clear()
            old: dict[int, int] = {}
            for p, reply in replies.items():
                if reply[0] == b"OLD":
                    old[p], late = reply[2], late or not reply[2]
                    continue
                sessions, tasks = sessions + reply[1], tasks + reply[2]
                gone.update(reply[4])
                if reply[3]:
                    left.add(p)
            # A node that was away did not learn of the later process; it is told once.
            newest = max(gone, default=0)
            unaware = {p for p, newer in old.items() if 0 < newer <= newest} - told
            told |= unaware
            left |= unaware
            superseded = max([superseded, *(newer for p, newer in old.items() if p not in unaware)])
        if not late:
            self._enrol(request, superseded)
        nodes = tuple(placement.nodes[i].shown for i in sorted(away))
        return ReconcileReply(sessions, tasks, nodes, superseded)

    def _enrol(self, request: ReconcileRequest, superseded: int) -> None:
        if superseded:
            self._registry.refused(request.worker)
        elif request.leaving:
            self._registry.left(request.worker, request.incarnation)
        else:
            self._registry.at_work(request.worker, request.incarnation, begins=True)

    # -- items of several sessions

    def extend(self, items: Sequence[ExtendItem], ttl: float) -> list[ItemStatus]:
        """Extend sessions by another ``ttl`` seconds."""
        head = [round(ttl * 1000), self._request_ms]
        return self._batched(
            "extend", head, items, lambda i: [i.token, i.session.partition("/")[2]]
        )[0]

    def close_sessions(self, items: Sequence[CloseItem]) -> list[ItemStatus]:
        """Free hosts and keep what was learnt of them; blocks are also written to the store."""
        head = [part.LONGEST_BLOCK_SECONDS * 1000, part.FIRST_BACKOFF_SECONDS * 1000]
        statuses, replies = self._batched("close", head, items, part.close_row)
        blocks: dict[int, list[tuple[int, int]]] = {}
        for p, (now, _, until, maintain_at) in replies:
            blocks.setdefault(p, []).extend((now, ms) for ms in until)
            self._leasing.note(p, 0, maintain_at)
        seen: dict[int, int] = {}
        for item, status in zip(items, statuses, strict=True):
            if status == "away":
                continue
            p, host = int(item.session.partition("/")[0]), item.session.partition("/")[2]
            n = seen[p] = seen.get(p, -1) + 1
            now, until = blocks[p][n] if p in blocks else (0, 0)
            if until:
                self._store.put_block(host, epoch_ms() + until - now, item.report.failed)
            self._slowest.note(host, item.report)
        return statuses

    def finish(self, items: Sequence[FinishItem]) -> list[ItemStatus]:
        """Settle tasks under their session's token."""
        statuses, replies = self._batched("finish", [], items, part.finish_row)
        for p, (_, _, maintain_at, crawls) in replies:
            self._leasing.note(p, 0, maintain_at)
            for crawl in crawls:
                self._activity.set(crawl)
        return statuses

    def release(self, items: Sequence[ReleaseItem]) -> list[ItemStatus]:
        """Hand back unfetched tasks, without a failure."""
        return self._batched("release", [], items, part.release_row)[0]

    def _batched(
        self, script: str, head: list[Any], items: Sequence[Item], row: Callable[[Item], list[Any]]
    ) -> tuple[list[Any], list[tuple[int, list[Any]]]]:
        """Send items by partition in batches; return statuses in order, and the replies.

        If a node does not answer, its items get the status "away", and its remaining items are not
        sent.
        """
        size = BATCH if script in _BY_TASK else FEW
        by_partition: dict[int, list[int]] = {}
        statuses: list[Any] = ["stale"] * len(items)
        partitions = self._placement.identity.partitions
        for i, item in enumerate(items):
            p = int(item.session.partition("/")[0])
            if p < partitions:
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
