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


def test_the_only_partition_where_tasks_wait_gets_the_whole_quota_at_once() -> None:
    assert plan(5000, {0: IDLE, 1: row(waiting=1), 2: IDLE}) == {1: 5000}


def test_quota_is_shared_in_proportion_to_waiting_tasks() -> None:
    assert plan(100, {0: row(waiting=30), 1: row(waiting=10)}) == {0: 75, 1: 25}


def test_stored_pages_and_leased_tasks_use_up_the_limit() -> None:
    assert plan(10, {0: row(waiting=9, leased=3, stored=4)}) == {0: 3}
    assert plan(10, {0: row(waiting=9, leased=4, stored=6)}) == {}


def test_a_partition_with_more_quota_than_its_share_gives_some_away() -> None:
    assert plan(100, {0: row(100, waiting=50), 1: row(waiting=50)}) == {0: -50, 1: 50}
    assert plan(100, {0: row(100), 1: row(waiting=5)}) == {0: -100, 1: 100}


def test_no_quota_moves_while_every_partition_has_some_left() -> None:
    assert plan(100, {0: row(60, waiting=50), 1: row(40, waiting=50)}) == {}
    assert plan(100, {0: row(60, waiting=50), 1: row(20, waiting=20), 2: row(20)}) == {}


def test_the_last_units_of_quota_go_one_to_a_partition_and_stay_there() -> None:
    rows = {p: row(waiting=p + 1) for p in range(5)}
    first = plan(2, rows)
    assert list(first.values()) == [1, 1]
    given_out = {p: row(first.get(p, 0), waiting=p + 1) for p in rows}
    assert plan(2, given_out) == {}


def test_a_partition_without_due_hosts_lends_its_quota_to_one_with_due_hosts() -> None:
    assert plan(1, {0: row(1, waiting=5, due=False), 1: row(waiting=2)}) == {0: -1, 1: 1}


def test_a_partition_without_due_hosts_gets_no_quota_yet() -> None:
    assert plan(10, {0: row(waiting=5, due=False)}) == {}


def test_quota_is_taken_back_if_the_limit_was_lowered() -> None:
    assert plan(10, {0: row(30, waiting=50, stored=4), 1: row(10)}) == {0: -30, 1: -4}


def test_half_of_the_quota_is_kept_for_errands() -> None:
    assert plan(4, {0: row(waiting=9)}, half=True) == {0: 2}
    assert plan(4, {0: row(2, waiting=9)}, half=True) == {}, "also by a round that follows at once"
    assert plan(4, {0: row(waiting=9, leased=3)}, half=True) == {0: 1}


ROWS = st.builds(
    Row, st.integers(0, 40), st.integers(0, 40), st.integers(0, 9), st.integers(0, 9), st.booleans()
)


@given(st.integers(1, 300), st.dictionaries(st.integers(0, 7), ROWS), st.booleans())
def test_a_plan_of_quotas_keeps_the_limit_and_serves_a_partition_that_waits(
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
def test_a_crawl_reaches_its_limit_after_few_distributions_of_quota(hosts: int) -> None:
    """When quotas are used up, each pass gives quota to every partition that has work."""
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
