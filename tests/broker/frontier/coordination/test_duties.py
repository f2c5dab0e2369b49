"""Duties of several brokers on one store, and what Redis refuses of a holder that stood still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from structlog.testing import capture_logs

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties
from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.nodes import keys
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.records import Duty
from greencrawl.schema.wire import to_msgpack
from greencrawl.store.base import DUTY_SECONDS
from greencrawl.store.sqlite.store import SqliteStore
from tests.broker.frontier.test_frontier import until
from tests.support.redis_server import RedisServer
from tests.support.store_contract import shift_duty


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "c.sqlite")
    yield store
    store.close()


def two(store: SqliteStore) -> tuple[Duties, Duties]:
    return Duties(store), Duties(store)


def test_a_duty_is_refused_to_a_second_broker_until_its_holder_stops(store: SqliteStore) -> None:
    first, second = two(store)
    assert first.get("tick") is None
    assert first.take("tick") == Duty("tick", 1) == first.get("tick")
    assert second.take("tick") is None
    first.stop()
    assert first.get("tick") is None
    assert until(lambda: second.take("tick")) == Duty("tick", 2)


def test_a_duty_that_could_not_be_renewed_in_time_is_held_no_longer(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, now = Duties(store), [100.0]
    monkeypatch.setattr(duties, "monotonic", lambda: now[0])
    assert holder.take("tick")
    now[0] += DUTY_SECONDS - 0.1
    assert holder.get("tick")
    holder.renew()
    now[0] += DUTY_SECONDS - 0.1
    assert holder.get("tick")
    now[0] += 0.2
    assert holder.get("tick") is None


def test_a_duty_that_was_given_up_is_left_to_others_for_a_while(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, second), now = two(store), [100.0]
    monkeypatch.setattr(duties, "monotonic", lambda: now[0])
    assert first.take("clock:a")
    first.give_up("clock:a", 10.0)
    first.renew()
    assert first.get("clock:a") is None
    assert second.take("clock:a") == Duty("clock:a", 2)
    second.give_up("clock:a", 60.0)
    now[0] += 10.1
    first.renew()
    assert first.get("clock:a") == Duty("clock:a", 3)


def test_a_duty_that_is_often_given_up_is_logged_once_a_minute_and_when_it_is_kept(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, now = Duties(store), [100.0]
    monkeypatch.setattr(duties, "monotonic", lambda: now[0])
    with capture_logs() as lines:
        for _ in range(15):  # as while a Redis node is away, for 90 seconds
            holder.want("tick")
            holder.renew()
            assert holder.get("tick")
            now[0] += 1
            holder.give_up("tick", 5.0)
            now[0] += 5
        for _ in range(10):
            holder.renew()
            now[0] += 2
    told = [line["event"] for line in lines]
    assert told == ["duty_taken", "duty_given_up", "duty_given_up", "duty_taken"]
    (epoch,) = holder.held().values()
    assert lines[-1]["epoch"] == epoch


def test_a_broker_waits_for_a_duty_until_its_holder_stops(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "RENEW_SECONDS", 0.05)
    first, second = two(store)
    first.want("tick", "purge")
    second.want("tick")
    first.start()
    assert first.wait("purge", 2.0)
    second.start()
    assert not second.wait("tick", 0.2)
    waiting = gevent.spawn(second.wait, "tick", 5.0)
    first.stop()
    assert waiting.get(timeout=5)
    assert second.get("tick") == Duty("tick", 2)
    second.stop()


def test_a_holder_keeps_its_duty_when_the_store_goes_away(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Duties(store)
    assert holder.take("tick")

    def away(*_: object) -> dict[str, int]:
        raise Unavailable("cut off")

    monkeypatch.setattr(store, "take_duties", away)
    with pytest.raises(Unavailable):
        holder.renew()
    assert holder.get("tick")
    with pytest.raises(Unavailable):
        holder.take("purge")


def test_redis_refuses_a_holder_whose_duty_passed_on_and_does_nothing(
    redis_server: RedisServer, store: SqliteStore
) -> None:
    frontier = Frontier([redis_server.url], store, partitions=4, create=True)
    node = frontier.nodes[0]

    def heartbeat(tick: int, duty: Duty | None = None) -> None:
        node.run("heartbeat", [(0, to_msgpack([tick]))], duty)

    old, new = Duty("upkeep", 3), Duty("upkeep", 4)
    heartbeat(10, old)
    heartbeat(11, old)
    heartbeat(12, new)
    with pytest.raises(DutyLost, match="upkeep"):
        heartbeat(20, old)
    heartbeat(13, Duty("refill", 1))
    heartbeat(14)
    owner = redis_server.client.hgetall(keys.OWNER)
    assert (owner["tick"], owner["duty:upkeep"]) == ("14", "4")
    frontier.stop()


def test_a_holder_that_stood_still_writes_nothing_more(
    redis_server: RedisServer, store: SqliteStore
) -> None:
    """The holder may not know yet that the duty has passed on; store and Redis refuse it all the
    same."""
    frontier = Frontier([redis_server.url], store, partitions=4, create=True)
    first, second = two(store)
    stale = first.take("upkeep")
    assert stale is not None
    shift_duty(store, "upkeep", -DUTY_SECONDS)
    fresh = second.take("upkeep")
    assert fresh is not None
    tick = store.under(fresh).tick()
    frontier._calls("heartbeat", {0: to_msgpack([tick])}, duty=fresh)
    with pytest.raises(DutyLost):
        store.under(stale).tick()
    with pytest.raises(DutyLost):
        frontier._calls("heartbeat", {0: to_msgpack([tick + 1])}, partial=True, duty=stale)
    assert first.get("upkeep") == stale, "as far as it knows"
    assert store.clock().clock == tick
    frontier.stop()


def test_a_restored_store_catches_up_with_the_epoch_of_a_duty_in_redis(
    redis_server: RedisServer, store: SqliteStore
) -> None:
    """The store was put back to an older copy, in which the duty has a lower epoch."""
    frontier = Frontier([redis_server.url], store, partitions=4, create=True)
    node, holder = frontier.nodes[0], Duties(store)
    node.run("heartbeat", [(0, to_msgpack([1]))], Duty("upkeep", 4))

    def taken() -> bool:
        duty = holder.take("upkeep")
        if duty is None:
            return False
        try:
            node.run("heartbeat", [(0, to_msgpack([2]))], duty)
        except DutyLost:
            holder.lost("upkeep")
            return False
        return True

    assert until(taken)
    assert holder.get("upkeep") == Duty("upkeep", 4)
    frontier.stop()


def test_a_node_that_is_emptied_forgets_the_epochs_of_duties(
    redis_server: RedisServer, store: SqliteStore
) -> None:
    frontier = Frontier([redis_server.url], store, partitions=4, create=True)
    node = frontier.nodes[0]
    node.run("heartbeat", [(0, to_msgpack([50]))], Duty("purge", 7))
    frontier.repair(True)  # the store's clock is behind the tick: it lost data
    until(lambda: frontier.repairs()[0].phase in ("done", "none"))
    assert redis_server.client.hget(keys.OWNER, "duty:purge") is None
    frontier.stop()
