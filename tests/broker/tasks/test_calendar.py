"""Due URLs of calendars are queued once, as far as there is room, whatever is away or dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import redis

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts.partition import Drain, Mode
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks import periods, rounds
from greencrawl.broker.tasks.calendar import Calendar
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Done,
    FinishItem,
    HostReport,
    LeaseRequest,
    Recrawl,
    Retry,
    Session,
    StoredPage,
    TaskKind,
)
from greencrawl.store import open_store
from tests.broker.tasks.test_rounds import sums
from tests.support.redis_dump import contents, dump
from tests.support.redis_server import RedisServer
from tests.support.store_calendar import begin
from tests.support.system import wait_until
from tests.support.two_nodes import TwoNodes, hosts_on


class Rig:
    """A broker's parts on a real Redis and a store, and a worker that leases there."""

    def __init__(self, frontier: Frontier, store: Any) -> None:
        self.frontier, self.store = frontier, store
        self.service = Service(frontier, store, duties=frontier.duties)
        self.calendar = Calendar(self.service)
        self.sequence = self.moment = 0
        self.started_s = 2_000_000_000

    def crawl(self, order: str = "breadth", depth: int | str = "all", delay: float = 0.0) -> Crawl:
        again = Recrawl(every="1d", depth=cast(Any, depth))
        options = CrawlOptions(
            seeds=("http://a.example/0",), recrawl=again, delay=delay, order=cast(Any, order)
        )
        crawl = self.store.put_crawl("test", options, ["a.example"])
        self.frontier.put_crawl(crawl)
        return cast(Crawl, crawl)

    def pages(self, crawl: Crawl, host: str, count: int, depth: int = 1, **more: Any) -> list[str]:
        urls = [f"http://{host}/{n}" for n in range(count)]
        found = [self.page(crawl, url, depth, **more) for url in urls]
        self.store.commit(Commit(found))
        return urls

    def page(self, crawl: Crawl, url: str, depth: int = 1, **more: Any) -> StoredPage:
        self.moment += 1
        return StoredPage(
            crawl=crawl.id, fingerprint=self.frontier.fingerprint(url), url=url, status=200,
            fetched_ms=self.moment, depth=depth, **more,
        )  # fmt: skip

    def begin(self, crawl: Crawl) -> None:
        self.started_s += 100
        begin(self.store, crawl.id, self.started_s)

    def step(self) -> int:
        self.calendar._rests.clear()
        return self.calendar.step(self.store.calendar_places())

    def lease(self, tasks: int = 256) -> tuple[Session, ...]:
        self.sequence += 1
        request = LeaseRequest(
            worker="w", incarnation=1, sequence=self.sequence, max_sessions=100,
            tasks_per_session=tasks, wait=0.05,
        )  # fmt: skip
        return self.frontier.lease(request).sessions

    def fetch(self, crawl: Crawl) -> Counter[str]:
        """Fetch everything that waits; return how often each URL was fetched."""
        asked: Counter[str] = Counter()
        while sessions := self.lease():
            for session in sessions:
                asked.update(task.url for task in session.tasks)
                pages = [self.page(crawl, task.url, task.depth) for task in session.tasks]
                self.store.commit(Commit(pages))
                self.end(session)
        return asked

    def end(self, session: Session, **done: Any) -> None:
        self.frontier.finish(
            [
                FinishItem(
                    session=session.session, token=session.token, task=task.number,
                    outcome=Done(stored=True, **done),
                )
                for task in session.tasks
            ]
        )  # fmt: skip
        report = HostReport(requests=1, robots=True)
        close = CloseItem(session=session.session, token=session.token, report=report)
        self.frontier.close_sessions([close])


@pytest.fixture
def rig(tmp_path: Path, redis_server: RedisServer) -> Iterator[Rig]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    frontier = Frontier([redis_server.url], store, partitions=4, request_seconds=5, create=True)
    frontier.start()
    yield Rig(frontier, store)
    frontier.stop()
    store.close()


def beside(rig: Rig, host: str, count: int) -> list[str]:
    """Return a host, and ``count`` others of its partition."""
    partition = rig.frontier.partition_of(host)
    names = (f"h{n}.example{n}.org" for n in range(1000))
    return [host, *[name for name in names if rig.frontier.partition_of(name) == partition][:count]]


