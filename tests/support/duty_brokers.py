"""Brokers on two nodes that run one call at a time, and what a former holder may not do.

A *job* is one round of work under a duty. Between any two of its calls it may stand still until
another broker takes the duty, while it still believes that it has the duty. From then on none of
its steps may change the store, nor any node that knows the later epoch (:meth:`Fences.advance`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any

import gevent
import redis

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.recovery import debts
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.purge import Purging
from greencrawl.broker.tasks.refill import Refill
from greencrawl.broker.tasks.retention import Limits, Retention
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.schema.errors import DutyLost, Unavailable, UnknownCrawl
from greencrawl.schema.records import Duty
from tests.support.paced import Pace, Paced, PacedStore
from tests.support.redis_dump import dump

TTL_S, REQUEST_S = 20.0, 10.0
HOST_BYTES = 110
"""Memory of a host's waiting tasks: four wait in memory, the others in the overflow."""
TABLES = (
    "crawls", "pages", "finals", "seed_batches", "overflow", "blocks", "debts", "purges", "clock",
)  # fmt: skip
WRITES = {
    "commit", "tick", "set_state", "reopen", "owe", "put_overflow", "overflow_taken", "add_seeds",
    "restamp_seeds", "seeds_admitted", "note_purge", "purge_step", "end_purge", "drop_seeds",
    "begin_replay", "end_replay",
}  # fmt: skip
"""Calls that change the store."""
FENCED = {names.UPKEEP, names.REFILL, names.PURGE}
"""Each call of a node by a job of these duties is made under the duty."""
Heard = dict[tuple[int, str], int]
"""(node, name of a duty) → the highest epoch under which the node was called."""


class WatchedDuties(Duties):
    """Notes for each job under which duty it runs."""

    def __init__(self, store: Any, pace: Pace) -> None:
        super().__init__(store)
        self._pace = pace

    def take(self, name: str) -> Duty | None:
        found = super().take(name)
        job = self._pace.known.get(gevent.getcurrent())
        if found is not None and job is not None and name.split(":")[0] == job.name:
            job.duty = found
        return found


class Broker:
    """A broker's parts without its greenlets and the HTTP API; :meth:`jobs` names its jobs."""

    def __init__(
        self, urls: Sequence[str], pace: Pace, store: PacedStore, heard: Heard, number: int
    ) -> None:
        """``number`` is added to the bytes that the broker gives a host: so brokers differ a
        little."""
        self.duties = WatchedDuties(store, pace)
        self.frontier = Frontier(
            urls, store, partitions=2, lease_seconds=TTL_S, request_seconds=REQUEST_S,
            host_bytes=HOST_BYTES + number, create=True, duties=self.duties,
        )  # fmt: skip
        self.store = store
        for index, node in enumerate(self.frontier.nodes):
            pace.node(node)
            _heed(node, index, pace, heard)
        self.service = Service(self.frontier, store, pace.monotonic, duties=self.duties)
        pace.service(self.service)
        self.upkeep = Upkeep(self.service)
        _heed_ends(self.upkeep, pace)
        self._refill = Refill(self.service)
        self._purging = Purging(self.service)
        self._retention = Retention(self.service, Limits())
        self.deaf = False
        """True if the broker learns that a crawl runs out of quota only from its own scans."""

    def jobs(self, limited: Callable[[], int]) -> dict[str, Callable[[], None]]:
        """Return a round for each duty by name; ``limited`` is the crawl with a limit."""
        return {
            names.UPKEEP: self._look,
            names.REFILL: lambda: self._refill.step(self.store.overflow_places()),
            names.PURGE: self._purging.work,
            names.RETENTION: self._sweep,
            names.REPLAY: self.frontier._debts.step,
            names.QUOTAS: lambda: self._share(limited()),
        }

    def _look(self) -> None:
        self.upkeep._next.clear()
        self.upkeep.step()

    def _sweep(self) -> None:
        duty = self.duties.take(names.RETENTION)
        if duty is not None:
            self._retention.sweep(duty, 0)

    def _share(self, crawl: int) -> None:
        wanting = self.frontier._quotas._wanting
        if self.deaf and crawl not in wanting:
            return
        duty = self.duties.take(names.QUOTAS)
        if duty is not None:
            wanting.discard(crawl)
            self.frontier._quotas.share(self.store.crawl(crawl), duty)

    def run(self, name: str, job: Callable[[], None]) -> None:
        """Run a job, and handle its exceptions like its greenlet."""
        try:
            job()
        except DutyLost:
            self.duties.lost(name)
        except (Unavailable, UnknownCrawl):
            pass  # it comes again

    def cut(self, node: int) -> None:
        """Cut off a node from this broker; others reach it."""
        self.frontier.nodes[node].breaker.since_ms = 1

    def mend(self) -> None:
        for node in self.frontier.nodes:
            node.breaker.since_ms = 0

    def stop(self) -> None:
        self.frontier.stop()


