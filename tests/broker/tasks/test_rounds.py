"""A round over a store with more pages than a step takes: each URL once, and never too many at a
time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks import rounds
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Admission, Commit, CrawlOptions, SeedBatch, TaskKind
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.store_records import final, page

PAGES = 25


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    monkeypatch.setattr(rounds, "BATCH", 10)
    monkeypatch.setattr(rounds, "OPEN", 20)
    opened = SqliteStore(tmp_path / "content.sqlite")
    yield opened
    opened.close()


def sums(waiting: int) -> Any:
    return SimpleNamespace(open=waiting)


def taken(store: SqliteStore) -> list[SeedBatch]:
    """Settle the pending batches, and return them."""
    found = store.pending_seeds()
    for batch in found:
        store.seeds_admitted(batch.id)
    return found


def test_a_round_queues_each_url_once_and_waits_while_many_are_open(store: SqliteStore) -> None:
    service = cast("Service", SimpleNamespace(store=store))
    crawl = store.put_crawl("x", CrawlOptions(), ["example.org"])
    store.commit(Commit([page(crawl.id, n, depth=n % 3) for n in range(PAGES)]))
    store.commit(
        Commit(
            finals=[
                final(crawl.id, 100, state="dead"),
                final(crawl.id, 101, state="gone"),
                final(crawl.id, 102, state="parked"),
                final(crawl.id, 3, state="gone", at_ms=9_000),
            ]
        )
    )
    assert not rounds.go_on(service, crawl, sums(0)), "there is none"
    store.begin_round(crawl.id, "anew")
    assert rounds.go_on(service, crawl, sums(rounds.OPEN))
    assert taken(store) == []
    batches: list[SeedBatch] = []
    while rounds.go_on(service, crawl, sums(1)) and (more := taken(store)):
        assert all(batch.force and len(batch.urls) <= rounds.BATCH for batch in more)
        batches += more
    urls = [item.url for batch in batches for item in batch.urls]
    assert len(urls) == len(set(urls)) == PAGES + 2, "a page that is gone is asked for as a page"
    assert {item.kind for batch in batches for item in batch.urls} == {TaskKind.PAGE}
    store.commit(Commit([page(crawl.id, n, fetched_ms=2**42) for n in range(PAGES + 5)]))
    for _ in range(PAGES):
        assert rounds.go_on(service, crawl, sums(1)), "it goes on while something is open"
    while rounds.go_on(service, crawl, sums(0)):
        assert taken(store) == [], "what was fetched since is no part of it"
    (found,) = store.rounds(crawl.id)
    assert (found.total, found.queued, found.ended_ms > 0) == (-1, PAGES + 2, True)


def test_pages_at_the_former_depth_limit_are_read_again_when_the_limit_rises(
    store: SqliteStore,
) -> None:
    service = cast("Service", SimpleNamespace(store=store))
    crawl = store.put_crawl("x", CrawlOptions(depth=2), ["example.org"])
    store.commit(Commit([page(crawl.id, n, depth=n % 3) for n in range(PAGES)]))
    crawl = store.put_crawl("x", CrawlOptions(depth=3), ["example.org"])
    found = []
    while rounds.go_on(service, crawl, sums(0)):
        found += [item for batch in taken(store) for item in batch.urls]
    assert {(item.depth, item.kind) for item in found} == {(2, TaskKind.REREAD)}
    assert len(found) == PAGES // 3


def test_a_turn_of_a_round_queues_pages_up_to_its_room_and_skips_pages_of_other_depths(
    store: SqliteStore,
) -> None:
    service = cast("Service", SimpleNamespace(store=store))
    crawl = store.put_crawl("x", CrawlOptions(depth=2), ["example.org"])
    store.commit(Commit([page(crawl.id, n, depth=n // 25) for n in range(75)]))
    crawl = store.put_crawl("x", CrawlOptions(depth=3), ["example.org"])
    assert rounds.go_on(service, crawl, sums(0))
    assert [len(batch.urls) for batch in taken(store)] == [10, 10], "of the last of its 75 rows"
    (known,) = store.rounds(crawl.id)
    assert (known.queued, known.ended_ms) == (20, 0)
    assert rounds.go_on(service, crawl, sums(0))
    assert [len(batch.urls) for batch in taken(store)] == [5]
    assert not store.rounds(crawl.id)[0].ended_ms, "what was queued in the turn is under way"
    assert rounds.go_on(service, crawl, sums(0))
    assert store.rounds(crawl.id)[0].ended_ms


def test_a_turn_of_a_round_ends_at_its_time_limit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "TURN_SECONDS", -1.0)
    service = cast("Service", SimpleNamespace(store=store))
    crawl = store.put_crawl("x", CrawlOptions(), ["example.org"])
    store.commit(Commit([page(crawl.id, n) for n in range(PAGES)]))
    store.begin_round(crawl.id, "anew")
    assert rounds.go_on(service, crawl, sums(0))
    assert [len(batch.urls) for batch in taken(store)] == [10]


def test_a_round_goes_on_without_a_total_if_its_pages_cannot_be_counted(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = cast("Service", SimpleNamespace(store=store))
    crawl = store.put_crawl("x", CrawlOptions(), ["example.org"])
    store.commit(Commit([page(crawl.id, n) for n in range(PAGES)]))
    begun = store.begin_round(crawl.id, "anew")

    def away(*_: object) -> None:
        raise Unavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(store, "count_round", away)
        assert seeding.rounds(service, crawl) == [begun]
        assert rounds.go_on(service, crawl, sums(1))
    (moved,) = seeding.rounds(service, crawl)
    assert moved.cursor
    assert moved.total == -1, "some of its pages may be new by now"


def test_a_step_of_a_round_is_taken_once_and_no_crawl_is_done_before_the_last(
    store: SqliteStore,
) -> None:
    crawl = store.put_crawl("x", CrawlOptions(), ["example.org"])
    begun = store.begin_round(crawl.id, "anew")
    urls = [Admission("http://example.org/")]
    assert store.queue_round(crawl.id, begun, "p:1", urls, end=False)
    assert not store.queue_round(crawl.id, begun, "p:1", urls, end=False), "another broker's"
    assert [len(batch.urls) for batch in taken(store)] == [1]
    assert store.set_state(crawl.id, "done", "finished").state == "active"


def test_a_stop_stays_if_it_comes_between_a_look_at_a_round_and_its_step(
    store: SqliteStore,
) -> None:
    service = cast("Service", SimpleNamespace(store=store))
    crawl = store.put_crawl("x", CrawlOptions(), ["example.org"])
    store.commit(Commit([page(crawl.id, 1)]))
    begun = store.begin_round(crawl.id, "anew")
    stopping = store.set_state(crawl.id, "paused", "stopping")
    assert rounds.go_on(service, crawl, sums(0)), "it waits"
    assert (store.crawl(crawl.id), store.rounds(crawl.id)) == (stopping, [begun])
    assert taken(store) == []
