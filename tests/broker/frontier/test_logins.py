"""The shared data of a login: one claim at a time, the newest state, and errands to a host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.store import open_store
from tests.support.redis_server import RedisServer, binaries

NAME = "shop-0123456789ab"
BYTES = bytes(range(256)) * 300


@pytest.fixture(params=binaries())
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "r", request.param).start()
    yield server
    server.stop()


@pytest.fixture
def pair(server: RedisServer, tmp_path: Path) -> Iterator[tuple[Frontier, Frontier]]:
    """A broker's frontier, and that of a worker in another process."""
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    broker = Frontier([server.url], store, partitions=8, create=True)
    worker = Frontier([server.url], store, partitions=8)
    yield broker, worker
    for frontier in (worker, broker):
        frontier.stop()
    store.close()


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "did not happen in time"
        gevent.sleep(0.01)
    return found


def test_only_one_process_at_a_time_has_the_claim_of_a_login(
    pair: tuple[Frontier, Frontier],
) -> None:
    one, other = pair
    assert one.login_claim(NAME, "a", 30) == 1
    assert other.login_claim(NAME, "b", 30) == 0
    assert one.login_claim("other-0123456789ab", "a", 30) == 1
    assert one.login_claim(NAME, "a", 30) == 1, "a renewed claim is the same claim"
    other.login_drop(NAME, "b")
    assert other.login_claim(NAME, "b", 30) == 0, "it was not b's to drop"
    one.login_drop(NAME, "a")
    assert other.login_claim(NAME, "b", 30) == 1


def test_the_claim_of_a_login_lapses_unless_it_is_renewed(pair: tuple[Frontier, Frontier]) -> None:
    one, other = pair
    assert one.login_claim(NAME, "a", 0.4)
    for _ in range(4):
        gevent.sleep(0.2)
        assert one.login_claim(NAME, "a", 0.4)
        assert not other.login_claim(NAME, "b", 30)
    assert until(lambda: other.login_claim(NAME, "b", 30))
    assert not one.login_claim(NAME, "a", 30)


def test_claims_of_a_login_that_lapse_without_a_result_are_counted(
    pair: tuple[Frontier, Frontier],
) -> None:
    one, _ = pair
    for count in (1, 2, 3):
        assert until(lambda n=count: one.login_claim(NAME, f"dead {n}", 0.05)) == count
    gevent.sleep(0.1)
    assert one.login_claim(NAME, "dead 3", 30) == 3, "the same that was late"
    assert one.login_put(NAME, "dead 3", 1, b"in", 60)
    assert one.login_claim(NAME, "dead 3", 0.05) == 1, "it holds on"
    assert until(lambda: one.login_claim(NAME, "e", 30)) == 1
    one.login_drop(NAME, "e")
    assert one.login_claim(NAME, "f", 30) == 1


def test_the_state_of_a_login_is_stored_if_it_is_newer_and_its_writer_has_the_claim(
    pair: tuple[Frontier, Frontier],
) -> None:
    one, other = pair
    assert one.login_get(NAME) is None
    assert not one.login_put(NAME, "a", 1, b"unclaimed", 60)
    assert one.login_get(NAME) is None
    assert one.login_claim(NAME, "a", 0.2)
    assert one.login_put(NAME, "a", 4, BYTES, 60)
    assert other.login_get(NAME) == (4, BYTES)
    assert until(lambda: other.login_claim(NAME, "b", 30))
    assert not one.login_put(NAME, "a", 9, b"late", 60), "a frozen process that wakes"
    for generation in (3, 4):
        assert not other.login_put(NAME, "b", generation, b"older", 60)
    assert other.login_get(NAME) == (4, BYTES)
    assert other.login_put(NAME, "b", 2**53, b"", 60)
    assert one.login_get(NAME) == (2**53, b"")


def test_the_state_of_a_login_expires_as_a_whole(pair: tuple[Frontier, Frontier]) -> None:
    one, _ = pair
    assert one.login_claim(NAME, "a", 30)
    assert one.login_put(NAME, "a", 7, b"in", 0.1)
    until(lambda: one.login_get(NAME) is None)
    assert one.login_put(NAME, "a", 1, b"anew", 60)


