"""Which workers are running: across brokers, restarts of workers, and the memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.schema.records import LeaseRequest, ReconcileRequest
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.redis_server import RedisServer, binaries


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'content.sqlite'}")
    yield store
    store.close()


def reconcile(broker: Frontier, incarnation: int, sequence: int, *, leaving: bool = False) -> None:
    reply = broker.reconcile(
        ReconcileRequest(worker="w", incarnation=incarnation, sequence=sequence, leaving=leaving)
    )
    assert reply.superseded == 0


def test_a_worker_that_starts_again_counts_at_once_whichever_broker_hears_of_it(
    redis_server: RedisServer, store: Store
) -> None:
    one, other = brokers = [
        Frontier([redis_server.url], store, partitions=8, create=True) for _ in range(2)
    ]
    for broker in brokers:
        broker.start()
    try:
        reconcile(one, 1, 1)
        reconcile(other, 1, 2, leaving=True)
        assert [broker.workers() for broker in brokers] == [(0, ()), (0, ())]
        reconcile(one, 2, 1)
        assert [broker.workers() for broker in brokers] == [(1, ()), (1, ())]
        reconcile(other, 2, 2, leaving=True)
        one.lease(LeaseRequest(worker="w", incarnation=3, sequence=1, wait=0))
        assert other.workers() == (1, ()), "and so it is if its lease is what is heard first"
    finally:
        for broker in brokers:
            broker.stop()


@pytest.mark.parametrize("binary", binaries())
def test_notes_about_workers_are_taken_at_the_memory_limit_and_cost_no_connection(
    tmp_path: Path, store: Store, binary: str
) -> None:
    server = RedisServer(tmp_path / "r", binary).start()
    try:
        broker = Frontier([server.url], store, partitions=4, create=True)
        broker.worker_registry.refused("before")
        client = server.client
        client.config_set("maxmemory", "100kb")
        connections = client.info("stats")["total_connections_received"]
        for n in range(10):
            broker.worker_registry.at_work(f"w{n}", 1)
            broker.worker_registry.refused("w0")
        assert broker.workers() == (10, ("before", "w0"))
        assert client.info("stats")["total_connections_received"] == connections
        broker.stop()
    finally:
        server.stop()
