"""A frontier on two Redis servers, of which one is killed, frozen or emptied."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from types import TracebackType

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.store import open_store
from tests.support.redis_server import RedisServer

TIMEOUT_SECONDS = 0.3
"""The time that a frozen node costs in a test."""
PARTITIONS = 24
"""So many that each node has some: the random ids of the nodes decide which node has which."""


class TwoNodes:
    """Two servers, a store, and the frontiers that were opened on them; a context manager."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.servers = [RedisServer(folder / f"redis{n}").start() for n in range(count)]
        self._hasty: pytest.MonkeyPatch | None = None
        self.store = open_store(f"sqlite:///{folder / 'c.sqlite'}")
        self._opened: list[Frontier] = []

    def __enter__(self) -> TwoNodes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._hasty is not None:
            self._hasty.undo()
        for frontier in self._opened:
            frontier.stop()
        self.store.close()
        for server in self.servers:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
            server.stop()

    def open(self, *, create: bool = True, start: bool = True) -> Frontier:
        """Open a broker's frontier, or a worker's, that waits only shortly for a frozen node."""
        made = Frontier(
            [server.url for server in self.servers], self.store, partitions=PARTITIONS,
            lease_seconds=30, request_seconds=5, create=create,
        )  # fmt: skip
        for node in made.nodes:
            node._timeout = TIMEOUT_SECONDS
            node.close()  # connections with the other time-out
        self._opened.append(made)
        if start:
            made.start()
        return made

    def hasten(self) -> None:
        """Let frontiers that are opened from now on also wait that shortly for a node at their
        start."""
        self._hasty = pytest.MonkeyPatch()
        self._hasty.setattr(Node.__init__, "__kwdefaults__", {
            **Node.__init__.__kwdefaults__, "timeout_seconds": TIMEOUT_SECONDS,
        })  # fmt: skip

    def server_of(self, node: Node) -> RedisServer:
        return next(server for server in self.servers if server.url == node.address)

    def freeze(self, node: Node) -> None:
        self._signal(node, signal.SIGSTOP)

    def thaw(self, node: Node) -> None:
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: Node, number: int) -> None:
        process = self.server_of(node).process
        assert process is not None
        process.send_signal(number)

    def empty(self, node: Node) -> None:
        """Start the killed server of a node again, without data."""
        server = self.server_of(node)
        shutil.rmtree(server.folder)
        server.start()


def hosts_on(frontier: Frontier, node: Node, count: int, name: str = "h") -> list[str]:
    """Return the names of hosts whose partition is on a node."""
    on = set(frontier.partitions_on(node))
    names = (f"{name}{i}.example{i}.org" for i in range(1000))
    found = [host for host in names if frontier.partition_of(host) in on]
    return found[:count]
