"""How hard the tests try that could try for ever: by day a little, in ``make nightly`` long."""

from __future__ import annotations

import os

LONG = os.environ.get("TESTS_LONG") == "1"


def examples(by_day: int, by_night: int) -> int:
    """How many examples a property is tried on; other ones in each run."""
    return by_night if LONG else by_day
