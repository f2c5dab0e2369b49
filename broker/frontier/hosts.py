"""The state of hosts and of single URLs, and the delays and blocks of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import PIPELINED, Scripts
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.net import urls
from greencrawl.schema.records import Crawl, HostPatch, HostState, UrlState
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import Store


class Hosts:
    """Reads the state of hosts and URLs, and sets delays and blocks.

    Every call may raise Unavailable.
    """

    def __init__(self, calls: Scripts, placement: Placement, store: Store) -> None:
        self._calls = calls
        self._placement = placement
        self._store = store

    def host(self, host: str) -> HostState:
        """Return the state of a host; raises Unavailable."""
        return self.patch_host(host, HostPatch())

    def patch_host(self, host: str, patch: HostPatch) -> HostState:
        """Set a host's least delay, or block it for some seconds (0 lifts either).

        Both are in the store when this returns. If it raises Unavailable, a delay may be only in
        the store. Then it comes into force when it is set again, or when the node is refilled.
        """
        delay = -1 if patch.delay is None else round(patch.delay * 1000)
        block = -1 if patch.block is None else round(patch.block * 1000)
        if delay >= 0:
            self._store.put_delay(host, delay)
        state = self._ask(host, delay, block)
        while delay >= 0 and (present := self._store.delay(host)) != delay:
            delay = present  # another broker has set it meanwhile, and may have told Redis earlier
            state = self._ask(host, delay, -1)
        if patch.block:
            self._store.put_block(host, epoch_ms() + round(state.blocked_in * 1000), "operator")
        elif patch.block is not None:
            self._store.lift_block(host)
        return state

    def _ask(self, host: str, delay_ms: int, block_ms: int) -> HostState:
        """Set the values that are not -1, and return the state."""
        p = self._placement.partition_of(host)
        args = to_msgpack([host, delay_ms, block_ms])
        now, flat, waiting, why = self._calls("host", {p: args})[p]
        return part.host_state(host, p, now, part.fields(flat), waiting, why.decode())

    # -- what a refilled node gets again

    def delay_again(self, node: Node, delays: Mapping[str, int]) -> None:
        """Set operators' delays from the store, host → ms, again at a node's hosts."""
        self._set(node, ((host, delay_ms, -1) for host, delay_ms in delays.items()))

    def block_again(self, node: Node, blocks: Iterable[tuple[str, int]]) -> None:
        """Set blocks from the store, (host, Unix ms), again at a node's hosts.

        Blocks that are past, or shorter than the one in force, change nothing.
        """
        now = epoch_ms()
        some = ((host, -1, until_ms - now) for host, until_ms in blocks if until_ms > now)
        self._set(node, some)

    def _set(self, node: Node, rows: Iterable[tuple[str, int, int]]) -> None:
        """Set (host, delay ms or -1, block ms or -1) at those of the hosts that belong to the
        node."""
        on, calls = set(self._placement.partitions_on(node)), []
        for row in rows:
            p = self._placement.partition_of(row[0])
            if p in on:
                calls.append((p, to_msgpack(row)))
        for start in range(0, len(calls), PIPELINED):
            self._calls.run(node, "host", calls[start : start + PIPELINED])

    # -- queries

    def resting(self) -> tuple[int, float]:
        """Return how many hosts rest since a worker's process died, and for how many seconds at
        most.

        Nodes that are away are left out.
        """
        hosts, longest = 0, 0.0
        for node in self._placement.nodes:
            with suppress(Unavailable):
                count, till = node.command("HMGET", keys.OWNER, "crash_hosts", "crash_till")
                left = (int(till or 0) - node.now_ms()) / 1000 if till else 0.0
                if left > 0:
                    hosts, longest = hosts + int(count), max(longest, left)
        return hosts, longest

    def find_url(self, crawl: Crawl, url: str, stored_ms: int = 0) -> UrlState:
        """Return where a canonical URL is in Redis: waiting, leased, later, seen or unseen.

        ``stored_ms``: the moment (Unix time) of its latest outcome in the store. A task whose lease
        began earlier is over and counts as seen, even if its worker died before it could finish the
        task here. The beginning of a lease is only known to within the time that Redis takes to
        answer; the earliest possible moment counts.
        """
        host = urls.host_of(url)
        p = self._placement.partition_of(host)
        alike = self._placement.identity.canonicaliser > 1
        path = urls.task_path(urls.respell(url) if alike else url)
        args = [crawl.id, host, str(self._placement.fingerprint(url)), path, alike]
        asked_ms = epoch_ms()
        now, seen, place, detail, more = self._calls("find_url", {p: to_msgpack(args)})[p]
        known = UrlState(crawl=crawl.name, url=url, host=host)
        if place == b"waiting":
            state = self.host(host)
            held_up = self._node_rests(p, now) or _held_up(state)
            why = f"waiting: number {detail} of {host}'s queue{held_up}"
            return msgspec.structs.replace(known, state="waiting", why=why)
        if place == b"leased":
            lasted_ms = now - self._leased_ms(p, now, (crawl.id, host), detail)
            if stored_ms and stored_ms >= asked_ms - lasted_ms:
                return msgspec.structs.replace(known, state="seen", why="its outcome is stored")
            why = f"leased by worker {detail.decode()}: being fetched or about to be"
            return msgspec.structs.replace(known, state="leased", why=why)
        if place == b"later":
            errors = part.task_of(0, host, "A" + more.decode()).errors
            seconds = max(detail - now, 0) / 1000
            why = f"failed {errors} time(s); the next try is due in {seconds:.0f} s"
            why += self._node_rests(p, now)
            return msgspec.structs.replace(known, state="later", why=why)
        if place == b"overflow":
            why = f"waiting in the overflow: {host} or its node has as much in memory as it may"
            why += self._node_rests(p, now)
            return msgspec.structs.replace(known, state="overflow", why=why)
        if seen:
            return msgspec.structs.replace(known, state="seen", why="admitted to the queue earlier")
        return msgspec.structs.replace(
            known, why="never seen: no seed and no fetched page led to it"
        )

    def _leased_ms(self, partition: int, now: int, of: tuple[int, str], worker: bytes) -> int:
        """Return when (the node's time) a worker's latest session with a host for a crawl began;
        ``now`` if there is none any more."""
        node, prefix = self._placement.node_of[partition], keys.partition(partition)
        began = list[float]()
        for token in node.command("HKEYS", f"{prefix}:ws:{worker.decode()}"):
            if not token.startswith(b"#"):
                session = f"{prefix}:s:{token.decode()}"
                crawl, host, opened = node.command("HMGET", session, "crawl", "host", "opened")
                if opened is not None and (int(crawl), host.decode()) == of:
                    began.append(float(opened))
        return round(max(began, default=now))

    def _node_rests(self, partition: int, now: int) -> str:
        """Return a text that no session opens yet at a node that lost its data; "" if sessions
        open."""
        node = self._placement.node_of[partition]
        till, owed = node.command("HMGET", keys.OWNER, "rest", "owed")
        left_ms = float(till or 0) - now
        if left_ms > 0:
            return (
                f"; Redis at {node.shown} was restarted and lost data: its hosts are not fetched "
                f"until {_clock(epoch_ms() + left_ms)}, when no earlier request can still be "
                f"under way"
            )
        return f"; Redis at {node.shown} is still given what it lost" if owed else ""


def _clock(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S UTC")


def _held_up(state: HostState) -> str:
    if state.blocked_in > 0:
        why = f" ({state.why})" if state.why else ""
        return f"; the host is blocked for another {state.blocked_in:.0f} s{why}"
    if state.sessions:
        return "; the host is being fetched from now"
    if state.next_in > 0:
        return f"; the host rests for another {state.next_in:.1f} s ({state.why or 'delay'})"
    return ""
