"""``max_pages`` over brokers and nodes: exactly that many pages are leased and stored, no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties as names
from greencrawl.broker.frontier.coordination.quotas import row_of
from greencrawl.broker.frontier.scripts.partition import Mode
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Dead,
    Done,
    Duty,
    FinishItem,
    HostReport,
    LeaseRequest,
    Outcome,
    ReleaseItem,
    Retry,
    Session,
    StoredPage,
)
from greencrawl.schema.wire import to_msgpack
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.redis_server import RedisServer
from tests.support.system import wait_until

PARTITIONS = 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


class Rig:
    """Some brokers and a crawl with a limit; ``sequence`` is the number of each worker's last
    call."""

    def __init__(self, server: RedisServer, store: Store, brokers: int) -> None:
        self.store = store
        self.brokers = [
            Frontier([server.url], store, partitions=PARTITIONS, request_seconds=5, create=True)
            for _ in range(brokers)
        ]
        self.sequence = 0

    def crawl(self, max_pages: int, hosts: int, pages: int = 20) -> Crawl:
        crawl = self.store.put_crawl("c", CrawlOptions(delay=0, max_pages=max_pages), ())
        for broker in self.brokers:
            broker.put_crawl(crawl)
        urls = [f"http://h{host}.example/{n}" for host in range(hosts) for n in range(pages)]
        self.brokers[0].admit(crawl.id, [Admission(url) for url in urls])
        return crawl

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()

    def lease(self, broker: int = 0, wait: float = 0.3, **more: Any) -> list[Session]:
        self.sequence += 1
        more = {"max_sessions": 200, "tasks_per_session": 32, **more}
        request = LeaseRequest(
            worker=f"w{broker}", incarnation=1, sequence=self.sequence, wait=wait, **more
        )
        return list(self.brokers[broker].lease(request).sessions)

    def end(self, session: Session, *outcomes: Outcome) -> None:
        """Settle a session's tasks by the outcomes, release the others, and close the session."""
        items = [
            FinishItem(session=session.session, token=session.token, task=n, outcome=outcome)
            for n, outcome in enumerate(outcomes, 1)
        ]
        assert set(self.brokers[0].finish(items)) <= {"ok"}
        report = HostReport(requests=1, robots=True)
        rest = tuple(range(len(outcomes) + 1, len(session.tasks) + 1))
        close = CloseItem(session=session.session, token=session.token, report=report, release=rest)
        assert self.brokers[0].close_sessions([close]) == ["ok"]

    def store_pages(self, crawl: Crawl, session: Session) -> list[str]:
        """Store a page for each task of the session; return their URLs. The limit must allow all of
        them."""
        urls = [task.url for task in session.tasks]
        number_of = self.brokers[0].fingerprint
        self.sequence += 1
        pages = [
            StoredPage(
                crawl=crawl.id, fingerprint=number_of(url), url=url, status=200,
                fetched_ms=self.sequence,
            )
            for url in urls
        ]  # fmt: skip
        assert not self.store.commit(Commit(pages)).refused
        return urls

    def spent(self, crawl: Crawl) -> int:
        totals = self.brokers[0].stats(crawl)
        return totals.leased + totals.stored

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()


@pytest.fixture
def rig(redis_server: RedisServer, store: Store) -> Iterator[Rig]:
    made = Rig(redis_server, store, 1)
    yield made
    made.stop()


def tasks(sessions: list[Session]) -> int:
    return sum(len(session.tasks) for session in sessions)


def test_ten_brokers_together_lease_exactly_the_page_limit(
    redis_server: RedisServer, store: Store
) -> None:
    rig = Rig(redis_server, store, 10)
    try:
        crawl = rig.crawl(max_pages=100, hosts=60)
        rig.start()
        leased = 0
        for _ in range(3):
            calls = [gevent.spawn(rig.lease, broker) for broker in range(10)]
            gevent.joinall(calls, raise_error=True)
            leased += sum(tasks(call.get()) for call in calls)
            assert rig.spent(crawl) == leased
            assert leased <= 100
        assert leased == 100
    finally:
        rig.stop()


def test_a_crawl_of_one_host_gets_its_whole_quota_when_its_first_task_is_queued(rig: Rig) -> None:
    crawl = rig.store.put_crawl("c", CrawlOptions(delay=0, max_pages=5000), ())
    rig.brokers[0].put_crawl(crawl)
    rig.start()
    waiting = gevent.spawn(rig.lease, wait=5)
    gevent.sleep(0.1)
    begun = monotonic()
    rig.brokers[0].admit(crawl.id, [Admission("http://a.example/")])
    assert tasks(waiting.get(timeout=5)) == 1
    assert monotonic() - begun < 0.8, "it came by a look, not by a wake-up"
    p = rig.brokers[0].partition_of("a.example")
    assert quotas(rig, crawl) == {p: 4999}


