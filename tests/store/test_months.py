"""Months of Unix milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.store.months import month_of, start_ms


@pytest.mark.parametrize(
    ("moment", "month"), [((1970, 1, 1), 1970 * 12), ((2024, 2, 29), 2024 * 12 + 1)]
)
def test_months_are_numbered_from_the_year_and_the_month(
    moment: tuple[int, int, int], month: int
) -> None:
    epoch_ms = int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)
    assert month_of(epoch_ms) == month


def test_a_month_begins_with_its_first_millisecond() -> None:
    first = start_ms(2031 * 12 + 11)
    assert first == int(datetime(2031, 12, 1, tzinfo=UTC).timestamp() * 1000)
    assert month_of(first - 1) == 2031 * 12 + 10
    assert month_of(start_ms(2032 * 12)) == month_of(first) + 1


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_moment_has_a_month_that_begins_no_later(epoch_ms: int) -> None:
    first = start_ms(month_of(epoch_ms))
    assert month_of(first) == month_of(epoch_ms)
    assert first <= epoch_ms or month_of(epoch_ms) == 12
