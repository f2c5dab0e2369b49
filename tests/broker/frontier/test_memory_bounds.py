"""All growing data in Redis stay within their budgets, and a refused cache entry is no failure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from greencrawl.broker.api.handlers.state import get_stats
from greencrawl.broker.api.messages import StatsQuery
from greencrawl.broker.frontier import Frontier, Mode
from greencrawl.broker.frontier.leasing import SESSION_LIFE_SECONDS
from greencrawl.broker.frontier.nodes import keys, memory
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Crawl,
    CrawlOptions,
    Done,
    FinishItem,
    HostPatch,
    HostReport,
    LeaseRequest,
    ReconcileRequest,
)
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.broker.frontier.test_frontier import PASS_TIME
from tests.support.redis_server import RedisServer, binaries

LIMIT = 8 * 1024 * 1024
PARTITIONS = 4


@pytest.fixture(params=binaries(), ids=["bundled", "system"][: len(binaries())])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", request.param).start()
    server.client.config_set("maxmemory", LIMIT)
    yield server
    server.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def frontier(server: RedisServer, store: Store) -> Iterator[Frontier]:
    """A frontier that is not started, so that nothing happens by itself."""
    frontier = Frontier([server.url], store, partitions=PARTITIONS, request_seconds=5, create=True)
    yield frontier
    frontier.stop()


def fill(server: RedisServer) -> None:
    """Give it less memory than it uses, so that it refuses the next byte."""
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] // 2)
    with pytest.raises(OutOfMemoryError):
        server.client.set("one", "more")


def kept(server: RedisServer, partition: int) -> int:
    """Return the bytes of the robots.txt files that a partition holds now."""
    names = server.client.scan_iter(f"gc:{{{partition}}}:r:*", count=1000)
    return sum(server.client.strlen(name) for name in names)


# -- the cache of robots.txt


def test_robots_txt_files_stay_within_their_budget_and_the_oldest_are_dropped(
    frontier: Frontier, server: RedisServer
) -> None:
    budget = int(LIMIT * memory.ROBOTS_SHARE / PARTITIONS)
    origins = [f"http://www.h{n}.example" for n in range(300)]
    for origin in origins:
        assert frontier.robots_put(origin, os.urandom(2000), 3600)
    for p in frontier.partitions:
        index, total = keys.partition(p) + ":ro", int(server.client.get(keys.partition(p) + ":rb"))
        assert kept(server, p) <= total <= budget
        assert total > 0.9 * budget
        assert total == sum(int(score) % 2**20 for _, score in server.client.zscan_iter(index))
        assert server.client.zcard(index) == len(server.client.keys(f"gc:{{{p}}}:r:*"))
    assert frontier.robots_get(origins[-1]) is not None
    assert frontier.robots_get(origins[0]) is None


def test_a_robots_txt_file_that_is_put_again_counts_once(
    frontier: Frontier, server: RedisServer
) -> None:
    total = keys.partition(frontier.partition_of("h")) + ":rb"
    frontier.robots_put("http://h", b"x" * 1000, 3600)
    once = server.client.get(total)
    frontier.robots_put("http://h", b"y" * 1000, 7200)
    assert server.client.get(total) == once
    assert frontier.robots_get("http://h") == b"y" * 1000
    assert not frontier.robots_put("http://h", b"z" * 2_000_000, 3600)
    assert frontier.robots_get("http://h") == b"y" * 1000


def test_the_counters_name_a_node_that_may_have_less_memory_than_it_uses(
    frontier: Frontier, server: RedisServer, store: Store
) -> None:
    service = Service(frontier, store, duties=frontier.duties)
    assert get_stats(service, StatsQuery()).full == ()
    fill(server)
    frontier.watch_memory()
    (full,) = get_stats(service, StatsQuery()).full
    assert full.node == server.url
    assert full.used_bytes > full.limit_bytes == server.client.info("memory")["maxmemory"]


@pytest.mark.parametrize("at", ["near", "limit"])
def test_a_full_redis_takes_a_robots_txt_file_only_if_a_session_waits_for_it(
    frontier: Frontier, server: RedisServer, at: str
) -> None:
    fill(server)
    if at == "near":
        frontier.watch_memory()
        assert frontier.full
    assert not frontier.robots_put("http://h", b"file", 3600)
    assert frontier.robots_get("http://h") is None
    assert frontier.robots_put("http://h", b"file", 3600, needed=True)
    assert frontier.robots_get("http://h") == b"file"
    (name,) = server.client.keys("gc:{*:r:*")
    assert 0 < server.client.ttl(name) <= 300


def test_a_robots_txt_file_that_is_needed_is_kept_beyond_the_budget_until_the_next_comes(
    frontier: Frontier, server: RedisServer
) -> None:
    p = frontier.partition_of("h")
    budget = int(LIMIT * memory.ROBOTS_SHARE / PARTITIONS)
    for n in range(20):
        frontier.robots_put(f"http://h:{8000 + n}", os.urandom(1000), 3600)
    frontier.robots_put("http://h", os.urandom(budget), 3600, needed=True)
    assert kept(server, p) == budget
    frontier.robots_put("http://h:1", os.urandom(1000), 3600)
    assert kept(server, p) == 1000


# -- what else grows

SMALL = 6 * 1024 * 1024


@pytest.fixture
def small(redis_server: RedisServer, store: Store) -> Iterator[Frontier]:
    """A started frontier on a Redis with little memory."""
    redis_server.client.config_set("maxmemory", SMALL)
    frontier = Frontier(
        [redis_server.url], store, partitions=PARTITIONS, request_seconds=5, create=True
    )
    frontier.start()
    yield frontier
    frontier.stop()


def new_crawl(frontier: Frontier, store: Store, name: str = "c", **options: Any) -> Crawl:
    crawl = store.put_crawl(name, CrawlOptions(scope="any", **options), ())
    frontier.put_crawl(crawl)
    return crawl


class Visitor:
    """A worker that leases, closes and finishes all waiting tasks."""

    def __init__(self, frontier: Frontier) -> None:
        self.frontier, self.sequence = frontier, 0

    def visit(self, hosts: int, **report: Any) -> None:
        """Fetch one page each from ``hosts`` hosts that have no other page."""
        seen = 0
        while seen < hosts:
            self.sequence += 1
            request = LeaseRequest(
                worker="w", incarnation=1, sequence=self.sequence, max_sessions=256, wait=3
            )
            sessions = self.frontier.lease(request).sessions
            assert sessions, f"{hosts - seen} hosts more were expected"
            seen += len(sessions)
            names = [{"session": s.session, "token": s.token} for s in sessions]
            told = HostReport(robots=True, requests=1, **report)
            self.frontier.close_sessions([CloseItem(**name, report=told) for name in names])
            done = Done(stored=True)
            self.frontier.finish([FinishItem(**name, task=1, outcome=done) for name in names])


def admit(frontier: Frontier, crawl: Crawl, names: Iterable[str]) -> None:
    frontier.admit(crawl.id, [Admission(f"http://{name}/") for name in names])


def records(server: RedisServer) -> int:
    return len(server.client.keys("gc:{*:h:*"))


def pass_time(frontier: Frontier, seconds: float) -> None:
    for node in frontier.nodes:
        node.command("EVAL", PASS_TIME, 1, keys.OWNER, round(seconds * 1000))
    frontier.scan(1)  # it is told of this


def test_idle_hosts_are_kept_up_to_a_number_and_the_longest_rested_are_dropped(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    most = int(SMALL * memory.IDLE_SHARE / PARTITIONS / memory.IDLE_BYTES)
    crawl, visitor = new_crawl(small, store, delay=0), Visitor(small)
    before = redis_server.client.info("memory")["used_memory"]
    admit(small, crawl, (f"www.a{n}.example" for n in range(2400)))
    visitor.visit(2400)
    assert records(redis_server) == 2400, "their times are not past yet"
    taken = redis_server.client.info("memory")["used_memory"] - before
    # A busy machine reads its messages late, and Redis keeps them meanwhile.
    assert taken / 2400 < memory.IDLE_BYTES * 1.2, "what was seen counts for itself"
    pass_time(small, 61)
    above = {keys.partition(p) + ":hi" for p in small.partitions}
    for some in range(200):  # now and then a call drops a bounded number
        admit(small, crawl, (f"www.b{some}-{n}.example" for n in range(4)))
        visitor.visit(4)
        above = {index for index in above if redis_server.client.zcard(index) > most}
        if not above:
            break
    assert not above, "each partition was within its number at some time"
    assert records(redis_server) <= most * PARTITIONS + 4 * (some + 1)
    latest = redis_server.client.keys("gc:{*:h:www.b*")
    assert len(latest) == 4 * (some + 1), "the latest stay"


def test_idle_hosts_without_valid_data_are_dropped_even_if_there_is_room(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl, visitor = new_crawl(small, store, delay=0), Visitor(small)
    admit(small, crawl, (f"www.a{n}.example" for n in range(40)))
    visitor.visit(40)
    pass_time(small, 27 * 3600)
    for some in range(200):  # now and then a call drops some
        admit(small, crawl, (f"www.b{some}-{n}.example" for n in range(4)))
        visitor.visit(4)
        if not redis_server.client.keys("gc:{*:h:www.a*"):
            break
    assert not redis_server.client.keys("gc:{*:h:www.a*")
    assert len(redis_server.client.keys("gc:{*:h:www.b*")) == 4 * (some + 1)


def test_hosts_whose_delay_or_block_is_not_over_are_never_dropped(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    new_crawl(small, store, "slow", delay=300)
    crawl, visitor = new_crawl(small, store, delay=0), Visitor(small)
    admit(small, crawl, ["blocked.example"])
    visitor.visit(1, failed="http_429", block=3600)
    admit(small, crawl, ["old.example"])
    visitor.visit(1)
    redis_server.client.hset(keys.OWNER, "idle_hosts", 0)
    pass_time(small, 290)
    admit(small, crawl, (f"a{n}.example" for n in range(40)))
    visitor.visit(40)
    assert small.host("old.example").robots_known, "another crawl may rest for ten seconds more"
    pass_time(small, 20)
    for some in range(200):
        admit(small, crawl, [f"b{some}.old.example"])  # of the same partition
        visitor.visit(1)
        if not small.host("old.example").robots_known:
            break
    assert not small.host("old.example").robots_known
    assert small.host("blocked.example").blocked_in > 3000
    assert records(redis_server) == 41 + some + 1


def test_host_that_is_in_use_again_is_not_dropped(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl, visitor = new_crawl(small, store, delay=0), Visitor(small)
    for name in ("waiting.example", "slow.example"):
        admit(small, crawl, [name])
        visitor.visit(1)
    small.patch_host("slow.example", HostPatch(delay=7))
    pass_time(small, 61)
    small.admit(crawl.id, [Admission(f"http://waiting.example/{n}") for n in range(20)])
    redis_server.client.hset(keys.OWNER, "idle_hosts", 0)
    admit(small, crawl, (f"a{n}.example" for n in range(40)))
    visitor.visit(41)
    assert small.host("waiting.example").waiting == 0
    assert small.host("slow.example").delay == 7
    totals = small.scan(crawl.id)
    assert totals is not None
    assert (totals.waiting, totals.leased) == (0, 19)


def test_workers_that_are_gone_are_forgotten(small: Frontier, redis_server: RedisServer) -> None:
    for number in range(20):
        small.reconcile(
            ReconcileRequest(worker=f"pod-{number}", incarnation=1, sequence=1, holding=())
        )
    found = redis_server.client.keys("gc:{*:ws:*")
    assert len(found) == 20 * PARTITIONS
    longest = SESSION_LIFE_SECONDS + 3600 + 60
    assert all(longest < redis_server.client.ttl(name) <= 86_400 for name in found)


def test_worker_that_leases_is_remembered_for_another_day(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(small, store, delay=0)
    admit(small, crawl, ["a.example"])
    request = LeaseRequest(worker="w", incarnation=1, sequence=1, max_sessions=1, wait=3)
    assert small.lease(request).sessions
    (name,) = redis_server.client.keys("gc:{*:ws:*")
    assert 80_000 < redis_server.client.ttl(name) <= 86_400


def test_forced_batches_are_remembered_up_to_a_number_and_the_oldest_are_forgotten(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    most = int(SMALL * memory.FORCED_SHARE / PARTITIONS / memory.FORCED_BYTES)
    crawl = new_crawl(small, store, delay=0)
    client = redis_server.client
    for batch in range(1, 11):
        items = [Admission(f"http://h/{batch}/{n}") for n in range(100)]
        small.admit(crawl.id, items, mode=Mode.FORCE, batch=batch)
    small.admit(crawl.id, items, mode=Mode.FORCE, batch=10)
    totals = small.scan(crawl.id)
    assert totals is not None
    assert totals.waiting == 1000, "the same batch queues nothing twice"
    prefix = keys.partition(small.partition_of("h"))
    sets = client.keys(f"{prefix}:f:*")
    kept = sum(client.scard(name) for name in sets)
    assert 100 < kept <= most < 1000
    assert int(client.get(prefix + ":fn")) == kept
    assert client.lrange(prefix + ":fl", -1, -1) == ["10"]
    assert len(sets) == client.llen(prefix + ":fl")


def test_a_host_that_runs_low_with_urls_in_the_overflow_counts_until_its_crawl_is_deleted(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(small, store, delay=0)
    redis_server.client.hset(keys.OWNER, "host_budget", 60)
    small.admit(crawl.id, [Admission(f"http://h.example/{n}") for n in range(20)])
    p = small.partition_of("h.example")
    prefix, client = keys.partition(p), redis_server.client
    queued = 20 - len(store.overflow(crawl.id, p, "h.example", 100))
    assert 0 < queued < 20
    request = LeaseRequest(worker="w", incarnation=1, sequence=1, max_sessions=1, wait=3)
    assert small.lease(request).sessions
    assert client.scard(prefix + ":dry") == 1
    before = small.partition_memory(p).used
    assert before >= 240, "its record is there still"
    assert small.partition_memory(p).low == [(crawl.id, "h.example")]
    store.delete_crawl(crawl.id)
    small.drop_crawl(crawl.id)
    assert small.partition_memory(p).low == []
    assert client.scard(prefix + ":dry") == 0
    assert small.partition_memory(p).used == before - 240


def test_all_bounded_data_together_leave_room_for_the_crawl_to_go_on(
    small: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl, visitor = new_crawl(small, store, delay=0), Visitor(small)
    for some in range(8):
        admit(small, crawl, (f"www.a{some}-{n}.example" for n in range(200)))
        visitor.visit(200)
        pass_time(small, 61)
        small.watch_memory()
    for n in range(1500):
        small.robots_put(f"http://www.h{n}.example", os.urandom(2000), 3600)
    for n in range(100):
        request = ReconcileRequest(worker=f"pod-{n}", incarnation=1, sequence=1, holding=())
        small.reconcile(request)
    for n in range(1100):
        small.errand_put("h.example", str(n), b"sealed", 60)
    waiting = keys.partition(small.partition_of("h.example")) + ":e:h.example"
    assert redis_server.client.llen(waiting) == 1000
    for batch in range(1, 6):
        items = [Admission(f"http://www.f{n}.example/{batch}") for n in range(100)]
        small.admit(crawl.id, items, mode=Mode.FORCE, batch=batch)
    small.watch_memory()
    assert redis_server.client.info("memory")["used_memory"] < SMALL * memory.FULL_SHARE
    assert not small.full
    admit(small, crawl, ["new.example"])
    visitor.visit(101)
