"""The worker's writer on a MariaDB that stands still, dies, or is far away."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import gevent
import psutil
import pytest

from greencrawl.broker.frontier import Admitted
from greencrawl.schema.records import (
    Admission,
    Commit,
    CrawlOptions,
    Done,
    FinishItem,
    ItemsReply,
    Stamp,
    StoredPage,
)
from greencrawl.store import open_store
from greencrawl.store.base import Store
from greencrawl.worker.delivery.outbox import Outbox
from greencrawl.worker.delivery.results import Result
from greencrawl.worker.delivery.writer import BACKLOG_BYTES, BATCHES, Writer
from greencrawl.worker.session.held import Sessions
from tests.support import oracle
from tests.support.mariadb import MariaDb
from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import direct, graph_site
from tests.support.store_records import digest
from tests.support.system import System, wait_until
from tests.support.walk import walk
from tests.worker.delivery.test_writer import session

BACKLOG = 200_000
PAGE_BYTES = 4000


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[MariaDb]:
    server = MariaDb(tmp_path / "mariadb").start()
    yield server
    server.stop()


class Rig:
    """A writer on a real store; the broker's part only notes what is finished, and when."""

    def __init__(self, store: Store, backlog: int = BACKLOG) -> None:
        self.store = store
        self.crawl = store.put_crawl("test", CrawlOptions(), ["h"]).id
        self.sessions = Sessions()
        held = self.sessions.hold(session(), 1e12)
        assert held is not None
        self.held = held
        self.finished: list[int] = []
        self.outbox: Outbox[FinishItem] = Outbox("finish", self._finish, lambda *_: None)
        self.writer = Writer(store, self, self.outbox, self.sessions, backlog_bytes=backlog)
        self.most = 0
        self._running = [gevent.spawn(self.writer.run), gevent.spawn(self.outbox.run)]

    def admit(
        self, crawl_id: int, items: Sequence[Admission], *, stamp: Stamp | None, partial: bool
    ) -> Admitted:
        return Admitted([True] * len(items), 0, {})

    def away_of(self, items: Iterable[Admission]) -> frozenset[str]:
        return frozenset()

    def nodes_of(self, items: Iterable[Admission]) -> frozenset[str]:
        return frozenset()

    def _finish(self, items: Sequence[FinishItem]) -> ItemsReply:
        self.finished += [item.task for item in items]
        return ItemsReply(tuple("ok" for _ in items))

    def page(self, task: int, at: int = 0, size: int = PAGE_BYTES) -> StoredPage:
        body = f"{task} at {at} ".encode() + os.urandom(size // 2)
        url = f"http://h/{task}"
        return StoredPage(
            crawl=self.crawl, fingerprint=task, url=url, final_url=url, status=200, body=body,
            digest=digest(body), fetched_ms=1000 + at,
        )  # fmt: skip

    def feed(self, tasks: range, greenlets: int = 8) -> list[gevent.Greenlet[..., None]]:
        """Start greenlets that put these tasks, as fetching greenlets do."""

        def put(some: range) -> None:
            for task in some:
                page = self.page(task)
                self.writer.put(Result(held=self.held, task=task, outcome=Done(), page=page))
                self.most = max(self.most, self.writer._bytes)
                gevent.sleep(0.001)

        return [gevent.spawn(put, tasks[n::greenlets]) for n in range(greenlets)]

    def drain(self) -> None:
        assert self.writer.join(60)
        assert self.outbox.join(60)

    def stop(self) -> None:
        gevent.killall(self._running)


def rows_of(server: MariaDb, store_url: str) -> set[int]:
    """Return the fingerprints that another connection finds committed."""
    other = open_store(store_url)
    try:
        crawl = other.crawl("test").id
        return {page.fingerprint for _, page in other.pages(crawl, detail="row")}
    finally:
        other.close()


def _signal(server: MariaDb, number: signal.Signals) -> None:
    pid = server.pid
    assert pid is not None
    os.kill(pid, number)


def bounded(rig: Rig) -> None:
    most = BACKLOG + 8 * (PAGE_BYTES + 3000)
    assert BACKLOG / 2 < rig.most <= most, "full, and no fuller than what each greenlet adds"


def test_a_frozen_database_server_stops_fetching_and_loses_no_result(
    mariadb: MariaDb,
) -> None:
    store = open_store(mariadb.url)
    rig = Rig(store)
    try:
        feeding = rig.feed(range(1, 1501))
        wait_until(lambda: len(rig.finished) > 100, 30, "some are finished")
        _signal(mariadb, signal.SIGSTOP)
        wait_until(lambda: rig.writer._bytes >= BACKLOG, 30, "the backlog is full")
        gevent.sleep(0.5)
        finished = len(rig.finished)
        gevent.sleep(1.0)
        assert len(rig.finished) == finished, "nothing is acknowledged that is not committed"
        assert not any(greenlet.dead for greenlet in feeding), "those who fetch wait"
    finally:
        _signal(mariadb, signal.SIGCONT)
    gevent.joinall(feeding, timeout=60, raise_error=True)
    rig.drain()
    bounded(rig)
    assert sorted(rig.finished) == list(range(1, 1501))
    assert rows_of(mariadb, mariadb.url) == set(range(1, 1501))
    rig.stop()
    store.close()


def test_acknowledged_pages_survive_the_death_of_the_database_server(mariadb: MariaDb) -> None:
    store = open_store(mariadb.url)
    rig = Rig(store)
    feeding = rig.feed(range(1, 1501))
    for kill in range(1, 4):
        wait_until(lambda: len(rig.finished) > 250 * kill, 60, "some are finished")  # noqa: B023
        mariadb.kill()
        finished = set(rig.finished)
        assert len(finished) < 1500, "it died among uncommitted work"
        mariadb.start()
        missing = finished - rows_of(mariadb, mariadb.url)
        assert missing == set(), "acknowledged, and not there"
    gevent.joinall(feeding, timeout=120, raise_error=True)
    rig.drain()
    bounded(rig)
    assert set(rig.finished) == rows_of(mariadb, mariadb.url) == set(range(1, 1501))
    assert len(rig.finished) == 1500
    rig.stop()
    store.close()


def test_a_far_server_is_written_to_in_several_batches_at_a_time(mariadb: MariaDb) -> None:
    port = mariadb.port
    with TcpProxy(("127.0.0.1", port), tap=lambda _: gevent.sleep(0.03)) as proxy:
        url = mariadb.url.replace(f":{port}/", f":{proxy.port}/")
        store = open_store(url)
        rig = Rig(store, backlog=10 * BACKLOG)
        under_way: list[int] = []
        commit, now = store.commit, [0]

        def counted(work: Commit) -> Stamp:
            now[0] += 1
            under_way.append(now[0])
            try:
                return commit(work)
            finally:
                now[0] -= 1

        rig.writer._store = _Committing(counted)
        gevent.joinall(rig.feed(range(1, 601)), timeout=120, raise_error=True)
        rig.drain()
        assert 2 <= max(under_way) <= BATCHES
        assert rows_of(mariadb, mariadb.url) == set(rig.finished) == set(range(1, 601))
        rig.stop()
        store.close()


class _Committing:
    def __init__(self, commit: Callable[[Commit], Stamp]) -> None:
        self.commit = commit


def test_an_older_result_that_was_held_up_does_not_overwrite_a_newer_one(
    mariadb: MariaDb,
) -> None:
    near = open_store(mariadb.url)
    rig = Rig(near)
    with TcpProxy(("127.0.0.1", mariadb.port)) as proxy:
        slow = open_store(mariadb.url.replace(f":{mariadb.port}/", f":{proxy.port}/"))
        slow.frontier()  # it opens a connection
        proxy.hold()
        old, new = rig.page(7, at=1), rig.page(7, at=2)
        late = gevent.spawn(slow.commit, Commit([old]))
        gevent.sleep(0.2)
        rig.writer.put(Result(held=rig.held, task=1, outcome=Done(), page=new))
        rig.drain()
        assert not late.dead
        proxy.mend()
        late.get(timeout=30)
        for store in (near, slow):
            found = store.page(rig.crawl, 7)
            assert found is not None
            assert (found.body, found.fetched_ms) == (new.body, new.fetched_ms)
        fetches = [version.fetched_ms for version in near.history(rig.crawl, 7)]
        assert fetches == [new.fetched_ms, old.fetched_ms], "both are history"
        slow.close()
    rig.stop()
    near.close()


def test_a_crawl_fetches_no_more_than_it_can_hold_while_the_store_stands_still(
    tmp_path: Path, redis_server: RedisServer, mariadb: MariaDb
) -> None:
    page_bytes, slots = 250_000, 8
    site = graph_site(400, filler=page_bytes)
    with (
        SiteServer(site) as server,
        System(tmp_path / "system", [redis_server.url], store=mariadb.url) as system,
    ):
        start = server.url("/p/0")
        expected = walk([start], direct(site), agent="greencrawl")
        system.start().crawl([start], delay=0, slots=slots)
        wait_until(lambda: len(server.hits) > 60, 60, "it is under way")
        _signal(mariadb, signal.SIGSTOP)
        try:
            before = len(server.hits)

            def quiet() -> bool:
                now = len(server.hits)
                gevent.sleep(1.0)
                return len(server.hits) == now

            wait_until(quiet, 25, "no more is fetched")
            more = len(server.hits) - before
            # The text is kept beside the body, so a page counts twice; each slot may hold one more.
            assert more <= 1.2 * BACKLOG_BYTES / page_bytes + 2 * slots
            (child,) = system.children()
            held = psutil.Process(child.pid).memory_info().rss
            assert held < 350 * 2**20
        finally:
            _signal(mariadb, signal.SIGCONT)
        system.wait_done(120)
        requests = oracle.requests_of(server.hits, server.port)
    assert oracle.shown(oracle.not_once(requests, expected.requested)) == ""
    store = open_store(mariadb.url)
    crawl = store.crawl("test").id
    stored = {page.url for _, page in store.pages(crawl, detail="row") if page.status == 200}
    store.close()
    assert oracle.shown(oracle.differences(stored, expected.pages, "stored")) == ""
