"""Crawls' statistics of hosts' shapes go with the sessions, within their budget, on a real
Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys, memory
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.schema.records import (
    TRAPS_BYTES,
    Admission,
    CloseItem,
    Crawl,
    CrawlOptions,
    Done,
    FinishItem,
    HostReport,
    LeaseRequest,
    Session,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.redis_server import RedisServer

LIMIT = 8 * 1024 * 1024
PARTITIONS = 2
WEEK = 7 * 86_400


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def frontier(redis_server: RedisServer, store: Store) -> Iterator[Frontier]:
    redis_server.client.config_set("maxmemory", LIMIT)
    frontier = Frontier(
        [redis_server.url], store, partitions=PARTITIONS, request_seconds=5, create=True
    )
    frontier.start()
    yield frontier
    frontier.stop()


class Visitor:
    """A worker that leases one host after the other."""

    def __init__(self, frontier: Frontier, store: Store, name: str = "c") -> None:
        self.frontier = frontier
        self.crawl: Crawl = store.put_crawl(name, CrawlOptions(scope="any", delay=0), ())
        frontier.put_crawl(self.crawl)
        self.sequence, self.pages = 0, 0

    def lease(self, host: str) -> Session:
        self.pages += 1
        self.sequence += 1
        self.frontier.admit(self.crawl.id, [Admission(f"http://{host}/{self.pages}")])
        request = LeaseRequest(
            worker="w" + self.crawl.name, incarnation=1, sequence=self.sequence, max_sessions=1,
            wait=3,
        )  # fmt: skip
        (session,) = self.frontier.lease(request).sessions
        assert (session.host, session.crawl) == (host, self.crawl.id)
        return session

    def close(self, session: Session, traps: bytes) -> None:
        names: dict[str, Any] = {"session": session.session, "token": session.token}
        report = HostReport(robots=True, requests=1, traps=traps)
        assert self.frontier.close_sessions([CloseItem(**names, report=report)]) == ["ok"]
        done = Done(stored=True)
        assert self.frontier.finish([FinishItem(**names, task=1, outcome=done)]) == ["ok"]

    def visit(self, host: str, traps: bytes = b"") -> bytes:
        """Visit a host and report ``traps``; return the statistics with which the session began."""
        session = self.lease(host)
        self.close(session, traps)
        return session.traps


def kept(server: RedisServer) -> dict[str, int]:
    """Return the bytes of each record, by its name without the partition."""
    found = server.client.keys("gc:{*:t:*")
    return {str(name).split(":t:")[1]: server.client.strlen(name) for name in found}


def accounted(frontier: Frontier, server: RedisServer) -> list[int]:
    """Return the sum of each partition; check that sum and records agree with the index."""
    sums = []
    for p in frontier.partitions:
        prefix = keys.partition(p)
        sums.append(int(server.client.get(prefix + ":tb") or 0))
        members: list[Any] = server.client.zrange(prefix + ":to", 0, -1, withscores=True)
        assert sums[-1] == sum(int(score) % 2**20 for _, score in members)
        assert len(server.client.keys(prefix + ":t:*")) == len(members)
    return sums


def test_a_trap_record_comes_with_the_next_session_of_its_crawl_and_host(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    one, other = Visitor(frontier, store), Visitor(frontier, store, "other")
    record = bytes(range(256))
    assert one.visit("a.example:8080", record) == b""
    assert one.visit("b.example") == b""
    assert other.visit("a.example:8080") == b""
    assert one.visit("a.example:8080") == record, "and one that says nothing leaves it as it is"
    assert one.visit("a.example:8080", b"later") == record
    assert one.visit("a.example:8080") == b"later"
    (name,) = redis_server.client.keys("gc:{*:t:*")
    assert WEEK - 60 < redis_server.client.ttl(name) <= WEEK
    assert sum(accounted(frontier, redis_server)) > 0


def test_a_session_gets_its_trap_record_again_if_the_first_answer_was_lost(
    frontier: Frontier, store: Store
) -> None:
    visitor = Visitor(frontier, store)
    visitor.visit("a.example", b"known")
    session = visitor.lease("a.example")
    args: list[Any] = ["wc", 1, visitor.sequence + 1, 60_000, 60_000, 5_000, 1, 1]
    args.append([visitor.crawl.id, 1, session.token])
    p = frontier.partition_of("a.example")
    (row,) = frontier._calls("open", {p: to_msgpack(args)})[p][1]
    again = part.session_of(p, session.ttl, row)
    assert (again.traps, again.tasks) == (b"known", session.tasks)


def test_trap_records_stay_within_their_budget_and_the_oldest_are_dropped(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    visitor = Visitor(frontier, store)
    budget = int(LIMIT * memory.TRAPS_SHARE / PARTITIONS)
    hosts = [f"www.h{n}.example" for n in range(150)]
    for host in hosts:
        visitor.visit(host, os.urandom(TRAPS_BYTES))
    sums = accounted(frontier, redis_server)
    assert all(0.9 * budget < total <= budget for total in sums)
    names = kept(redis_server)
    assert sum(names.values()) <= sum(sums)
    assert f"1:{hosts[-1]}" in names
    assert f"1:{hosts[0]}" not in names
    assert visitor.visit(hosts[0]) == b""
    assert len(visitor.visit(hosts[-1])) == TRAPS_BYTES


@pytest.mark.parametrize("at", ["near", "limit"])
def test_a_full_redis_takes_no_trap_record_and_still_closes_the_session(
    frontier: Frontier, store: Store, redis_server: RedisServer, at: str
) -> None:
    visitor = Visitor(frontier, store)
    session = visitor.lease("a.example")
    client = redis_server.client
    client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
    frontier.watch_memory()
    if at == "near":
        client.config_set("maxmemory", LIMIT)
    visitor.close(session, b"refused")
    assert kept(redis_server) == {}
    client.config_set("maxmemory", LIMIT)
    frontier.watch_memory()
    assert visitor.visit("a.example", b"taken") == b""
    assert visitor.visit("a.example") == b"taken"


def test_trap_records_are_deleted_with_their_crawl_however_many_they_are(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    redis_server.client.config_set("maxmemory", 8 * LIMIT)
    frontier.watch_memory()
    doomed, other = Visitor(frontier, store), Visitor(frontier, store, "other")
    for n in range(400):
        doomed.visit(f"www.h{n}.example", b"x" * 10)
    other.visit("www.h1.example", b"stays")
    late = doomed.lease("late.example")
    store.delete_crawl(doomed.crawl.id)
    frontier.drop_crawl(doomed.crawl.id)
    assert kept(redis_server) == {f"{other.crawl.id}:www.h1.example": 5}
    assert sorted(accounted(frontier, redis_server)) == [0, 5 + 2 * len("2:www.h1.example") + 250]
    report = HostReport(requests=1, traps=b"of a crawl that is gone")
    item = CloseItem(session=late.session, token=late.token, report=report)
    assert frontier.close_sessions([item]) == ["ok"]
    assert len(kept(redis_server)) == 1
    assert other.visit("www.h1.example") == b"stays"
