"""What grows in Redis stays within its budget, and a cache that is refused is no failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import OutOfMemoryError

from broker.frontier import Frontier, keys, memory
from store import open_store
from store.base import Store
from tests.support.redis_server import RedisServer, binaries

LIMIT = 32 * 1024 * 1024
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
    """Not started: what a test does not ask for does not happen."""
    frontier = Frontier([server.url], store, partitions=PARTITIONS, request_seconds=5, create=True)
    yield frontier
    frontier.stop()


def fill(server: RedisServer) -> None:
    """Give it less memory than it has in use, so that it refuses the next byte."""
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] // 2)
    with pytest.raises(OutOfMemoryError):
        server.client.set("one", "more")


def kept(server: RedisServer, partition: int) -> int:
    """Bytes of the files of robots.txt that a partition holds now."""
    names = server.client.scan_iter(f"gc:{{{partition}}}:r:*", count=1000)
    return sum(server.client.strlen(name) for name in names)


# -- the cache of robots.txt


def test_files_of_robots_txt_stay_within_their_budget_the_oldest_go(
    frontier: Frontier, server: RedisServer
) -> None:
    budget = int(LIMIT * memory.ROBOTS_SHARE / PARTITIONS)
    origins = [f"http://www.h{n}.example" for n in range(600)]
    for origin in origins:
        assert frontier.robots_put(origin, os.urandom(5000), 3600)
    for p in frontier.partitions:
        index, total = keys.partition(p) + ":ro", int(server.client.get(keys.partition(p) + ":rb"))
        assert kept(server, p) <= total <= budget
        assert total > 0.9 * budget
        assert total == sum(int(score) % 2**20 for _, score in server.client.zscan_iter(index))
        assert server.client.zcard(index) == len(server.client.keys(f"gc:{{{p}}}:r:*"))
    assert frontier.robots_get(origins[-1]) is not None
    assert frontier.robots_get(origins[0]) is None


def test_file_that_is_put_again_counts_once(frontier: Frontier, server: RedisServer) -> None:
    total = keys.partition(frontier.partition_of("h")) + ":rb"
    frontier.robots_put("http://h", b"x" * 1000, 3600)
    once = server.client.get(total)
    frontier.robots_put("http://h", b"y" * 1000, 7200)
    assert server.client.get(total) == once
    assert frontier.robots_get("http://h") == b"y" * 1000
    assert not frontier.robots_put("http://h", b"z" * LIMIT, 3600)
    assert frontier.robots_get("http://h") == b"y" * 1000


@pytest.mark.parametrize("at", ["near", "limit"])
def test_full_redis_takes_no_file_but_one_that_a_session_waits_for(
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


def test_file_that_is_needed_is_kept_beyond_the_budget_and_makes_room(
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
