"""Counters of a crawl in which URLs were queued again: what the store has now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from greencrawl.broker.service.shared import stored_counts
from greencrawl.broker.service.shared.stored_counts import StoredCounts
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Commit, Crawl, CrawlOptions, CrawlStats
from greencrawl.store import Store, open_store
from tests.support.store_records import final, page

FETCHED = CrawlStats(
    crawl="x", state="done", admitted=9, finished=9, stored=5, fetched=5, dead=3, bytes=15,
    parked=2, requeued=4, failures={"timeout": 3, "noindex": 1},
)  # fmt: skip
"""Two pages were fetched again, and so was a dead letter."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'content.sqlite'}")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: Store) -> Crawl:
    """Done, with two pages, a dead letter, and a parked URL."""
    made = store.put_crawl("x", CrawlOptions(), ["example.org"])
    pages = [page(made.id, n, body=b"abc", body_bytes=3) for n in (1, 2)]
    finals = [final(made.id, 3), final(made.id, 4, state="parked")]
    store.commit(Commit(pages, finals=finals))
    return replace(made, state="done")


def test_a_url_that_was_queued_again_counts_once(store: Store, crawl: Crawl) -> None:
    found = StoredCounts(store, lambda: 0.0).of(crawl, FETCHED)
    assert (found.stored, found.fetched) == (2, 5)
    assert found.bytes == FETCHED.bytes, "each fetch was transferred"
    assert (found.dead, found.parked) == (1, 1)
    assert (found.final_states, found.failures) == ({"timeout": 1}, FETCHED.failures)


def test_the_store_is_not_asked_if_no_url_was_queued_again_or_the_crawl_is_too_large(
    store: Store, crawl: Crawl
) -> None:
    counts = StoredCounts(store, lambda: 0.0)
    large = replace(FETCHED, stored=stored_counts.MOST_PAGES + 1)
    for same in (replace(FETCHED, requeued=0), large):
        assert counts.of(crawl, same) is same


def test_a_crawl_that_goes_on_is_counted_seldom_and_one_that_has_ended_at_once(
    store: Store, crawl: Crawl
) -> None:
    later = 1.0 + stored_counts.SHARE
    times = iter([0.0, 1.0, later - 0.1, later, 30.0, 31.0, 40.0, 41.0])
    counts, active = StoredCounts(store, lambda: next(times)), replace(crawl, state="active")
    one, two = FETCHED, replace(FETCHED, finished=10)
    assert counts.of(active, one).final_states is None
    store.commit(Commit([page(crawl.id, 5, body=b"abc", body_bytes=3)]))
    assert counts.of(active, one).stored == 2
    assert [counts.of(active, two).stored for _ in range(2)] == [2, 3]
    store.commit(Commit([page(crawl.id, 6, body=b"abc", body_bytes=3)]))
    assert counts.of(crawl, two).stored == 4


class Away:
    """A store that does not answer."""

    def counts(self, crawl: int) -> dict[str, int]:
        raise Unavailable(f"not even crawl {crawl}")


def test_the_counters_of_redis_are_shown_while_the_store_is_away(crawl: Crawl) -> None:
    counts = StoredCounts(Away(), lambda: 0.0)  # type: ignore[arg-type]
    assert counts.of(crawl, FETCHED) is FETCHED


def test_crawls_that_go_on_share_the_time_for_counting(store: Store, crawl: Crawl) -> None:
    clock = [0.0]

    class Slow:
        """A store that takes a second to count."""

        def __init__(self) -> None:
            self.counted: Counter[int] = Counter()

        def counts(self, crawl: int) -> dict[str, int]:
            clock[0] += 1.0
            self.counted[crawl] += 1
            return store.counts(crawl)

    slow = Slow()
    counts = StoredCounts(slow, lambda: clock[0])  # type: ignore[arg-type]
    crawls = [replace(crawl, id=number, state="active") for number in range(1, 11)]
    for finished in range(2000):
        for one in crawls:
            counts.of(one, replace(FETCHED, finished=finished))
        clock[0] += 1.0
    assert slow.counted.total() <= len(crawls) + clock[0] / stored_counts.SHARE
    assert len(slow.counted) == len(crawls)
    assert min(slow.counted.values()) > 5, "each crawl has its turn"
