"""When a page is asked for next, by the last result: without store and clock."""

from __future__ import annotations

from typing import Literal

from greencrawl.schema.records import Observation, TaskKind
from greencrawl.store.recrawl_calendar import RETIRED_S, Plan, Row, settle

DAY = 86_400
KEY = (1, 5)


def seen(at_ms: int, found: Literal["page", "gone", "excluded", "failed"] = "page") -> Observation:
    return Observation(*KEY, at_ms, found, "http://a.example/", 1)


def after(row: Row | None, one: Observation, started_s: int = 1000, every_s: int = DAY) -> Row:
    """Return the row after a result, whatever it was before."""
    plans = {1: Plan(started_s, every_s, 9)}
    changed = settle([one], {KEY: row} if row else {}, plans, 1).changed
    found = changed[0] if changed else row
    assert found is not None
    return found


def test_a_late_or_repeated_commit_moves_no_date_of_a_row_that_waits() -> None:
    row = after(None, seen(500))
    assert (row.due_s, row.queued, row.task) == (1001, 0, TaskKind.REFETCH)
    for at_ms in (500, 400):
        assert after(row, seen(at_ms), started_s=2000) == row
    assert after(row, seen(501), started_s=2000).due_s == 2001


def test_a_queued_row_waits_again_after_its_commit_whatever_the_workers_clock() -> None:
    row = after(None, seen(500))._replace(queued=7)
    assert after(row, seen(500)).queued == 7, "the commit before, once more"
    for at_ms in (400, 600):
        assert after(row, seen(at_ms), started_s=2000)._replace(checked_ms=0) == row._replace(
            queued=0, due_s=2001, checked_ms=0
        )


def test_a_gone_page_waits_twice_as_long_each_time_and_retires_only_after_days() -> None:
    for every_s, looks in ((DAY, 4), (60, 14)):
        row, started_s, waits = after(None, seen(1)), 1000, []
        while row.due_s != RETIRED_S:
            row = after(row, seen(row.checked_ms + 1, "gone"), started_s, every_s)
            waits.append((row.due_s - started_s + every_s // 2) / every_s)
            started_s = row.due_s + every_s // 2
        assert row.misses == looks
        assert waits[:-1] == [2**n for n in range(looks - 1)]
        assert row.missed_s == 1000
        assert after(row, seen(10**6, "failed")).due_s == RETIRED_S
        assert after(row, seen(10**6)).due_s == 1001, "it is there again"


def test_a_failed_page_counts_no_miss_and_is_due_in_the_next_period() -> None:
    row = after(after(None, seen(1)), seen(2, "gone"))
    assert after(row, seen(3, "failed"), started_s=2000)[-5:] == (2001, 0, 3, 1, 1000)
