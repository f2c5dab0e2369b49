"""The duty of setting a node's clock: late replies, jumps of TIME, and two brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import monkey

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.nodes import clock as clocks
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.clock import Exchange
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import ExtendItem, Session
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.broker.frontier.nodes.test_clock import HOUR, broker, jump, leased
from tests.broker.frontier.test_frontier import close, finish_all, until
from tests.support.redis_server import RedisServer

stand_still = monkey.get_original("time", "sleep")
"""Stop the whole process, as SIGSTOP does."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def brokers(redis_server: RedisServer, store: Store) -> Iterator[tuple[Frontier, Frontier]]:
    """Two brokers; the first has the duty of setting the node's clock, and both know its time."""
    first, second = broker(redis_server, store), broker(redis_server, store)
    assert first.duties.wait(names.clock(first.nodes[0].id), 2.0)
    for one in (first, second):
        one.nodes[0].now_ms()
    yield first, second
    first.stop()
    second.stop()


def clock(server: RedisServer) -> tuple[int, int]:
    """Return offset and jumps."""
    offset, jumps = server.client.hmget(keys.OWNER, "offset", "jumps")
    return int(offset or 0), int(jumps or 0)


def shifted(node: Node, ms: float) -> float:
    """Shift the expected time by ``ms``, as after a stop of this machine's clock; return the
    earlier value."""
    expected = node.clock._expected
    assert expected is not None
    node.clock._expected = expected._replace(base_ms=expected.base_ms + ms)
    return expected.base_ms


def look(frontier: Frontier) -> Any:
    return frontier.host("h.example")


def late(node: Node, monkeypatch: pytest.MonkeyPatch, *, sent: float = 0, read: float = 0) -> None:
    """The node's next exchange is late: it stops before it is sent, or before its reply is read."""
    plain = node.connection

    class Late:
        def __init__(self, connection: Any) -> None:
            self._connection = connection
            self._waits = [read]

        def send_packed_command(self, command: Any) -> None:
            stand_still(sent)
            self._connection.send_packed_command(command)

        def read_response(self) -> Any:
            found = self._connection.read_response()
            if self._waits:
                stand_still(self._waits.pop())
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    @contextmanager
    def connection() -> Iterator[Any]:
        with plain() as (held, run):
            monkeypatch.setattr(node, "connection", plain)
            yield Late(held), run

    monkeypatch.setattr(node, "connection", connection)


