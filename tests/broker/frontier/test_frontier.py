"""The frontier's promises, one by one, on a real Redis and a real store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import gevent
import pytest

from greencrawl.broker.frontier import Frontier, Mode, sessions
from greencrawl.broker.frontier.coordination.fence import StoreContact
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.ring import propose
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import FrontierMismatch, InvalidConfig, Unavailable, UnknownCrawl
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Done,
    ExtendItem,
    FinishItem,
    HostPatch,
    HostReport,
    LeaseReply,
    LeaseRequest,
    ReconcileReply,
    ReconcileRequest,
    ReleaseItem,
    Retry,
    Session,
    StoredPage,
    TaskKind,
)
from greencrawl.schema.records.auth import Basic
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.proxy import TcpProxy, address_of
from tests.support.redis_server import RedisServer, binaries


@pytest.fixture(autouse=True)
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was taken over rests only as long as the sessions that it forgot may last."""
    monkeypatch.setattr(StoreContact, "margin_ms", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def frontier(redis_server: RedisServer, store: Store) -> Iterator[Frontier]:
    frontier = Frontier([redis_server.url], store, partitions=8, request_seconds=5, create=True)
    frontier.start()
    yield frontier
    frontier.stop()


def new_crawl(frontier: Frontier, store: Store, name: str = "a", **options: Any) -> Crawl:
    crawl = store.put_crawl(name, CrawlOptions(**options), [])
    frontier.put_crawl(crawl)
    return crawl


def urls(host: str, count: int, **fields: int) -> list[Admission]:
    return [Admission(f"http://{host}/{n}", **fields) for n in range(count)]


class Worker:
    """Counts its lease calls like a worker."""

    def __init__(self, frontier: Frontier, name: str = "w", incarnation: int = 1) -> None:
        self.frontier, self.name, self.incarnation, self.sequence = frontier, name, incarnation, 0

    def lease(self, sessions: int = 10, tasks: int = 10, wait: float = 0.3) -> tuple[Session, ...]:
        self.sequence += 1
        request = LeaseRequest(
            worker=self.name, incarnation=self.incarnation, sequence=self.sequence,
            max_sessions=sessions, tasks_per_session=tasks, wait=wait,
        )  # fmt: skip
        return self.frontier.lease(request).sessions

    def reconcile(self, *holding: str, idle: tuple[str, ...] = ()) -> int:
        """Reconcile as a new process: all earlier incarnations are dead."""
        request = ReconcileRequest(
            worker=self.name,
            incarnation=self.incarnation,
            sequence=self.sequence,
            holding=holding,
            dead=tuple(range(self.incarnation)),
            idle=idle,
        )
        return self.frontier.reconcile(request).tasks


def close(frontier: Frontier, s: Session, *release: int, **report: Any) -> str:
    item = CloseItem(
        session=s.session, token=s.token, release=release, report=HostReport(requests=1, **report)
    )
    return frontier.close_sessions([item])[0]


def finish_all(frontier: Frontier, s: Session) -> None:
    items = [
        FinishItem(session=s.session, token=s.token, task=t.number, outcome=Done(stored=True))
        for t in s.tasks
    ]
    assert set(frontier.finish(items)) == {"ok"}


PASS_TIME = """
redis.call('HINCRBY', KEYS[1], 'offset', ARGV[1])
redis.call('HSET', KEYS[1], 'moved', redis.call('HINCRBY', KEYS[1], 'jumps', 1))
"""
"""In one step: every broker takes over such a change."""


def pass_time(frontier: Frontier, seconds: float) -> None:
    for node in frontier.nodes:
        node.command("EVAL", PASS_TIME, 1, keys.OWNER, round(seconds * 1000))


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "did not happen in time"
        gevent.sleep(0.01)
    return found


# -- politeness


def test_host_with_delay_has_one_session_over_all_crawls(frontier: Frontier, store: Store) -> None:
    for name, delay in (("a", 2.0), ("b", 0.5)):
        crawl = new_crawl(frontier, store, name, delay=delay)
        frontier.admit(crawl.id, urls("h.example", 5))
    first = Worker(frontier, "v").lease(tasks=2)
    assert len(first) == 1
    assert Worker(frontier, "w").lease() == ()
    assert first[0].delay == 2.0, "the delay in force is the largest of the host's crawls"


def test_closed_host_rests_for_its_delay(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0.6)
    frontier.admit(crawl.id, urls("h.example", 4))
    worker = Worker(frontier)
    (session,) = worker.lease(tasks=1)
    begun = time.monotonic()
    close(frontier, session)
    (again,) = worker.lease(tasks=1, wait=3)
    assert 0.59 <= time.monotonic() - begun < 1.5
    assert again.token != session.token


def test_a_blocked_host_is_not_leased_even_if_it_is_listed_as_due(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 4))
    worker = Worker(frontier)
    (session,) = worker.lease(tasks=1)
    close(frontier, session, failed="rate_limited", block=120.0)
    p = frontier.partition_of("h.example")
    frontier.nodes[0].command("ZADD", f"gc:{{{p}}}:due:{crawl.id}", 1, "h.example")
    frontier.leasing.note(p, crawl.id, 1)
    assert worker.lease() == ()
    assert 100 < frontier.host("h.example").blocked_in <= 120
    ((host, until_ms, reason),) = store.blocks(0)
    assert (host, reason) == ("h.example", "rate_limited")
    assert until_ms / 1000 - time.time() == pytest.approx(120, abs=2)


def test_a_blocked_host_shows_the_reason_of_its_block(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 4))
    worker = Worker(frontier)
    (session,) = worker.lease(tasks=1)
    close(frontier, session, failed="login", block=120.0, why="auth shop: 不许进")
    waiting = urls("h.example", 4)[3].url
    assert frontier.host("h.example").why == "auth shop: 不许进"
    assert "s (auth shop: 不许进)" in frontier.find_url(crawl, waiting).why
    frontier.patch_host("h.example", HostPatch(block=0))
    assert frontier.host("h.example").why == ""
    (session,) = worker.lease(tasks=1)
    close(frontier, session, failed="refused", block=120.0)
    assert frontier.host("h.example").why == "refused", "the kind, where nobody said more"


def test_a_block_never_becomes_shorter_and_its_level_rises_once_a_block(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0, slots=3)
    frontier.admit(crawl.id, urls("h.example", 9))
    worker = Worker(frontier)
    (probe,) = worker.lease(tasks=1)
    close(frontier, probe, robots=True)
    sessions = worker.lease(tasks=2)
    assert len(sessions) == 3, "known robots and no delay: as many sessions as slots"
    for session, block in zip(sessions, (300.0, 10.0, 0.0), strict=True):
        close(frontier, session, failed="unavailable", block=block)
    state = frontier.host("h.example")
    assert state.blocked_in > 290
    assert state.block_level == 1


