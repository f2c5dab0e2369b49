"""The hosts to which a pass of refilling brings tasks back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.broker.frontier.overflow import PartitionMemory
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.refill import HOSTS, Refill
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Admission, CrawlOptions, Overflow
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.queue_double import QueueDouble


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def queue() -> QueueDouble:
    return QueueDouble()


@pytest.fixture
def service(store: Store, queue: QueueDouble) -> Iterator[Service]:
    made = Service(queue, store)
    yield made
    made.duties.stop()


def put(store: Store, crawl: int, *hosts: str, partition: int = 7) -> None:
    items = [
        Overflow(n, partition, Admission(f"http://{host}/")) for n, host in enumerate(hosts, 1)
    ]
    store.put_overflow(crawl, items)


@pytest.fixture
def crawl(store: Store) -> int:
    return store.put_crawl("a", CrawlOptions(), []).id


def test_hosts_that_run_low_are_refilled_before_hosts_that_wait(
    service: Service, store: Store, queue: QueueDouble, crawl: int
) -> None:
    put(store, crawl, "a.org", "b.org")
    queue.memories[7] = PartitionMemory(used=10, budget=100, full=False, low=[(crawl, "z.org")])
    assert Refill(service).step(store.overflow_places()) == 3
    assert queue.refilled == [(crawl, 7, "z.org"), (crawl, 7, "a.org"), (crawl, 7, "b.org")]


def test_partition_above_half_of_its_budget_takes_on_no_new_host(
    service: Service, store: Store, queue: QueueDouble, crawl: int
) -> None:
    put(store, crawl, "a.org")
    queue.memories[7] = PartitionMemory(used=60, budget=100, full=False, low=[(crawl, "z.org")])
    Refill(service).step(store.overflow_places())
    assert queue.refilled == [(crawl, 7, "z.org")]


def test_a_crawl_with_nothing_to_lease_is_refilled_above_half_of_the_budget(
    service: Service, store: Store, queue: QueueDouble, crawl: int
) -> None:
    put(store, crawl, "a.org")
    put(store, store.put_crawl("b", CrawlOptions(), []).id, "b.org")
    queue.memories[7] = PartitionMemory(used=60, budget=100, full=False, low=[], idle=[crawl])
    Refill(service).step(store.overflow_places())
    assert queue.refilled == [(crawl, 7, "a.org")]


def test_a_node_near_its_limit_is_refilled_only_for_crawls_with_nothing_to_lease(
    service: Service, store: Store, queue: QueueDouble, crawl: int
) -> None:
    put(store, crawl, "a.org")
    queue.memories[7] = PartitionMemory(used=0, budget=100, full=True, low=[(crawl, "z.org")])
    assert Refill(service).step(store.overflow_places()) == 0
    assert queue.refilled == []
    queue.memories[7] = PartitionMemory(
        used=0, budget=100, full=True, low=[(crawl, "z.org")], idle=[crawl]
    )
    assert Refill(service).step(store.overflow_places()) == 1
    assert queue.refilled == [(crawl, 7, "a.org")]


def test_hosts_are_refilled_in_turn(
    service: Service, store: Store, queue: QueueDouble, crawl: int
) -> None:
    names = [f"h{n:03d}.org" for n in range(2 * HOSTS + 5)]
    put(store, crawl, *names)
    refill = Refill(service)
    for _ in range(4):
        refill.step(store.overflow_places())
    visited = [host for _, _, host in queue.refilled]
    assert visited == names + names[:HOSTS], "each once, then from the beginning"


def test_the_refill_looks_into_the_store_when_it_starts_and_ends_when_told(
    service: Service, store: Store, queue: QueueDouble, crawl: int
) -> None:
    put(store, crawl, "a.org")
    refill = Refill(service)
    refill.start()
    with gevent.Timeout(5):
        while not queue.refilled:
            gevent.sleep(0.01)
        service.stopping.set()
        refill.stop()


def test_other_nodes_are_refilled_while_one_is_away(
    service: Service, store: Store, queue: QueueDouble, crawl: int
) -> None:
    put(store, crawl, "a.org", partition=3)
    other = store.put_crawl("b", CrawlOptions(), []).id
    put(store, other, "b.org")
    queue.lost.add(3)
    assert Refill(service).step(store.overflow_places()) == 1
    assert queue.refilled == [(other, 7, "b.org")]
    queue.lost.add(7)
    with pytest.raises(Unavailable):
        Refill(service).step(store.overflow_places())


def test_the_refill_duty_is_given_up_less_and_less_often_while_nobody_reaches_a_node(
    service: Service, store: Store, queue: QueueDouble, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, crawl, "a.org")
    queue.away = True
    for name in (
        "tasks.duty_task.CUT_SECONDS",
        "tasks.refill.IDLE_SECONDS",
        "frontier.coordination.duties.RENEW_SECONDS",
    ):
        monkeypatch.setattr(f"greencrawl.broker.{name}", 0.01)
    monkeypatch.setattr("greencrawl.broker.tasks.duty_timeout.FIRST_SECONDS", 0.1)
    given_up: list[str] = []
    give_up = service.duties.give_up
    monkeypatch.setattr(
        service.duties, "give_up", lambda *what: (given_up.append(what[0]), give_up(*what))
    )
    refill = Refill(service)
    service.duties.start()
    refill.start()
    gevent.sleep(1.0)
    service.stopping.set()
    refill.stop()
    assert 1 <= len(given_up) <= 4, "after 0.1, 0.2, 0.4 seconds"


def test_the_refill_goes_on_when_redis_is_back(
    service: Service,
    store: Store,
    queue: QueueDouble,
    crawl: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(store, crawl, "a.org")
    queue.away = True
    monkeypatch.setattr("greencrawl.broker.tasks.duty_task.CUT_SECONDS", 0.05)
    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.RENEW_SECONDS", 0.05)
    refill = Refill(service)
    service.duties.start()
    refill.start()
    gevent.sleep(0.1)
    queue.away = False
    with gevent.Timeout(5):
        while not queue.refilled:
            gevent.sleep(0.01)
        service.stopping.set()
        refill.stop()
