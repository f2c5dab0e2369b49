"""A Monitor with tokens, and an open one, for each test that needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitor.rig import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A Monitor with tokens; nobody is logged in."""
    made = Desk(tmp_path)
    yield made
    made.close()


@pytest.fixture
def admin(desk: Desk) -> Desk:
    """The Monitor with an administrator logged in."""
    assert desk.log_in().status_code == 303
    return desk


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Desk]:
    """The Monitor of a broker without tokens."""
    made = Desk(tmp_path, "", "")
    yield made
    made.close()
