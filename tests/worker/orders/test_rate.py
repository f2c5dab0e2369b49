"""A rate for a whole worker: its processes share one row of turns, handed out in order."""

from __future__ import annotations

from pathlib import Path

import gevent
import pytest
from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Crawl, CrawlOptions, Session
from greencrawl.worker.crawls import context_of
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.orders.rate import CREDIT_SECONDS, Rate, SharedTurns
from greencrawl.worker.session.fetcher import Visit, VisitOver
from greencrawl.worker.session.held import HeldSession


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_turns_of_all_processes_follow_one_another_at_the_ordered_rate(tmp_path: Path) -> None:
    clock = Clock()
    one, other = (SharedTurns(tmp_path / "rate", clock=clock) for _ in range(2))
    assert one.take() is None, "there is no limit"
    one.set(20)
    began = one.take()
    assert began is not None
    turns = [taker.take() for taker in (other, one, one, other)]
    assert turns == pytest.approx([began + 0.05 * n for n in range(1, 5)])


def test_requests_make_no_burst_after_a_pause(tmp_path: Path) -> None:
    clock = Clock()
    turns = SharedTurns(tmp_path / "rate", clock=clock)
    turns.set(100)
    turns.take()
    clock.now += 60
    late = [turns.take() or 0.0 for _ in range(20)]
    assert sum(at <= clock.now for at in late) <= CREDIT_SECONDS * 100 + 1


def test_a_new_rate_holds_at_once_and_the_same_rate_changes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    turns, other = (SharedTurns(tmp_path / "rate", clock=clock) for _ in range(2))
    turns.set(0.01)
    turns.take()
    turns.take()
    turns.set(10)
    assert (turns.take() or 0.0) <= clock.now + 0.1, "nobody waits for a turn of before"
    ahead = [turns.take() for _ in range(10)][-1]
    other.set(10)
    assert other.take() == pytest.approx((ahead or 0.0) + 0.1), "set by a second process"
    other.set(0)
    assert turns.take() is None


def test_a_rate_from_before_a_reboot_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = SharedTurns(tmp_path / "rate", clock=lambda: 1e9)
    turns.set(5)
    turns.take()
    monkeypatch.setattr("greencrawl.worker.orders.rate.boot_id", lambda: "another")
    fresh = SharedTurns(tmp_path / "rate", clock=lambda: 10.0)
    assert fresh.take() is None
    fresh.set(5)
    assert fresh.take() == pytest.approx(10.0, abs=0.3)


def test_requests_go_in_order_of_arrival_and_those_that_left_take_no_turn(
    tmp_path: Path,
) -> None:
    rate = Rate(SharedTurns(tmp_path / "rate"))
    rate.set(20)
    assert rate.limited
    went: list[int] = []
    turns = [rate.turn() for _ in range(6)]
    for number, turn in enumerate(turns):
        turn.rawlink(lambda _, number=number: went.append(number))
    turns[1].left = turns[3].left = True
    began = monotonic()
    assert turns[5].wait(2)
    assert went == [0, 2, 4, 5]
    assert 0.08 < monotonic() - began < 0.5


def test_waiting_requests_go_at_once_when_the_rate_limit_is_lifted(tmp_path: Path) -> None:
    rate = Rate(SharedTurns(tmp_path / "rate"))
    rate.set(0.01)
    turns = [rate.turn() for _ in range(5)]
    gevent.sleep(0.02)
    rate.set(0)
    assert all(turn.wait(1) for turn in turns)
    assert not rate.limited


def test_a_session_without_a_lease_leaves_its_turn_to_others(tmp_path: Path) -> None:
    rate = Rate(SharedTurns(tmp_path / "rate"))
    rate.set(5)
    for _ in range(2):
        rate.turn()
    session = Session(
        session="1/h", token="0" * 16, crawl=1, revision=1, host="h", ttl=60, delay=0, floor=0,
        robots_known=True, tasks=(),
    )  # fmt: skip
    held = HeldSession(session, monotonic() + 0.05)
    context = context_of(Crawl(id=1, name="c", state="active", options=CrawlOptions()))
    downloader = Downloader((), 5)
    visit = Visit(held, context, downloader, Event(), rate=rate)
    began = monotonic()
    with pytest.raises(VisitOver, match="lease"):
        visit.send("GET", "http://h/", {}, b"", 1000)
    after = rate.turn()
    assert after.wait(5)
    assert monotonic() - began < 0.55, "the turn of the one that left is this one's"
    downloader.close()
