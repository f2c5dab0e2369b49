"""Upkeep, refill and purge of two brokers: one does the work, and is told of events at the
other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from msgspec import structs

from greencrawl.broker.frontier import Frontier, Mode
from greencrawl.broker.frontier.coordination.activity import (
    ACTIVITY,
    ANY,
    MOST,
    ActivityEvent,
    message,
)
from greencrawl.broker.frontier.coordination.duties import PURGE, REFILL, UPKEEP
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scans import Scans
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.purge import Purging
from greencrawl.broker.tasks.refill import Refill
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import DutyLost, UnknownCrawl
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Crawl,
    Done,
    FinishItem,
    HostPatch,
    HostReport,
    Overflow,
)
from greencrawl.store.base import DUTY_SECONDS
from greencrawl.store.sqlite.store import SqliteStore
from tests.broker.frontier.test_frontier import Worker, new_crawl, until, urls
from tests.support.proxy import TcpProxy, address_of
from tests.support.redis_server import RedisServer
from tests.support.store_contract import shift_duty


class Broker:
    """A broker with all its greenlets, but without the HTTP API."""

    def __init__(self, redis_url: str, store: SqliteStore) -> None:
        self.frontier = Frontier([redis_url], store, partitions=8, create=True)
        self.service = Service(self.frontier, store, duties=self.frontier.duties)
        self.works = (Upkeep(self.service), Refill(self.service), Purging(self.service))

    def start(self) -> Broker:
        self.frontier.start()
        for work in self.works:
            work.start()
        return self

    def stop(self) -> None:
        for work in self.works:
            work.stop()
        self.frontier.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "c.sqlite")
    yield store
    store.close()


@pytest.fixture
def brokers(redis_server: RedisServer, store: SqliteStore) -> Iterator[tuple[Broker, Broker]]:
    """The first has all duties."""
    first = Broker(redis_server.url, store).start()
    for name in (UPKEEP, REFILL, PURGE):
        assert first.service.duties.wait(name, 5.0)
    second = Broker(redis_server.url, store).start()
    yield first, second
    second.stop()
    first.stop()


def fetch_all(frontier: Frontier) -> None:
    (session,) = until(lambda: Worker(frontier).lease(wait=1))
    close = CloseItem(session=session.session, token=session.token, report=HostReport(requests=1))
    frontier.close_sessions([close])
    frontier.finish(
        [
            FinishItem(session=session.session, token=session.token, task=t.number, outcome=Done())
            for t in session.tasks
        ]
    )


def test_a_crawl_ends_in_time_whichever_broker_took_the_last_finish(
    brokers: tuple[Broker, Broker], store: SqliteStore
) -> None:
    _, other = brokers
    crawl = new_crawl(other.frontier, store, delay=0)
    other.frontier.admit(crawl.id, urls("h.example", 3))
    fetch_all(other.frontier)
    began = monotonic()
    until(lambda: store.crawl(crawl.id).state == "done", 4)
    assert monotonic() - began < 2.5, "at most a second or so, but for a busy machine"
    assert not other.service.duties.get(UPKEEP)


def test_a_crawl_ends_though_the_broker_that_took_its_last_finish_died_at_once(
    brokers: tuple[Broker, Broker],
    store: SqliteStore,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.QUIET_SECONDS", 1.0)
    holder, _ = brokers
    dying = Frontier([redis_server.url], store, partitions=8, create=True)  # it announces nothing
    crawl = new_crawl(dying, store, delay=0)
    dying.admit(crawl.id, urls("h.example", 3))
    dying.start()
    until(lambda: crawl.id in holder.works[0]._next, 5)
    gevent.sleep(1.0)  # its scripts have published messages, and these were read
    assert holder.works[0]._next[crawl.id] - monotonic() > 100
    fetch_all(dying)
    dying.stop()
    began = monotonic()
    until(lambda: store.crawl(crawl.id).state == "done", 10)
    assert monotonic() - began < 6, "two seconds or so, but for a busy machine"


def test_a_holder_that_alone_is_cut_off_from_redis_leaves_the_duty_to_another(
    redis_server: RedisServer, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle crawl causes no messages; only the notes in Redis tell the holder."""
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.QUIET_SECONDS", 1.0)
    monkeypatch.setattr("greencrawl.broker.tasks.duty_timeout.FIRST_SECONDS", 1.0)
    with TcpProxy(address_of(redis_server.url)) as line:
        first = Broker(f"redis://{line.address}", store).start()
        for node in first.frontier.nodes:
            node._timeout = 0.3
            node.close()
        assert first.service.duties.wait(UPKEEP, 5.0)
        second = Broker(redis_server.url, store).start()
        crawl = new_crawl(second.frontier, store, delay=600)
        second.frontier.admit(crawl.id, urls("h.example", 1))
        until(lambda: crawl.id in first.works[0]._next, 5)
        gevent.sleep(1.0)
        assert first.works[0]._next[crawl.id] - monotonic() > 100
        line.drop()
        began = monotonic()
        until(lambda: second.service.duties.get(UPKEEP), 15)
        assert monotonic() - began < 10, "five seconds or so, but for a busy machine"
        line.mend()
        second.stop()
        first.stop()


