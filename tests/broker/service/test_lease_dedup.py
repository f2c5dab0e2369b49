"""Copies of a lease: one of them is executed, and the others do no harm."""

from __future__ import annotations

import gevent
import pytest
from gevent.event import Event

from greencrawl.broker.service.lease_dedup import KEPT_SECONDS, LeaseDedup
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import LeaseReply, LeaseRequest, Session


def _request(sequence: int, incarnation: int = 1, worker: str = "w") -> LeaseRequest:
    return LeaseRequest(worker=worker, incarnation=incarnation, sequence=sequence, wait=0.05)


class _Frontier:
    """Answers each lease with a session of a new token, once ``open`` is set."""

    def __init__(self) -> None:
        self.leases = 0
        self.open = Event()
        self.open.set()
        self.error: BaseException | None = None

    def lease(self, request: LeaseRequest) -> LeaseReply:
        self.leases += 1
        number = self.leases
        self.open.wait()
        if self.error is not None:
            raise self.error
        return LeaseReply((_session(f"{number:016x}"),), 0.5)


def _session(token: str) -> Session:
    return Session(
        session="1/h",
        token=token,
        crawl=1,
        revision=0,
        host="h",
        ttl=1.0,
        delay=0.0,
        floor=0.0,
        robots_known=True,
        tasks=(),
    )


def test_copies_of_a_lease_call_share_one_answer_while_it_waits_and_later() -> None:
    leases, frontier = LeaseDedup(), _Frontier()
    frontier.open.clear()
    calls = [gevent.spawn(leases.once, _request(1), frontier.lease) for _ in range(3)]
    gevent.sleep(0)
    frontier.open.set()
    answers = [call.get(timeout=1) for call in calls]
    answers.append(leases.once(_request(1), frontier.lease))
    assert frontier.leases == 1
    assert answers == [LeaseReply((_session(f"{1:016x}"),), 0.5)] * 4


@pytest.mark.parametrize("late", [_request(1), _request(9, incarnation=0)])
def test_an_older_copy_of_a_lease_call_opens_no_session(late: LeaseRequest) -> None:
    leases, frontier = LeaseDedup(), _Frontier()
    leases.once(_request(2), frontier.lease)
    newer = 1 if late.incarnation < 1 else 0
    assert leases.once(late, frontier.lease) == LeaseReply((), 0.0, superseded=newer)
    assert frontier.leases == 1


def test_a_call_of_an_earlier_worker_is_no_copy_if_the_frontier_takes_the_worker_again() -> None:
    leases, frontier = LeaseDedup(), _Frontier()
    leases.once(_request(1, incarnation=2), frontier.lease)
    earlier = _request(5, incarnation=1)
    assert leases.once(earlier, frontier.lease).superseded == 2
    leases.current(earlier.worker, 2)
    assert leases.once(earlier, frontier.lease).superseded == 2
    leases.current(earlier.worker, 1)
    leases.once(earlier, frontier.lease)
    assert frontier.leases == 2


def test_a_lease_call_with_another_number_worker_or_incarnation_is_no_copy() -> None:
    leases, frontier = LeaseDedup(), _Frontier()
    for request in (
        _request(1),
        _request(2),
        _request(1, worker="v"),
        _request(1, incarnation=2),
    ):
        assert leases.once(request, frontier.lease).sessions
    assert frontier.leases == 4


def test_copies_of_a_lease_call_share_its_error_and_its_end_if_it_is_killed() -> None:
    leases, frontier = LeaseDedup(), _Frontier()
    frontier.error = Unavailable("Redis is away")
    for _ in range(2):
        with pytest.raises(Unavailable, match="Redis is away"):
            leases.once(_request(1), frontier.lease)
    assert frontier.leases == 1
    frontier.open.clear()
    calls = [gevent.spawn(leases.once, _request(2), frontier.lease) for _ in range(2)]
    gevent.sleep(0)
    calls[0].kill()
    with pytest.raises(Unavailable, match="broken off"):
        calls[1].get(timeout=1)


def test_the_answer_to_a_lease_call_is_forgotten_after_a_while() -> None:
    now = [0.0]
    leases, frontier = LeaseDedup(clock=lambda: now[0]), _Frontier()
    leases.once(_request(1), frontier.lease)
    now[0] = KEPT_SECONDS - 1
    leases.once(_request(1, worker="v"), frontier.lease)
    assert len(leases._latest) == 2
    now[0] = KEPT_SECONDS + 1
    leases.once(_request(2, worker="v"), frontier.lease)
    assert list(leases._latest) == ["v"]
