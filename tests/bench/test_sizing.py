"""The sizing table is made from the stored results, and is consistent."""

from __future__ import annotations

import pytest

from bench.scale import sizing
from bench.scale.sizing import Carries

ONE = Carries(worker=100, broker=1000, redis=1000, mysql=2000, sqlite=1000, seen_bytes=10)


def cells(pages: int) -> dict[str, str]:
    return dict(zip(sizing.COLUMNS, sizing.row(pages, ONE), strict=True))


def test_the_sizing_table_in_the_docs_matches_the_results() -> None:
    said = sizing.DOCUMENT.read_text(encoding="utf-8")
    assert said == sizing.filled(said, sizing.carries()), (
        "stale: run `python -m bench.scale.sizing`"
    )


def test_the_sizing_plans_half_of_the_capacity_of_each_part() -> None:
    found = cells(86_400 * 1000)  # 1,000 pages a second
    assert found["a second"] == "1,000"
    assert found["worker processes"] == "20"
    assert found["brokers"] == "2"
    assert found["store"] == "MySQL, five servers; 50.0% of it"
    assert found["network"] == "160 Mbit/s"
    # 86.4 million pages a day, for 30 days, 2 URLs each, 10 bytes: 51.84 GB in two fifths of 32 GB
    assert found["Redis nodes, memory"].startswith("5 of 25.9 GB")
    assert found["partitions"] == "128"


def test_the_sizing_plans_one_machine_for_a_small_crawl() -> None:
    found = cells(100_000)
    assert (found["worker processes"], found["brokers"]) == ("1", "1")
    assert found["Redis nodes, memory"] == "1 of 0.5 GB"
    assert found["store"].startswith("SQLite")


def test_a_document_without_the_markers_of_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers"):
        sizing.filled("text", ONE)