def test_another_broker_takes_over_the_upkeep_when_the_holder_has_stopped(
    redis_server: RedisServer, store: SqliteStore
) -> None:
    first = Broker(redis_server.url, store).start()
    assert first.service.duties.wait(UPKEEP, 5.0)
    second = Broker(redis_server.url, store).start()
    crawl = new_crawl(second.frontier, store, delay=0)
    second.frontier.admit(crawl.id, urls("h.example", 1))
    first.stop()
    fetch_all(second.frontier)
    until(lambda: store.crawl(crawl.id).state == "done", 6)
    second.stop()


def test_idle_crawls_cost_redis_nothing_however_many_brokers_there_are(
    brokers: tuple[Broker, Broker], store: SqliteStore, redis_server: RedisServer
) -> None:
    for number in range(5):
        crawl = new_crawl(brokers[1].frontier, store, f"c{number}", delay=600)
        brokers[1].frontier.admit(crawl.id, urls(f"h{number}.example", 3))

    def looked_at_seldom() -> bool:
        nexts = brokers[0].works[0]._next.values()
        return len(nexts) == 5 and all(at - monotonic() > 100 for at in nexts)

    until(looked_at_seldom, 5)
    gevent.sleep(1.2)  # messages that were published meanwhile are read
    client = redis_server.client
    before = client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    gevent.sleep(1.5)
    after = client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    assert after - before <= 2, "but for a heartbeat"