def quotas(rig: Rig, crawl: Crawl) -> dict[int, int]:
    """Return the partitions that have quota."""
    broker = rig.brokers[0]
    replies = broker._calls("count", dict.fromkeys(broker.partitions, to_msgpack([crawl.id])))
    rows = {p: row_of(reply).quota for p, reply in replies.items()}
    return {p: quota for p, quota in rows.items() if quota}


@pytest.mark.parametrize(
    "outcome",
    [Dead(kind="timeout"), Retry(wait=0, kind="reset"), Done(kind="gone"), "release", "nothing"],
)
def test_quota_of_tasks_without_a_stored_page_may_be_leased_again(rig: Rig, outcome: Any) -> None:
    crawl = rig.crawl(max_pages=4, hosts=1)
    rig.start()
    (session,) = rig.lease(wait=2)
    assert len(session.tasks) == 4
    if outcome == "release":
        item = ReleaseItem(session=session.session, token=session.token, tasks=(1, 2, 3))
        assert rig.brokers[0].release([item]) == ["ok"]
        rig.end(session)
    elif outcome == "nothing":
        rig.end(session)
    else:
        rig.end(session, outcome, outcome, outcome, outcome)
    (again,) = rig.lease(wait=2)
    assert len(again.tasks) == 4
    done = Done(stored=True)
    rig.end(again, done, done, done, done)
    assert rig.lease() == []
    assert rig.spent(crawl) == 4


def test_quota_moves_to_partitions_where_tasks_wait_until_the_last_page(rig: Rig) -> None:
    """Hosts of all partitions: quota of a failed task goes to another partition."""
    crawl = rig.crawl(max_pages=50, hosts=40, pages=2)
    rig.start()
    stored = 0
    for n in range(40):
        sessions = rig.lease(max_sessions=7, tasks_per_session=3, wait=1)
        assert rig.spent(crawl) <= 50
        if not sessions:
            break
        for session in sessions:
            good = n % 3 != 1
            stored += len(session.tasks) * good
            outcome = Done(stored=True) if good else Dead(kind="timeout")
            rig.end(session, *[outcome] * len(session.tasks))
    assert stored == 50


@pytest.mark.parametrize("hosts", [1, 5])
def test_a_page_that_is_fetched_again_counts_once_for_the_page_limit(rig: Rig, hosts: int) -> None:
    crawl = rig.crawl(max_pages=10, hosts=0)
    urls = [f"http://h{n % hosts}.example/{n}" for n in range(20)]
    rig.brokers[0].admit(crawl.id, [Admission(url, level=1) for url in urls])
    rig.start()
    known: list[str] = []
    for number in range(40):
        if number < 10:
            items = [Admission(url) for url in known[-4:]]
            rig.brokers[0].admit(crawl.id, items, mode=Mode.FORCE)
        assert rig.brokers[0].look(crawl) is not None, "as the upkeep does"
        for session in rig.lease(max_sessions=2, tasks_per_session=1, wait=1):
            known += rig.store_pages(crawl, session)
            rig.end(session, *[Done(stored=True)] * len(session.tasks))
        stats = rig.brokers[0].stats(crawl)
        pages = rig.store.counts(crawl.id)["pages"]
        assert stats.leased + pages <= 10
        if pages == 10:
            break
    assert rig.store.counts(crawl.id)["pages"] == rig.store.stored(crawl.id) == 10
    assert stats.stored > 10, "nothing was fetched again"


def test_quotas_follow_a_page_limit_that_is_raised_lowered_or_removed(rig: Rig) -> None:
    crawl = rig.crawl(max_pages=5, hosts=1)
    rig.start()
    broker = rig.brokers[0]

    def limit(max_pages: int) -> None:
        options = CrawlOptions(delay=0, max_pages=max_pages)
        broker.put_crawl(rig.store.put_crawl("c", options, ()))

    (session,) = rig.lease()
    rig.end(session, *[Done(stored=True)] * 5)
    assert rig.lease() == []
    limit(8)
    (session,) = rig.lease(tasks_per_session=1, wait=2)
    rig.end(session, Done(stored=True))
    assert sum(quotas(rig, crawl).values()) == 2
    limit(7)
    assert broker.look(rig.store.crawl("c")) is not None
    gevent.sleep(0.1)
    assert sum(quotas(rig, crawl).values()) == 1
    limit(0)
    (session,) = rig.lease(wait=2)
    assert len(session.tasks) == 14
    assert quotas(rig, crawl) == {}


