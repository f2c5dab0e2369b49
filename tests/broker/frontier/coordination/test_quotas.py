"""The distribution of quota, by numbers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.broker.frontier.coordination.quotas import Row, plan


def row(
    quota: int = 0, waiting: int = 0, leased: int = 0, stored: int = 0, due: bool = True
) -> Row:
    return Row(quota, waiting, leased, stored, due)


IDLE = row(due=False)


def test_the_only_partition_where_tasks_wait_gets_everything_at_once() -> None:
    assert plan(5000, {0: IDLE, 1: row(waiting=1), 2: IDLE}) == {1: 5000}


def test_quota_goes_by_what_waits() -> None:
    assert plan(100, {0: row(waiting=30), 1: row(waiting=10)}) == {0: 75, 1: 25}


def test_what_is_stored_and_leased_is_spent() -> None:
    assert plan(10, {0: row(waiting=9, leased=3, stored=4)}) == {0: 3}
    assert plan(10, {0: row(waiting=9, leased=4, stored=6)}) == {}


def test_a_partition_that_has_more_than_its_share_hands_some_on() -> None:
    assert plan(100, {0: row(100, waiting=50), 1: row(waiting=50)}) == {0: -50, 1: 50}
    assert plan(100, {0: row(100), 1: row(waiting=5)}) == {0: -100, 1: 100}


def test_nothing_moves_while_every_partition_has_some_left() -> None:
    assert plan(100, {0: row(60, waiting=50), 1: row(40, waiting=50)}) == {}
    assert plan(100, {0: row(60, waiting=50), 1: row(20, waiting=20), 2: row(20)}) == {}


def test_the_last_ones_go_one_by_one_and_are_not_taken_from_whom_they_are_due() -> None:
    rows = {p: row(waiting=p + 1) for p in range(5)}
    first = plan(2, rows)
    assert list(first.values()) == [1, 1]
    given_out = {p: row(first.get(p, 0), waiting=p + 1) for p in rows}
    assert plan(2, given_out) == {}


def test_what_rests_lends_its_quota_to_what_is_due() -> None:
    assert plan(1, {0: row(1, waiting=5, due=False), 1: row(waiting=2)}) == {0: -1, 1: 1}


def test_what_has_to_wait_anyway_gets_nothing_yet() -> None:
    assert plan(10, {0: row(waiting=5, due=False)}) == {}


def test_a_limit_that_was_lowered_is_taken_back() -> None:
    assert plan(10, {0: row(30, waiting=50, stored=4), 1: row(10)}) == {0: -30, 1: -4}


def test_half_is_kept_for_errands() -> None:
    assert plan(4, {0: row(waiting=9)}, half=True) == {0: 2}
    assert plan(4, {0: row(2, waiting=9)}, half=True) == {}, "also by a round that follows at once"
    assert plan(4, {0: row(waiting=9, leased=3)}, half=True) == {0: 1}


ROWS = st.builds(
    Row, st.integers(0, 40), st.integers(0, 40), st.integers(0, 9), st.integers(0, 9), st.booleans()
)


@given(st.integers(1, 300), st.dictionaries(st.integers(0, 7), ROWS), st.booleans())
def test_the_limit_is_kept_and_who_waits_is_served(
    limit: int, rows: dict[int, Row], half: bool
) -> None:
    deltas = plan(limit, rows, half=half)
    before = sum(one.sum for one in rows.values())
    after = before + sum(deltas.values())
    assert after <= max(limit, before)
    assert all(rows[p].quota + n >= 0 for p, n in deltas.items())
    if before > limit:
        assert after == max(limit, before - sum(one.quota for one in rows.values()))
        return
    starving = [p for p, one in rows.items() if one.due and one.waiting and not one.quota]
    if starving and before < limit and not half:
        assert any(deltas.get(p, 0) > 0 for p in starving)
    again = {p: one._replace(quota=one.quota + deltas.get(p, 0)) for p, one in rows.items()}
    assert plan(limit, again, half=half) == {}, "quota goes back and forth"


@pytest.mark.parametrize("hosts", [2, 64])
def test_a_crawl_ends_after_few_rounds(hosts: int) -> None:
    """When quotas are used up, rounds leave no partition that has work without quota."""
    rows = {p: row(waiting=1000) for p in range(hosts)}
    rounds = 0
    while (left := 5000 - sum(one.stored for one in rows.values())) > 0:
        deltas = plan(5000, rows)
        rounds += bool(deltas)
        for p, one in rows.items():
            quota = one.quota + deltas.get(p, 0)
            done = min(quota, 10 + p % 3)  # some are faster
            rows[p] = one._replace(
                quota=quota - done, stored=one.stored + done, waiting=one.waiting - done
            )
        assert left > 5000 - sum(one.stored for one in rows.values()), "nobody may lease"
    assert rounds < 30
