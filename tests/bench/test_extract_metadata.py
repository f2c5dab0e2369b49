"""How titles, authors and dates are counted."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from bench.extract import metadata  # noqa: E402
from greencrawl.worker.extract.train.samples import Sample  # noqa: E402


def test_a_found_value_counts_as_wrong_if_the_page_has_none_marked() -> None:
    found = metadata.addends(["A \n b", "x", "", "c", ""], ["a b", "", "y", "d", ""])
    assert found.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 0, 0]]


def test_our_metadata_are_read_from_the_bytes_of_a_page() -> None:
    body = b"<title>The ice - A</title><h1>The ice</h1><meta name=author content='A B'>"
    sample = Sample("k", "article", "x", "http://x/2024/05/31/", body, "", (), (), "", "", "")
    assert metadata._ours(sample) == ("The ice", "A B", "2024-05-31")