def test_quota_that_is_given_late_or_by_a_former_holder_is_refused(rig: Rig) -> None:
    crawl = rig.crawl(max_pages=10, hosts=1)
    broker = rig.brokers[0]
    share = broker._quotas
    p = broker.partition_of("h0.example")
    old = [crawl.id, share._next(1), 5]
    share.share(crawl, Duty(names.QUOTAS, 2))
    before = quotas(rig, crawl)
    assert before == {p: 10}
    ((_, mine, changed, *_),) = broker._calls("quota", {p: to_msgpack(old)}).values()
    assert (mine, changed) == (0, 0)
    with pytest.raises(Unavailable, match="another"):
        share._claim(crawl.id, old[1])
    share._claim(crawl.id, share._next(2))  # a new pass has begun
    late = [crawl.id, share._pass[0] * (1 << 24) + share._pass[1] - 1, 5]
    ((_, mine, *_),) = broker._calls("quota", {p: to_msgpack(late)}).values()
    assert not mine
    assert quotas(rig, crawl) == before


def test_no_more_quota_is_given_than_could_be_taken_from_other_partitions(
    redis_server: RedisServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are leased between reading the quotas and changing them."""
    rig = Rig(redis_server, store, 2)
    try:
        broker, holder = rig.brokers
        duty = holder.duties.take(names.QUOTAS)
        assert duty
        share = holder._quotas
        broker.start()
        crawl = rig.crawl(max_pages=10, hosts=1)
        share.share(crawl, duty)
        p = broker.partition_of("h0.example")
        others = (f"h{n}.example" for n in range(1, 99))
        other = next(host for host in others if broker.partition_of(host) != p)
        broker.admit(crawl.id, [Admission(f"http://{other}/{n}") for n in range(20)])
        claim = share._claim

        def claim_and_lease(*args: Any) -> Any:
            rows = claim(*args)
            assert tasks(rig.lease(wait=2, tasks_per_session=8)) == 8
            return rows

        monkeypatch.setattr(share, "_claim", claim_and_lease)
        share.share(crawl, duty)
        assert quotas(rig, crawl) == {broker.partition_of(other): 2}
        assert rig.spent(crawl) == 8
    finally:
        rig.stop()


def test_a_node_that_came_back_begins_with_no_quota(rig: Rig, redis_server: RedisServer) -> None:
    crawl = rig.crawl(max_pages=10, hosts=3)
    rig.start()
    rig.lease(max_sessions=1, tasks_per_session=2)
    assert quotas(rig, crawl)
    broker = rig.brokers[0]
    broker.tell_node([crawl], broker.nodes[0], afresh=True)
    assert quotas(rig, crawl) == {}
    broker.put_crawl(rig.store.set_state(crawl.id, "paused"))
    broker.tell_node([crawl], broker.nodes[0], afresh=True)  # read before the pause
    assert quotas(rig, crawl) == {}
    assert rig.spent(crawl) == 2


def test_a_scan_tells_the_holder_of_the_quota_duty_that_quota_is_needed(
    redis_server: RedisServer, store: Store
) -> None:
    """When the broker with the duty got its last message, it may not have had any quota to give."""
    rig = Rig(redis_server, store, 2)
    try:
        other = rig.brokers[1]
        assert other.duties.take(names.QUOTAS)
        crawl = rig.crawl(max_pages=10, hosts=1)
        rig.start()
        assert quotas(rig, crawl) == {}  # nobody asks for tasks, so no message is sent
        wait_until(lambda: bool(other._wake_ups._heard), 5, "listening")
        rig.brokers[0].scan(crawl.id)
        wait_until(lambda: sum(quotas(rig, crawl).values()) == 10, 5, "quota is given")
        assert other.duties.get(names.QUOTAS)
    finally:
        rig.stop()


def test_quota_in_a_partition_that_is_away_is_asked_for_until_the_partition_answers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = rig.brokers[0]
    ask, away = broker._quotas._calls, set[int]()

    def some(script: str, calls: dict[int, bytes], **more: Any) -> dict[int, Any]:
        return ask(script, {p: args for p, args in calls.items() if p not in away}, **more)

    monkeypatch.setattr(broker._quotas, "_calls", some)
    crawl = rig.crawl(max_pages=10, hosts=1)
    rig.start()
    (session,) = rig.lease(tasks_per_session=4)
    away.add(broker.partition_of(session.host))
    other = next(
        f"h{n}.example" for n in range(1, 99) if broker.partition_of(f"h{n}.example") not in away
    )
    broker.admit(crawl.id, [Admission(f"http://{other}/{n}") for n in range(3)])
    assert rig.lease() == []  # this broker gets only one message
    away.clear()
    wait_until(lambda: quotas(rig, crawl).get(broker.partition_of(other)), 5, "quota is given")
