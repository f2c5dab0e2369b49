"""Beyond the memory budget URLs wait in SQL and come back, the best first; none is lost."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts.calls import BATCH
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.purge import Purging
from greencrawl.broker.tasks.refill import Refill
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.records import (
    Admission,
    Commit,
    CrawlState,
    Done,
    FinishItem,
    Overflow,
    StoredPage,
)
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.broker.frontier.test_frontier import Worker, close, finish_all, new_crawl, until
from tests.support import oracle
from tests.support.effort import cases
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import direct, graph_site
from tests.support.stored import read_stored
from tests.support.system import System, wait_until
from tests.support.walk import walk

HOST = "h.example"
PARTITIONS = 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def frontier(redis_server: RedisServer, store: Store) -> Iterator[Frontier]:
    """A frontier with room for some ten URLs a host."""
    frontier = Frontier(
        [redis_server.url],
        store,
        partitions=PARTITIONS,
        request_seconds=5,
        host_bytes=300,
        create=True,
    )
    frontier.start()
    yield frontier
    frontier.stop()


def urls(count: int, level: int = 3, host: str = HOST) -> list[Admission]:
    return [Admission(f"http://{host}/{level}/{n:02d}", level=level) for n in range(count)]


def waiting(store: Store, crawl: int, partition: int) -> list[str]:
    return [row.item.url for row in store.overflow(crawl, partition, HOST, 999)]


def test_urls_beyond_a_hosts_budget_wait_in_the_store_and_come_back_best_first(
    frontier: Frontier, store: Store
) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    assert frontier.admit(crawl.id, urls(30)) == [True] * 30
    late = len(waiting(store, crawl.id, p))
    assert 0 < late < 30
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.admitted, totals.waiting, totals.overflow) == (30, 30 - late, late)
    assert frontier.admit(crawl.id, urls(30)) == [False] * 30, "all of them are known"
    better = urls(2, level=1)
    assert frontier.admit(crawl.id, better) == [True] * 2
    assert waiting(store, crawl.id, p)[:2] == [item.url for item in better], "no room even for them"

    worker, got = Worker(frontier), []
    for _ in range(60):
        for s in worker.lease(tasks=2, wait=0):
            got += [task.url for task in s.tasks]
            finish_all(frontier, s)
            close(frontier, s)
        for place, host in frontier.partition_memory(p).low:
            frontier.refill(place, p, host)
    assert sorted(got) == sorted(item.url for item in urls(30) + better)
    order = [url for url in got if "/3/" in url]
    assert order == sorted(order), "a host's own order is kept"
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.open, totals.finished) == (0, 32)


def test_new_urls_no_better_than_the_overflow_go_there_too(
    frontier: Frontier, store: Store
) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    frontier.admit(crawl.id, urls(30))
    (s,) = Worker(frontier).lease(sessions=1, tasks=8)
    finish_all(frontier, s)
    before = waiting(store, crawl.id, p)
    frontier.admit(crawl.id, [Admission(f"http://{HOST}/late", level=3)])
    assert waiting(store, crawl.id, p) == [*before, f"http://{HOST}/late"]
    frontier.admit(crawl.id, [Admission(f"http://{HOST}/urgent", level=0)])
    assert waiting(store, crawl.id, p) == [*before, f"http://{HOST}/late"], "there is room for it"


def test_an_overflow_row_stays_after_its_url_is_queued(frontier: Frontier, store: Store) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    frontier.admit(crawl.id, urls(30))
    (s,) = Worker(frontier).lease(sessions=1, tasks=8)
    finish_all(frontier, s)
    brought = frontier.refill(crawl.id, p, HOST)
    assert brought > 0
    kept = [row for _, rows in store.overflow_of(p) for row in rows]
    assert len(kept) == len(waiting(store, crawl.id, p)) + brought, "queued is not fetched"


def test_an_emptied_redis_learns_of_the_overflow_again(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    frontier.admit(crawl.id, urls(30))
    (s,) = Worker(frontier).lease(sessions=1, tasks=8)
    finish_all(frontier, s)
    frontier.refill(crawl.id, p, HOST)
    rows = sum(len(rows) for _, rows in store.overflow_of(p))
    redis_server.client.delete(*redis_server.client.keys("gc:{*"))
    frontier.put_crawl(crawl)
    frontier.repair(everything=True)
    until(lambda: frontier.repairs()[0].phase == "done")
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert totals.overflow == rows
    assert len(waiting(store, crawl.id, p)) == rows, "what it had taken is offered again"
    assert not any(
        frontier.admit(crawl.id, [row.item for row in store.overflow(crawl.id, p, HOST, 99)])
    )


def test_a_refill_queues_a_url_once_though_it_was_admitted_meanwhile(
    frontier: Frontier, store: Store
) -> None:
    """Marks were refused, and the URLs of some rows came in another way since."""
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    item = Admission(f"http://{HOST}/a", level=1)
    row = Overflow(frontier.fingerprint(item.url), p, item)
    store.put_overflow(crawl.id, [row])
    assert frontier.admit(crawl.id, [item]) == [True], "nobody had marked it"
    assert frontier.refill(crawl.id, p, HOST) == 1
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.admitted, totals.waiting, totals.overflow) == (1, 1, 0)


def test_a_page_stored_for_a_url_in_the_overflow_leaves_no_count_behind(
    frontier: Frontier, store: Store
) -> None:
    """Redis forgot the session when it came back older; its worker may commit at any time."""
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    frontier.admit(crawl.id, urls(12))
    late = waiting(store, crawl.id, p)
    assert late
    for url in late:
        page = StoredPage(
            crawl=crawl.id, fingerprint=frontier.fingerprint(url), url=url, status=200, body=b"x"
        )
        store.commit(Commit([page]))
    worker = Worker(frontier)
    for _ in range(20):
        for s in worker.lease(tasks=8, wait=0):
            finish_all(frontier, s)
            close(frontier, s)
        frontier.refill(crawl.id, p, HOST)
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.open, totals.finished) == (0, 12)
    assert store.set_state(crawl.id, "done").state == "done"
    assert not list(store.overflow_of(p)), "no row outlives its task"


def test_a_crawl_is_not_done_while_urls_wait_in_sql(frontier: Frontier, store: Store) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    item = Admission(f"http://{HOST}/a", level=1)
    store.put_overflow(crawl.id, [Overflow(frontier.fingerprint(item.url), p, item)])
    assert store.set_state(crawl.id, "done").state == "active"
    frontier.refill(crawl.id, p, HOST)
    (s,) = Worker(frontier).lease()
    frontier.finish([FinishItem(session=s.session, token=s.token, task=1, outcome=Done())])
    assert store.set_state(crawl.id, "done").state == "done"


def test_partition_beyond_its_budget_takes_no_new_host(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    redis_server.client.hset(keys.OWNER, "budget", 1200)
    items = [item for n in range(40) for item in urls(1, host=f"h{n}.example")]
    assert frontier.admit(crawl.id, items) == [True] * 40
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert totals.overflow > 20
    assert totals.waiting + totals.overflow == 40
    for p in frontier.partitions:
        assert int(redis_server.client.get(f"gc:{{{p}}}:b") or 0) <= 1200


@pytest.mark.parametrize("emptied", cases([True], [False]))
def test_a_crawl_with_little_memory_stores_every_page(
    tmp_path: Path, redis_server: RedisServer, emptied: bool
) -> None:
    site = graph_site(120)
    addresses = ["127.0.0.2", "127.0.0.3"]
    with (
        SiteServer(site, addresses) as server,
        System(
            tmp_path,
            [redis_server.url],
            host_bytes="1024",
            partitions=str(PARTITIONS),
            request_seconds="1",
            lease_seconds="2",
        ) as system,
    ):
        starts = [server.url("/p/0", address) for address in addresses]
        expected = walk(starts, direct(site), agent="greencrawl")
        system.start().crawl(starts, delay=0.005)
        content = open_store(f"sqlite:///{tmp_path / 'data' / 'content.sqlite'}")
        beyond: list[str] = []

        def engages() -> list[str]:
            """URLs of pages with a row, waiting or queued: the row is deleted when the page is
            stored."""
            for partition in range(PARTITIONS):
                for _, rows in content.overflow_of(partition):
                    beyond.extend(row.item.url for row in rows if "/p/" in row.item.url)
            return beyond

        wait_until(engages, 30, "the overflow engages", every=0.01)
        content.close()
        if emptied:
            redis_server.client.flushall()
        else:
            answer = system.call("GET", f"/v1/urls?crawl=test&url={beyond[-1]}")[0]
            assert answer["state"] in ("overflow", "waiting", "leased", "fetched"), answer

        def done() -> bool:
            try:
                return bool(system.stats()["state"] == "done")
            except urllib.error.HTTPError:
                return False

        wait_until(done, 60, f"the crawl is done\n{system.tail('broker')}", every=0.1)
        requests = oracle.requests_of(server.hits, server.port)
        pages = read_stored(tmp_path / "data").pages
    assert oracle.shown(oracle.differences(pages, expected.pages, "stored")) == ""
    assert oracle.shown(oracle.differences(requests, expected.requested, "sent")) == ""


def test_seeds_are_answered_429_near_the_memory_limit_and_finishing_goes_on(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with System(tmp_path, [redis_server.url]) as system:
        system.start_broker()
        system.crawl([], name="test", scope="any")
        system.call("POST", "/v1/crawls/test/urls", {"urls": ["http://a.example/"]})
        used = int(redis_server.client.info("memory")["used_memory"])
        redis_server.client.config_set("maxmemory", int(used / 0.95))

        def refused() -> bool:
            try:
                system.call("POST", "/v1/crawls/test/urls", {"urls": ["http://b.example/"]})
            except urllib.error.HTTPError as error:
                return error.code == 429 and int(error.headers["Retry-After"]) > 0
            return False

        wait_until(refused, 10, "seeding is refused", every=0.3)
        lease = {"worker": "w", "incarnation": 1, "sequence": 1, "wait": 5}
        session = system.call("POST", "/v1/lease", lease)["sessions"][0]
        item = {
            "session": session["session"], "token": session["token"], "task": 1,
            "outcome": {"type": "done"},
        }  # fmt: skip
        assert system.call("POST", "/v1/finish", {"items": [item]})["results"] == ["ok"]
        redis_server.client.config_set("maxmemory", 0)
        wait_until(lambda: not refused(), 10, "seeding is possible again", every=0.3)


def test_the_deletion_of_a_host_deletes_its_overflow_without_a_refill(
    frontier: Frontier, store: Store
) -> None:
    """Nobody refills here, so the deletion itself has to delete the rows."""
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    frontier.admit(crawl.id, [item for n in range(4) for item in urls(90, level=n)])
    assert len(waiting(store, crawl.id, p)) > 2 * BATCH
    service = Service(frontier, store)
    service.purge(crawl, HOST)
    with gevent.Timeout(20):
        Purging(service).work()
    assert store.purges() == []
    assert not list(store.overflow_of(p))
    assert store.counts(crawl.id)["excluded"] == 360
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.open, totals.finished) == (0, 360)
    assert store.set_state(crawl.id, "done").state == "done"


def test_a_late_mark_leaves_no_count_behind_if_its_overflow_row_was_purged(
    frontier: Frontier, store: Store
) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    item = Admission(f"http://{HOST}/a", level=1)
    row = Overflow(frontier.fingerprint(item.url), p, item)
    store.put_overflow(crawl.id, [row])
    service = Service(frontier, store)
    service.purge(crawl, HOST)
    Purging(service).work()
    frontier.parts.spill.mark_spilled(crawl.id, [row])
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.open, totals.admitted, totals.finished) == (0, 1, 1)


def test_a_late_mark_of_an_overflow_row_is_refused_if_its_crawl_was_deleted(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    """The process that put the row has nothing more to do: it must not try again for ever."""
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    item = Admission(f"http://{HOST}/a", level=1)
    row = Overflow(frontier.fingerprint(item.url), p, item)
    store.add_purge(crawl.id)
    frontier.drop_crawl(crawl.id)
    before = redis_server.client.keys()
    with pytest.raises(UnknownCrawl):
        frontier.parts.spill.mark_spilled(crawl.id, [row])
    assert sorted(redis_server.client.keys()) == sorted(before)


@pytest.mark.parametrize("share", [0.7, 1.0])
@pytest.mark.parametrize("state", ["paused", "done"])
def test_a_crawl_is_refilled_though_tasks_of_a_crawl_at_rest_fill_the_memory(
    frontier: Frontier, store: Store, redis_server: RedisServer, share: float, state: CrawlState
) -> None:
    """Most of the memory, or all of it, belongs to another crawl, and all of this crawl waits in
    SQL."""
    resting = new_crawl(frontier, store, "resting", delay=0)
    crawl, p = new_crawl(frontier, store, "b", delay=0), frontier.partition_of(HOST)
    other = next(f"o{n}.example" for n in range(99) if frontier.partition_of(f"o{n}.example") == p)
    frontier.admit(resting.id, urls(6, host=other))
    frontier.put_crawl(store.set_state(resting.id, state, "max_pages"))
    used = frontier.partition_memory(p).used
    redis_server.client.hset(keys.OWNER, "budget", 1)
    frontier.admit(crawl.id, urls(40))
    redis_server.client.hset(keys.OWNER, "budget", int(used / share))
    assert len(waiting(store, crawl.id, p)) == 40
    service, worker, got = Service(frontier, store), Worker(frontier), 0
    refill = Refill(service)
    for _ in range(60):
        refill.step(store.overflow_places())
        for s in worker.lease(tasks=8, wait=0):
            assert s.crawl == crawl.id
            got += len(s.tasks)
            finish_all(frontier, s)
            close(frontier, s)
    assert got == 40


def test_the_overflow_of_a_paused_crawl_is_not_refilled(frontier: Frontier, store: Store) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    frontier.admit(crawl.id, urls(30))
    assert store.overflow_places() == [(crawl.id, p)]
    store.set_state(crawl.id, "paused")
    assert store.overflow_places() == []
    store.set_state(crawl.id, "active")
    assert store.overflow_places() == [(crawl.id, p)]


def test_a_host_that_ran_low_while_there_was_no_room_is_refilled_once_there_is(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    """More than half of the budget is used, and there are other hosts to lease: so nothing else
    would bring the host back."""
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    redis_server.client.hset(keys.OWNER, "host_budget", 3000)
    others = [f"o{n}.example" for n in range(99) if frontier.partition_of(f"o{n}.example") == p]
    for other in others[:6]:
        frontier.admit(crawl.id, urls(12, host=other))
    used = frontier.partition_memory(p).used
    redis_server.client.hset(keys.OWNER, "budget", used + 500)
    frontier.admit(crawl.id, urls(30))
    late = len(waiting(store, crawl.id, p))
    assert late > 20
    worker, refill = Worker(frontier), Refill(Service(frontier, store))
    while not (on := [s for s in worker.lease(sessions=1, tasks=30) if s.host == HOST]):
        pass
    redis_server.client.hset(keys.OWNER, "budget", frontier.partition_memory(p).used)
    refill.step(store.overflow_places())
    assert len(waiting(store, crawl.id, p)) == late, "what is leased still takes its memory"
    redis_server.client.hset(keys.OWNER, "budget", round(frontier.partition_memory(p).used * 1.6))
    frontier.admit(crawl.id, urls(1, host=others[6], level=0))
    finish_all(frontier, on[0])
    close(frontier, on[0])
    refill.step(store.overflow_places())
    assert len(waiting(store, crawl.id, p)) < late


def test_a_deletion_leaves_leased_tasks_from_the_overflow_to_their_worker(
    frontier: Frontier, store: Store
) -> None:
    crawl, p = new_crawl(frontier, store, delay=0), frontier.partition_of(HOST)
    frontier.admit(crawl.id, urls(30))
    worker = Worker(frontier)
    (s,) = worker.lease(sessions=1, tasks=8)
    finish_all(frontier, s)
    close(frontier, s)
    assert frontier.refill(crawl.id, p, HOST) > 0
    (s,) = worker.lease(sessions=1, tasks=8)
    pages = [
        StoredPage(
            crawl=crawl.id, fingerprint=frontier.fingerprint(task.url), url=task.url, status=200,
            fetched_ms=epoch_ms(), body=b"x",
        )
        for task in s.tasks
    ]  # fmt: skip
    gevent.sleep(0.01)
    service = Service(frontier, store)
    service.purge(crawl, HOST)
    Purging(service).work()
    store.commit(Commit(pages))
    finish_all(frontier, s)
    close(frontier, s)
    counts = store.counts(crawl.id)
    assert (counts["pages"], counts["excluded"]) == (len(pages), 30 - 8 - len(pages))
    assert not list(store.overflow_of(p))


def test_a_deletion_that_waits_for_its_node_holds_up_no_other(
    tmp_path: Path, redis_server: RedisServer, store: Store
) -> None:
    second = RedisServer(tmp_path / "second").start()
    try:
        frontier = Frontier([redis_server.url, second.url], store, partitions=64, create=True)
        crawl = new_crawl(frontier, store, delay=0)
        first, other = frontier.nodes
        names = [f"h{n}.example" for n in range(99)]
        on = {frontier.under(frontier.partition_of(name))[0]: name for name in names}
        for host in on.values():
            frontier.admit(crawl.id, urls(3, host=host))
        service = Service(frontier, store)
        for node in (other, first):
            service.purge(crawl, on[node.id])
        second.stop()
        with pytest.raises(Unavailable):
            Purging(service).work()
        assert [purge.host for purge in store.purges()] == [on[other.id]]
        assert store.counts(crawl.id)["excluded"] == 3
        frontier.stop()
    finally:
        second.stop()