def test_errands_of_a_host_are_taken_once_oldest_first(pair: tuple[Frontier, Frontier]) -> None:
    one, other = pair
    assert other.errand_take("a.example") is None
    for number in range(3):
        one.errand_put("a.example", f"id{number}", BYTES + b"%d" % number, 60)
    one.errand_put("b.example:8080", "idb", b"", 60)
    assert other.errand_take("a.example") == ("id0", BYTES + b"0")
    assert one.errand_take("a.example") == ("id1", BYTES + b"1")
    assert other.errand_take("b.example:8080") == ("idb", b"")
    assert other.errand_take("a.example") == ("id2", BYTES + b"2")
    assert one.errand_take("a.example") is None
    assert one.errand_answered("a.example", "id0") is None
    other.errand_answer("a.example", "id0", BYTES, 60)
    assert one.errand_answered("a.example", "id0") == BYTES
    assert one.errand_answered("b.example:8080", "id0") is None
    one.errand_drop("a.example", "id0")
    assert one.errand_answered("a.example", "id0") is None


def test_errand_that_is_expired_or_withdrawn_is_passed_over(
    pair: tuple[Frontier, Frontier],
) -> None:
    one, other = pair
    one.errand_put("a.example", "brief", b"1", 0.05)
    one.errand_put("a.example", "withdrawn", b"2", 60)
    one.errand_put("a.example", "twice", b"3", 60)
    one.errand_put("a.example", "twice", b"3", 60)
    one.errand_drop("a.example", "withdrawn")
    gevent.sleep(0.1)
    assert other.errand_take("a.example") == ("twice", b"3")
    assert other.errand_take("a.example") is None
    other.errand_answer("a.example", "twice", b"4", 0.05)
    until(lambda: one.errand_answered("a.example", "twice") is None)


def test_every_key_of_logins_and_errands_expires(
    pair: tuple[Frontier, Frontier], server: RedisServer
) -> None:
    one, _ = pair
    one.login_claim(NAME, "a", 30)
    one.login_put(NAME, "a", 1, b"in", 30)
    one.login_claim("killed-0123456789ab", "a", 30)
    for number in range(1100):
        one.errand_put("a.example", str(number), b"", 30)
    one.errand_answer("a.example", "1", b"", 30)
    raw = server.client
    patterns = ("a:*", "ac:*", "an:*", "e:*", "eq:*", "er:*")
    found = {kind: [*raw.scan_iter(f"gc:{{*}}:{kind}", 5000)] for kind in patterns}
    assert {kind: len(names) for kind, names in found.items()} == {
        "a:*": 1, "ac:*": 2, "an:*": 1, "e:*": 1, "eq:*": 1100, "er:*": 1,
    }  # fmt: skip
    for names in found.values():
        for name in (names[0], names[-1]):
            assert 0 < raw.pttl(name) <= 86_400_000, name
    assert raw.llen(found["e:*"][0]) == 1000
    assert one.errand_take("a.example") == ("100", b"")


def test_logins_go_on_at_the_memory_limit(
    pair: tuple[Frontier, Frontier], server: RedisServer
) -> None:
    one, _ = pair
    server.client.config_set("maxmemory", "100kb")
    assert one.login_claim(NAME, "a", 30)
    assert one.login_put(NAME, "a", 1, b"in", 30)
    one.errand_put("a.example", "1", b"ask", 30)
    assert one.errand_take("a.example") == ("1", b"ask")
    one.errand_answer("a.example", "1", b"answer", 30)
    assert one.errand_answered("a.example", "1") == b"answer"
    one.errand_drop("a.example", "1")
    one.login_drop(NAME, "a")
    server.client.config_set("maxmemory", "0")


def test_worker_that_logs_in_is_no_sign_that_a_broker_lives(
    pair: tuple[Frontier, Frontier], server: RedisServer
) -> None:
    _, worker = pair
    server.client.hset("gc:owner", "used", 1)
    worker.login_claim(NAME, "a", 30)
    worker.errand_put("a.example", "1", b"ask", 30)
    worker.errand_take("a.example")
    assert server.client.hget("gc:owner", "used") == "1"
