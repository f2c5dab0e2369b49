"""How many examples tests try: few by day, many in ``make nightly``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

LONG = os.environ.get("TESTS_LONG") == "1"

by_night = pytest.mark.skipif(not LONG, reason="tried in `make nightly`")
"""This mark is for a test that other tests nearly cover by day."""


def examples(by_day: int, by_night: int) -> int:
    """Return the number of examples for a property: by day the same ones in each run, by night
    others."""
    return by_night if LONG else by_day


def cases(by_day: Sequence[T], by_night: Sequence[T]) -> list[T]:
    """Return the cases of a test: those ``by_day``, in ``make nightly`` also those ``by_night``."""
    return [*by_day, *(by_night if LONG else ())]
