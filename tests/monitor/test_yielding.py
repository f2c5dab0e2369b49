"""Other requests are served while a page is rendered: no lease waits for a whole page."""

from __future__ import annotations

from collections.abc import Iterable

import gevent
import pytest

from greencrawl.monitor.background import yielding as module
from greencrawl.monitor.background.yielding import yielding
from greencrawl.monitor.figures import BATCH
from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Crawl, CrawlStats
from tests.monitor.rig import Desk


def test_other_greenlets_run_between_the_items_of_long_work() -> None:
    turns = 0

    def other() -> None:
        nonlocal turns
        while True:
            gevent.sleep(0.0001)
            turns += 1

    def busy(item: int) -> int:
        until = monotonic() + 0.001
        while monotonic() < until:
            pass
        return item

    beside = gevent.spawn(other)
    gevent.sleep(0)
    assert [busy(item) for item in yielding(range(10))] == list(range(10))
    beside.kill()
    assert turns >= 5


def test_rendering_may_pause_after_each_row_of_a_page(
    admin: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[int] = []
    monkeypatch.setattr(module, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(module, "yield_now", lambda: rests.append(1))
    for number in range(12):
        admin.crawl(f"c{number}")
    assert admin.get("/monitor/").text.count("data-key=") == 12
    assert len(rests) >= 12


def test_crawls_are_counted_in_groups_of_limited_size(
    admin: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = admin.queue.stats_of

    def count(crawls: Iterable[Crawl]) -> list[CrawlStats]:
        some = list(crawls)
        asked.append(len(some))
        return ask(some)

    monkeypatch.setattr(admin.queue, "stats_of", count)
    for number in range(2 * BATCH + 5):
        admin.crawl(f"c{number}")
    admin.get("/monitor/")
    assert asked == [BATCH, BATCH, 5], "a sample, or another page, has the same"
