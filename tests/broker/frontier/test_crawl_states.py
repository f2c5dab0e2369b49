"""The state of a crawl over two brokers: its end, late events, and late messages."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.api.handlers import crawls as handlers
from greencrawl.broker.api.messages import StopRequest
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.frontier import Frontier
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import (
    STOPPED,
    STOPPING_NOW,
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    CreateCrawl,
    Done,
    ExtendItem,
    FinishItem,
    HostReport,
    LeaseRequest,
    Recrawl,
    ReleaseItem,
    StoredPage,
    Task,
)
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.redis_server import RedisServer

PAGE = "http://a.example/"
LATE = "http://b.example/late"
FOUND = "http://d.example/found"


class Broker:
    """A broker without its greenlets."""

    def __init__(self, server: RedisServer, store: Store) -> None:
        self.store = store
        self.frontier = Frontier([server.url], store, partitions=4, create=True)
        self.service = Service(self.frontier, store)
        self.upkeep = Upkeep(self.service)
        self.sequence = 0
        self.leased: dict[str, tuple[Task, ...]] = {}
        """Token → tasks."""
        self.started = False

    def end(self) -> None:
        for _ in range(4):
            self.look()

    def look(self) -> None:
        """Scan all crawls, without a step of the store's clock."""
        self.upkeep._next.clear()
        self.upkeep.step(())

    def lease(self) -> list[str]:
        """Return the tasks that wait and may be leased."""
        self.sequence += 1
        request = LeaseRequest(
            worker="w", incarnation=1, sequence=self.sequence, max_sessions=9, wait=0.3
        )
        if not self.started:
            self.started = True
            self.frontier.start()
        sessions = self.frontier.lease(request).sessions
        self.leased |= {session.token: session.tasks for session in sessions}
        return sorted(task.url for session in sessions for task in session.tasks)

    def states(self, crawl: Crawl) -> frozenset[str]:
        """Return the state in all partitions, which must have the version of the store."""
        found = self.frontier.look(self.store.crawl(crawl.id))
        assert found is not None
        return found.states


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def broker(redis_server: RedisServer, store: Store) -> Iterator[Broker]:
    made = Broker(redis_server, store)
    yield made
    made.frontier.stop()


@pytest.fixture
def other(redis_server: RedisServer, store: Store, broker: Broker) -> Iterator[Broker]:
    made = Broker(redis_server, store)
    yield made
    made.frontier.stop()


@pytest.fixture
def crawl(broker: Broker) -> Crawl:
    return seeding.create(broker.service, CreateCrawl(name="c", scope="any"))[0]


def page(frontier: Frontier, crawl: Crawl, *links: str) -> StoredPage:
    return StoredPage(
        crawl=crawl.id, fingerprint=frontier.fingerprint(PAGE), url=PAGE, status=200,
        links=[Admission(link, 1) for link in links],
    )  # fmt: skip


def test_links_of_a_late_worker_are_fetched_though_the_crawl_was_done(
    broker: Broker, store: Store, crawl: Crawl
) -> None:
    """This worker stopped for longer than its lease; another got its task and settled it."""
    seeding.seed(broker.service, "c", [PAGE], False)
    assert broker.lease() == [PAGE]
    (session,) = _sessions(broker)
    late = page(broker.frontier, crawl, LATE)
    store.commit(Commit([page(broker.frontier, crawl)]))
    done = FinishItem(session=session[0], token=session[1], task=1, outcome=Done(stored=True))
    assert broker.frontier.finish([done]) == ["ok"]
    broker.end()
    assert store.crawl("c").finished
    assert broker.states(crawl) == {"done"}
    stamp = store.commit(Commit([late]))
    assert store.crawl("c").state == "active", "with the commit, whoever dies after it"
    assert broker.frontier.admit(crawl.id, late.links, stamp=stamp) == [True]
    assert broker.states(crawl) == {"active"}
    assert broker.lease() == [LATE]


