"""What a Redis that came back older costs: as much as happened in its window, and no more."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts import partition
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Admission, Commit, CrawlOptions, StoredPage
from greencrawl.store import open_store
from greencrawl.store.base import MARGIN
from greencrawl.store.sqlite import connection
from tests.broker.frontier.recovery.test_recovery import House
from tests.broker.frontier.test_frontier import Worker, _lease_or_nothing, close, new_crawl, until
from tests.support.redis_server import RedisServer

HOST = "h.example"


class Reading:
    """Counts what SQLite does, in instructions of its machine; a row read is some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instructions = 0
        real = connection.connect

        def connect(*given: Any, **more: Any) -> sqlite3.Connection:
            opened = real(*given, **more)
            opened.set_progress_handler(self._count, 1)
            return opened

        monkeypatch.setattr(connection, "connect", connect)

    def _count(self) -> None:
        self.instructions += 1


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


@pytest.fixture
def house(reading: Reading, tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    made.frontier.start()
    yield made
    made.stop()


def beyond(house: House, *names: str) -> None:
    """Admit URLs for which there is no room."""
    house.server.client.hset(keys.OWNER, "budget", 1)
    items = [Admission(f"http://{HOST}/{name}", depth=1) for name in names]
    house.frontier.admit(house.crawl.id, items)
    house.server.client.hdel(keys.OWNER, "budget")


def refill(house: House) -> int:
    return house.frontier.refill(house.crawl.id, house.frontier.partition_of(HOST), HOST)


def overflow(house: House) -> list[str]:
    """What waits in SQL."""
    found = house.store.overflow(house.crawl.id, house.frontier.partition_of(HOST), HOST, 9999)
    return [row.item.url.rpartition("/")[2] for row in found]


def recovered(house: House) -> None:
    """The node is met, given what it is owed, and nothing goes on any more."""
    house.refilled()
    job = house.frontier.recovery._jobs[house.frontier.nodes[0].id]
    assert job.greenlet is not None
    job.greenlet.join(10)


def test_what_lies_outside_of_the_window_is_not_read(house: House, reading: Reading) -> None:
    """Neither rows that are queued, nor rows that wait, nor keys of Redis."""
    read, waiting = [], []
    for count in (100, 1000):
        beyond(house, *(f"queued{n}-{count}" for n in range(count)))
        while refill(house):
            pass
        beyond(house, *(f"waits{n}-{count}" for n in range(count)))
        house.tick(MARGIN + 3)
        copy = house.saved()
        before = reading.instructions
        house.put_back(copy)
        recovered(house)
        read.append(reading.instructions - before)
        waiting.append(len(overflow(house)))
        assert "cmdstat_scan" not in house.server.client.info("commandstats")
    assert read[1] < read[0] + 1000, "less than one for each of 1800 more rows"
    assert waiting == [100, 1000]


def test_a_row_that_was_queued_after_a_copy_was_made_is_brought_again(house: House) -> None:
    beyond(house, "a", "b")
    house.tick(2 * MARGIN)
    copy = house.saved()
    assert refill(house) == 2
    assert overflow(house) == []
    house.put_back(copy)
    recovered(house)
    assert overflow(house) == ["a", "b"]
    totals = house.frontier.scan(house.crawl.id)
    assert totals is not None
    assert (totals.waiting, totals.overflow) == (0, 2)
    assert refill(house) == 2
    totals = house.frontier.scan(house.crawl.id)
    assert totals is not None
    assert (totals.waiting, totals.overflow) == (2, 0)


def test_a_row_that_was_queued_long_before_stays_queued(house: House) -> None:
    beyond(house, "a", "b")
    assert refill(house) == 2
    house.tick(MARGIN + 3)
    house.put_back(house.saved())
    recovered(house)
    assert overflow(house) == []
    totals = house.frontier.scan(house.crawl.id)
    assert totals is not None
    assert (totals.waiting, totals.overflow) == (2, 0)


def test_what_began_to_wait_in_the_window_is_known_again(house: House) -> None:
    beyond(house, "old")
    house.tick(MARGIN + 3)
    copy = house.saved()
    beyond(house, "new")
    house.put_back(copy)
    recovered(house)
    totals = house.frontier.scan(house.crawl.id)
    assert totals is not None
    assert (totals.admitted, totals.overflow) == (2, 2)


def test_a_row_whose_page_came_long_before_it_was_taken_is_waited_for_by_nobody(
    house: House,
) -> None:
    """The copy is from before the row went; its page was stored before the copy's window."""
    beyond(house, "a")
    house.store.commit(Commit([house.page(f"{HOST}/a")]))
    house.tick(2 * MARGIN)
    copy = house.saved()
    assert refill(house) == 1
    house.put_back(copy)
    recovered(house)
    totals = house.frontier.scan(house.crawl.id)
    assert totals is not None
    assert (totals.open, totals.finished) == (0, 1)
    assert house.store.set_state(house.crawl.id, "done").state == "done"


def test_a_node_with_an_early_tick_has_its_data(house: House) -> None:
    house.seed(f"{HOST}/a")
    house.tick(3)
    house.put_back(house.saved())
    recovered(house)
    assert not house.frontier.repairs()[0].everything


@pytest.mark.parametrize("listed", [True, False])
def test_a_crawl_deleted_since_goes_though_the_version_before_made_no_list(
    house: House, listed: bool
) -> None:
    other = house.store.put_crawl("other", CrawlOptions(delay=0, scope="any"), ())
    house.frontier.put_crawl(other)
    house.frontier.admit(other.id, [Admission(f"http://{HOST}/{n}") for n in range(50)])
    house.seed(f"{HOST}/a")
    house.tick(MARGIN + 3)
    client = house.server.client
    if not listed:
        client.hdel(keys.OWNER, "listed")
        client.delete(*client.keys("gc:{*}:crawls"))
    copy = house.saved()
    house.frontier.drop_crawl(other.id)
    house.store.delete_crawl(other.id)
    house.put_back(copy)
    recovered(house)
    assert not [name for name in client.keys("gc:*") if f":{other.id}:" in name]
    assert client.hget(keys.OWNER, "listed") == "1", "the next time it is told by name"


def test_only_crawls_that_may_be_news_are_told_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(name: str, *, done: bool) -> int:
        crawl = house.store.put_crawl(name, CrawlOptions(), ())
        house.frontier.put_crawl(crawl)
        if done:
            house.frontier.put_crawl(house.store.set_state(crawl.id, "done"))
        return crawl.id

    put("over", done=True)
    late = put("late", done=False)
    house.tick(MARGIN + 3)
    copy = house.saved()
    over = house.store.set_state(late, "done")
    house.frontier.put_crawl(over)
    put("new and over", done=True)
    told: list[str] = []
    real = house.frontier.tell_node

    def tell_node(crawls: Any, node: Any, **more: Any) -> None:
        told.extend(crawl.name for crawl in crawls)
        real(crawls, node, **more)

    monkeypatch.setattr(house.frontier.parts.crawls, "tell_node", tell_node)
    house.put_back(copy)
    recovered(house)
    assert set(told) == {"a", "late", "new and over"}
    known = house.frontier.told(house.frontier.nodes[0])
    assert all(one[late] == over.version for one in known)


def test_a_crawl_that_is_made_meanwhile_is_not_taken_for_deleted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.seed(f"{HOST}/a")
    house.tick(MARGIN + 3)
    made, real = [], house.frontier.told

    def told(node: Any) -> Any:
        if not made:
            made.append(new_crawl(house.frontier, house.store, "late", delay=0))
            house.frontier.admit(made[0].id, [Admission(f"http://{HOST}/b")])
        return real(node)

    monkeypatch.setattr(house.frontier.parts.crawls, "told", told)
    house.put_back(house.saved())
    recovered(house)
    totals = house.frontier.scan(made[0].id)
    assert totals is not None
    assert totals.waiting == 1


def test_all_blocks_in_force_hold_again(house: House) -> None:
    house.seed(*(f"h{n}.example/" for n in range(40)))
    house.tick(MARGIN + 3)
    copy = house.saved()
    worker = Worker(house.frontier)
    blocked = []
    while sessions := worker.lease(wait=0):
        for session in sessions:
            assert close(house.frontier, session, 1, failed="http_429", block=300.0) == "ok"
            blocked.append(session.host)
    house.put_back(copy)
    recovered(house)
    assert len(blocked) == 40
    assert all(290 < house.frontier.host(host).blocked_in <= 300 for host in blocked)


# -- links that are known


def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """URLs that Redis is asked for from now on."""
    asked: list[str] = []
    real = partition.admit_args

    def admit_args(crawl: int, mode: Any, batch: int, rows: Any) -> bytes:
        rows = list(rows)
        asked.extend(item.url for _, _, item in rows)
        return real(crawl, mode, batch, rows)

    monkeypatch.setattr(partition, "admit_args", admit_args)
    return asked


def test_a_link_is_sent_once_however_many_pages_lead_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [f"{HOST}/{n}" for n in range(20)]
    for page in pages:
        house.store_page(page, *pages, "other.example/a", "other.example/b")
    house.server.client.flushall()
    asked = sent(monkeypatch)
    totals = house.refilled()
    assert (totals.admitted, totals.finished, totals.waiting) == (22, 20, 2)
    assert sorted(asked) == sorted(
        f"http://{name}" for name in (*pages, "other.example/a", "other.example/b")
    )


def test_the_first_page_that_leads_to_a_url_decides_its_depth(house: House) -> None:
    for depth in (3, 1):
        page = house.page(f"{HOST}/{depth}")
        page.links = [Admission("http://other.example/a", depth=depth)]
        house.store.commit(Commit([page]))
        house.store.tick()
    house.server.client.flushall()
    recovered(house)
    house.server.client.hdel(keys.OWNER, "rest")
    (session,) = until(lambda: _lease_or_nothing(Worker(house.frontier)), 10)
    assert [(task.url, task.depth) for task in session.tasks] == [("http://other.example/a", 3)]


def test_links_that_were_on_their_way_when_a_replay_was_cut_off_are_sent_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.store_page(f"{HOST}/a", f"{HOST}/b", f"{HOST}/c")
    admitting = house.frontier.parts.admitting
    real, failed = admitting.admit_rows, []

    def admit_rows(*given: Any) -> None:
        if not failed:
            failed.append(True)
            raise Unavailable("cut off")
        real(*given)

    monkeypatch.setattr(admitting, "admit_rows", admit_rows)
    house.server.client.flushall()
    assert house.refilled().waiting == 2
    assert failed


def test_a_node_is_sent_the_links_of_its_own_partitions(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = RedisServer(tmp_path / "second").start()
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    frontier = Frontier([redis_server.url, second.url], store, partitions=24, create=True)
    try:
        crawl = new_crawl(frontier, store, delay=0)
        links = [Admission(f"http://h{n}.example/", depth=1) for n in range(30)]
        url = "http://h.example/"
        page = StoredPage(
            crawl=crawl.id, fingerprint=frontier.fingerprint(url), url=url, status=200, links=links
        )
        store.commit(Commit([page]))
        asked = sent(monkeypatch)
        (node, _) = frontier.nodes
        on = frontier.partitions_on(node)
        own = {one.url for one in links if frontier.partition_of(host_of(one.url)) in on}
        assert 0 < len(own) < 30
        frontier.recovery.repair(node, everything=True)
        until(lambda: frontier.recovery.report(node).phase == "done")
        assert set(asked) - {url} == own
    finally:
        frontier.stop()
        store.close()
        second.stop()