def test_the_delay_in_force_counts_crawls_that_wait_at_a_host_and_the_one_that_fetches_there(
    frontier: Frontier, store: Store
) -> None:
    def delays() -> tuple[float, float]:
        state = frontier.host("h.example")
        return state.delay, state.kept_delay

    assert delays() == (0.0, 0.0)
    crawl = new_crawl(frontier, store, delay=3)
    frontier.admit(crawl.id, urls("h.example", 1))
    assert delays() == (0.0, 3.0)
    (session,) = Worker(frontier).lease()
    assert frontier.host("h.example").waiting == 0
    assert delays() == (0.0, 3.0), "nothing waits, and the session keeps it"
    frontier.patch_host("h.example", HostPatch(delay=7))
    assert delays() == (7.0, 7.0)
    frontier.patch_host("h.example", HostPatch(delay=0))
    finish_all(frontier, session)
    close(frontier, session, delay=2.0)
    assert delays() == (2.0, 2.0)


def test_back_off_doubles_with_each_block_up_to_an_hour(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 9))
    worker, blocks = Worker(frontier), []
    for _ in range(9):
        frontier.leasing.note(frontier.partition_of("h.example"), crawl.id, 1)
        (session,) = worker.lease(tasks=1, wait=2)
        close(frontier, session, failed="refused")
        blocks.append(round(frontier.host("h.example").blocked_in))
        pass_time(frontier, 4000)
    assert blocks == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_operator_slows_blocks_and_frees_a_host(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 2))
    frontier.patch_host("h.example", HostPatch(block=600, delay=7.5))
    worker = Worker(frontier)
    assert worker.lease() == ()
    frontier.patch_host("h.example", HostPatch(block=0))
    (session,) = worker.lease()
    assert session.delay == session.floor == 7.5


def test_no_slot_opens_beside_a_session_that_keeps_a_delay(
    frontier: Frontier, store: Store
) -> None:
    """This holds even though the crawl with this delay has nothing waiting there any more."""
    slow = new_crawl(frontier, store, "slow", delay=5)
    fast = new_crawl(frontier, store, "fast", delay=0, slots=3)
    frontier.admit(slow.id, urls("h.example", 1))
    (s,) = Worker(frontier).lease()
    assert close(frontier, s, 1, robots=True) == "ok"
    pass_time(frontier, 10)
    frontier.leasing.note(frontier.partition_of("h.example"), slow.id, 1)
    (s,) = Worker(frontier, "v").lease()
    frontier.admit(fast.id, urls("h.example", 6))
    assert Worker(frontier).lease(tasks=1) == (), "the one that is open has its delay to keep"
    assert close(frontier, s) == "ok"
    pass_time(frontier, 10)
    finish_all(frontier, s)
    frontier.leasing.note(frontier.partition_of("h.example"), fast.id, 1)
    assert len(Worker(frontier).lease(tasks=1)) == 3


def test_slots_wait_for_known_robots(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0, slots=4)
    frontier.admit(crawl.id, urls("h.example", 20))
    worker = Worker(frontier)
    (session,) = worker.lease(tasks=2)
    assert not session.robots_known
    close(frontier, session, robots=True)
    assert len(worker.lease(tasks=2)) == 4


def test_adaptive_delay_is_kept_for_the_next_session(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0.1)
    frontier.admit(crawl.id, urls("h.example", 4))
    worker = Worker(frontier)
    (session,) = worker.lease(tasks=1)
    close(frontier, session, delay=0.4, latency=0.2)
    (again,) = worker.lease(tasks=1, wait=2)
    assert (again.delay, again.floor) == (0.4, 0.1)


def test_a_session_without_a_request_does_not_change_its_hosts_latency(
    frontier: Frontier, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [*urls("a.example", 2), *urls("b.example", 1)])
    worker = Worker(frontier)
    found = {s.host: s for s in until(lambda: worker.lease(tasks=1))}
    while len(found) < 2:
        found |= {s.host: s for s in worker.lease(tasks=1)}
    close(frontier, found["a.example"], latency=2.0)
    (unused,) = worker.lease(tasks=1)
    item = CloseItem(session=unused.session, token=unused.token, report=HostReport())
    assert frontier.close_sessions([item]) == ["ok"]
    assert [(one.host, one.latency) for one in frontier.slowest()] == [("a.example", 2.0)]
    monkeypatch.setattr(sessions, "SLOWEST", 1)
    close(frontier, found["b.example"], latency=1.0)
    assert [one.host for one in frontier.slowest()] == ["b.example"], "the latest are kept"


def test_extend_tells_sessions_of_a_blocked_host_to_stop(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 2))
    (s,) = Worker(frontier).lease()
    item = ExtendItem(session=s.session, token=s.token)
    assert frontier.extend([item], 30) == ["ok"]
    frontier.patch_host("h.example", HostPatch(block=60))
    assert frontier.extend([item], 30) == ["stop"]


def test_extend_stops_sessions_that_do_not_keep_an_operators_delay(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=1)
    frontier.admit(crawl.id, urls("h.example", 4))
    worker = Worker(frontier)
    (s,) = worker.lease(tasks=1)
    item = ExtendItem(session=s.session, token=s.token)
    frontier.patch_host("h.example", HostPatch(delay=1))
    assert frontier.extend([item], 30) == ["ok"], "it keeps that"
    frontier.patch_host("h.example", HostPatch(delay=30))
    assert frontier.extend([item], 30) == ["stop"]
    assert close(frontier, s) == "ok"
    assert frontier.extend([item], 30) == ["ok"], "what it fetched may still be stored"
    pass_time(frontier, 31)
    p = frontier.partition_of("h.example")
    frontier.leasing.note(p, crawl.id, 1)
    (s,) = worker.lease(tasks=1)
    item = ExtendItem(session=s.session, token=s.token)
    assert (s.floor, frontier.extend([item], 30)) == (30.0, ["ok"])
    frontier.patch_host("h.example", HostPatch(delay=5))
    assert frontier.extend([item], 30) == ["ok"], "more than the operator wants now"
    redis_server.client.hdel(f"gc:{{{p}}}:s:{s.token}", "floor")
    assert frontier.extend([item], 30) == ["stop"], "nobody knows what it keeps"
    frontier.patch_host("h.example", HostPatch(delay=0))
    assert frontier.extend([item], 30) == ["ok"]


# -- leases


def test_expired_lease_returns_to_queue_once_and_late_finish_is_refused(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 2))
    (old,) = Worker(frontier, "v").lease()
    pass_time(frontier, 66)
    p = frontier.partition_of("h.example")
    frontier.leasing.note(p, 0, 1)
    (new,) = Worker(frontier, "w").lease(wait=2)
    assert [t.deliveries for t in new.tasks] == [2, 2]
    late = FinishItem(session=old.session, token=old.token, task=1, outcome=Done())
    assert frontier.finish([late]) == ["stale"]
    finish_all(frontier, new)
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.finished, totals.open) == (2, 0)