def on_way(redis_server: RedisServer, crawl: Crawl) -> set[int]:

    raw = redis.Redis(port=redis_server.port, decode_responses=True, encoding="latin-1")
    return contents(dump(raw)).again.get(crawl.id, set())


@pytest.mark.parametrize("order", ["depth", "breadth"])
def test_each_page_is_queued_once_a_period_whatever_its_level(
    rig: Rig, redis_server: RedisServer, order: str
) -> None:
    crawl = rig.crawl(order)
    known = {url for d in range(34) for url in rig.pages(crawl, f"h{d}.example", 2, depth=d)}
    assert rig.step() == 0, "nothing is due in the present period"
    rig.begin(crawl)
    assert rig.step() == len(known)
    assert rig.step() == 0, "all is on its way"
    assert len(on_way(redis_server, crawl)) == len(known)
    kinds = Counter[TaskKind]()
    levels = set()
    for session in rig.lease():
        kinds.update(task.kind for task in session.tasks)
        levels |= {task.level for task in session.tasks}
        rig.store.commit(Commit([rig.page(crawl, t.url, t.depth) for t in session.tasks]))
        rig.end(session)
    assert kinds == {TaskKind.REFETCH: len(known)}
    assert levels == set(range(32))
    assert not on_way(redis_server, crawl)
    assert rig.step() == 0
    assert not rig.fetch(crawl)
    rig.begin(crawl)
    assert rig.step() == len(known), "once more in the next period"


def test_a_large_site_takes_no_room_from_others_and_is_queued_in_parts(rig: Rig) -> None:
    crawl = rig.crawl()
    large = rig.pages(crawl, "a.example", 400)
    names = beside(rig, "a.example", 5)[1:]
    small = {url for name in names for url in rig.pages(crawl, name, 3)}
    rig.begin(crawl)
    rig.step()
    waiting = Counter(
        url.split("/")[2] for url in [*large, *small]
        if rig.frontier.find_url(crawl, url).state == "waiting"
    )  # fmt: skip
    assert waiting["a.example"] <= 128
    assert sum(waiting[name] for name in names) == len(small)
    asked = rig.fetch(crawl)
    while rig.step():
        asked += rig.fetch(crawl)
    assert asked == Counter([*large, *small]), "each once"


def test_a_slow_host_has_at_most_a_minute_of_work_queued(rig: Rig) -> None:
    crawl = rig.crawl(delay=10.0)
    rig.pages(crawl, "a.example", 100)
    rig.begin(crawl)
    assert rig.step() == 6
    assert rig.step() == 0


def test_the_calendar_leaves_half_of_the_room_to_new_urls_and_always_queues_a_few(
    rig: Rig, redis_server: RedisServer
) -> None:
    crawl = rig.crawl()
    for host in beside(rig, "a.example", 39):
        rig.pages(crawl, host, 10)
    rig.begin(crawl)
    redis_server.client.hset(keys.OWNER, "budget", 40_000)  # of a partition; half is for 100
    while rig.step():
        pass
    assert len(on_way(redis_server, crawl)) == 101
    redis_server.client.hset(keys.OWNER, "full", 1)
    rig.fetch(crawl)
    assert rig.step() == 0, "the node is near its limit"
    redis_server.client.hset(keys.OWNER, "full", 0)
    redis_server.client.hset(keys.OWNER, "budget", 1)
    while rig.step():
        pass
    assert len(on_way(redis_server, crawl)) == 32


def test_a_blocked_host_waits_and_one_that_is_down_is_left_to_the_next_period(
    rig: Rig, redis_server: RedisServer
) -> None:
    crawl = rig.crawl()
    for host in ("a.example", "b.a.example", "c.a.example"):
        rig.pages(crawl, host, 80)
    rig.begin(crawl)
    for times, host in ((1, "a.example"), (9, "b.a.example")):
        rig.frontier.admit(crawl.id, [Admission(f"http://{host}/new")])
        fail(rig, host, redis_server, times)
    while rig.step():
        pass
    assert len(on_way(redis_server, crawl)) == 80 + 2, "of the third, and what is new"
    due = [
        row for place in rig.store.calendar_places()
        for row in rig.store.calendar_due(*place, (0, 0, -(2**63)), 1000)
    ]  # fmt: skip
    assert {row.item.url.split("/")[2] for row in due} == {"a.example"}
    page = rig.store.planned(crawl.id, rig.frontier.fingerprint("http://b.a.example/1"))
    assert page.due_s == rig.started_s + 1


