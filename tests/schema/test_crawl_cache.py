"""Entries in use stay; the others are dropped by time and by number."""

from __future__ import annotations

from greencrawl.schema.crawl_cache import CrawlCache
from greencrawl.schema.records import Crawl, CrawlOptions
from greencrawl.worker.crawls import MOST, Crawls


def test_an_entry_that_was_long_unused_is_dropped_when_another_is_added() -> None:
    now = [0.0]
    kept: CrawlCache[str, int] = CrawlCache(10, 60.0, lambda: now[0])
    kept["a"], kept["b"] = 1, 2
    now[0] = 59.0
    assert kept.get("a") == 1
    now[0] = 61.0
    kept["c"] = 3
    assert list(kept.values()) == [1, 3]
    assert kept.get("b") is None


def test_the_least_recently_used_entry_is_dropped_beyond_the_limit() -> None:
    kept: CrawlCache[int, int] = CrawlCache(3, 60.0, lambda: 0.0)
    for number in range(5):
        kept[number] = number
        kept.get(0)
    assert sorted(kept.values()) == [0, 3, 4]
    kept.drop(0)
    kept.drop(7)
    assert len(kept) == 2
    kept.clear()
    assert len(kept) == 0


def test_a_worker_has_a_bounded_number_of_crawls_ready() -> None:
    read: list[int] = []

    class Source:
        def crawl(self, name_or_id: str | int) -> Crawl:
            read.append(int(name_or_id))
            return Crawl(id=int(name_or_id), name="a", state="active", options=CrawlOptions())

    crawls = Crawls(Source())
    for number in range(100):
        crawls.get(number, 1)
        assert crawls.get(number, 1).crawl.id == number
    assert len(crawls._contexts) == MOST
    assert read == list(range(100))
    crawls.get(0, 1)
    assert read[100:] == [0], "one that comes back is read again"