def test_tasks_released_after_close_are_due_again(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    worker = Worker(frontier)
    (s,) = worker.lease()
    assert close(frontier, s) == "ok"
    assert close(frontier, s) == "stale"
    assert frontier.release([ReleaseItem(session=s.session, token=s.token)]) == ["ok"]
    (again,) = worker.lease()
    assert [t.url for t in again.tasks] == [t.url for t in s.tasks], "in their old order"
    assert {t.deliveries for t in again.tasks} == {1}, "uncharged"


def test_reconcile_frees_what_a_dead_worker_held_and_rests_its_hosts(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    Worker(frontier, incarnation=1).lease()
    restarted = Worker(frontier, incarnation=2)
    assert restarted.reconcile() == 3
    assert restarted.lease() == (), "a request of the dead one may still run at the server"
    assert 4 < frontier.host("h.example").next_in <= 5
    assert Worker(frontier, incarnation=1).lease() == (), "an older incarnation opens nothing"


def test_sessions_of_an_older_worker_stay_with_it_unless_it_is_known_to_be_dead(
    frontier: Frontier, store: Store
) -> None:
    """Two machines use one name, and no broker may hear from the older one for a while."""
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    (held,) = Worker(frontier, incarnation=3).lease()
    assert ask(frontier, 4, 1, dead=(1, 2), idle=(held.token,)).sessions == 0
    assert Worker(frontier, incarnation=4).lease() == (), "its host is not served beside it"
    assert frontier.extend([ExtendItem(session=held.session, token=held.token)], 60) == ["ok"]
    finish_all(frontier, held)
    assert close(frontier, held) == "ok"
    frontier.admit(crawl.id, urls("h.example", 4))
    (later,) = Worker(frontier, incarnation=5).lease()
    assert ask(frontier, 6, 1, dead=(5, 4)).tasks == len(later.tasks)


def test_a_block_does_not_count_as_rest_after_a_crash(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=1)
    frontier.admit(crawl.id, urls("h.example", 2))
    assert Worker(frontier).lease(wait=1)
    frontier.patch_host("h.example", HostPatch(block=3600.0))
    frontier.reconcile(ReconcileRequest(worker="w", incarnation=2, sequence=1, dead=(1,)))
    hosts, seconds = frontier.resting()
    assert (hosts, 4.5 < seconds <= 6.1) == (1, True), seconds


@pytest.mark.parametrize(("dead_for", "rest"), [(0.0, 5.0), (3.0, 2.0), (60.0, 1.0)])
def test_rest_after_a_crash_counts_from_the_death_and_is_the_delay_at_least(
    frontier: Frontier, store: Store, dead_for: float, rest: float
) -> None:
    crawl = new_crawl(frontier, store, delay=1)
    frontier.admit(crawl.id, [*urls("h.example", 2), *urls("idle.example", 2)])
    worker, found = Worker(frontier), dict[str, Session]()
    until(lambda: found.update({s.host: s for s in worker.lease(wait=1)}) or len(found) == 2)
    assert frontier.resting() == (0, 0.0)
    request = ReconcileRequest(
        worker="w", incarnation=2, sequence=1, dead=(1,), idle=(found["idle.example"].token,),
        dead_for=dead_for,
    )  # fmt: skip
    began = time.monotonic()
    frontier.reconcile(request)
    next_in = frontier.host("h.example").next_in
    took = time.monotonic() - began
    assert max(rest, 1.0) - took - 0.1 < next_in <= max(rest, 1.0) + 1
    hosts, seconds = frontier.resting()
    took = time.monotonic() - began
    assert hosts == (1 if dead_for < 5 else 0) or took > 2, "the delay alone is no rest"
    assert seconds == 0 or next_in - took - 0.1 < seconds <= next_in + 0.1, "the delay included"
    assert frontier.host("idle.example").next_in <= 1


def test_a_worker_hears_that_another_of_its_name_superseded_it_and_changes_nothing(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [a for n in range(4) for a in urls(f"h{n}.example", 1)])
    right = Worker(frontier, incarnation=2)
    right.reconcile()
    (held,) = right.lease(sessions=1)
    late = ReconcileRequest(worker="w", incarnation=1, sequence=5, holding=())
    assert frontier.reconcile(late) == ReconcileReply(0, 0, superseded=2)
    request = LeaseRequest(worker="w", incarnation=1, sequence=6, wait=0.3)
    began = time.monotonic()
    assert frontier.lease(request) == LeaseReply((), ANY, superseded=2)
    assert time.monotonic() - began > 0.25, "whoever asks on is not answered at once"
    assert frontier.extend([ExtendItem(session=held.session, token=held.token)], 60) == ["ok"]
    assert len(right.lease()) == 3


def ask(frontier: Frontier, incarnation: int, sequence: int, **more: Any) -> ReconcileReply:
    return frontier.reconcile(
        ReconcileRequest(worker="w", incarnation=incarnation, sequence=sequence, **more)
    )


def test_later_worker_that_leaves_frees_its_name_for_the_earlier_one(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [a for n in range(4) for a in urls(f"h{n}.example", 1)])
    earlier, later = Worker(frontier, incarnation=1), Worker(frontier, incarnation=7)
    earlier.reconcile()
    later.reconcile()
    assert len(later.lease(sessions=1)) == 1
    assert ask(frontier, 1, 1).superseded == 7
    assert frontier.workers() == (1, ("w",))
    assert ask(frontier, 7, 2, leaving=True).tasks == 1
    assert frontier.workers() == (0, ("w",)), "nobody works, and why"
    assert ask(frontier, 1, 2).superseded == 0
    assert frontier.workers()[0] == 1
    assert later.lease() == (), "a lease of one that has left opens nothing"
    earlier.sequence = 3
    (held,) = earlier.lease(sessions=1)
    for leaving in (False, True):
        late = ask(frontier, 7, 9, leaving=leaving)
        assert (late.superseded, late.tasks) == (0, 0), "a word that comes late changes nothing"
    assert frontier.extend([ExtendItem(session=held.session, token=held.token)], 60) == ["ok"]
    assert ask(frontier, 0, 9).superseded == 1, "one that is earlier still waits"
    assert ask(frontier, 8, 1).superseded == 0, "when the later one starts again it takes over"
    assert ask(frontier, 1, 4).superseded == 8


def test_a_workers_name_goes_to_the_latest_holder_that_is_left(frontier: Frontier) -> None:
    for incarnation in (1, 5, 7):
        assert ask(frontier, incarnation, 1).superseded == 0
    ask(frontier, 7, 2, leaving=True)
    assert ask(frontier, 5, 2).superseded == 0
    assert ask(frontier, 1, 2).superseded == 5
    ask(frontier, 5, 3, leaving=True)
    assert ask(frontier, 1, 3).superseded == 0
    assert ask(frontier, 7, 9, leaving=True).superseded == 0, "a word that comes late"
    assert ask(frontier, 1, 4).superseded == 0
    assert ask(frontier, 0, 1).superseded == 1


def test_a_worker_with_a_lower_incarnation_is_not_taken_for_another_that_has_left(
    frontier: Frontier, store: Store
) -> None:
    """A twin whose clock was ahead came and left; the owner of the name was killed, and starts
    again."""
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [a for n in range(2) for a in urls(f"h{n}.example", 1)])
    assert ask(frontier, 5, 1).superseded == 0
    assert ask(frontier, 20, 1).superseded == 0
    ask(frontier, 20, 2, leaving=True)
    first = Worker(frontier, incarnation=5)
    first.sequence = 2
    assert ask(frontier, 5, 2).superseded == 0
    (held,) = first.lease(sessions=1, wait=2)
    assert ask(frontier, 9, 1, dead=(5,), idle=(held.token,)).tasks == 1
    assert Worker(frontier, incarnation=20).lease() == (), "it has left"
    again = Worker(frontier, incarnation=9)
    again.sequence = 1
    found: list[Session] = []
    until(lambda: found.extend(again.lease()) or len(found) == 2, 5)
    assert ask(frontier, 20, 3).superseded == 0, "a word that comes late"
    assert ask(frontier, 5, 9).superseded == 9, "though a later one than that has left"


def test_only_the_latest_incarnations_that_left_are_remembered(
    frontier: Frontier, redis_server: RedisServer
) -> None:
    for incarnation in range(40):
        ask(frontier, incarnation, 1)
        ask(frontier, incarnation, 2, leaving=True)
    (key, *_) = redis_server.client.keys("gc:{*}:ws:w")
    left = [int(number) for number in redis_server.client.hget(key, "#gone").split()]
    assert left == list(range(39, 23, -1))


def test_a_late_leave_of_another_incarnation_releases_no_session(
    frontier: Frontier, store: Store
) -> None:
    """The other incarnation starts again after its first calls did not arrive. The owner of the
    name goes on leasing."""
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [a for n in range(2) for a in urls(f"h{n}.example", 1)])
    worker = Worker(frontier, incarnation=1)
    worker.reconcile()
    (held,) = worker.lease(sessions=1, wait=2)
    assert ask(frontier, 7, 1, leaving=True).tasks == 0
    assert frontier.extend([ExtendItem(session=held.session, token=held.token)], 60) == ["ok"]
    found: list[Session] = []
    until(lambda: found.extend(worker.lease()) or found, 5)
    sequence = worker.sequence + 1
    assert ask(frontier, 1, sequence, holding=(held.token,)).superseded == 0


