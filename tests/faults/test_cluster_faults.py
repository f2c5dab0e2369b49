"""A row of ``make cluster-faults`` with few pages, at night two: nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clusterrig import old_epochs
from tests.support.clusterrows import ROWS
from tests.support.effort import cases


@pytest.mark.parametrize(
    "row",
    cases(
        [pytest.param(6, id="partition")],
        [pytest.param(1, id="kill -9 the writing master")],  # by day ``test_steward`` tries this
    ),
)
def test_a_fault_of_the_mysql_cluster_loses_no_url(tmp_path: Path, row: int) -> None:
    result = ROWS[row](tmp_path, print, True)
    assert "\n".join(result.why_not) == ""
    assert result.uncommitted > 0
    assert result.lost == 0
    assert result.notes["acknowledged and missing"] == 0
    assert result.notes["rows under an old epoch"] == 0


def test_a_transaction_of_an_old_epoch_is_found() -> None:
    good = [(1, 1, 1), (1, 1, 2), (2, 2, 1), (3, 1, 1)]
    assert old_epochs(good) == []
    assert old_epochs([*good, (2, 2, 2)]) == ["2-2-2 was written after epoch 3 had begun"]
    assert old_epochs([(1, 1, 1), (1, 2, 2)]) == ["1-2-2: epoch 1 began on server 1"]