def _heed(node: Node, number: int, pace: Pace, heard: Heard) -> None:
    """Note under which epochs of duties a node was called; stop before a script of its own."""
    run, command = node.run, node.command

    def note(name: str, epoch: int) -> None:
        heard[number, name] = max(epoch, heard.get((number, name), 0))

    def noting_run(*args: Any, **more: Any) -> Any:
        found = run(*args, **more)
        duty = more.get("duty", args[2] if len(args) > 2 else None)
        job = pace.known.get(gevent.getcurrent())
        if duty is None and job is not None and job.name in FENCED:
            duty = job.duty  # every call of such a job names its duty
        if duty is not None:
            note(duty.name, duty.epoch)
        return found

    def noting_command(*args: Any) -> Any:
        if args[0] == "EVAL":
            pace.gate("eval")
        found = command(*args)
        if args[:2] == ("EVAL", debts._MARK) and found > 0:
            note(args[7], args[8])
        return found

    node.run = noting_run  # type: ignore[method-assign]
    node.command = noting_command  # type: ignore[method-assign]


def _heed_ends(upkeep: Upkeep, pace: Pace) -> None:
    """Stop after two scans that found nothing to do in a crawl, before its partitions are shut."""
    finish = upkeep._finish

    def gated_finish(*args: Any) -> None:
        pace.gate("shut")
        finish(*args)

    upkeep._finish = gated_finish  # type: ignore[method-assign]


class Fences:
    """Lets jobs go on, and checks that a job whose duty has passed on changes nothing."""

    def __init__(self, sql: sqlite3.Connection, servers: Sequence[redis.Redis]) -> None:
        self._sql = sql
        self._servers = servers
        self.heard: Heard = {}

    def advance(self, job: Paced, steps: int) -> None:
        for _ in range(steps):
            if job.over:
                return
            duty = job.duty
            if duty is None or self.epoch(duty.name) == duty.epoch:
                job.step(1)
                continue
            before = self._guarded(job.name, duty)
            job.step(1)
            after = self._guarded(job.name, duty)
            for name, found in after.items():
                assert found == before[name], f"{duty} has passed on, and it changed {name}"

    def advance_to(self, job: Paced, calls: Collection[str], count: int) -> None:
        """Let a job go on until it is about to make one of these calls for the ``count``-th
        time."""
        while not job.over:
            self.advance(job, 1)
            count -= job.before in calls
            if count <= 0:
                return

    def epoch(self, name: str) -> int:
        row = self._sql.execute("SELECT epoch FROM duties WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def _guarded(self, job: str, duty: Duty) -> dict[str, Any]:
        """Return everything that a former holder may not change.

        Any broker may offer links of a debt again and again: only the payment counts. A late gift
        of quota is refused by its number (``lua/crawls/quota.lua``), not by the duty.
        """
        tables = {names.REPLAY: ("debts",), names.QUOTAS: ()}.get(job, TABLES)
        found: dict[str, Any] = {
            table: self._sql.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            if table != "clock"
            else self._sql.execute("SELECT * FROM clock").fetchall()
            for table in tables
        }
        for number, server in enumerate(self._servers):
            if job == names.QUOTAS or self.heard.get((number, duty.name), 0) <= duty.epoch:
                continue
            owner = server.hgetall(keys.OWNER)
            owner.pop("used", None)
            if job == names.REPLAY:
                owner = {name: owner.get(name) for name in ("tick", "debt")}
            else:
                found[f"node {number}"] = dump(server)
            found[f"owner of node {number}"] = owner
        return found
