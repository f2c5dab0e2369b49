"""The cost of a Redis that came back older depends only on what happened in its window."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.recovery.sent_filter import SentFilter
from greencrawl.broker.frontier.scripts import partition
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Admission, Commit, CrawlOptions, StoredPage
from greencrawl.store import open_store
from greencrawl.store.base import MARGIN
from greencrawl.store.sqlite import connection
from tests.broker.frontier.recovery.test_recovery import Rig
from tests.broker.frontier.test_frontier import Worker, _lease_or_nothing, close, new_crawl, until
from tests.support.redis_server import RedisServer

HOST = "h.example"


class Reading:
    """Counts SQLite's work in instructions of its machine; a read row takes some of them."""

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
def rig(reading: Reading, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.frontier.start()
    yield made
    made.stop()


def beyond(rig: Rig, *names: str) -> None:
    """Admit URLs for which there is no room."""
    rig.server.client.hset(keys.OWNER, "budget", 1)
    items = [Admission(f"http://{HOST}/{name}", depth=1) for name in names]
    rig.frontier.admit(rig.crawl.id, items)
    rig.server.client.hdel(keys.OWNER, "budget")


def refill(rig: Rig) -> int:
    return rig.frontier.refill(rig.crawl.id, rig.frontier.partition_of(HOST), HOST)


def overflow(rig: Rig) -> list[str]:
    """Return the rows that wait in SQL."""
    found = rig.store.overflow(rig.crawl.id, rig.frontier.partition_of(HOST), HOST, 9999)
    return [row.item.url.rpartition("/")[2] for row in found]


def recovered(rig: Rig) -> None:
    """Wait until the broker has opened the node and given it all that it is owed."""
    rig.refilled()
    job = rig.frontier.recovery._jobs[rig.frontier.nodes[0].id]
    assert job.greenlet is not None
    job.greenlet.join(10)


def test_a_recovery_reads_no_rows_outside_of_its_window(rig: Rig, reading: Reading) -> None:
    """The cost must not depend on queued rows, waiting rows or keys of Redis."""
    read, waiting = [], []
    for count in (100, 1000):
        beyond(rig, *(f"queued{n}-{count}" for n in range(count)))
        while refill(rig):
            pass
        beyond(rig, *(f"waits{n}-{count}" for n in range(count)))
        rig.tick(MARGIN + 3)
        copy = rig.saved()
        before = reading.instructions
        rig.put_back(copy)
        recovered(rig)
        read.append(reading.instructions - before)
        waiting.append(len(overflow(rig)))
        assert "cmdstat_scan" not in rig.server.client.info("commandstats")
    assert read[1] < read[0] + 1000, "less than one for each of 1800 more rows"
    assert waiting == [100, 1000]


def test_an_overflow_row_that_was_queued_after_the_copy_waits_in_the_store_again(rig: Rig) -> None:
    beyond(rig, "a", "b")
    rig.tick(2 * MARGIN)
    copy = rig.saved()
    assert refill(rig) == 2
    assert overflow(rig) == []
    rig.put_back(copy)
    recovered(rig)
    assert overflow(rig) == ["a", "b"]
    totals = rig.frontier.scan(rig.crawl.id)
    assert totals is not None
    assert (totals.waiting, totals.overflow) == (0, 2)
    assert refill(rig) == 2
    totals = rig.frontier.scan(rig.crawl.id)
    assert totals is not None
    assert (totals.waiting, totals.overflow) == (2, 0)


def test_an_overflow_row_that_was_queued_long_before_the_copy_stays_queued(rig: Rig) -> None:
    beyond(rig, "a", "b")
    assert refill(rig) == 2
    rig.tick(MARGIN + 3)
    rig.put_back(rig.saved())
    recovered(rig)
    assert overflow(rig) == []
    totals = rig.frontier.scan(rig.crawl.id)
    assert totals is not None
    assert (totals.waiting, totals.overflow) == (2, 0)


def test_a_url_that_came_into_the_overflow_in_the_window_is_known_again(rig: Rig) -> None:
    beyond(rig, "old")
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    beyond(rig, "new")
    rig.put_back(copy)
    recovered(rig)
    totals = rig.frontier.scan(rig.crawl.id)
    assert totals is not None
    assert (totals.admitted, totals.overflow) == (2, 2)


def test_a_crawl_does_not_wait_for_an_overflow_row_whose_page_is_stored(
    rig: Rig,
) -> None:
    """The copy is from before the row was deleted; the page was stored before the copy's window."""
    beyond(rig, "a")
    rig.store.commit(Commit([rig.page(f"{HOST}/a")]))
    rig.tick(2 * MARGIN)
    copy = rig.saved()
    assert refill(rig) == 1
    rig.put_back(copy)
    recovered(rig)
    totals = rig.frontier.scan(rig.crawl.id)
    assert totals is not None
    assert (totals.open, totals.finished) == (0, 1)
    assert rig.store.set_state(rig.crawl.id, "done").state == "done"


def test_a_node_with_an_early_tick_gets_no_complete_replay(rig: Rig) -> None:
    rig.seed(f"{HOST}/a")
    rig.tick(3)
    rig.put_back(rig.saved())
    recovered(rig)
    assert not rig.frontier.repairs()[0].everything


@pytest.mark.parametrize("listed", [True, False])
def test_a_crawl_deleted_after_the_copy_goes_though_an_older_version_kept_no_list_of_crawls(
    rig: Rig, listed: bool
) -> None:
    other = rig.store.put_crawl("other", CrawlOptions(delay=0, scope="any"), ())
    rig.frontier.put_crawl(other)
    rig.frontier.admit(other.id, [Admission(f"http://{HOST}/{n}") for n in range(50)])
    rig.seed(f"{HOST}/a")
    rig.tick(MARGIN + 3)
    client = rig.server.client
    if not listed:
        client.hdel(keys.OWNER, "listed")
        client.delete(*client.keys("gc:{*}:crawls"))
    copy = rig.saved()
    rig.frontier.drop_crawl(other.id)
    rig.store.delete_crawl(other.id)
    rig.put_back(copy)
    recovered(rig)
    assert not [name for name in client.keys("gc:*") if f":{other.id}:" in name]
    assert client.hget(keys.OWNER, "listed") == "1", "the next time it is told by name"


def test_a_recovery_tells_a_node_only_of_crawls_that_may_have_changed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(name: str, *, done: bool) -> int:
        crawl = rig.store.put_crawl(name, CrawlOptions(), ())
        rig.frontier.put_crawl(crawl)
        if done:
            rig.frontier.put_crawl(rig.store.set_state(crawl.id, "done"))
        return crawl.id

    put("over", done=True)
    late = put("late", done=False)
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    over = rig.store.set_state(late, "done")
    rig.frontier.put_crawl(over)
    put("new and over", done=True)
    told: list[str] = []
    real = rig.frontier.tell_node

    def tell_node(crawls: Any, node: Any, **more: Any) -> None:
        told.extend(crawl.name for crawl in crawls)
        real(crawls, node, **more)

    monkeypatch.setattr(rig.frontier.parts.crawls, "tell_node", tell_node)
    rig.put_back(copy)
    recovered(rig)
    assert set(told) == {"a", "late", "new and over"}
    known = rig.frontier.known_crawls(rig.frontier.nodes[0])
    assert all(one[late] == over.version for one in known)


def test_a_crawl_that_is_made_during_a_recovery_is_not_taken_for_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.seed(f"{HOST}/a")
    rig.tick(MARGIN + 3)
    made, real = [], rig.frontier.known_crawls

    def known_crawls(node: Any) -> Any:
        if not made:
            made.append(new_crawl(rig.frontier, rig.store, "late", delay=0))
            rig.frontier.admit(made[0].id, [Admission(f"http://{HOST}/b")])
        return real(node)

    monkeypatch.setattr(rig.frontier.parts.crawls, "known_crawls", known_crawls)
    rig.put_back(rig.saved())
    recovered(rig)
    totals = rig.frontier.scan(made[0].id)
    assert totals is not None
    assert totals.waiting == 1


def test_all_blocks_in_force_hold_again_after_a_recovery(rig: Rig) -> None:
    rig.seed(*(f"h{n}.example/" for n in range(40)))
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    worker = Worker(rig.frontier)
    blocked = []
    while sessions := worker.lease(wait=0):
        for session in sessions:
            assert close(rig.frontier, session, 1, failed="http_429", block=300.0) == "ok"
            blocked.append(session.host)
    rig.put_back(copy)
    recovered(rig)
    assert len(blocked) == 40
    assert all(290 < rig.frontier.host(host).blocked_in <= 300 for host in blocked)


# -- links that are known


def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the URLs that Redis is asked about from now on."""
    asked: list[str] = []
    real = partition.admit_args

    def admit_args(crawl: int, mode: Any, batch: int, rows: Any) -> bytes:
        rows = list(rows)
        asked.extend(item.url for _, _, item in rows)
        return real(crawl, mode, batch, rows)

    monkeypatch.setattr(partition, "admit_args", admit_args)
    return asked


def pages_apart(rig: Rig, *others: str) -> list[str]:
    """Return twenty pages. No two of them and of ``others`` have the same slot in the filter of
    sent links, where one would displace the other. The slots depend on the frontier's secret."""
    identity = rig.frontier.identity
    for first in itertools.count(0, 20):
        pages = [f"{HOST}/{n}" for n in range(first, first + 20)]
        links = [Admission(f"http://{name}") for name in (*pages, *others)]
        known = SentFilter(identity.secret, 20, version=identity.canonicaliser)
        known.unknown(rig.crawl.id, links)
        if not known.unknown(rig.crawl.id, links):
            break
    return pages


def test_a_replay_sends_a_link_once_however_many_pages_have_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = pages_apart(rig, "other.example/a", "other.example/b")
    for page in pages:
        rig.store_page(page, *pages, "other.example/a", "other.example/b")
    rig.server.client.flushall()
    asked = sent(monkeypatch)
    totals = rig.refilled()
    assert (totals.admitted, totals.finished, totals.waiting) == (22, 20, 2)
    assert sorted(asked) == sorted(
        f"http://{name}" for name in (*pages, "other.example/a", "other.example/b")
    )


def test_the_first_page_that_leads_to_a_url_decides_its_depth(rig: Rig) -> None:
    for depth in (3, 1):
        page = rig.page(f"{HOST}/{depth}")
        page.links = [Admission("http://other.example/a", depth=depth)]
        rig.store.commit(Commit([page]))
        rig.store.tick()
    rig.server.client.flushall()
    recovered(rig)
    rig.server.client.hdel(keys.OWNER, "rest")
    (session,) = until(lambda: _lease_or_nothing(Worker(rig.frontier)), 10)
    assert [(task.url, task.depth) for task in session.tasks] == [("http://other.example/a", 3)]


def test_links_that_were_on_their_way_when_a_replay_was_cut_off_are_sent_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.store_page(f"{HOST}/a", f"{HOST}/b", f"{HOST}/c")
    admitting = rig.frontier.parts.admitting
    real, failed = admitting.admit_rows, []

    def admit_rows(*given: Any) -> None:
        if not failed:
            failed.append(True)
            raise Unavailable("cut off")
        real(*given)

    monkeypatch.setattr(admitting, "admit_rows", admit_rows)
    rig.server.client.flushall()
    assert rig.refilled().waiting == 2
    assert failed


def test_a_replay_sends_a_node_only_links_of_its_own_partitions(
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
