"""Which worker processes are at work, as all brokers see them, and which names two of them claim.

The notes are kept in Redis for a short time only, by the clock of the node. They are written to the
first node that answers, so a reader asks all nodes. A worker that waits for work asks for a lease
every 20 s or so. A busy worker may ask for no lease as long as its sessions last.
"""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.errors import Unavailable

NOTE_SECONDS = 25.0
"""Seconds between two notes of a leasing worker by one broker."""
HEARD_SECONDS = 60.0
"""How long a worker counts as at work after its last call."""
CLAIMED_SECONDS = 20.0
"""How long a name counts as claimed twice after a worker was refused for it. Such a worker asks
more often than this."""


_NOTE = f"""
redis.call('DEL', '{keys.NIL}')
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[3])
"""
"""ARGV: logical ms, worker, and the time before which notes are dropped.

The note is written at the memory limit, too: old notes are dropped, so they never take much, and a
refusal would cost all idle connections.
"""


class WorkerRegistry:
    """The workers as one broker sees them. A note that cannot be written is replaced by the next
    note."""

    def __init__(self, nodes: Sequence[Node], clock: Clock = monotonic) -> None:
        self._nodes = nodes
        self._clock = clock
        self._noted: dict[tuple[str, int], float] = {}
        """(Worker, incarnation) → when it was noted last, if lately."""

    def at_work(self, worker: str, incarnation: int, *, begins: bool = False) -> None:
        """Note a worker that leases, unless it was noted lately.

        A worker that ``begins`` to lease is always noted: another broker may have removed its name.
        """
        now, who = self._clock(), (worker, incarnation)
        if not begins and now - self._noted.get(who, -NOTE_SECONDS) < NOTE_SECONDS:
            return
        self._noted = {w: at for w, at in self._noted.items() if now - at < NOTE_SECONDS}
        self._noted[who] = now
        self._note(keys.WORKERS, worker, HEARD_SECONDS)

    def refused(self, worker: str) -> None:
        """Note that a process asked under a name that a later process has."""
        self._note(keys.CLAIMED, worker, CLAIMED_SECONDS)

    def left(self, worker: str, incarnation: int) -> None:
        """Remove a worker that said that it leaves."""
        self._noted.pop((worker, incarnation), None)
        for node in self._nodes:
            try:
                node.command("ZREM", keys.WORKERS, worker)
            except Unavailable:  # its note expires
                continue

    def workers(self) -> frozenset[str]:
        """Return the workers at work, as far as nodes answer."""
        return self._heard(keys.WORKERS, HEARD_SECONDS)

    def claimed_twice(self) -> frozenset[str]:
        """Return names of which one process waits while another works, as far as nodes answer."""
        return self._heard(keys.CLAIMED, CLAIMED_SECONDS)

    def summary(self) -> tuple[int, tuple[str, ...]]:
        """Return how many worker processes are at work, and the names that two of them claim."""
        return len(self.workers()), tuple(sorted(self.claimed_twice()))

    def _note(self, key: str, worker: str, seconds: float) -> None:
        """Write the time of a note, and drop old ones."""
        for node in self._nodes:
            try:
                now = node.now_ms()
                old = round(now - 1000 * seconds)
                node.command("EVAL", _NOTE, 1, key, round(now), worker, old)
                return
            except Unavailable:
                continue

    def _heard(self, key: str, seconds: float) -> frozenset[str]:
        found: set[str] = set()
        for node in self._nodes:
            try:
                since = round(node.now_ms() - 1000 * seconds)
                found.update(
                    name.decode() for name in node.command("ZRANGEBYSCORE", key, since, "+inf")
                )
            except Unavailable:
                continue
        return frozenset(found)
