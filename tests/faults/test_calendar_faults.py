"""Rows 20 and 21 of ``make faults``: a fault of the broker or of Redis while known pages are
queued. By day `tests/broker/tasks/test_calendar.py` tries nearly the same without workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.calendarrows import ROWS
from tests.support.effort import by_night


@by_night
@pytest.mark.parametrize("row", [pytest.param(20, id="broker"), pytest.param(21, id="redis")])
def test_each_known_page_is_requested_once_a_period_despite_a_fault(
    tmp_path: Path, row: int
) -> None:
    result = ROWS[row](tmp_path, print, True)
    assert "\n".join(result.why_not) == ""
    assert result.blows >= 1
    assert result.lost == 0