def test_a_reply_that_is_read_late_does_not_change_the_time(
    brokers: tuple[Frontier, Frontier], monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
) -> None:
    node = brokers[0].nodes[0]
    look(brokers[0])
    before = node.now_ms() - time.monotonic() * 1000
    late(node, monkeypatch, read=0.8)
    look(brokers[0])
    assert node.now_ms() - time.monotonic() * 1000 == pytest.approx(before, abs=100)
    assert clock(redis_server) == (0, 1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_late_call_is_repeated_and_does_not_set_the_clock(
    brokers: tuple[Frontier, Frontier],
    monkeypatch: pytest.MonkeyPatch,
    redis_server: RedisServer,
    number: int,
) -> None:
    look(brokers[number])
    before = clock(redis_server)
    late(brokers[number].nodes[0], monkeypatch, sent=2.3)
    look(brokers[number])
    assert clock(redis_server) == before


@pytest.mark.parametrize("ms", [150, -150, 1900, -1900, 2000, 3000, -3000, 3_600_000, -3_600_000])
def test_a_jump_of_the_clock_is_undone_once_and_all_brokers_take_the_time(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer, ms: int
) -> None:
    for one in brokers:
        look(one)
    redis_server.client.hset(keys.OWNER, "gap", 2 * HOUR)  # no broker needs to set a longer gap
    before = [one.nodes[0].now_ms() for one in brokers]
    began = time.monotonic()
    jump(redis_server, ms)
    jobs = [gevent.spawn(look, one) for one in brokers[::-1] * 3]
    gevent.joinall(jobs, raise_error=True)
    offset, jumps = clock(redis_server)
    assert (offset, jumps) == (pytest.approx(0, abs=50), 2)
    passed = (time.monotonic() - began) * 1000
    now = [one.nodes[0].now_ms() for one in brokers]
    assert now == pytest.approx([at + passed for at in before], abs=50)


@pytest.mark.parametrize("ms", [60, -60])
@pytest.mark.parametrize("number", [0, 1])
def test_a_jump_that_looks_like_a_late_call_is_undone_at_a_later_call(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer, number: int, ms: int
) -> None:
    for one in brokers:
        look(one)
    jump(redis_server, ms)
    look(brokers[number])
    until(lambda: _quiet(lambda: look(brokers[number])) and clock(redis_server)[1] == 2, 4)
    assert clock(redis_server) == (pytest.approx(0, abs=15), 2)


@pytest.mark.parametrize("ms", [300, 1900, 2000])
def test_a_jump_of_up_to_two_seconds_shortens_no_delay(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer, store: Store, ms: int
) -> None:
    """This holds whichever of the two brokers leases next, even if the holder of the duty has not
    called since the jump."""
    session = leased(brokers[0], store)
    finish_all(brokers[0], session)
    close(brokers[0], session, delay=2.5)
    look(brokers[1])
    rest = brokers[1].host("h.example").next_in
    jump(redis_server, ms)
    assert brokers[1].host("h.example").next_in == pytest.approx(rest, abs=0.3)


def test_a_new_holder_takes_the_time_of_a_broker_that_has_known_the_clock_for_longer(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer, store: Store
) -> None:
    """The clock jumped while nobody had the duty; the next holder knows no other time."""
    first, second = brokers
    look(second)
    before = second.nodes[0].now_ms() - time.monotonic() * 1000
    first.stop()
    second.duties.give_up(names.clock(second.nodes[0].id), 4.0)
    redis_server.client.hset(keys.OWNER, "gap", 2 * HOUR)
    jump(redis_server, 1900)
    fresh = broker(redis_server, store)
    try:
        look(fresh)
        assert fresh.duties.wait(names.clock(second.nodes[0].id), 10.0)
        second.nodes[0].clock._since -= 10
        until(lambda: _quiet(lambda: look(second)), 12)
        assert second.nodes[0].now_ms() - time.monotonic() * 1000 == pytest.approx(before, abs=50)
        look(fresh)
        assert clock(redis_server) == (pytest.approx(0, abs=50), 2)
    finally:
        fresh.stop()


def test_a_holder_reads_the_clock_again_if_its_time_is_inexact(
    brokers: tuple[Frontier, Frontier],
) -> None:
    """Two clocks drift apart while the node gets no calls."""
    node = brokers[0].nodes[0]
    expected = node.clock._expected
    assert expected is not None
    node.clock._expected = expected._replace(at=expected.at - 1000)
    brokers[0]._wake_ups._heartbeat_or_look(node, [])
    assert node.clock._expected.error_ms_at(time.monotonic()) < 50


def test_a_holder_reads_the_clock_before_it_confirms_the_time(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer
) -> None:
    """The jump is so short that it looks like a late call."""
    for one in brokers:
        look(one)
    node = brokers[1].nodes[0]
    before = node.now_ms() - time.monotonic() * 1000
    jump(redis_server, 60)
    node.clock.settle()
    assert node.now_ms() - time.monotonic() * 1000 == pytest.approx(before, abs=20)
    assert clock(redis_server) == (pytest.approx(0, abs=20), 2)


def test_a_worker_gets_a_confirmed_time_and_not_the_duty_of_the_clock(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer, store: Store
) -> None:
    """The worker gets no duty although it has known the time for longer: it cannot set the
    clock."""
    holder, _ = brokers
    look(holder)
    worker = Frontier([redis_server.url], store)
    try:
        node = worker.nodes[0]
        node.now_ms()
        node.clock._since -= 1000
        shifted(node, -5000)
        assert _quiet(node.clock.settle), "the holder has given its word"
        assert node.now_ms() == pytest.approx(holder.nodes[0].now_ms(), abs=50)
        assert holder.duties.get(names.clock(node.id)) is not None
    finally:
        worker.stop()


def test_a_jump_is_undone_once_though_another_process_accepted_it(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer
) -> None:
    """The other process calls like a replay, which expects no time. After its call ``used`` is in
    the time after the jump."""
    holder, _ = brokers
    look(holder)
    redis_server.client.hincrby(keys.OWNER, "offset", HOUR)
    for _ in range(3):
        look(holder)
    assert clock(redis_server) == (pytest.approx(0, abs=50), 2)


def test_a_clock_is_also_set_by_slow_readings(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, _ = brokers
    look(holder)
    monkeypatch.setattr(clocks, "SLOW_SECONDS", -1.0)
    jump(redis_server, 700)
    look(holder)
    assert clock(redis_server) == (pytest.approx(0, abs=50), 2)


@pytest.mark.parametrize("forgot", [False, True])
def test_a_node_is_not_opened_with_a_time_in_the_future(
    redis_server: RedisServer, store: Store, forgot: bool
) -> None:
    """Another server took over: its machine's clock is ahead, or its data are from before the clock
    was set back."""
    only = broker(redis_server, store)
    try:
        node = only.nodes[0]
        look(only)
        before = node.now_ms() - time.monotonic() * 1000
        redis_server.client.hset(keys.OWNER, "run", "another")
        jump(redis_server, HOUR)
        if forgot:  # as a broker does that hears of the epoch of a failed claim
            node.clock.forget()
        until(lambda: _quiet(lambda: look(only)), 5)
        assert node.now_ms() - time.monotonic() * 1000 == pytest.approx(before, abs=100)
    finally:
        only.stop()


def test_a_second_jump_is_not_taken_for_the_correction_of_the_first(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer
) -> None:
    first, second = brokers
    for one in brokers:
        look(one)
    before = second.nodes[0].now_ms() - time.monotonic() * 1000
    redis_server.client.hset(keys.OWNER, "gap", 2 * HOUR)
    jump(redis_server, -3000)
    look(first)
    assert clock(redis_server)[1] == 2
    jump(redis_server, 3000)
    look(second)
    assert second.nodes[0].now_ms() - time.monotonic() * 1000 == pytest.approx(before, abs=50)


def test_setting_the_clock_hides_no_outage(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer
) -> None:
    first, _ = brokers
    look(first)
    used = redis_server.client.hincrby(keys.OWNER, "used", -700)
    jump(redis_server, 500)
    first.nodes[0].clock.settle()
    assert clock(redis_server)[1] == 2
    assert int(redis_server.client.hget(keys.OWNER, "used") or 0) == pytest.approx(used, abs=50)


def test_a_call_is_made_even_if_each_try_of_it_is_late(
    brokers: tuple[Frontier, Frontier], monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
) -> None:
    first, _ = brokers
    look(first)
    before = clock(redis_server)
    plain = first.nodes[0].clock.window_ms

    def window_ms(late_ms: float) -> tuple[float, float]:
        found = plain(late_ms)
        stand_still(0.3)  # before it is sent
        return found

    monkeypatch.setattr(first.nodes[0].clock, "window_ms", window_ms)
    look(first)
    assert clock(redis_server) == before


def test_a_second_reading_of_the_clock_reduces_the_error_of_the_first() -> None:
    first = Exchange(10.0, 10.4).at(5000)
    assert (first.base_ms, first.error_ms) == pytest.approx((-5200, 201))
    second = Exchange(11.0, 11.1).at(6080)
    assert first.apart_ms(second) == 0
    both = first.narrowed(second)
    assert both.base_ms == pytest.approx(-5009.8, abs=0.1)
    assert both.error_ms == pytest.approx(11.2, abs=0.1)


def test_the_distance_of_two_clock_readings_excludes_their_errors_and_the_drift() -> None:
    first = Exchange(10.0, 10.1).at(5000)
    assert first.apart_ms(Exchange(11.0, 11.1).at(6500)) == pytest.approx(500 - 102 - 0.5)
    assert first.apart_ms(Exchange(11.0, 11.1).at(5500)) == pytest.approx(-500 + 102 + 0.5)
    assert first.apart_ms(Exchange(1010.0, 1010.1).at(1_005_500)) == 0, "after a quarter of an hour"


def test_a_broker_without_the_duty_takes_the_time_that_the_holder_confirms(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer
) -> None:
    """This happens when a machine stood still together with its clock."""
    holder, other = brokers
    for one in brokers:
        look(one)
    before, vouched = clock(redis_server), redis_server.client.hget(keys.OWNER, "vouched")
    base = shifted(other.nodes[0], -5000)
    look(other)
    expected = other.nodes[0].clock._expected
    assert expected is not None
    assert expected.base_ms == pytest.approx(base, abs=200), "it took the node's time"
    assert clock(redis_server) == before
    assert int(redis_server.client.hget(keys.OWNER, "vouched") or 0) > int(vouched or 0)
    assert holder.nodes[0].now_ms() == pytest.approx(other.nodes[0].now_ms(), abs=200)


def test_a_broker_refuses_calls_and_sets_no_clock_while_no_holder_confirms_the_time(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, other = brokers
    look(other)
    monkeypatch.setattr(holder._wake_ups, "_asked", lambda *_: None)
    before = clock(redis_server)
    node = other.nodes[0]
    shifted(node, -5000)
    with pytest.raises(Unavailable, match="clock"):
        look(other)
    assert clock(redis_server) == before


def test_the_duty_of_the_clock_passes_on_when_its_holder_stops(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer
) -> None:
    first, second = brokers
    look(second)
    first.stop()
    jump(redis_server, 60_000)
    until(lambda: _quiet(lambda: look(second)), 8)
    assert clock(redis_server) == (pytest.approx(0, abs=200), 2)


def _quiet(call: Callable[[], Any]) -> Any:
    try:
        return call() or True
    except Unavailable:
        return None


def test_a_holder_whose_duty_passed_on_does_not_set_the_clock(
    brokers: tuple[Frontier, Frontier], redis_server: RedisServer
) -> None:
    first, _ = brokers
    node = first.nodes[0]
    look(first)
    duty = names.clock(node.id)
    held = first.duties.get(duty)
    assert held is not None
    redis_server.client.hset(keys.OWNER, f"duty:{duty}", held.epoch + 100)
    jump(redis_server, 60_000)
    before = clock(redis_server)
    with pytest.raises(Unavailable):
        look(first)
    assert clock(redis_server) == before


def test_late_replies_neither_end_a_session_nor_move_the_time_of_a_broker(
    brokers: tuple[Frontier, Frontier], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two brokers in turn, one of which stood still: neither moves the other's time."""
    session: Session = leased(brokers[0], store)
    item = ExtendItem(session=session.session, token=session.token)
    for one in (*brokers, *brokers):
        late(one.nodes[0], monkeypatch, read=0.6)
        assert one.extend([item], 2) == ["ok"]
    now = [one.nodes[0].now_ms() for one in brokers]
    assert now[0] == pytest.approx(now[1], abs=100)