def test_worker_that_leaves_twice_and_comes_again_works(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    for _ in range(2):
        assert ask(frontier, 3, 1, leaving=True).superseded == 0
    again = Worker(frontier, incarnation=4)
    again.reconcile()
    assert len(again.lease()) == 1


def test_first_incarnation_is_not_taken_for_one_that_has_left(
    frontier: Frontier, store: Store
) -> None:
    """The number of the first incarnation may be 0."""
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [a for n in range(2) for a in urls(f"h{n}.example", 1)])
    worker = Worker(frontier, incarnation=0)
    worker.reconcile()
    assert len(worker.lease(sessions=1, wait=2)) == 1
    worker.reconcile()
    found: list[Session] = []
    until(lambda: found.extend(worker.lease(wait=1)) or len(found) == 2)  # it is free again
    assert ask(frontier, 0, 9, leaving=True).tasks == 2
    worker.sequence = 10
    assert worker.lease() == ()


def test_the_worker_registry_forgets_workers_that_were_silent_for_long(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        frontier.worker_registry.at_work(name, 1)
    frontier.worker_registry.refused("a")
    assert frontier.workers() == (2, ("a",))
    node = frontier.nodes[0]
    now = node.now_ms()
    monkeypatch.setattr(node, "now_ms", lambda: now + 61_000)
    frontier.worker_registry.at_work("c", 1)
    assert frontier.workers() == (1, ())
    assert node.command("ZCARD", keys.WORKERS) == 1, "the others are dropped"


def test_a_task_whose_page_killed_a_process_stays_a_suspect(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    worker = Worker(frontier)
    suspects = []
    for kind in ("reset", "process_death", "timeout"):
        (s,) = worker.lease(wait=3)
        suspects.append(s.tasks[0].suspect)
        outcome = Retry(wait=0.1, kind=kind)
        item = FinishItem(session=s.session, token=s.token, task=1, outcome=outcome)
        assert frontier.finish([item]) == ["ok"]
        close(frontier, s)
    (s,) = worker.lease(wait=3)
    assert [*suspects, s.tasks[0].suspect] == [False, False, True, True]
    assert s.tasks[0].errors == 3


def test_host_without_a_request_under_way_need_not_rest_when_its_worker_died(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [*urls("idle.example", 1), *urls("busy.example", 1)])
    found = {s.host: s for s in Worker(frontier, incarnation=1).lease()}
    restarted = Worker(frontier, incarnation=2)
    assert restarted.reconcile(idle=(found["idle.example"].token,)) == 2
    assert [s.host for s in restarted.lease()] == ["idle.example"]
    assert frontier.host("busy.example").next_in > 4


def test_task_whose_workers_die_again_and_again_becomes_a_suspect(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    suspects, idle = [], ()
    for number in range(1, 5):
        worker = Worker(frontier, incarnation=number)
        worker.reconcile(idle=idle)
        (s,) = worker.lease(wait=3)
        suspects.append(s.tasks[0].suspect)
        idle = (s.token,)
    assert suspects == [False, False, False, True]


def test_retry_waits_and_counts_errors(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    worker = Worker(frontier)
    (s,) = worker.lease()
    item = FinishItem(
        session=s.session, token=s.token, task=1, outcome=Retry(wait=0.5, kind="reset")
    )
    assert frontier.finish([item]) == ["ok"]
    close(frontier, s)
    state = frontier.find_url(crawl, "http://h.example/0")
    assert state.state == "later"
    assert "failed 1 time" in state.why
    (again,) = worker.lease(wait=3)
    assert (again.tasks[0].errors, again.tasks[0].deliveries) == (1, 1)


def test_a_leased_task_counts_as_seen_if_its_outcome_was_stored_within_its_lease(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    worker, before = Worker(frontier), epoch_ms() - 60_000
    frontier.admit(crawl.id, urls("other.example", 1))
    (other,) = worker.lease()
    frontier.admit(crawl.id, urls("h.example", 2))
    (s,) = worker.lease()
    for number in (0, 1):
        url = f"http://h.example/{number}"
        assert frontier.find_url(crawl, url).state == "leased"
        assert frontier.find_url(crawl, url, before).state == "leased", "it is fetched once more"
        assert frontier.find_url(crawl, url, epoch_ms() + 1000).state == "seen"
    close(frontier, s)
    close(frontier, other)


def test_an_outcome_right_after_the_lease_began_ends_the_task_though_redis_answers_slowly(
    redis_server: RedisServer, store: Store
) -> None:
    with TcpProxy(address_of(redis_server.url)) as proxy:
        nodes = [f"redis://{proxy.address}"]
        frontier = Frontier(nodes, store, partitions=8, request_seconds=5, create=True)
        frontier.start()
        crawl = new_crawl(frontier, store, delay=0)
        frontier.admit(crawl.id, urls("h.example", 1))
        (s,) = Worker(frontier).lease()
        stored_ms = epoch_ms()
        proxy.tap = lambda _: gevent.sleep(0.05)
        state = frontier.find_url(crawl, "http://h.example/0", stored_ms)
        assert (state.state, state.why) == ("seen", "its outcome is stored")
        proxy.tap = None
        close(frontier, s)
        frontier.stop()


def test_host_that_found_no_room_rests_and_has_not_failed(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 2))
    worker = Worker(frontier)
    (s,) = worker.lease()
    item = CloseItem(
        session=s.session, token=s.token, release=(1, 2),
        report=HostReport(block=30.0, why="no room", put_off="slow"),
    )  # fmt: skip
    assert frontier.close_sessions([item]) == ["ok"]
    assert "no room" in frontier.find_url(crawl, "http://h.example/1").why
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.put_off, totals.failures) == ({"slow": 1}, {})
    state = frontier.host("h.example")
    assert 29 < state.next_in <= 30
    assert (state.blocked_in, state.failures, state.waiting) == (0, 0, 2)
    assert worker.lease() == ()


def test_host_that_is_put_off_after_a_request_rests_and_has_not_failed(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    worker = Worker(frontier)
    (s,) = worker.lease()
    report = HostReport(block=30.0, requests=1)
    item = CloseItem(session=s.session, token=s.token, release=(1,), report=report)
    assert frontier.close_sessions([item]) == ["ok"]
    state = frontier.host("h.example")
    assert 29 < state.next_in <= 30
    assert (state.blocked_in, state.failures, state.waiting) == (0, 0, 1)


# -- order and fairness


def test_host_serves_priority_then_arrival(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [Admission("http://h.example/late", level=9)])
    frontier.admit(crawl.id, urls("h.example", 2, level=1))
    frontier.admit(crawl.id, [Admission("http://h.example/first", level=0)])
    (s,) = Worker(frontier).lease()
    assert [t.url.rpartition("/")[2] for t in s.tasks] == ["first", "0", "1", "late"]


def test_best_first_takes_the_best_task_among_due_hosts(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0, order="best")
    hosts = [f"h{n}.a.com" for n in range(6)]  # one registrable domain: one partition
    frontier.admit(crawl.id, [Admission(f"http://{h}/", level=20 - n) for n, h in enumerate(hosts)])
    (s,) = Worker(frontier).lease(sessions=1)
    assert s.host == hosts[-1]


def test_crawls_share_by_weight(frontier: Frontier, store: Store) -> None:
    served = {}
    for name, weight in (("a", 1), ("b", 3)):
        crawl = new_crawl(frontier, store, name, delay=0, weight=weight)
        frontier.admit(crawl.id, [Admission(f"http://h{n}.{name}.example/") for n in range(400)])
        served[crawl.id] = 0
    worker = Worker(frontier)
    for _ in range(50):
        for session in worker.lease(sessions=4, tasks=1):
            served[session.crawl] += 1
    small, large = sorted(served.values())
    assert 2.0 < large / small < 4.5


def test_paused_crawl_is_not_leased_until_resumed(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    frontier.put_crawl(store.set_state(crawl.id, "paused"))
    worker = Worker(frontier)
    assert worker.lease() == ()
    waiting = gevent.spawn(worker.lease, wait=5)
    gevent.sleep(0.05)
    frontier.put_crawl(store.set_state(crawl.id, "active"))
    assert len(waiting.get(timeout=2)) == 1


def test_page_limit_bounds_what_is_leased(frontier: Frontier, store: Store) -> None:
    crawl = new_crawl(frontier, store, delay=0, max_pages=7)
    frontier.admit(crawl.id, [a for n in range(20) for a in urls(f"h{n}.example", 5)])
    worker = Worker(frontier)
    leased = [t for _ in range(6) for s in worker.lease(tasks=3) for t in s.tasks]
    assert len(leased) == 7


def test_limit_leaves_room_for_the_errands_of_logins(frontier: Frontier, store: Store) -> None:
    shop = Basic(name="shop", hosts=("h.example",))
    crawl = new_crawl(frontier, store, delay=0, max_pages=4, auth=(shop,))
    frontier.admit(crawl.id, urls("h.example", 9))
    worker = Worker(frontier)
    (waits,) = worker.lease(tasks=32)
    assert len(waits.tasks) == 2
    errand = Admission("http://id.example/.well-known/greencrawl-errand", kind=TaskKind.ERRAND)
    frontier.admit(crawl.id, [errand], mode=Mode.FORCE)
    leased = [s.host for _ in range(6) for s in worker.lease(sessions=1, tasks=32)]
    assert "id.example" in leased
    assert frontier.scan(crawl.id).leased == 3  # type: ignore[union-attr]


# -- waking


def test_waiting_lease_is_woken_by_an_admission_elsewhere(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    other = Frontier([redis_server.url], store, partitions=8)  # as a worker has it
    waiting = gevent.spawn(Worker(frontier).lease, wait=5)
    gevent.sleep(0.1)
    begun = time.monotonic()
    other.admit(crawl.id, urls("h.example", 1))
    assert len(waiting.get(timeout=3)) == 1
    assert time.monotonic() - begun < 1
    other.stop()


def test_a_broker_listens_again_after_a_message_that_it_cannot_read(
    frontier: Frontier, redis_server: RedisServer
) -> None:
    def listening() -> set[str]:
        return {one["id"] for one in redis_server.client.client_list() if one["sub"] != "0"}

    before = until(listening)
    redis_server.client.publish(keys.WAKE, "1 2 soon")
    until(lambda: listening() - before, 5)


def test_crawl_that_another_broker_created_is_served(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    other = Frontier([redis_server.url], store, partitions=8, create=True)
    crawl = new_crawl(other, store, delay=0)
    other.admit(crawl.id, urls("h.example", 1))
    assert len(Worker(frontier).lease(wait=3)) == 1
    other.stop()


def test_an_idle_frontier_sends_redis_hardly_any_commands(
    frontier: Frontier, redis_server: RedisServer
) -> None:
    waiting = gevent.spawn(Worker(frontier).lease, wait=12)
    gevent.sleep(0.5)

    def commands() -> int:
        stats = redis_server.client.info("commandstats")
        return sum(v["calls"] for k, v in stats.items() if k != "cmdstat_info")

    before = commands()
    gevent.sleep(10.2)
    assert commands() - before <= 4
    waiting.get()


def test_retry_finished_at_a_broker_that_is_gone_is_promoted_by_the_others(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    worker = Worker(frontier)
    (s,) = worker.lease()
    other = Frontier([redis_server.url], store, create=True)  # leases nothing: never started
    item = FinishItem(
        session=s.session, token=s.token, task=1, outcome=Retry(wait=0.2, kind="reset")
    )
    assert other.finish([item]) == ["ok"]
    close(other, s)
    other.stop()
    assert len(worker.lease(wait=2)) == 1, "sooner than by the look for lost messages"


def test_reconcile_releases_more_sessions_than_one_script_does(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    hosts = [f"h{n}.example.org" for n in range(80)]  # of one domain: one partition
    frontier.admit(crawl.id, [item for host in hosts for item in urls(host, 2)])
    worker = Worker(frontier)
    held: list[Session] = []
    for _ in range(6):
        held += worker.lease(sessions=80, wait=2) if len(held) < 80 else ()
    assert len(held) == 80
    assert worker.reconcile(held[0].token) == 2 * 79
    assert worker.reconcile() == 2


# -- crawls


def test_deleted_crawl_is_gone_to_everybody_and_leaves_no_key(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [a for n in range(30) for a in urls(f"h{n}.example", 30)])
    worker = Worker(frontier)
    (s,) = worker.lease(sessions=1)
    store.add_purge(crawl.id)
    frontier.drop_crawl(crawl.id)
    with pytest.raises(UnknownCrawl):
        frontier.admit(crawl.id, urls("h.example", 1))
    assert frontier.find_url(crawl, "http://h1.example/1").state == "unseen"
    item = FinishItem(session=s.session, token=s.token, task=1, outcome=Done())
    assert frontier.finish([item]) == ["gone"]
    close(frontier, s)
    worker.reconcile()
    kinds = {key.split(":")[2] for key in redis_server.client.keys("gc:{*")}
    assert kinds <= {"ws", "h", "hi", "c"}, "the last for an hour: that it was deleted"
    records = redis_server.client.keys("gc:{*:c:*")
    assert all(0 < redis_server.client.ttl(key) <= 3600 for key in records)


def test_a_retry_of_a_deleted_crawl_leaves_nothing_once_it_is_due(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl, redis = new_crawl(frontier, store, delay=0), redis_server.client
    frontier.admit(crawl.id, urls("h.example", 1))
    (s,) = Worker(frontier).lease()
    item = FinishItem(
        session=s.session, token=s.token, task=1, outcome=Retry(wait=86_000, kind="reset")
    )
    assert frontier.finish([item]) == ["ok"]
    close(frontier, s)
    frontier.drop_crawl(crawl.id)
    assert redis.keys("gc:{*:later"), "it goes when it is met"
    redis.delete(*redis.keys("gc:{*:h:*"))  # the record of a host expires before
    pass_time(frontier, 86_000)
    frontier.leasing.note(int(s.session.partition("/")[0]), 0, 1)
    until(lambda: not redis.keys("gc:{*:later"))
    assert redis.keys("gc:{*:b") == [], "nor does it count in any budget"
    assert redis.keys("gc:{*:h:*") == []


def test_session_of_a_deleted_crawl_is_stopped_and_its_close_frees_the_host(
    frontier: Frontier, store: Store
) -> None:
    crawl, other = new_crawl(frontier, store, delay=0), new_crawl(frontier, store, "b", delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    worker = Worker(frontier)
    (s,) = worker.lease()
    frontier.drop_crawl(crawl.id)
    frontier.admit(other.id, urls("h.example", 1))
    assert frontier.extend([ExtendItem(session=s.session, token=s.token)], 60) == ["stop"]
    assert worker.lease() == (), "a request may still be under way"
    assert close(frontier, s, 2, 3) == "ok"
    assert [found.crawl for found in worker.lease(wait=2)] == [other.id]
    item = FinishItem(session=s.session, token=s.token, task=1, outcome=Done())
    assert frontier.finish([item]) == ["gone"]


def test_block_that_an_operator_lifted_is_not_brought_back(
    frontier: Frontier, store: Store
) -> None:
    frontier.patch_host("h.example", HostPatch(block=600))
    assert [host for host, *_ in store.blocks(0)] == ["h.example"]
    assert frontier.patch_host("h.example", HostPatch(block=0)).blocked_in == 0
    assert store.blocks(0) == []


def test_redis_keeps_the_stores_delay_if_two_are_set_at_once(
    frontier: Frontier, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that is first in the store is the last to tell Redis."""
    real = store.put_delay

    def overtaken(host: str, delay_ms: int) -> None:
        real(host, delay_ms)
        monkeypatch.setattr(store, "put_delay", real)
        assert frontier.patch_host(host, HostPatch(delay=5)).delay == 5

    monkeypatch.setattr(store, "put_delay", overtaken)
    assert frontier.patch_host("h.example", HostPatch(delay=30)).delay == 5
    assert frontier.host("h.example").delay == 5
    assert store.delays() == {"h.example": 5000}


def test_a_deleted_crawl_is_not_made_known_again_by_a_broker_that_has_just_read_it(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    store.add_purge(crawl.id)
    frontier.drop_crawl(crawl.id)
    frontier.put_crawl(crawl)
    records = redis_server.client.keys(f"gc:*:c:{crawl.id}")
    assert all(0 < redis_server.client.ttl(key) <= 3600 for key in records)
    with pytest.raises(UnknownCrawl):
        frontier.admit(crawl.id, urls("h.example", 3))


def test_forced_admission_queues_seen_urls_again(frontier: Frontier, store: Store) -> None:
    from greencrawl.broker.frontier import Mode

    crawl = new_crawl(frontier, store, delay=0)
    worker = Worker(frontier)
    for mode in (Mode.NEW, Mode.FORCE):
        frontier.admit(crawl.id, urls("h.example", 2), mode=mode)
        (s,) = worker.lease(wait=2)
        finish_all(frontier, s)
        close(frontier, s)
    assert frontier.admit(crawl.id, urls("h.example", 2)) == [False, False]


# -- the seen-set


@pytest.mark.parametrize("binary", binaries())
def test_seen_buckets_stay_intsets_and_small(tmp_path: Path, store: Store, binary: str) -> None:
    server = RedisServer(tmp_path / "r", binary).start()
    try:
        frontier = Frontier([server.url], store, partitions=2, create=True)
        crawl = new_crawl(frontier, store)
        items = urls("h.example", 20_000)
        assert all(frontier.admit(crawl.id, items))
        assert not any(frontier.admit(crawl.id, items[::7]))
        buckets = [k for k in server.client.keys("gc:*") if f":z:{crawl.id}:" in k]
        sizes = [server.client.scard(k) for k in buckets]
        assert sum(sizes) == 20_000
        assert max(sizes) <= 512
        assert {server.client.object("encoding", k) for k in buckets} == {"intset"}
        memory = sum(server.client.memory_usage(k, samples=0) for k in buckets)
        assert memory / 20_000 <= 13, "bytes a seen URL"
        frontier.stop()
    finally:
        server.stop()


# -- nodes


def test_frontier_is_refused_on_other_nodes(tmp_path: Path, store: Store) -> None:
    servers = [RedisServer(tmp_path / f"r{n}").start() for n in range(3)]
    try:
        addresses = [s.url for s in servers]
        frontier = Frontier(addresses[:2], store, partitions=16, create=True)
        assert {n.id for n in frontier.nodes} == set(frontier.identity.nodes)
        again = Frontier(addresses[1::-1], store, create=True)  # addresses may come in any order
        assert again.identity == frontier.identity
        with pytest.raises(FrontierMismatch, match=r"made on 2 .* 3 are given"):
            Frontier(addresses, store, create=True)
        with pytest.raises(FrontierMismatch, match="same node"):
            Frontier([addresses[0], addresses[0] + "/0"], store, create=True)
        other = open_store(f"sqlite:///{tmp_path / 'other.sqlite'}")
        with pytest.raises(FrontierMismatch, match=r"does not know: .* give an empty Redis"):
            Frontier(addresses[:2], other, create=True)
        with pytest.raises(Unavailable, match="start a broker"):
            Frontier(addresses[2:], other)
        other.close()
    finally:
        for server in servers:
            server.stop()


def test_ring_spreads_partitions_and_moves_few() -> None:
    three, four = propose(["a", "b", "c"], 256), propose(["a", "b", "c", "d"], 256)
    assert all(three.count(i) > 40 for i in range(3))
    moved = [new for old, new in zip(three, four, strict=True) if old != new]
    assert set(moved) == {3}
    assert len(moved) < 110


def test_evicting_redis_is_refused(tmp_path: Path, store: Store) -> None:
    server = RedisServer(tmp_path / "r", None, "--maxmemory-policy", "allkeys-lru").start()
    try:
        with pytest.raises(InvalidConfig, match="noeviction"):
            Frontier([server.url], store, create=True)
    finally:
        server.stop()


def test_clock_that_jumps_is_set_right_before_anything_happens(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    (s,) = Worker(frontier).lease()
    before = frontier.nodes[0].now_ms()
    for field, ms in (("offset", 3_600_000), ("used", -3_600_000)):  # an hour ahead
        frontier.nodes[0].command("HINCRBY", keys.OWNER, field, ms)
    assert frontier.extend([ExtendItem(session=s.session, token=s.token)], 30) == ["ok"]
    assert frontier.nodes[0].now_ms() == pytest.approx(before, abs=3000)
    p = frontier.partition_of("h.example")
    ((_, reap),) = [
        (t, at) for t, at in _zset(frontier, f"gc:{{{p}}}:sd")
    ]  # the jump neither ended the lease nor made it longer
    assert reap == pytest.approx(before + 65_000, abs=3000)


def _zset(frontier: Frontier, key: str) -> list[tuple[str, float]]:
    flat = frontier.nodes[0].command("ZRANGE", key, 0, -1, "WITHSCORES")
    return [(flat[i].decode(), float(flat[i + 1])) for i in range(0, len(flat), 2)]


def test_cleanly_stopped_redis_opens_at_once_with_everything(tmp_path: Path, store: Store) -> None:
    server = RedisServer(tmp_path / "r").start()
    try:
        frontier = Frontier([server.url], store, partitions=8, create=True)
        crawl = new_crawl(frontier, store, delay=0)
        frontier.admit(crawl.id, urls("h.example", 3))
        frontier.stop(clean=True)
        server.stop()
        server.start()
        frontier = Frontier([server.url], store, create=True)
        frontier.start()
        (s,) = Worker(frontier).lease()
        assert len(s.tasks) == 3
        frontier.stop()
    finally:
        server.stop()


def test_emptied_redis_is_refilled_from_the_store(tmp_path: Path, store: Store) -> None:
    server = RedisServer(tmp_path / "r").start()
    try:
        frontier = Frontier([server.url], store, partitions=8, request_seconds=1, create=True)
        crawl = new_crawl(frontier, store, delay=0)
        seeds = urls("h.example", 2)
        store.seeds_admitted(store.add_seeds(crawl.id, seeds))
        frontier.admit(crawl.id, seeds)
        links = [Admission("http://h.example/found", depth=1), seeds[0]]
        page = StoredPage(
            crawl=crawl.id, fingerprint=frontier.fingerprint(seeds[0].url), url=seeds[0].url,
            status=200, fetched_ms=1, links=links,
        )  # fmt: skip
        store.commit(Commit(pages=[page]))
        server.client.flushall()
        with pytest.raises(Unavailable):
            frontier.admit(crawl.id, links)  # notices it, and opens the node again
        totals = until(lambda: frontier.scan(crawl.id))
        assert frontier.admit(crawl.id, links) == [False, False]
        assert totals.waiting == 2, "the seed not fetched yet and the link found; not the page"
        assert (totals.admitted, totals.finished, totals.stored) == (3, 1, 1)
        frontier.stop()
    finally:
        server.stop()


def test_replay_that_was_cut_short_is_begun_again_and_no_crawl_ends_before(
    frontier: Frontier, store: Store, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    seeds = urls("h.example", 2)
    store.seeds_admitted(store.add_seeds(crawl.id, seeds))
    redis_server.client.flushall()

    owed: list[str | None] = []

    def away(_: int, *, force: bool) -> Iterator[Any]:
        owed.append(redis_server.client.hget(keys.OWNER, "owed"))
        raise Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "replay_seeds", away)
        with pytest.raises(Unavailable):
            frontier.stats(crawl)  # notices it, opens the node again, and cannot fill it
        until(lambda: owed)
        assert frontier.scan(crawl.id) is None, "an empty node must not look like a finished crawl"
        assert frontier.stats(crawl).waiting == 0
        frontier.recovery.stop()  # as if this broker were killed meanwhile
    assert all(owed), "a broker that is killed at it must leave word"
    assert frontier.scan(crawl.id) is None  # starts the replay again
    totals = until(lambda: frontier.scan(crawl.id))
    assert totals.waiting == 2


def test_worker_and_second_broker_follow_a_node_that_was_reopened(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    others = [Frontier([redis_server.url], store, create=create) for create in (True, False)]
    redis_server.kill()
    redis_server.start()
    until(lambda: frontier.ready() is None)
    for number, other in enumerate(others):
        seeds = urls(f"h{number}.example", 1)
        until(lambda other=other, seeds=seeds: _admitted(other, crawl, seeds))
        other.stop()
    assert frontier.stats(crawl).waiting == 2


def _admitted(frontier: Frontier, crawl: Crawl, items: list[Admission]) -> bool:
    try:
        frontier.admit(crawl.id, items)
    except Unavailable:
        return False
    return True


@pytest.mark.parametrize("binary", binaries())
def test_a_full_redis_leaves_new_urls_to_the_overflow_and_lets_the_rest_go_on(
    tmp_path: Path, store: Store, binary: str
) -> None:
    server = RedisServer(tmp_path / "r", binary).start()
    try:
        frontier = Frontier([server.url], store, partitions=4, create=True)
        frontier.start()
        crawl = new_crawl(frontier, store, delay=0)
        frontier.admit(crawl.id, urls("h.example", 3))
        p = frontier.partition_of("h.example")
        server.client.config_set("maxmemory", "100kb")
        assert frontier.admit(crawl.id, urls("h.example", 9)) == [True] * 9
        assert len(store.overflow(crawl.id, p, "h.example", 99)) == 9, "in SQL, though unmarked"
        (s,) = Worker(frontier).lease(wait=2)
        finish_all(frontier, s)
        assert close(frontier, s, robots=True, delay=1.0) == "ok"
        totals = frontier.scan(crawl.id)
        assert totals is not None
        assert (totals.admitted, totals.finished) == (3, 3), "a refused batch changes nothing"
        with pytest.raises(Unavailable, match="memory limit"):
            frontier.refill(crawl.id, p, "h.example")
        server.client.config_set("maxmemory", "0")
        assert frontier.refill(crawl.id, p, "h.example") == 9, "three of them were seen already"
        totals = frontier.scan(crawl.id)
        assert totals is not None
        assert (totals.admitted, totals.waiting) == (9, 6)
        frontier.stop()
    finally:
        server.stop()


def test_killed_redis_is_reopened_by_itself_after_a_rest(tmp_path: Path, store: Store) -> None:
    server = RedisServer(tmp_path / "r").start()
    try:
        frontier = Frontier(
            [server.url], store, partitions=8, lease_seconds=1, request_seconds=1, create=True
        )
        frontier.start()
        crawl = new_crawl(frontier, store, delay=0)
        seeds = urls("h.example", 2)
        store.seeds_admitted(store.add_seeds(crawl.id, seeds))
        frontier.admit(crawl.id, seeds)
        server.kill()
        with pytest.raises(Unavailable):
            frontier.stats(crawl)
        server.start()
        begun = time.monotonic()
        until(lambda: frontier.ready() is None)
        frontier.admit(crawl.id, seeds)
        worker = Worker(frontier)
        (s,) = until(lambda: _lease_or_nothing(worker), 10)
        assert time.monotonic() - begun > 1.5, "lost sessions could have been fetching until then"
        assert len(s.tasks) == 2
        frontier.stop()
    finally:
        server.stop()


def _lease_or_nothing(worker: Worker) -> tuple[Session, ...]:
    try:
        return worker.lease(wait=0.5)
    except Unavailable:
        return ()


def test_worker_of_another_program_version_is_refused(
    frontier: Frontier, store: Store, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.nodes.ring.CANONICALISER", 999)
    monkeypatch.setattr("greencrawl.broker.frontier.nodes.ring.CANONICALISERS", (998, 999))
    with pytest.raises(FrontierMismatch, match="canonicaliser"):
        Frontier([redis_server.url], store)


# -- two crawls, an operator and a long session together may not break the rules


def test_delay_of_a_crawl_that_comes_later_counts_from_the_last_request(
    frontier: Frontier, store: Store
) -> None:
    quick, slow = (new_crawl(frontier, store, n, delay=d) for n, d in (("q", 0.0), ("s", 5.0)))
    frontier.admit(quick.id, urls("h.example", 1))
    worker = Worker(frontier)
    (s,) = worker.lease()
    finish_all(frontier, s)
    close(frontier, s)
    frontier.admit(slow.id, urls("h.example", 1))
    assert worker.lease() == ()
    pass_time(frontier, 5.1)
    frontier.leasing.note(frontier.partition_of("h.example"), slow.id, 1)
    (s,) = worker.lease()
    assert s.crawl == slow.id


def test_operators_delay_outlasts_the_host_record(
    frontier: Frontier, redis_server: RedisServer
) -> None:
    frontier.patch_host("h.example", HostPatch(delay=7.5))
    key = f"gc:{{{frontier.partition_of('h.example')}}}:h:h.example"
    assert redis_server.client.ttl(key) == -1
    frontier.patch_host("h.example", HostPatch(delay=0))
    assert redis_server.client.ttl(key) != -1, "it will be dropped, or was: nothing rests"


def test_session_ends_with_its_absolute_life_however_often_it_is_extended(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    (s,) = Worker(frontier).lease()
    item = ExtendItem(session=s.session, token=s.token)
    key = f"gc:{{{frontier.partition_of('h.example')}}}:sd"
    assert frontier.extend([item], 3600) == ["ok"]
    ((_, at),) = _zset(frontier, key)
    assert frontier.extend([item], 30) == ["ok"]
    assert _zset(frontier, key) == [(s.token, at)], "the worker may still count on the longer ttl"
    pass_time(frontier, 1801)
    assert frontier.extend([item], 3600) == ["stop"]
    assert _zset(frontier, key) == [(s.token, at)]


def test_retry_of_a_url_that_has_two_tasks_keeps_the_accounts(
    frontier: Frontier, store: Store
) -> None:
    from greencrawl.broker.frontier import Mode

    crawl = new_crawl(frontier, store, delay=0)
    item = Admission("http://h.example/", kind=TaskKind.REREAD)
    for _ in range(2):
        frontier.admit(crawl.id, [item], mode=Mode.FORCE)
    (s,) = Worker(frontier).lease()
    retry = Retry(wait=60, kind="reset")
    items = [FinishItem(session=s.session, token=s.token, task=n, outcome=retry) for n in (1, 2)]
    assert frontier.finish(items) == ["ok", "ok"]
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert (totals.admitted, totals.finished, totals.open) == (2, 1, 1)


def test_a_host_of_many_crawls_costs_a_close_few_commands(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawls = [new_crawl(frontier, store, f"c{n}", delay=0) for n in range(30)]
    for crawl in crawls:
        frontier.admit(crawl.id, urls("h.example", 2))
    (s,) = Worker(frontier).lease(sessions=1)
    redis_server.client.config_resetstat()
    close(frontier, s)
    stats = redis_server.client.info("commandstats")
    assert sum(stat["calls"] for stat in stats.values()) < 8 * len(crawls)


def test_forced_batch_that_is_admitted_twice_queues_its_urls_once(
    frontier: Frontier, store: Store
) -> None:
    from greencrawl.broker.frontier import Mode

    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 2))
    for batch, waiting in ((7, 5), (7, 5), (8, 5)):
        frontier.admit(crawl.id, urls("h.example", 3), mode=Mode.FORCE, batch=batch)
        assert frontier.stats(crawl).waiting == waiting


def test_limit_that_another_broker_raised_is_learnt(
    frontier: Frontier, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.crawls.KNOWN_SECONDS", 0.2)
    crawl = new_crawl(frontier, store, delay=0, max_pages=2)
    frontier.admit(crawl.id, urls("h.example", 9))
    worker = Worker(frontier)
    (s,) = worker.lease()
    finish_all(frontier, s)
    close(frontier, s)
    assert worker.lease() == ()
    raised = store.put_crawl(crawl.name, CrawlOptions(delay=0, max_pages=5), [])
    assert frontier.look(raised) is None, "it died before it told the partitions"
    (s,) = worker.lease(wait=3)
    assert len(s.tasks) == 3


def test_a_host_whose_list_of_tasks_is_gone_is_looked_at_only_once(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 30))
    p = frontier.partition_of("h.example")
    redis_server.client.delete(f"gc:{{{p}}}:w:{crawl.id}:h.example:A")
    redis_server.client.config_resetstat()
    assert Worker(frontier).lease(wait=0.5) == ()
    assert redis_server.client.info("commandstats")["cmdstat_evalsha"]["calls"] < 5
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert totals.open == 0


def test_lease_that_a_reconcile_of_its_own_sequence_overtook_opens_nothing(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    worker = Worker(frontier)
    worker.sequence = 5
    worker.reconcile()
    worker.sequence = 4
    assert worker.lease() == ()
    assert len(worker.lease()) == 1


def test_a_host_does_not_expire_if_tasks_come_back_to_it(
    frontier: Frontier, store: Store, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 1))
    (s,) = Worker(frontier).lease()
    close(frontier, s)
    key = f"gc:{{{frontier.partition_of('h.example')}}}:h:h.example"
    assert redis_server.client.ttl(key) > 0
    assert frontier.release([ReleaseItem(session=s.session, token=s.token)]) == ["ok"]
    assert redis_server.client.ttl(key) == -1


def test_call_under_an_old_epoch_does_nothing_and_the_next_has_the_new_one(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    other = Frontier([frontier.nodes[0].address], store)
    other.nodes[0].command("HINCRBY", keys.OWNER, "epoch", 1)
    with pytest.raises(Unavailable, match="another epoch"):
        other.admit(crawl.id, urls("h.example", 1))
    assert other.admit(crawl.id, urls("h.example", 1)) == [True]
