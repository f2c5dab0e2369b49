"""Rows of ``make faults`` with 5,000 URLs: no kill loses a URL.

By day ``test_kill_points``, ``test_outages`` and ``test_redis_outages`` test kills on four hosts.
``test_recovery`` tests what a power cut makes Redis forget of blocks and sessions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.effort import by_night
from tests.support.faultrig import LEAST_LEASES
from tests.support.faultrows import QUICK, ROWS


@by_night
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(1, id="kill -9 a worker"),
        pytest.param(2, id="SIGTERM a worker"),
        pytest.param(3, id="kill -9 the broker"),
        pytest.param(4, id="kill -9 Redis"),
        pytest.param(5, id="power cut"),
        pytest.param(6, id="data folder deleted"),
    ],
)
def test_a_fault_loses_no_url(tmp_path: Path, row: int) -> None:
    result = ROWS[row](tmp_path, print, True)
    assert "\n".join(result.why_not) == ""
    assert result.urls == QUICK
    assert result.leases_out >= LEAST_LEASES
    assert result.uncommitted > 0
    assert result.lost == 0