def _sessions(broker: Broker) -> list[tuple[str, str]]:
    """Return (session, token) of the leases."""
    found = []
    for p in broker.frontier.partitions:
        for key in broker.frontier.nodes[0].command("KEYS", f"gc:{{{p}}}:s:*"):
            host = broker.frontier.nodes[0].command("HGET", key, "host").decode()
            found.append((f"{p}/{host}", key.decode().rpartition(":")[2]))
    return found


@pytest.mark.parametrize("force", [False, True])
def test_seeds_that_are_acknowledged_while_another_broker_ends_the_crawl_are_fetched(
    broker: Broker, other: Broker, store: Store, crawl: Crawl, force: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    judge = seeding.judge

    def meanwhile(*given: object) -> object:
        verdicts = judge(*given)  # type: ignore[arg-type]
        other.end()
        assert store.crawl("c").finished
        return verdicts

    monkeypatch.setattr(seeding, "judge", meanwhile)
    assert seeding.seed(broker.service, "c", [PAGE, LATE], force).added == 2
    assert store.crawl("c").state == "active"
    assert broker.states(crawl) == {"active"}
    assert broker.lease() == [PAGE, LATE]


def test_a_done_crawl_is_reopened_in_the_store_before_it_takes_a_url_in(
    broker: Broker, store: Store, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits in a crawl that is done in the store, wherever the admitting process dies."""
    broker.end()

    def dies(*_: object) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr(broker.frontier.parts.crawls, "put_crawl", dies)
    with pytest.raises(SystemExit):
        broker.frontier.admit(crawl.id, [Admission(LATE)])
    assert store.crawl("c").state == "active"
    monkeypatch.undo()
    assert _waiting(broker, crawl) == 0
    broker.look()  # finds partitions of an older version
    assert broker.states(crawl) == {"active"}


def _waiting(broker: Broker, crawl: Crawl) -> int:
    return broker.frontier.stats(crawl).waiting


def test_a_url_that_a_done_crawl_knows_does_not_reopen_it(
    broker: Broker, store: Store, crawl: Crawl
) -> None:
    seeding.seed(broker.service, "c", [PAGE], False)
    broker.lease()
    ((session, token),) = _sessions(broker)
    done = FinishItem(session=session, token=token, task=1, outcome=Done())
    broker.frontier.finish([done])
    broker.end()
    assert broker.frontier.admit(crawl.id, [Admission(PAGE)]) == [False]
    assert store.crawl("c").finished


@pytest.mark.parametrize("now", [False, True])
def test_a_stopped_crawl_keeps_its_waiting_urls_and_only_a_person_reopens_it(
    broker: Broker, other: Broker, store: Store, crawl: Crawl, now: bool
) -> None:
    seeding.seed(broker.service, "c", [PAGE], False)
    assert broker.lease() == [PAGE]
    ((session, token),) = _sessions(broker)
    seeding.seed(broker.service, "c", [LATE], False)
    asked = handlers.stop_crawl(other.service, "c", StopRequest(now=now))
    assert (asked.state, asked.stopping) == ("paused", True)
    assert broker.lease() == []
    kept = ["stop"] if now else ["ok"]
    assert broker.frontier.extend([ExtendItem(session=session, token=token)], 60) == kept
    broker.end()
    assert store.crawl("c") == asked, "something of it is leased"
    if now:
        assert broker.frontier.release([ReleaseItem(session=session, token=token)]) == ["ok"]
    else:
        stamp = store.commit(Commit([page(broker.frontier, crawl, FOUND)]))
        assert broker.frontier.admit(crawl.id, [Admission(FOUND, 1)], stamp=stamp) == [True]
        done = FinishItem(session=session, token=token, task=1, outcome=Done(stored=True))
        assert broker.frontier.finish([done]) == ["ok"]
    broker.look()
    ended = store.crawl("c")
    assert (ended.state, ended.reason) == ("done", STOPPED)
    assert broker.states(crawl) == {"stop"}
    assert handlers.stop_crawl(broker.service, "c", StopRequest()) == ended
    store.commit(Commit([page(broker.frontier, crawl, FOUND)]))
    broker.frontier.admit(crawl.id, [Admission("http://c.example/later", 1)])
    broker.end()
    assert store.crawl("c") == ended
    assert broker.lease() == []
    handlers.resume_crawl(broker.service, "c")
    item = CloseItem(session=session, token=token, report=HostReport())
    broker.frontier.close_sessions([item])
    waits = {PAGE, LATE} if now else {FOUND, LATE}
    assert waits <= {*broker.lease()}


def test_seeds_reopen_a_crawl_while_it_is_being_stopped_and_afterwards(
    broker: Broker, store: Store, crawl: Crawl
) -> None:
    handlers.stop_crawl(broker.service, "c", StopRequest())
    assert seeding.seed(broker.service, "c", [PAGE], False).added == 1
    assert store.crawl("c").state == "active"
    assert broker.states(crawl) == {"active"}
    assert broker.lease() == [PAGE]
    ((session, token),) = _sessions(broker)
    handlers.stop_crawl(broker.service, "c", StopRequest())
    broker.frontier.finish([FinishItem(session=session, token=token, task=1, outcome=Done())])
    broker.look()
    assert store.crawl("c").reason == STOPPED
    assert seeding.seed(broker.service, "c", [LATE], False).added == 1
    assert broker.states(crawl) == {"active"}
    assert broker.lease() == [LATE]


def test_a_finished_crawl_that_is_stopped_is_reopened_by_no_link(
    broker: Broker, store: Store, crawl: Crawl
) -> None:
    broker.end()
    assert store.crawl("c").finished
    handlers.stop_crawl(broker.service, "c", StopRequest())
    for _ in range(2):
        broker.look()
    ended = store.crawl("c")
    assert (ended.state, ended.reason) == ("done", STOPPED)
    assert broker.frontier.admit(crawl.id, [Admission(LATE)]) == [True]
    assert store.crawl("c") == ended


def test_a_crawl_that_is_being_stopped_can_be_stopped_at_once_but_not_paused(
    broker: Broker, store: Store, crawl: Crawl
) -> None:
    first = handlers.stop_crawl(broker.service, "c", StopRequest())
    assert handlers.stop_crawl(broker.service, "c", StopRequest()) == first
    with pytest.raises(HttpProblem, match="being stopped"):
        handlers.pause_crawl(broker.service, "c")
    second = handlers.stop_crawl(broker.service, "c", StopRequest(now=True))
    assert second.reason == STOPPING_NOW
    assert handlers.stop_crawl(broker.service, "c", StopRequest()) == second
    limited = store.set_state(crawl.id, "done", "max_pages")
    assert handlers.stop_crawl(broker.service, "c", StopRequest()) == limited


def test_a_stop_still_counts_if_it_comes_with_the_end_of_the_crawl(
    broker: Broker, store: Store, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_state: Callable[..., Crawl] = store.set_state
    ends = [True]

    def ended_before(*given: object, **named: object) -> Crawl:
        if ends:
            ends.clear()
            broker.end()
        return set_state(*given, **named)

    monkeypatch.setattr(store, "set_state", ended_before)
    assert handlers.stop_crawl(broker.service, "c", StopRequest()).stopping
    for _ in range(2):
        broker.look()
    assert store.crawl("c").reason == STOPPED


def test_two_brokers_begin_a_period_once_and_its_seeds_are_leased_again(
    broker: Broker, other: Broker, store: Store
) -> None:
    wanted = CreateCrawl(name="p", seeds=(PAGE,), scope="any", recrawl=Recrawl(every="1s"))
    crawl = seeding.create(broker.service, wanted)[0]
    assert broker.lease() == [PAGE]
    settle(broker, crawl, FOUND)
    assert broker.lease() == [FOUND]
    settle(broker, crawl)
    while store.crawl("p").state != "resting":
        broker.look()
        gevent.sleep(0.05)
    assert broker.states(crawl) == {"done"}
    while not store.pending_seeds() and store.crawl("p").state == "resting":
        gevent.joinall([gevent.spawn(one.look) for one in (broker, other)], raise_error=True)
        gevent.sleep(0.05)
    broker.look()
    other.look()
    assert broker.lease() == [PAGE], "what is known is not asked for"
    assert [one.number for one in store.periods(crawl.id)] == [2, 1]
    assert len([one for one in store.seeds(crawl.id) if one.force]) == 1
    assert broker.states(crawl) == {"active"}


def test_a_late_link_wakes_a_crawl_that_rests_and_its_period_goes_on(
    broker: Broker, store: Store
) -> None:
    wanted = CreateCrawl(name="p", seeds=(PAGE,), scope="any", recrawl=Recrawl(every="1d"))
    crawl = seeding.create(broker.service, wanted)[0]
    assert broker.lease() == [PAGE]
    settle(broker, crawl)
    broker.end()
    rests = store.crawl("p")
    assert rests.state == "resting"
    assert broker.frontier.admit(crawl.id, [Admission(LATE, 1)]) == [True]
    assert store.crawl("p").state == "active"
    assert broker.lease() == [LATE]
    settle(broker, crawl)
    broker.end()
    again = store.crawl("p")
    assert (again.state, again.wakes_ms) == ("resting", rests.wakes_ms)
    assert len(store.periods(crawl.id)) == 1


def settle(broker: Broker, crawl: Crawl, *links: str) -> None:
    """Store the leased tasks as pages with these links, close their sessions and finish them."""
    for session, token in _sessions(broker):
        for task in broker.leased.pop(token):
            number = broker.frontier.fingerprint(task.url)
            found = [Admission(link, 1) for link in links]
            row = StoredPage(
                crawl=crawl.id, fingerprint=number, url=task.url, status=200, links=found,
                fetched_ms=epoch_ms(),
            )  # fmt: skip
            stamp = broker.store.commit(Commit([row]))
            broker.frontier.admit(crawl.id, found, stamp=stamp)
            done = FinishItem(
                session=session, token=token, task=task.number, outcome=Done(stored=True)
            )
            assert broker.frontier.finish([done]) == ["ok"]
        item = CloseItem(session=session, token=token, report=HostReport())
        broker.frontier.close_sessions([item])


@pytest.mark.parametrize("state", ["paused", "max_pages"])
def test_links_reopen_neither_a_paused_crawl_nor_one_that_is_done_at_a_limit(
    broker: Broker, store: Store, crawl: Crawl, state: str
) -> None:
    if state == "paused":
        handlers.pause_crawl(broker.service, "c")
    else:
        broker.frontier.put_crawl(store.set_state(crawl.id, "done", state))
    known = store.crawl("c")
    stamp = store.commit(Commit([page(broker.frontier, crawl, LATE)]))
    assert broker.frontier.admit(crawl.id, [Admission(LATE, 1)], stamp=stamp) == [True]
    assert store.crawl("c") == known
    assert _waiting(broker, crawl) == 1
    assert broker.lease() == []
    handlers.resume_crawl(broker.service, "c")
    assert broker.lease() == [LATE]


def test_a_late_message_about_a_crawl_does_not_change_its_state(
    broker: Broker, other: Broker, store: Store, crawl: Crawl
) -> None:
    old = store.crawl("c")
    handlers.pause_crawl(broker.service, "c")
    for late in (other.frontier.put_crawl, other.frontier.shut, other.frontier.stop_leasing):
        late(old)
        assert broker.states(crawl) == {"paused"}


def test_the_next_broker_reopens_a_crawl_that_a_dead_broker_had_shut(
    broker: Broker, other: Broker, store: Store, crawl: Crawl
) -> None:
    seeding.seed(broker.service, "c", [PAGE], False)
    other.frontier.shut(store.crawl("c"))
    assert broker.states(crawl) == {"done"}
    for _ in range(2):
        broker.look()
    assert broker.states(crawl) == {"active"}
    assert broker.lease() == [PAGE]


def test_a_crawl_that_no_partition_knows_is_made_known_before_it_can_be_done(
    broker: Broker, store: Store
) -> None:
    """If a count does not know a crawl, the scan is void."""
    crawl = store.put_crawl("untold", CrawlOptions(scope="any"), ())
    assert broker.frontier.look(crawl) is None
    assert broker.states(crawl) == {"active"}
    changed = store.add_roots(crawl.id, ["a.example"])
    assert broker.frontier.look(changed) is None, "partitions have an older version"
    assert broker.frontier.look(changed) is not None
    assert broker.frontier.look(crawl) is None, "and this is an older one than theirs"


def test_seeds_of_a_paused_crawl_that_no_partition_knows_are_kept(
    broker: Broker, store: Store
) -> None:
    crawl = store.put_crawl("untold", CrawlOptions(scope="any"), ())
    store.set_state(crawl.id, "paused")
    store.add_seeds(crawl.id, [Admission(PAGE)])
    for _ in range(2):  # the first look makes the crawl known, the second admits the seeds
        broker.look()
    assert store.pending_seeds() == []
    assert _waiting(broker, crawl) == 1


def test_a_pause_is_refused_if_it_comes_with_the_end_of_the_crawl(
    broker: Broker, store: Store, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_state: Callable[..., Crawl] = store.set_state
    ends = [True]

    def ended_before(*given: object, **named: object) -> Crawl:
        if ends:
            ends.clear()
            broker.end()
        return set_state(*given, **named)

    monkeypatch.setattr(store, "set_state", ended_before)
    with pytest.raises(HttpProblem, match="done"):
        handlers.pause_crawl(broker.service, "c")
    assert store.crawl("c").finished


def test_a_url_that_spills_into_the_overflow_of_a_done_crawl_reopens_it(
    broker: Broker, store: Store, crawl: Crawl, redis_server: RedisServer
) -> None:
    broker.end()
    p = broker.frontier.partition_of(host_of(LATE))
    row = (broker.frontier.fingerprint(LATE), host_of(LATE), Admission(LATE))
    assert broker.frontier.parts.spill.put(crawl.id, [row]) == [True]
    assert store.crawl("c").state == "active"
    assert broker.states(crawl) == {"active"}
    assert len(store.overflow(crawl.id, p, host_of(LATE), 9)) == 1


def test_seeds_at_another_broker_keep_a_crawl_active_while_it_is_being_ended(
    broker: Broker, other: Broker, store: Store, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last scan and "done" in the store, seeds come through another broker."""
    still = Upkeep._is_still

    def racing(upkeep: Upkeep, *given: Any) -> bool:
        ended = still(upkeep, *given)
        other.frontier.put_crawl(store.crawl("c"))
        assert seeding.seed(other.service, "c", [LATE], False).added == 1
        return ended

    monkeypatch.setattr(Upkeep, "_is_still", racing)
    for _ in range(3):
        broker.look()
    monkeypatch.undo()
    assert store.crawl("c").state == "active"
    broker.look()
    assert broker.lease() == [LATE]


def test_a_store_that_was_put_back_catches_up_with_the_version_that_redis_knows(
    broker: Broker, store: Store, crawl: Crawl
) -> None:
    broker.end()
    assert store.crawl("c").finished
    path = Path(store.path)  # type: ignore[attr-defined]
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("UPDATE crawls SET version = 1, state = 'active', reason = ''")
    raw.close()
    assert seeding.seed(broker.service, "c", [LATE], False).added == 1
    for _ in range(3):
        broker.look()
    assert broker.states(crawl) == {"active"}
    assert broker.lease() == [LATE]
