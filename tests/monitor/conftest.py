"""A Monitor with tokens, and an open one, for each test that wants them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitor.rig import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """With tokens; nobody is logged in."""
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def admin(desk: Desk) -> Desk:
    """The same, with an administrator at it."""
    assert desk.log_in().status_code == 303
    return desk


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Desk]:
    """Of a broker without tokens."""
    made = Desk(tmp_path, "", "")
    yield made
    made.close()
