"""How hard the tests try that could try for ever: by day a little, in ``make nightly`` long."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

LONG = os.environ.get("TESTS_LONG") == "1"

by_night = pytest.mark.skipif(not LONG, reason="tried in `make nightly`")
"""Marks a test of which by day others try nearly the same."""


def examples(by_day: int, by_night: int) -> int:
    """How many examples a property is tried on: by day the same in each run, by night others."""
    return by_night if LONG else by_day


def cases(by_day: Sequence[T], by_night: Sequence[T]) -> list[T]:
    """What a test is tried with: the latter, too, in ``make nightly``."""
    return [*by_day, *(by_night if LONG else ())]
