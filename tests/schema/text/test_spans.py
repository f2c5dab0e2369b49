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
def test_invalid_spans_and_spans_of_another_text_give_no_main_text(spans: bytes) -> None:
    assert main_of(TEXT, spans) is None


def test_an_endless_number_in_the_spans_is_rejected_at_once() -> None:
    assert main_of("a b", b"\xff" * 10_000_000) is None


@given(st.text(max_size=30), st.binary(max_size=30))
def test_arbitrary_bytes_as_spans_raise_no_error(text: str, spans: bytes) -> None:
    main_of(text, spans)
