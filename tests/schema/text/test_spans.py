"""Stored main text: how it is read, and which data are invalid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.text.spans import main_of

TEXT = "Menü Tea. Milk."
LONG = "x" * 300


def test_main_text_is_put_together_from_pieces_of_all_text() -> None:
    apart = bytes([16, 16, 6, 23, 1, 0])
    assert main_of(TEXT, apart) == "Tea.\n\nMilk."
    assert main_of(TEXT, bytes([16, 17, 6, 23, 1, 0])) == "Tea.\nMilk."
    assert main_of(TEXT, bytes([16, 18, 6, 23, 1, 0])) == "Tea.\tMilk."
    assert main_of(TEXT, bytes([16, 19, 6, 2, 32, 45, 23, 1, 0])) == "Tea. -Milk."
    assert main_of(LONG, b"\xac\x02\xb3\x09\x00\x00") == LONG
    assert main_of(TEXT, bytes([16])) == ""


@pytest.mark.parametrize(
    "spans",
    [b"", bytes([15]), bytes([16, 16]), bytes([16, 16, 6, 23, 1]), bytes([16, 19, 0, 9, 65]),
     bytes([16, 16, 6, 23, 9, 0]), bytes([144])],
)  # fmt: skip
def test_what_is_none_or_of_another_text_tells_nothing(spans: bytes) -> None:
    assert main_of(TEXT, spans) is None


def test_a_number_without_end_is_none_and_takes_no_time() -> None:
    assert main_of("a b", b"\xff" * 10_000_000) is None


@given(st.text(max_size=30), st.binary(max_size=30))
def test_nothing_is_raised_whatever_the_bytes_are(text: str, spans: bytes) -> None:
    main_of(text, spans)
