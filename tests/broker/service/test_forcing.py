"""Seeds that are forced, on a real frontier and store: each request is served by one fetch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.records import (
    STOPPED,
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Dead,
    Done,
    FinishItem,
    HostReport,
    LeaseRequest,
    Outcome,
    Recrawl,
    Retry,
    Session,
    StoredPage,
    TaskKind,
)
from greencrawl.store import Store, open_store
from tests.support.redis_server import RedisServer
from tests.support.store_records import final
from tests.support.system import wait_until

PAGE, OTHER = "http://a.example/", "http://a.example/other"
STORED = Done(stored=True)


class Rig:
    """A broker without its background work, and a crawl."""

    def __init__(self, server: RedisServer, store: Store, crawl: Crawl) -> None:
        self.server, self.store, self.crawl = server, store, crawl
        self.frontier = Frontier(
            [server.url], store, partitions=4, create=True, lease_seconds=1, request_seconds=0.2
        )
        self.service = Service(self.frontier, store)
        self.sequence = 0
        self.frontier.put_crawl(crawl)
        self.frontier.start()

    def seed(self, *urls: str, force: bool = False) -> list[str]:
        reply = seeding.seed(self.service, self.crawl.name, urls, force)
        return [item.status for item in reply.items]

    def lease(self) -> list[Session]:
        self.sequence += 1
        request = LeaseRequest(
            worker="w", incarnation=1, sequence=self.sequence, max_sessions=9, wait=0.3
        )
        return list(self.frontier.lease(request).sessions)

    def urls(self, sessions: list[Session]) -> list[str]:
        return [task.url for session in sessions for task in session.tasks]

    def end(self, sessions: list[Session], outcome: Outcome = STORED) -> None:
        """Store the pages, settle the tasks, and close the sessions."""
        for session in sessions:
            for task in session.tasks:
                if outcome == STORED:
                    self.commit(task.url)
                item = FinishItem(
                    session=session.session, token=session.token, task=task.number, outcome=outcome
                )
                assert self.frontier.finish([item]) == ["ok"]
            report = HostReport(requests=1, robots=True)
            close = CloseItem(session=session.session, token=session.token, report=report)
            assert self.frontier.close_sessions([close]) == ["ok"]

    def commit(self, url: str) -> None:
        page = StoredPage(
            crawl=self.crawl.id, fingerprint=self.frontier.fingerprint(url), url=url, status=200,
            fetched_ms=epoch_ms(),
        )  # fmt: skip
        self.store.commit(Commit([page]))

    def fetch(self) -> list[str]:
        """Fetch until nothing is open; return the URLs in their order."""
        found: list[str] = []

        def nothing_is_open() -> bool:
            sessions = self.lease() if self.open() else []
            found.extend(self.urls(sessions))
            self.end(sessions)
            return not self.open()

        wait_until(nothing_is_open, 20, "all is fetched")
        return found

    def open(self) -> int:
        return self.frontier.stats(self.crawl).open


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield opened
    opened.close()


@pytest.fixture(params=["plain", "calendar"])
def rig(redis_server: RedisServer, store: Store, request: pytest.FixtureRequest) -> Iterator[Rig]:
    recrawl = Recrawl(every="1h", depth="all") if request.param == "calendar" else None
    options = CrawlOptions(delay=0, recrawl=recrawl)
    made = Rig(redis_server, store, store.put_crawl("c", options, ["a.example"]))
    yield made
    made.frontier.stop()


def test_a_url_that_waits_is_fetched_once_though_it_is_forced(rig: Rig) -> None:
    assert rig.seed(PAGE) == ["added"]
    assert rig.seed(PAGE, OTHER, force=True) == ["duplicate", "added"]
    assert sorted(rig.fetch()) == [PAGE, OTHER]


def test_a_url_that_waits_in_the_overflow_is_fetched_once_though_it_is_forced(rig: Rig) -> None:
    number = rig.frontier.fingerprint(PAGE)
    rig.frontier.parts.spill.put(rig.crawl.id, [(number, "a.example", Admission(PAGE))])
    assert rig.frontier.stats(rig.crawl).overflow == 1
    assert rig.seed(PAGE, force=True) == ["duplicate"]
    partition = rig.frontier.partition_of("a.example")
    assert rig.frontier.refill(rig.crawl.id, partition, "a.example") == 1
    assert rig.fetch() == [PAGE]


def test_a_url_that_is_leased_or_tried_later_is_fetched_once_though_it_is_forced(rig: Rig) -> None:
    rig.seed(PAGE)
    sessions = rig.lease()
    assert rig.seed(PAGE, force=True) == ["duplicate"]
    rig.end(sessions, Retry(wait=3600, kind="timeout"))
    assert rig.seed(PAGE, force=True) == ["duplicate"]
    assert rig.open() == rig.frontier.stats(rig.crawl).later == 1


def test_a_url_that_is_forced_during_its_first_fetch_is_a_dead_letter_if_that_fails_for_good(
    rig: Rig,
) -> None:
    rig.seed(PAGE)
    sessions = rig.lease()
    assert rig.seed(PAGE, force=True) == ["duplicate"]
    dead = final(rig.crawl.id, rig.frontier.fingerprint(PAGE))
    rig.store.commit(Commit([], finals=[dead]))
    rig.end(sessions, Dead(kind="timeout"))
    assert (rig.open(), rig.frontier.stats(rig.crawl).dead) == (0, 1)
    assert rig.seed(PAGE, force=True) == ["again"]
    assert rig.fetch() == [PAGE]


def test_a_url_that_two_batches_force_has_one_task_and_leaves_no_mark(rig: Rig) -> None:
    def marks() -> list[bytes]:
        return [*rig.server.client.keys("gc:*:g:*"), *rig.server.client.keys("gc:*:gf:*")]

    rig.seed(PAGE)
    rig.fetch()
    for _ in range(2):
        assert rig.seed(PAGE, force=True) == ["again"]
        assert rig.open() == 1
    assert marks()
    assert rig.fetch() == [PAGE]
    assert marks() == []


def test_a_page_that_is_forced_twice_is_fetched_once_more(rig: Rig) -> None:
    rig.seed(PAGE)
    rig.fetch()
    assert [rig.seed(PAGE, force=True) for _ in range(2)] == [["again"], ["again"]]
    sessions = rig.lease()
    assert rig.urls(sessions) == [PAGE]
    assert rig.seed(PAGE, force=True) == ["again"]
    rig.end(sessions)
    assert rig.fetch() == []
    rig.seed(PAGE, force=True)
    assert rig.fetch() == [PAGE]


def test_a_page_that_is_forced_while_its_next_fetch_fails_is_fetched_once_more(rig: Rig) -> None:
    rig.seed(PAGE)
    rig.fetch()
    rig.seed(PAGE, force=True)
    sessions = rig.lease()
    rig.seed(PAGE, force=True)
    rig.end(sessions, Dead(kind="timeout"))
    assert rig.open() == 1


def test_a_page_that_is_forced_after_it_was_stored_and_before_its_task_ends_is_fetched_again(
    rig: Rig,
) -> None:
    rig.seed(PAGE)
    sessions = rig.lease()
    rig.commit(PAGE)
    assert rig.seed(PAGE, force=True) == ["again"]
    rig.end(sessions)
    if rig.crawl.options.recrawl is None:  # else its task has a mark from its first admission on
        assert rig.fetch() == [PAGE]
    assert rig.fetch() == []


@pytest.mark.parametrize("path", ["sitemap.xml", "robots.txt"])
def test_a_url_that_was_asked_for_without_a_row_is_fetched_by_force(rig: Rig, path: str) -> None:
    url = PAGE + path
    rig.frontier.admit(rig.crawl.id, [Admission(url, kind=TaskKind.SITEMAP_GUESS)])
    rig.end(rig.lease(), Done())
    assert rig.seed(url) == ["duplicate"]
    assert rig.seed(url, force=True) == ["again"]
    assert rig.fetch() == [url]


def test_a_known_url_of_a_finished_crawl_is_fetched_by_force_whatever_the_store_has(
    rig: Rig,
) -> None:
    rig.seed(PAGE)
    rig.end(rig.lease(), Done())
    done = rig.store.set_state(rig.crawl.id, "done", "finished")
    rig.frontier.put_crawl(done)
    assert rig.seed(PAGE, force=True) == ["again"]
    assert rig.fetch() == [PAGE]


def test_a_stopped_crawl_goes_on_if_a_waiting_url_is_forced(rig: Rig) -> None:
    rig.seed(PAGE)
    rig.frontier.put_crawl(rig.store.set_state(rig.crawl.id, "done", STOPPED))
    assert rig.seed(PAGE) == ["duplicate"]
    assert rig.store.crawl(rig.crawl.id).state == "done"
    assert rig.seed(PAGE, force=True) == ["duplicate"]
    assert rig.store.crawl(rig.crawl.id).state == "active"
    assert rig.fetch() == [PAGE]


def test_after_a_loss_of_redis_each_url_is_fetched_once_whether_forced_or_not(rig: Rig) -> None:
    rig.seed(PAGE)
    rig.fetch()
    rig.seed(PAGE, OTHER)
    rig.seed(PAGE, OTHER, force=True)
    rig.seed(PAGE, OTHER, force=True)
    rig.server.client.flushall()
    wait_until(lambda: rig.frontier.look(rig.crawl) is not None, 20, "Redis is filled again")
    assert sorted(rig.fetch()) == [PAGE, OTHER]
