"""The contract of stores about parked URLs and released shapes; part of a store's contract."""

from __future__ import annotations

import gevent
import pytest
from msgspec.structs import replace

from greencrawl.schema.errors import InvalidConfig, UnknownCrawl
from greencrawl.schema.records import Admission, Commit, CrawlOptions, Final, ParkedShape
from greencrawl.store.base import Store
from tests.support.store_records import beyond, final, page

DAYS, TAGS = "http://example.org/cal/{n}/{n}", "http://example.org/tag/{w}"


def parked(crawl: int, fingerprint: int, shape: str = DAYS, at_ms: int = 1000) -> Final:
    made = final(crawl, fingerprint, at_ms, state="parked")
    return replace(made, kind="trap", detail=f"reason at {at_ms}", shape=shape)


class ParkedContract:
    """See the module's text."""

    def test_a_parked_url_is_read_back_with_its_shape_and_counted(
        self, store: Store, crawl: int
    ) -> None:
        written = parked(crawl, 1, shape="http://example.org/ü/\ud800{n}" + "x" * 400)
        store.commit(Commit(finals=[written, final(crawl, 2), parked(crawl, 3)]))
        shown = "http://example.org/ü/\ufffd{n}" + "x" * 400
        assert store.final(crawl, 1) == replace(written, shape=shown[:300])
        assert store.final(crawl, 2) == final(crawl, 2)
        assert [one.state for _, one in store.finals(crawl)] == ["parked", "dead", "parked"]
        counts = store.counts(crawl)
        assert (counts["parked"], counts["dead"], counts["excluded"]) == (2, 1, 0)
        assert [one.fingerprint for _, one in store.dead(crawl)] == [2]

    def test_parked_shapes_are_listed_by_their_count_with_the_latest_reason(
        self, store: Store, crawl: int
    ) -> None:
        other = store.put_crawl("other", CrawlOptions(), []).id
        store.commit(
            Commit(
                finals=[
                    *(parked(crawl, n, TAGS, at_ms=900 + n) for n in (1, 2)),
                    *(parked(crawl, n, at_ms=3000 - n) for n in (10, 11, 12)),
                    parked(other, 20, TAGS),
                    final(crawl, 30),
                ]
            )
        )
        assert store.parked_shapes(crawl) == [
            ParkedShape(
                shape=DAYS, host="example.org", reason="reason at 2990", count=3, first_ms=2988,
                last_ms=2990, example="http://example.org/10",
            ),
            ParkedShape(
                shape=TAGS, host="example.org", reason="reason at 902", count=2, first_ms=901,
                last_ms=902, example="http://example.org/2",
            ),
        ]  # fmt: skip
        assert [one.shape for one in store.parked_shapes(crawl, 1)] == [DAYS]
        assert [one.count for one in store.parked_shapes(other)] == [1]

    @pytest.mark.parametrize("at_ms", [500, 2000])
    @pytest.mark.parametrize("first", [True, False])
    def test_a_parked_url_gives_way_to_its_page_and_to_any_other_final_state(
        self, store: Store, crawl: int, at_ms: int, first: bool
    ) -> None:
        """It was requested before, or after: a Redis that came back older leases it once more."""
        park = Commit(finals=[parked(crawl, n, at_ms=at_ms) for n in range(3)])
        known = Commit([page(crawl, 0, 1000)], finals=[final(crawl, 1, 1000, "gone")])
        for work in (park, known) if first else (known, park):
            store.commit(work)
        both = [parked(crawl, 3, at_ms=at_ms), final(crawl, 3, 1000)]
        store.commit(Commit(finals=both if first else both[::-1]))
        store.commit(Commit([page(crawl, 4, 1000)], finals=[parked(crawl, 4, at_ms=at_ms)]))
        counts = store.counts(crawl)
        assert (counts["parked"], counts["gone"], counts["dead"], counts["pages"]) == (1, 1, 1, 2)
        assert store.final(crawl, 0) is None
        assert store.final(crawl, 1) == final(crawl, 1, 1000, "gone")
        assert [(one.shape, one.count) for one in store.parked_shapes(crawl)] == [(DAYS, 1)]

    def test_the_latest_parked_state_of_a_url_stays(self, store: Store, crawl: int) -> None:
        for shape, at_ms in ((DAYS, 1000), (TAGS, 3000), (DAYS, 2000)):
            store.commit(Commit(finals=[parked(crawl, 1, shape, at_ms)]))
        assert store.final(crawl, 1) == parked(crawl, 1, TAGS, 3000)
        assert store.counts(crawl)["parked"] == 1

    def test_releasing_a_shape_makes_forced_batches_of_it_and_reopens_the_crawl(
        self, store: Store, crawl: int
    ) -> None:
        some = [parked(crawl, n) for n in range(5)] + [parked(crawl, 9, TAGS), final(crawl, 8)]
        store.commit(Commit(finals=some))
        store.set_state(crawl, "done", "finished")
        first = store.release_parked(crawl, DAYS, limit=3)
        assert first is not None
        assert first.force
        assert store.pending_seeds() == [first]
        assert store.crawl(crawl).state == "active"
        second = store.release_parked(crawl, DAYS, limit=3)
        assert second is not None
        assert sorted(first.urls + second.urls, key=lambda item: item.url) == [
            Admission(f"http://example.org/{n}", 2, 3) for n in range(5)
        ]
        assert store.release_parked(crawl, DAYS) is None
        counts = store.counts(crawl)
        assert (counts["parked"], counts["dead"]) == (1, 1)
        rest = store.release_parked(crawl)
        assert rest is not None
        assert [item.url for item in rest.urls] == ["http://example.org/9"]
        assert store.release_parked(crawl) is None
        assert store.parked_shapes(crawl) == []
        assert store.counts(crawl)["parked"] == 0
        with pytest.raises(UnknownCrawl):
            store.release_parked(crawl + 1)

    def test_a_url_that_is_parked_again_during_a_release_stays_parked(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit(finals=[parked(crawl, n) for n in range(5)]))
        now, found = store.tick(), 0
        while (batch := store.release_parked(crawl, limit=2, before=now)) is not None:
            found += len(batch.urls)
            store.commit(Commit(finals=[parked(crawl, n, at_ms=99) for n in range(5)]))
            assert found <= 5
        assert store.counts(crawl)["parked"] == 5

    def test_a_released_shape_raises_the_revision_once(self, store: Store, crawl: int) -> None:
        made = store.crawl(crawl)
        assert made.released == ()
        changed = store.add_released(crawl, [DAYS, TAGS])
        assert (changed.released, changed.revision, changed.version) == ((DAYS, TAGS), 2, 2)
        assert store.add_released(crawl, [TAGS]) == changed == store.crawl("news")
        assert store.put_crawl("news", CrawlOptions(depth=3), []).released == (DAYS, TAGS)
        everything = store.add_released(crawl, ["x", "*"])
        assert (everything.released, everything.revision) == (("*",), 4)
        assert store.add_released(crawl, [DAYS]).revision == 4
        with pytest.raises(UnknownCrawl):
            store.add_released(crawl + 1, [DAYS])

    def test_a_crawl_keeps_a_thousand_released_shapes_at_most(
        self, store: Store, crawl: int
    ) -> None:
        many = [f"http://example.org/{n}/{{n}}" for n in range(1000)]
        known = store.add_released(crawl, many)
        assert len(known.released) == 1000
        with pytest.raises(InvalidConfig, match="1,000"):
            store.add_released(crawl, ["http://example.org/more"])
        assert store.crawl(crawl) == known
        assert store.add_released(crawl, [*many[:1], "*"]).released == ("*",)

    def test_a_commit_refuses_parked_states_of_a_released_shape_and_stores_the_rest(
        self, store: Store, crawl: int
    ) -> None:
        long = "http://example.org/" + "ü" * 400
        store.add_released(crawl, [DAYS, long])
        other = store.put_crawl("other", CrawlOptions(), []).id
        stamp = store.commit(
            Commit(
                [page(crawl, 1)],
                finals=[
                    parked(crawl, 2), parked(crawl, 3, TAGS), parked(crawl, 4, long),
                    parked(other, 5), final(crawl, 6),
                ],
            )
        )  # fmt: skip
        assert stamp.refused == {(crawl, 2), (crawl, 4)}
        assert store.final(crawl, 2) is None
        assert store.final(crawl, 4) is None
        counts = store.counts(crawl)
        assert (counts["pages"], counts["parked"], counts["dead"]) == (1, 1, 1)
        assert store.counts(other)["parked"] == 1
        store.add_released(crawl, ["*"])
        assert store.commit(Commit(finals=[parked(crawl, 7, TAGS)])).refused == {(crawl, 7)}
        assert store.counts(crawl)["parked"] == 1

    def test_a_url_whose_parking_is_refused_stays_in_the_overflow(
        self, store: Store, crawl: int
    ) -> None:
        store.put_overflow(crawl, beyond([0, 0], "example.org", first=1))
        rows = store.overflow(crawl, 7, "example.org", 10)
        store.raise_epoch("n", 0, 1)
        store.overflow_taken(rows, "n", 1)
        store.add_released(crawl, [DAYS])
        store.commit(Commit(finals=[parked(crawl, 1), parked(crawl, 2, TAGS)]))
        store.free_overflow(7)
        left = [row.fingerprint for row in store.overflow(crawl, 7, "example.org", 10)]
        assert left == [1]

    def test_no_url_of_a_shape_stays_parked_though_workers_park_during_its_release(
        self, store: Store, crawl: int
    ) -> None:
        refused: set[tuple[int, int]] = set()
        released: set[str] = set()

        def park() -> None:
            for n in range(0, 200, 5):
                work = Commit(finals=[parked(crawl, n + i, at_ms=1000 + n) for i in range(5)])
                refused.update(store.commit(work).refused)
                gevent.sleep(0)

        worker = gevent.spawn(park)
        while not store.counts(crawl)["parked"]:
            gevent.sleep(0)
        store.add_released(crawl, [DAYS])
        while (batch := store.release_parked(crawl, DAYS, limit=7)) is not None:
            released.update(item.url for item in batch.urls)
        worker.get()
        assert store.counts(crawl)["parked"] == 0
        assert released
        assert {f"http://example.org/{n}" for _, n in refused} | released == {
            f"http://example.org/{n}" for n in range(200)
        }
