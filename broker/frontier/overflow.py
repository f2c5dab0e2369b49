"""Brings URLs back from the overflow, or from a calendar, as memory allows; and drops settled
tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from greencrawl.broker.frontier.admission import (
    BEYOND,
    HOST_BUSY,
    HOST_DOWN,
    NO_ROOM,
    Admitting,
)
from greencrawl.broker.frontier.coordination.activity import ActivityEvent
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import BATCH, Scripts
from greencrawl.schema import crash_points
from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.records import Admission, Due
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store


class PartitionMemory(NamedTuple):
    """A partition's use of memory, and its needs.

    The fields are: bytes of its tasks, and its budget (0: none); whether its node is near its
    limit; (crawl, host) of hosts that run low while more of their URLs wait in the overflow; crawls
    that have nothing to lease there now, and could admit something.
    """

    used: int
    budget: int
    full: bool
    low: list[tuple[int, str]]
    idle: Sequence[int] = ()


class Refilling:
    """Looks for room and fills it. Every call may raise Unavailable."""

    def __init__(
        self,
        calls: Scripts,
        placement: Placement,
        store: Store,
        admitting: Admitting,
        activity: ActivityEvent,
    ) -> None:
        self._calls = calls
        self._placement = placement
        self._store = store
        self._admitting = admitting
        self._activity = activity

    def partition_memory(
        self, partition: int, most: int = 50, crawls: Sequence[int] = ()
    ) -> PartitionMemory:
        """Return what a partition could take from the overflow now, and which of ``crawls`` need
        it.

        Raises Unavailable.
        """
        reply = self._calls("low_hosts", {partition: to_msgpack([most, *crawls])})[partition]
        _, used, budget, full, members, idle = reply
        low = [member.decode().split("\n", 1) for member in members]
        return PartitionMemory(
            used, budget, bool(full), [(int(crawl), host) for crawl, host in low], idle
        )

    def refill(self, crawl: int, partition: int, host: str, most: int = 1024) -> int:
        """Bring tasks of a host back from the overflow, the best first, up to ``most`` or until
        there is no room.

        Returns how many came. Idempotent, and harmless when two brokers do it at once: the seen-set
        knows what was brought, and rows carry the node's epoch. Raises Unavailable.
        """
        brought, (node, epoch) = 0, self._placement.under(partition)
        while brought < most:
            found = self._store.overflow(crawl, partition, host, BATCH)
            flags = self._admitting.admit_again(crawl, [row.item for row in found])
            taken = [row for row, flag in zip(found, flags, strict=True) if flag != BEYOND]
            if taken:
                self._store.overflow_taken(taken, node, epoch)
            brought += len(taken)
            if len(taken) < len(found) or len(found) < BATCH:
                left = [row for row, flag in zip(found, flags, strict=True) if flag == BEYOND]
                level = chr(part.LEVEL_A + left[0].item.level) if left else ""
                args = to_msgpack([crawl, host, level])
                self._calls("host_level", {partition: args})
                break
        if brought:
            self._activity.set(crawl)
        return brought

    def ask_again(
        self, crawl: int, partition: int, rows: Sequence[Due], items: Sequence[Admission]
    ) -> bytes:
        """Queue what is due in a crawl's calendar, and note it as on its way; return a flag for
        each.

        The flag is :data:`HOST_BUSY` or :data:`NO_ROOM` if the URL has to wait, and
        :data:`HOST_DOWN` if its host has failed for long. ``items`` has the URLs of ``rows``; all
        belong to one partition. Idempotent, and harmless when two brokers do it at once, or one
        dies between the steps: the node knows what is on its way, and rows carry its epoch. Raises
        Unavailable, UnknownCrawl.
        """
        node, epoch = self._placement.under(partition)
        flags = self._admitting.admit_due(crawl, partition, items)
        crash_points.point("broker.after_again")
        waits = {NO_ROOM, HOST_BUSY, HOST_DOWN}
        queued = [row for row, flag in zip(rows, flags, strict=True) if flag not in waits]
        if queued:
            self._store.calendar_taken(crawl, queued, node, epoch)
            self._activity.set(crawl)
        return flags

    def drain(self, crawl: int, host: str, gone: part.Drain, at: int) -> part.Drained:
        """Drop tasks of a host that were settled, and name the next (``lua/queue/drain.lua``).

        Raises UnknownCrawl and Unavailable.
        """
        p = self._placement.partition_of(host)
        fingerprints = [str(fingerprint) for fingerprint in gone.overflow]
        args = [crawl, host, BATCH, gone.waiting, gone.later, fingerprints, at]
        reply = self._calls("drain", {p: to_msgpack(args)})[p]
        if reply[0] == b"GONE":
            raise UnknownCrawl(f"crawl {crawl} was deleted")
        self._activity.set(crawl)
        return part.drained(reply)