def test_a_busy_crawl_does_not_cause_scans_of_other_crawls(
    brokers: tuple[Broker, Broker], store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, other = brokers
    crawls = [new_crawl(other.frontier, store, f"c{n}", delay=600) for n in range(3)]
    for crawl in crawls:
        other.frontier.admit(crawl.id, urls(f"h{crawl.id}.example", 1))
    until(lambda: len(holder.works[0]._next) == 3, 5)
    gevent.sleep(0.6)
    looks: list[int] = []
    look = Scans.look

    def looking(self: Scans, crawl: Crawl, counts: Any) -> object:
        looks.append(crawl.id)
        return look(self, crawl, counts)

    monkeypatch.setattr(Scans, "look", looking)
    other.frontier.admit(crawls[1].id, urls("new.example", 1))
    until(lambda: looks, 3)
    gevent.sleep(0.3)
    assert set(looks) == {crawls[1].id}


def test_crawls_that_are_due_are_counted_in_one_call_a_partition(
    store: SqliteStore, redis_server: RedisServer
) -> None:
    frontier = Frontier([redis_server.url], store, partitions=8, create=True)
    upkeep = Upkeep(Service(frontier, store))
    try:
        crawls = [new_crawl(frontier, store, f"c{n}", delay=600) for n in range(5)]
        for number, crawl in enumerate(crawls):
            frontier.admit(crawl.id, urls(f"h{number}.example", number + 1))
        upkeep.step()
        redis_server.client.config_resetstat()
        upkeep._next.clear()
        upkeep.step(())
        assert redis_server.client.info("commandstats")["cmdstat_evalsha"]["calls"] == 8
        counts = frontier.count(crawls)
        found = [frontier.look(crawl, counts) for crawl in crawls]
        assert found == [frontier.look(crawl) for crawl in crawls]
        assert [one.totals.waiting for one in found if one is not None] == [1, 2, 3, 4, 5]
        unknown = structs.replace(crawls[0], id=999)
        crawls = [unknown, *(new_crawl(frontier, store, f"empty{n}") for n in range(2)), *crawls]
        counts = frontier.count(crawls)
        assert counts is not None
        for crawl in [*crawls, unknown]:
            single = frontier.count([crawl])
            assert single is not None
            together, alone = counts[crawl.id], single[crawl.id]
            assert {p: row[1:] for p, row in together.items()} == {
                p: row[1:] for p, row in alone.items()
            }, "but for the time"
    finally:
        frontier.stop()


def test_a_url_that_overflowed_at_one_broker_is_refilled_by_the_holder(
    brokers: tuple[Broker, Broker], store: SqliteStore
) -> None:
    _, other = brokers
    crawl = new_crawl(other.frontier, store, delay=600)
    (item,) = urls("h.example", 1)
    fingerprint = other.frontier.fingerprint(item.url)
    store.put_overflow(
        crawl.id, [Overflow(fingerprint, other.frontier.partition_of("h.example"), item)]
    )
    other.frontier.overflowing.set()
    until(lambda: not store.overflow_places(), 5)
    assert other.frontier.stats(crawl).waiting == 1


def test_a_deletion_asked_of_any_broker_is_done_by_the_holder(
    brokers: tuple[Broker, Broker], store: SqliteStore
) -> None:
    _, other = brokers
    crawl = new_crawl(other.frontier, store, delay=600)
    other.frontier.admit(crawl.id, urls("h.example", 3))
    other.service.purge(crawl)
    until(lambda: not store.purges(), 6)
    with pytest.raises(UnknownCrawl):
        other.frontier.admit(crawl.id, [Admission("http://h.example/new")])


def test_a_holder_that_stood_still_changes_neither_redis_nor_the_store(
    redis_server: RedisServer, store: SqliteStore
) -> None:
    stale, fresh = Broker(redis_server.url, store), Broker(redis_server.url, store)
    crawl = new_crawl(stale.frontier, store, delay=0)
    stale.frontier.admit(crawl.id, urls("h.example", 2))
    duty = stale.service.duties.take(UPKEEP)
    assert duty is not None
    held = stale.service.holding(duty)
    held.frontier.stop_leasing(crawl)
    held.frontier.put_crawl(crawl)
    shift_duty(store, UPKEEP, -DUTY_SECONDS)
    taken = fresh.service.duties.take(UPKEEP)
    assert taken is not None
    fresh.service.holding(taken).frontier.tick(store.clock())
    before = redis_server.client.hgetall(keys.OWNER)
    clock, delay = store.clock(), store.delay("h.example")
    for write in (
        lambda: held.frontier.patch_host("h.example", HostPatch(delay=5.0)),
        lambda: held.frontier.stop_leasing(crawl),
        lambda: held.frontier.tick(clock),
        lambda: held.frontier.drop_crawl(crawl.id),
        lambda: held.frontier.admit(crawl.id, urls("h.example", 9), mode=Mode.FORCE, batch=1),
        lambda: held.store.tick(),
        lambda: held.store.set_state(crawl.id, "done", "finished"),
    ):
        with pytest.raises(DutyLost):
            write()
    redis_server.client.config_set("maxmemory", "1gb")  # so that the budgets would change
    held.frontier.watch_memory()
    with pytest.raises(DutyLost):
        stale.works[0].step()  # it still believes that it has the duty
    assert redis_server.client.hgetall(keys.OWNER) == before
    assert (store.clock(), store.delay("h.example")) == (clock, delay)
    assert fresh.frontier.stats(store.crawl(crawl.id)).waiting == 2
    for one in (stale, fresh):
        one.frontier.stop()


def test_an_activity_event_distinguishes_own_activity_from_that_of_other_brokers() -> None:
    events = ActivityEvent()
    events.hear((7,))
    assert events.is_set()
    assert events.take_own() == frozenset()
    events.set(3)
    assert events.take_own() == {3}
    assert events.take() == {3, 7}
    assert not events.is_set()
    assert events.take() == frozenset()
    events.set()
    assert events.take_own() == {ANY}


def test_an_activity_message_names_a_few_crawls_or_any_crawl() -> None:
    assert message(ACTIVITY, {5, 2}) == b"activity 2 5"
    assert message(ACTIVITY, set(range(1, MOST + 2))) == b"activity 0"