def fail(rig: Rig, host: str, redis_server: RedisServer, times: int) -> None:
    """Let a session of a host be refused, as if this were the last of ``times`` failures."""
    session = next(one for one in rig.lease() if one.host == host)
    report = HostReport(failed="refused", block=7200.0, requests=1)
    item = CloseItem(
        session=session.session, token=session.token, report=report,
        release=tuple(task.number for task in session.tasks),
    )  # fmt: skip
    rig.frontier.close_sessions([item])
    key = f"{keys.partition(rig.frontier.partition_of(host))}:h:{host}"
    packed = redis.Redis(port=redis_server.port)
    record = msgspec.msgpack.decode(cast(bytes, packed.get(key)))
    packed.set(key, msgspec.msgpack.encode({**record, "fail": times}))


def test_no_page_is_queued_twice_if_a_broker_dies_between_queueing_and_noting(
    rig: Rig, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig.crawl()
    known = rig.pages(crawl, "a.example", 20)
    rig.begin(crawl)

    def dies(*_: object) -> None:
        raise Unavailable("the broker died")

    with monkeypatch.context() as patched:
        patched.setattr(type(rig.store), "calendar_taken", dies)
        with pytest.raises(Unavailable):
            rig.step()
    assert len(on_way(redis_server, crawl)) == 20
    assert len(rig.store.calendar_due(*rig.store.calendar_places()[0], (0, 0, -(2**63)), 99)) == 20
    rig.step()
    assert not rig.store.calendar_places(), "the node knows them"
    assert rig.fetch(crawl) == Counter(known)


def test_no_page_is_noted_as_queued_if_it_was_fetched_meanwhile_or_the_epoch_is_old(
    rig: Rig, redis_server: RedisServer
) -> None:
    crawl = rig.crawl()
    known = rig.pages(crawl, "a.example", 3)
    rig.begin(crawl)
    (place,) = rig.store.calendar_places()
    rows = rig.store.calendar_due(*place, (0, 0, -(2**63)), 99)
    rig.store.commit(Commit([rig.page(crawl, known[0])]))
    node, epoch = rig.frontier.under(place[1])
    assert rig.store.calendar_taken(crawl.id, rows, node, epoch - 1) == 0
    assert rig.store.calendar_taken(crawl.id, rows, node, epoch) == 2
    row = rig.store.planned(crawl.id, rig.frontier.fingerprint(known[0]))
    assert not row.queued, "it would wait for ever"


def test_a_page_that_is_forced_while_it_is_queued_is_fetched_once(
    rig: Rig, redis_server: RedisServer
) -> None:
    crawl = rig.crawl()
    known = rig.pages(crawl, "a.example", 6)
    items = [Admission(url, 1) for url in known]
    rig.begin(crawl)
    rig.step()
    rig.frontier.admit(crawl.id, items[:3], mode=Mode.FORCE, batch=1)
    assert rig.fetch(crawl) == Counter(known)
    rig.frontier.admit(crawl.id, items[:3], mode=Mode.FORCE, batch=1)
    assert not rig.fetch(crawl), "the batch was done with"
    rig.begin(crawl)
    rig.frontier.admit(crawl.id, items[:3], mode=Mode.FORCE, batch=2)
    rig.step()
    again = [Admission(url, 1, kind=TaskKind.REREAD) for url in known[:2]]
    rig.frontier.admit(crawl.id, again, mode=Mode.FORCE, batch=3)
    assert rig.fetch(crawl) == Counter(known) + Counter(known[:2]), "what is read asks for nothing"
    assert not on_way(redis_server, crawl)


def test_a_retired_page_is_fetched_again_when_it_is_linked(rig: Rig) -> None:
    crawl = rig.crawl()
    (url,) = rig.pages(crawl, "a.example", 1)
    for forget in (False, True):
        rig.begin(crawl)
        rig.step()
        (session,) = rig.lease()
        rig.store.commit(Commit([rig.page(crawl, url)]))
        rig.end(session, kind="gone", forget=forget)
        new = rig.frontier.admit(crawl.id, [Admission(url, 1)])
        assert new == [forget]
    assert rig.fetch(crawl) == Counter([url])


def test_a_page_stays_marked_as_queued_after_a_retry_or_a_release(
    rig: Rig, redis_server: RedisServer
) -> None:
    crawl = rig.crawl()
    known = rig.pages(crawl, "a.example", 4)
    rig.begin(crawl)
    rig.step()
    (session,) = rig.lease(2)
    first, second = session.tasks
    retry = FinishItem(
        session=session.session, token=session.token, task=first.number,
        outcome=Retry(wait=0.0, kind="reset"),
    )  # fmt: skip
    assert rig.frontier.finish([retry]) == ["ok"]
    close = CloseItem(session=session.session, token=session.token, release=(second.number,))
    assert rig.frontier.close_sessions([close]) == ["ok"]
    raw = redis.Redis(port=redis_server.port, decode_responses=True, encoding="latin-1")
    found = contents(dump(raw))
    assert sorted(found.marks[crawl.id]) == sorted(found.again[crawl.id])
    asked = rig.fetch(crawl)
    wait_until(lambda: asked.update(rig.fetch(crawl)) or len(asked) == 4, 10, "it is tried again")
    assert asked == Counter(known)
    assert not on_way(redis_server, crawl)


def test_a_page_is_not_marked_as_queued_after_its_host_was_drained(
    rig: Rig, redis_server: RedisServer
) -> None:
    crawl = rig.crawl()
    rig.pages(crawl, "a.example", 5)
    rig.begin(crawl)
    rig.step()
    found = rig.frontier.drain(crawl.id, "a.example", Drain(), 0)
    assert rig.frontier.drain(crawl.id, "a.example", found.next, 0).removed == 5
    assert not on_way(redis_server, crawl)


def test_seeds_that_are_due_by_the_calendar_are_not_forced(rig: Rig) -> None:
    crawl = rig.crawl()
    assert [item.url for item in periods.seeds(rig.service, crawl)] == ["http://a.example/0"]
    rig.pages(crawl, "a.example", 1, depth=0)
    assert periods.seeds(rig.service, crawl) == []


def test_a_crawl_ends_its_period_when_nothing_is_due_or_on_its_way(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.pages(crawl, "a.example", 3)
    rig.begin(crawl)
    assert rig.store.rest(crawl.id, 1000, version=crawl.version).state == "active"
    rig.step()
    rig.fetch(crawl)
    known = rig.store.crawl(crawl.id)
    assert rig.store.rest(crawl.id, 1000, version=known.version).state == "resting"


def test_due_pages_of_a_paused_crawl_are_not_queued(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.pages(crawl, "a.example", 3)
    rig.begin(crawl)
    places = rig.store.calendar_places()
    rig.frontier.put_crawl(rig.store.set_state(crawl.id, "paused"))
    assert rig.store.calendar_places() == []
    assert rig.calendar.step(places) == 0
    rig.frontier.put_crawl(rig.store.set_state(crawl.id, "active"))
    assert rig.step() == 3


def test_a_smaller_depth_drops_deeper_pages_of_a_calendar_and_a_greater_adds_stored_ones(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "BATCH", 2)
    crawl = rig.crawl(depth=0)
    for depth in (1, 2, 3):
        rig.pages(crawl, f"h{depth}.example", 2, depth=depth)
    crawl = rig.crawl(depth=3)
    assert rig.store.set_state(crawl.id, "done", "finished").state == "active", "a round goes on"
    while rounds.go_on(rig.service, crawl, sums(0)):
        pass
    rig.begin(crawl)
    crawl = rig.crawl(depth=2)
    rig.step()
    assert sum(rig.fetch(crawl).values()) == 4
    assert rig.store.planned(crawl.id, rig.frontier.fingerprint("http://h3.example/0")) is None


def test_the_calendar_queues_pages_of_one_node_while_the_other_is_away(tmp_path: Path) -> None:
    with TwoNodes(tmp_path) as both:
        rig = Rig(both.open(), both.store)
        crawl = rig.crawl()
        gone, there = rig.frontier.nodes
        for node in (gone, there):
            for host in hosts_on(rig.frontier, node, 3):
                rig.pages(crawl, host, 2)
        rig.begin(crawl)
        both.freeze(gone)
        assert rig.step() == 6
        both.thaw(gone)

        def all_queued() -> bool:
            with suppress(Unavailable):
                rig.step()
            return not rig.store.calendar_places()

        wait_until(all_queued, 20, "the node is back")
