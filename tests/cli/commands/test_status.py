"""The table of `status`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from greencrawl.cli.commands.status import table
from greencrawl.schema.records import CrawlStats, Stats


@pytest.mark.parametrize(("whole", "said"), [(True, "transferred"), (False, "stored bytes")])
def test_status_says_whether_bytes_were_transferred_or_are_stored(whole: bool, said: str) -> None:
    shown = io.StringIO()
    stats = Stats((CrawlStats(crawl="docs", state="active", bytes=5000),))
    Console(file=shown, width=80).print(table(stats, whole=whole))
    heading, row, *_ = shown.getvalue().splitlines()
    assert heading.rstrip().endswith(said)
    assert row.rstrip().endswith("5.0 kB")
