"""Pacing and the adaptive delay, on a clock that the test turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.session.pace import MAX_ADAPTIVE_DELAY, MAX_ROBOTS_DELAY, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


def answer(status: int = 200, seconds: float = 0.1) -> Fetched:
    return Fetched("http://a.example/", status, {}, b"", elapsed_ms=round(seconds * 1000))


def settle(pace: Pace, seconds: float, times: int = 40) -> None:
    for _ in range(times):
        pace.note(answer(seconds=seconds))


def test_first_request_may_start_at_once_and_the_next_a_delay_after_its_end() -> None:
    clock = Clock()
    pace = Pace(1.0, 1.0, clock=clock)
    assert pace.wait_seconds() == 0
    clock.now += 3  # the request takes that long
    pace.note(answer(404))
    assert pace.wait_seconds() == 1.0
    clock.now += 0.4
    assert pace.wait_seconds() == pytest.approx(0.6)
    clock.now += 5
    assert pace.wait_seconds() == 0


def test_delay_in_force_at_the_opening_is_kept_until_the_host_shows_otherwise() -> None:
    pace = Pace(8.0, 1.0)
    assert pace.delay == 8.0
    settle(pace, 0.1)
    assert pace.delay == 1.0


def test_slow_host_gets_a_delay_of_twice_its_latency() -> None:
    pace = Pace(1.0, 1.0)
    settle(pace, 3.0)
    assert pace.latency == pytest.approx(3.0)
    assert pace.delay == pytest.approx(6.0, abs=0.05)
    settle(pace, 0.1)
    assert pace.delay == 1.0


@pytest.mark.parametrize(
    "trouble",
    [
        answer(429, 0.001),
        answer(503, 0.001),
        answer(500, 0.001),
        answer(408, 0.001),
        Failure(FailureKind.TIMEOUT),
        Failure(FailureKind.RESET),
        Failure(FailureKind.CONNECT_TIMEOUT, requests=0),
    ],
)
def test_strain_doubles_the_delay_and_never_counts_as_a_fast_answer(
    trouble: Fetched | Failure,
) -> None:
    pace = Pace(2.0, 2.0)
    pace.note(trouble)
    pace.note(trouble)
    assert (pace.delay, pace.latency) == (8.0, 0.0)


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_missing_page_changes_neither_delay_nor_latency(status: int) -> None:
    pace = Pace(2.0, 1.0)
    pace.note(answer(status, 0.001))
    assert (pace.delay, pace.latency) == (2.0, 0.0)


def test_latency_brings_no_delay_at_a_floor_of_zero_but_strain_does_until_it_decays() -> None:
    pace = Pace(0.0, 0.0)
    settle(pace, 5.0)
    assert pace.delay == 0
    pace.note(answer(503))
    assert pace.delay == 1.0
    pace.note(answer(503))
    assert pace.delay == 2.0
    pace.note(answer())
    assert pace.delay == 1.0
    settle(pace, 0.1)
    assert pace.delay == 0


def test_robots_crawl_delay_is_kept_up_to_its_bound() -> None:
    pace = Pace(0.0, 0.0)
    pace.learn_robots_delay(7.5)
    pace.note(answer())
    assert pace.delay == 7.5
    pace.learn_robots_delay(1e9)
    assert pace.delay == MAX_ROBOTS_DELAY
    assert pace.report().robots_delay == MAX_ROBOTS_DELAY


def test_crawl_delay_that_the_frontier_did_not_know_is_kept_before_the_first_request() -> None:
    """An earlier session may have sent a request a moment ago; it died before it could report
    it."""
    now = 100.0
    pace = Pace(1.0, 1.0, clock=lambda: now)
    assert pace.wait_seconds() == 0
    pace.learn_robots_delay(28.0)
    assert pace.wait_seconds() == 28.0
    now = 128.0
    assert pace.wait_seconds() == 0
    known = Pace(28.0, 28.0, clock=lambda: now)
    known.learn_robots_delay(28.0)
    assert known.wait_seconds() == 0, "the frontier has waited for it"


def test_longest_crawl_delay_of_a_host_s_origins_is_kept() -> None:
    pace = Pace(1.0, 1.0)
    for seconds in (20.0, 2.0):
        pace.learn_robots_delay(seconds)
    assert pace.floor == pace.report().robots_delay == 20.0


def test_the_adaptive_delay_ends_at_a_minute_but_a_longer_configured_delay_stays() -> None:
    pace = Pace(1.0, 1.0)
    for _ in range(20):
        pace.note(answer(503))
    assert pace.delay == MAX_ADAPTIVE_DELAY
    settle(pace, 3000.0)
    assert pace.delay == MAX_ADAPTIVE_DELAY
    configured = Pace(90.0, 90.0)
    configured.note(answer(503))
    assert configured.delay == 90.0


@pytest.mark.parametrize(
    "kind", [FailureKind.DNS_MISSING, FailureKind.ADDRESS_FORBIDDEN, FailureKind.HOOK]
)
def test_a_failure_that_never_reached_the_host_needs_no_delay_after_it(kind: FailureKind) -> None:
    pace = Pace(5.0, 5.0)
    pace.note(Failure(kind, requests=0))
    assert pace.wait_seconds() == 0


def test_report_tells_the_adaptive_delay_only_where_it_is_above_the_floor() -> None:
    pace = Pace(1.0, 1.0)
    pace.note(answer(seconds=0.2))
    calm = pace.report(requests=1)
    assert (calm.delay, calm.latency, calm.requests) == (0.0, 0.2, 1)
    pace.note(answer(503))
    report = pace.report(robots=True, failed="unavailable", block=30.0, requests=2)
    assert (report.delay, report.failed, report.block) == (2.0, "unavailable", 30.0)
    assert report.robots


@given(
    st.floats(0, 100),
    st.floats(0, 400),
    st.lists(st.tuples(st.sampled_from([200, 302, 404, 429, 500, 503]), st.floats(0, 600))),
)
def test_delay_stays_between_its_floor_and_its_bound(
    floor: float, robots: float, answers: list[tuple[int, float]]
) -> None:
    pace = Pace(floor, floor)
    pace.learn_robots_delay(robots)
    for status, seconds in answers:
        pace.note(answer(status, seconds))
        assert max(floor, min(robots, MAX_ROBOTS_DELAY)) <= pace.delay
        assert pace.delay <= max(pace.floor, MAX_ADAPTIVE_DELAY)
        assert pace.wait_seconds() <= pace.delay


def test_the_delay_of_a_costly_host_is_longer_until_its_next_good_answers() -> None:
    pace = Pace(1.0, 1.0)
    settle(pace, 0.1)
    pace.slow_down(20.0)
    assert pace.delay == pytest.approx(21.0)
    pace.slow_down(1000.0)
    assert pace.delay == MAX_ADAPTIVE_DELAY
    settle(pace, 0.1)
    assert pace.delay == 1.0
    waits = Pace(90.0, 90.0)
    waits.slow_down(1.0)
    assert waits.delay == 90.0, "a floor may lie beyond what is added"
