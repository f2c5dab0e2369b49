"""Rows 17 to 19 of ``make faults``: sitemaps, requisites, traps; kills and an older Redis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.effort import cases
from tests.support.foundrows import ROWS


@pytest.mark.quiet("a blow falls when enough is at stake; beside others a crawl may race past")
@pytest.mark.parametrize(
    "row",
    cases(
        [pytest.param(18, id="requisites")],
        [  # Redis that comes back older rests for a quarter of a minute
            pytest.param(17, id="half a sitemap"),
            pytest.param(19, id="traps"),
        ],
    ),
)
def test_urls_of_sitemaps_requisites_and_traps_are_not_lost_at_a_fault(
    tmp_path: Path, row: int
) -> None:
    result = ROWS[row](tmp_path, print, True)
    assert "\n".join(result.why_not) == ""
    assert result.blows >= 1
    assert result.uncommitted > 0
    assert (result.lost, result.impolite) == (0, 0)
