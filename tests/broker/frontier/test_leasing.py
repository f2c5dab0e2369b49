"""The leasing greenlet on scripted answers: no due host is forgotten, no call waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gevent
import msgspec
import pytest
from msgspec.structs import replace

from greencrawl.broker.frontier.leasing import CALLS_SECONDS, NO_LEASE_SECONDS, Leasing
from greencrawl.broker.frontier.waiting import (
    CALLER,
    FRESH_SECONDS,
    RETURN_SECONDS,
    DueTimes,
    level_part,
)
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Crawl, CrawlOptions, LeaseRequest, Refusal, Session

CRAWL = Crawl(id=1, name="a", state="active", options=CrawlOptions(delay=0))
TASK = b"A0h//h.example/"


def now_ms() -> float:
    return monotonic() * 1000


class Rig:
    """Leasing over partitions; ``opens(partition, arguments)`` is the answer to each ``open``."""

    def __init__(self) -> None:
        self.opens: Callable[[int, list[Any]], list[Any]] = self.one_session
        self.crawl: Callable[[int], Crawl | None] = lambda _: CRAWL
        self.asked = 0
        self.maintained: set[int] = set()
        self.leasing = Leasing(
            self.calls,
            lambda _: now_ms(),
            lambda crawl: self.crawl(crawl),
            lambda _: None,
            1.0,
        )
        self.greenlet = gevent.spawn(self.leasing.run)

    def calls(
        self, script: str, calls: dict[int, bytes], *, partial: bool = False
    ) -> dict[int, list[Any]]:
        if script == "maintain":
            self.maintained |= set(calls)
            return {p: [now_ms(), 0, 0, 0] for p in calls}
        assert script == "open"
        self.asked += 1
        gevent.sleep(0)
        return {p: self.opens(p, msgspec.msgpack.decode(args)) for p, args in calls.items()}

    def one_session(self, p: int, args: list[Any]) -> list[Any]:
        _, _, *tokens = args[8]
        tasks = [TASK] * args[6]
        row = [tokens[0].encode(), 1, 1, b"h.example", 0, 0, 1, 0, *tasks]
        return [now_ms(), [row], [now_ms()], 0]

    def nothing(self, p: int, args: list[Any]) -> list[Any]:
        return [now_ms(), [], [0], 0]

    def lease(
        self, wait: float = 1.0, tasks: int = 5, refuses: str = "", room: int = 1, worker: str = "w"
    ) -> tuple[Session, ...]:
        request = LeaseRequest(
            worker=worker, incarnation=1, sequence=1, max_sessions=room, tasks_per_session=tasks,
            wait=wait, refuses=(Refusal(1, refuses, "no"),) if refuses else (),
        )  # fmt: skip
        return self.leasing.lease(request).sessions


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    with gevent.Timeout(5):
        yield made
    made.greenlet.kill()


def test_a_due_host_stays_due_if_a_call_gives_up_while_the_store_is_read(rig: Rig) -> None:
    def slow(_: int) -> Crawl:
        gevent.sleep(0.05)
        return CRAWL

    rig.crawl = slow
    rig.leasing.note(0, 1, now_ms())
    assert rig.lease(wait=0.01) == ()
    gevent.sleep(0.1)
    assert len(rig.lease()) == 1


@pytest.mark.parametrize("error", [Unavailable("the store is away"), KeyError("a defect")])
def test_a_due_host_stays_due_after_an_error_before_redis_was_asked(
    rig: Rig, error: Exception
) -> None:
    errors = [error]

    def failing(_: int) -> Crawl:
        if errors:
            raise errors.pop()
        return CRAWL

    rig.crawl = failing
    rig.leasing.note(0, 1, now_ms())
    assert len(rig.lease(wait=3)) == 1


@pytest.mark.parametrize("error", [Unavailable("Redis is away"), RuntimeError("a defect")])
def test_a_failed_look_fails_its_call_and_the_next_is_served(rig: Rig, error: Exception) -> None:
    errors = [error, error]

    def failing(p: int, args: list[Any]) -> list[Any]:
        if errors:
            raise errors.pop()
        return rig.one_session(p, args)

    rig.opens = failing
    rig.leasing.note(0, 1, now_ms())
    while errors:
        with pytest.raises(Unavailable):
            rig.lease(wait=3)
        if not isinstance(error, Unavailable):
            errors.clear()
    assert len(rig.lease(wait=3)) == 1


def test_a_lease_call_ends_in_time_although_a_look_was_under_way_and_found_nothing(
    rig: Rig,
) -> None:
    def slow(p: int, args: list[Any]) -> list[Any]:
        gevent.sleep(0.05)
        return rig.nothing(p, args)

    rig.opens = slow
    rig.leasing.note(0, 1, now_ms())
    assert rig.lease(wait=0.02) == ()
    assert rig.leasing.waiting == 0


def test_partitions_whose_node_is_away_are_asked_again_and_the_others_served(rig: Rig) -> None:
    away = {1}

    def partly(
        script: str, calls: dict[int, bytes], *, partial: bool = False
    ) -> dict[int, list[Any]]:
        assert partial
        found = {p: args for p, args in calls.items() if p not in away}
        if not found:
            raise Unavailable("Redis is away")
        return rig.calls(script, found)

    rig.leasing._calls = partly
    rig.opens = lambda p, args: [now_ms(), rig.one_session(p, args)[1], [0], 0]
    for p in (0, 1):
        rig.leasing.note(p, 1, now_ms())
    request = LeaseRequest(worker="w", incarnation=1, sequence=1, max_sessions=2, wait=1)
    reply = rig.leasing.lease(request)
    assert [one.session for one in reply.sessions] == ["0/h.example"]
    assert reply.lost, "the node may have opened one before its answer was lost"
    away.clear()
    reply = rig.leasing.lease(request)
    assert ([one.session for one in reply.sessions], reply.lost) == (["1/h.example"], False)


def test_partitions_for_which_a_call_has_no_room_stay_due(rig: Rig) -> None:
    rig.opens = lambda p, args: [now_ms(), rig.one_session(p, args)[1], [0], 0]
    for p in range(3):
        rig.leasing.note(p, 1, now_ms())
    leased = [session.session for _ in range(3) for session in rig.lease()]
    assert sorted(leased) == ["0/h.example", "1/h.example", "2/h.example"]


def test_lease_calls_that_wait_together_share_the_due_hosts(rig: Rig) -> None:
    def one_host(p: int, args: list[Any]) -> list[Any]:
        now, sessions, _, maintain_at = rig.one_session(p, args)
        return [now, sessions, [0], maintain_at]

    rig.opens = one_host
    calls = [gevent.spawn(rig.lease, room=room) for room in (100, 100, 91)]
    gevent.sleep(0.01)
    for partition in range(21):
        rig.leasing.note(partition, 1, now_ms())
    gevent.joinall(calls, raise_error=True)
    assert [len(call.value) for call in calls] == [10, 10, 1]


@pytest.mark.parametrize(
    ("due", "room", "others", "part"),
    [
        (60, 500, [], 60),
        (60, 500, [500], 30),
        (61, 500, [500], 31),
        (30, 500, [470], 30),
        (40, 500, [470], 35),
        (1, 500, [500, 500], 1),
        (5, 470, [500], 0),  # the others come first
        (9, 500, [500, 500, 2], 3),
    ],
)
def test_due_hosts_are_divided_so_that_waiting_workers_have_equal_room(
    due: int, room: int, others: list[int], part: int
) -> None:
    assert level_part(due, room, others) == part


def one_host_each(rig: Rig) -> None:
    """Each partition has one host, and no other one later."""
    rig.opens = lambda p, args: [now_ms(), rig.one_session(p, args)[1], [0], 0]


def test_lease_calls_that_come_together_share_hosts_that_were_due_before(rig: Rig) -> None:
    one_host_each(rig)
    for partition in range(20):
        rig.leasing.note(partition, 1, now_ms())
    first = gevent.spawn(rig.lease, room=100)
    gevent.sleep(0.03)
    second = gevent.spawn(rig.lease, room=100)
    assert (len(first.get()), len(second.get())) == (10, 10)


def test_a_worker_that_wants_fewer_hosts_than_are_due_is_served_at_once(rig: Rig) -> None:
    for partition in range(20):
        rig.leasing.note(partition, 1, now_ms())
    began = monotonic()
    assert len(rig.lease(room=5)) == 5
    assert monotonic() - began < CALLS_SECONDS / 2


def test_lease_calls_are_served_together_again_though_the_last_caller_went_away(rig: Rig) -> None:
    one_host_each(rig)
    for partition in range(20):
        rig.leasing.note(partition, 1, now_ms())
    lost = gevent.spawn(rig.lease, room=100)
    gevent.sleep(0.03)
    lost.kill()
    gevent.sleep(CALLS_SECONDS)
    rig.leasing._wait_until -= NO_LEASE_SECONDS
    first = gevent.spawn(rig.lease, room=100)
    gevent.sleep(0.03)
    second = gevent.spawn(rig.lease, room=100)
    assert (len(first.get()), len(second.get())) == (10, 10)


def test_a_worker_that_comes_soon_after_another_or_has_waited_long_is_served_at_once(
    rig: Rig,
) -> None:
    one_host_each(rig)
    rig.leasing.note(0, 1, now_ms())
    assert len(rig.lease()) == 1
    for partition in range(2):
        rig.leasing.note(partition, 1, now_ms())
    began = monotonic()
    assert len(rig.lease(room=100)) == 2
    rig.leasing._given -= NO_LEASE_SECONDS
    waiting = gevent.spawn(rig.lease, room=100)
    gevent.sleep(CALLS_SECONDS)
    began += CALLS_SECONDS
    for partition in range(2):
        rig.leasing.note(partition, 1, now_ms())
    assert len(waiting.get()) == 2
    assert monotonic() - began < CALLS_SECONDS / 2


def test_a_worker_that_reads_its_answer_counts_as_waiting(rig: Rig) -> None:
    """Otherwise all hosts that become due in these milliseconds would go to the other worker."""
    one_host_each(rig)
    first, second = (gevent.spawn(rig.lease, room=100, worker=name) for name in "ab")
    gevent.sleep(0.01)
    rig.leasing.note(0, 1, now_ms())
    assert len(first.get()) == 1
    for partition in range(1, 20):
        rig.leasing.note(partition, 1, now_ms())
    assert len(second.get()) == 10
    assert len(rig.lease(room=99, worker="a")) == 9, "both have 90 left"


def test_a_due_host_waits_briefly_for_the_worker_with_far_more_room(rig: Rig) -> None:
    one_host_each(rig)
    rig.leasing.note(0, 1, now_ms())
    assert len(rig.lease(room=100, worker="a")) == 1
    rig.leasing.note(1, 1, now_ms())
    waiting = gevent.spawn(rig.lease, room=50, worker="b")
    gevent.sleep(RETURN_SECONDS / 5)
    assert len(rig.lease(room=99, worker="a")) == 1, "it is back in time"
    rig.leasing.note(2, 1, now_ms())
    assert len(waiting.get()) == 1, "it is not back in time"
    assert rig.leasing.waiting == 0


def test_a_worker_that_has_waited_long_gets_one_host_because_its_room_is_unknown(rig: Rig) -> None:
    """All of its sessions may have ended. It gets one host, and reports its room when it comes
    back."""
    one_host_each(rig)
    waiting = gevent.spawn(rig.lease, room=50, worker="a")
    others = gevent.spawn(rig.lease, room=100, worker="b")
    gevent.sleep(0.01)
    rig.leasing._waiters[0].arrived -= FRESH_SECONDS
    for partition in range(20):
        rig.leasing.note(partition, 1, now_ms())
    assert (len(waiting.get()), len(others.get())) == (1, 19)
    rig.leasing.note(20, 1, now_ms())
    assert len(rig.lease(room=99, worker="a")) == 1, "it has said now what room it has"


def test_a_due_host_does_not_wait_for_a_worker_without_room(rig: Rig) -> None:
    one_host_each(rig)
    rig.leasing.note(0, 1, now_ms())
    assert len(rig.lease(room=1, worker="a")) == 1
    rig.leasing.note(1, 1, now_ms())
    began = monotonic()
    assert len(rig.lease(room=1, worker="b")) == 1
    assert monotonic() - began < RETURN_SECONDS / 2


def test_a_worker_that_died_while_it_waited_gets_no_host_and_counts_in_no_share(rig: Rig) -> None:
    one_host_each(rig)
    alive = [True]

    def called() -> tuple[Session, ...]:
        CALLER.set(lambda: alive[0])
        return rig.lease(room=500)

    dead, other = gevent.spawn(called), gevent.spawn(rig.lease, room=100)
    gevent.sleep(0.01)
    alive.clear()
    alive.append(False)
    for partition in range(20):
        rig.leasing.note(partition, 1, now_ms())
    assert (len(dead.get()), len(other.get())) == (0, 20)


def test_a_partition_is_tended_at_the_time_that_its_last_answer_named(rig: Rig) -> None:
    rig.opens = lambda p, args: [now_ms(), rig.one_session(p, args)[1], [0], now_ms() + 50]
    rig.leasing.note(4, 1, now_ms())
    rig.lease()
    while rig.maintained != {4}:
        gevent.sleep(0.01)


# -- workers that cannot import a crawl's hook

HOOKED = Crawl(id=1, name="a", state="active", options=CrawlOptions(delay=0, hook="own"))


def test_a_host_that_a_worker_refuses_goes_to_the_next_waiting_worker(rig: Rig) -> None:
    rig.crawl = lambda _: HOOKED
    first = gevent.spawn(rig.lease, wait=0.3, refuses="own")
    second = gevent.spawn(rig.lease, wait=1.0)
    gevent.sleep(0.01)
    rig.leasing.note(0, 1, now_ms())
    assert len(second.get()) == 1
    rig.opens = rig.nothing
    assert first.get() == ()


def test_a_worker_that_refuses_a_crawl_takes_no_share_of_it_from_others(rig: Rig) -> None:
    def one_host(p: int, args: list[Any]) -> list[Any]:
        now, sessions, _, maintain_at = rig.one_session(p, args)
        return [now, sessions, [0], maintain_at]

    hooked = replace(CRAWL, options=replace(CRAWL.options, hook="mine"))
    rig.crawl = lambda _: hooked
    rig.opens = one_host
    refuser = gevent.spawn(rig.lease, refuses="mine", room=500)
    taker = gevent.spawn(rig.lease, room=100)
    gevent.sleep(0.01)
    for partition in range(20):
        rig.leasing.note(partition, 1, now_ms())
    assert len(taker.get()) == 20
    assert refuser.get() == ()


def test_a_host_that_all_workers_refuse_stays_due_and_costs_redis_nothing(
    rig: Rig,
) -> None:
    rig.crawl = lambda _: HOOKED
    rig.leasing.note(0, 1, now_ms())
    assert rig.lease(wait=0.1, refuses="own") == ()
    assert rig.asked == 0
    assert len(rig.lease(wait=2)) == 1


def test_a_refusal_of_one_hook_does_not_apply_to_another_hook_of_the_crawl(rig: Rig) -> None:
    rig.crawl = lambda _: HOOKED
    rig.leasing.note(0, 1, now_ms())
    assert len(rig.lease(refuses="former")) == 1


def test_a_refused_crawl_stays_due_while_another_crawl_is_leased(rig: Rig) -> None:
    other = Crawl(id=2, name="b", state="active", options=CrawlOptions(delay=0))
    rig.crawl = lambda number: HOOKED if number == 1 else other
    asked: list[int] = []

    def opens(p: int, args: list[Any]) -> list[Any]:
        asked.append(args[8][0])
        return [now_ms(), rig.one_session(p, args)[1], [0], 0]

    rig.opens = opens
    for crawl in (1, 2):
        rig.leasing.note(crawl, crawl, now_ms())
    assert len(rig.lease(refuses="own")) == 1
    assert asked == [2]
    assert len(rig.lease()) == 1
    assert asked == [2, 1]


def test_superseded_due_times_do_not_pile_up() -> None:
    """A host that is blocked for days is noted again with each look at its partition."""
    due, days = DueTimes(), monotonic() + 1e6
    for number in range(10_000):
        due.note((1, 1), days + number)
        due.note((1, 1), 0.0)
        assert due.take() == [(1, 1)]
    assert len(due) <= 66
    due.note((1, 1), days)
    assert due.first() == days


def test_turns_of_crawls_that_ended_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.waiting.CRAWLS", 20)
    rig = Rig()

    def once(_: int, args: list[Any]) -> list[Any]:
        number, _, token = args[8]
        row = [token.encode(), number, 1, b"h.example", 0, 0, 1, 0, TASK]
        return [now_ms(), [row], [0], 0]

    rig.opens = once
    rig.crawl = lambda number: msgspec.structs.replace(CRAWL, id=number)
    for number in range(1, 101):
        rig.leasing.note(1, number, now_ms())
        assert [session.crawl for session in rig.lease()] == [number]
    assert len(rig.leasing._turns) == 20
    rig.greenlet.kill()
