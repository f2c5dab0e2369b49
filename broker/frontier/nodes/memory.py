"""The limits of memory on a node: how much may wait there, and when it is near its limit.

The limit is Redis' own ``maxmemory``, or half of its machine's memory if none is set. Half of it is
for tasks, a twentieth for the files of robots.txt, a twentieth for what crawls know of shapes at
hosts, a tenth for records of idle hosts. Each share is divided evenly among the node's partitions.
The rest is for the seen-set and sessions. Tasks beyond their share go to the overflow in SQL
(``lua/queue/admit.lua``). The files of robots.txt and the shapes are in caches, which drop older
entries (``lua/shared/cache.lua``). Hosts that have been idle for longest are dropped, too
(``lua/shared/common.lua``). From 80 % of the limit on, nothing new is admitted until the use is
below 75 % again. docs/operations.md has all bounds.
"""

from __future__ import annotations

from contextlib import suppress

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Duty

log = logger("frontier")

HOST_BYTES = 16 * 1024 * 1024
"""The waiting tasks of one host may have this many bytes: about 150,000 URLs."""
TASK_SHARE = 0.5
ROBOTS_SHARE = 0.05
TRAPS_SHARE = 0.05
IDLE_SHARE = 0.10
IDLE_BYTES = 450
"""Bytes of an idle host, with its entry in the index."""
FORCED_SHARE = 0.02
FORCED_BYTES = 80
"""A fingerprint of a forced batch takes at most this many bytes."""
LEAST = 16
"""Each partition may have at least this many idle hosts, and fingerprints."""
FULL_SHARE, ROOM_SHARE = 0.80, 0.75
FULL_SECONDS = 1.0


_WRITE = f"""
redis.call('DEL', '{keys.NIL}')
if ARGV[1] ~= '' then
  local field, epoch = 'duty:' .. ARGV[1], tonumber(ARGV[2])
  local known = tonumber(redis.call('HGET', KEYS[1], field) or 0)
  if epoch < known then return 0 end
  if epoch > known then redis.call('HSET', KEYS[1], field, epoch) end
end
return redis.call('HSET', KEYS[1], unpack(ARGV, 3))
"""
"""Writes fields unless another broker has the duty.

ARGV: name of a duty or '', its epoch, fields and values. Under an older epoch it does nothing.
"""


def watch(node: Node, partitions: int, host_bytes: int, duty: Duty | None = None) -> None:
    """Read the node's memory and write the budgets into its owner record. Raises Unavailable.

    Fields: ``budget``, bytes of tasks in a partition; ``host_budget``, bytes of waiting tasks of a
    host; ``robots_budget`` and ``traps_budget``, bytes of robots.txt and of known shapes in a
    partition; ``idle_hosts`` and ``forced``, numbers of idle hosts and of fingerprints of forced
    batches in a partition; ``full``, 1 near the limit.
    """
    used, limit = used_and_limit(node)
    full = used > limit * (ROOM_SHARE if node.full else FULL_SHARE)
    if full != node.full:
        log.warning(
            "node_memory_changed", node=node.shown, full=full, used_bytes=used, limit_bytes=limit
        )
    node.full = full
    budget = int(limit * TASK_SHARE / partitions)
    robots = int(limit * ROBOTS_SHARE / partitions)
    traps = int(limit * TRAPS_SHARE / partitions)
    idle = max(int(limit * IDLE_SHARE / partitions / IDLE_BYTES), LEAST)
    forced = max(int(limit * FORCED_SHARE / partitions / FORCED_BYTES), LEAST)
    under = (duty.name, duty.epoch) if duty else ("", 0)
    node.command(
        "EVAL", _WRITE, 1, keys.OWNER, *under,
        "budget", budget, "host_budget", host_bytes, "robots_budget", robots,
        "traps_budget", traps, "idle_hosts", idle, "forced", forced, "full", int(full),
    )  # fmt: skip


def used_and_limit(node: Node) -> tuple[int, int]:
    """Return the bytes that the node's data take, and those that they may take. Raises
    Unavailable."""
    info = _info(node)
    return info["used_memory"], info["maxmemory"] or info["total_system_memory"] // 2


def _info(node: Node) -> dict[str, int]:
    found = {}
    for line in node.command("INFO", "memory").decode().splitlines():
        name, _, value = line.partition(":")
        if value.isdigit():
            found[name] = int(value)
    return found


class Memory:
    """The budgets of all nodes: one broker writes them, under its duty, and the others read
    them."""

    def __init__(self, placement: Placement, host_bytes: int) -> None:
        self._placement = placement
        self._host_budget = host_bytes
        self._read = 0.0
        """When it was last read whether nodes are near their limits."""

    def watch(self, duty: Duty | None = None) -> None:
        """Write each node's budget into its owner record, and whether it is near its limit."""
        for node in self._placement.nodes:
            if count := len(self._placement.partitions_on(node)):
                with suppress(Unavailable):
                    watch(node, count, self._host_budget, duty)

    @property
    def full(self) -> bool:
        """Return whether some node is near its memory limit: then no further seeds are taken.

        One broker checks their memory and notes the result there; it is read at most once a second.
        """
        if monotonic() - self._read >= FULL_SECONDS:
            self._read = monotonic()
            for node in self._placement.nodes:
                with suppress(Unavailable):
                    node.full = node.command("HGET", keys.OWNER, "full") == b"1"
        return any(node.full for node in self._placement.nodes)
