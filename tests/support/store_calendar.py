"""The contract of stores about calendars: when pages are asked for again."""

from __future__ import annotations

from typing import Any, ClassVar

from greencrawl.schema.records import (
    Admission,
    Check,
    Commit,
    CrawlOptions,
    Due,
    Observation,
    Planned,
    Recrawl,
    Stamp,
    TaskKind,
)
from greencrawl.store.base import Store
from greencrawl.store.sqlite.store import SqliteStore
from tests.support.store_records import final, page

FIRST = (0, 0, -(2**63))
"""The position before all rows."""
DAY = 86_400


def begin(store: Store, crawl: int, started_s: int) -> None:
    """Begin the crawl's next period at a given time."""
    sql = (
        "INSERT INTO periods (crawl, number, started_ms) SELECT {0}, COALESCE(MAX(number), 0) + 1, "
        "{0} FROM periods WHERE crawl = {0}"
    )
    values = (crawl, started_s * 1000, crawl)
    if isinstance(store, SqliteStore):
        store._write(lambda db: db.execute(sql.format("?"), values))
    else:
        any_store: Any = store
        any_store._cluster.write(lambda db: db.execute(sql.format("%s"), values))


def again(depth: int | str = "all", every: str = "1d") -> CrawlOptions:
    return CrawlOptions(seeds=("http://example.org/",), recrawl=Recrawl(every=every, depth=depth))  # type: ignore[arg-type]


class CalendarContract:
    """See :class:`tests.support.store_contract.StoreContract`."""

    START: ClassVar = 1_000_000

    def planned(self, store: Store, depth: int | str = "all", every: str = "1d") -> int:
        crawl = store.put_crawl("again", again(depth, every), ["example.org"]).id
        begin(store, crawl, self.START)
        return crawl

    def row(self, store: Store, fingerprint: int) -> Planned:
        known = store.planned(store.crawl("again").id, fingerprint)
        assert known is not None
        return known

    def due(self, store: Store, crawl: int) -> list[Due]:
        return [
            one
            for place, p in store.calendar_places()
            if place == crawl
            for one in store.calendar_due(crawl, p, FIRST, 1000)
        ]

    def test_a_page_is_due_once_in_the_next_period_after_its_fetch(self, store: Store) -> None:
        crawl = self.planned(store)
        store.commit(Commit([page(crawl, n, depth=n) for n in (1, 2)]))
        assert not self.due(store, crawl)
        assert store.set_state(crawl, "done", "finished").state == "done"
        store.set_state(crawl, "active")
        begin(store, crawl, self.START + 1)
        found = self.due(store, crawl)
        assert {one.item for one in found} == {
            Admission(f"http://example.org/{n}", n, kind=TaskKind.REFETCH) for n in (1, 2)
        }
        assert store.set_state(crawl, "done", "finished").state == "active", "pages are due"
        assert store.calendar_taken(crawl, found, "a", 3) == 2
        assert not self.due(store, crawl)
        assert store.calendar_taken(crawl, found, "a", 3) == 0, "they are on their way"
        known = self.row(store, 1)
        assert known.queued

        checked = Check(crawl=crawl, fingerprint=1, at_ms=2000)
        store.commit(Commit([page(crawl, 2, 3000)], checks=[checked]))
        known = self.row(store, 1)
        assert (known.queued, known.checked_ms) == (False, 2000)
        assert not self.due(store, crawl), "each is asked for once a period"
        assert store.set_state(crawl, "done", "finished").state == "done"

    def test_a_gone_page_is_due_less_and_less_often_and_retires_after_days(
        self, store: Store
    ) -> None:
        crawl = self.planned(store)
        store.commit(Commit([page(crawl, 1)]))
        looks, period, retired = [], 0, Stamp(0, {}).retired
        while not retired:
            period += 1
            begin(store, crawl, self.START + period * DAY + period)  # each a little late
            if found := self.due(store, crawl):
                looks.append(period)
                store.calendar_taken(crawl, found, "a", 1)
                work = Commit(finals=[final(crawl, 1, 2000 + period, "gone")])
                retired = store.commit(work).retired
        assert looks == [1, 2, 4, 8]
        assert retired == {(crawl, 1)} == store.commit(work).retired, "whoever asks again"
        known = self.row(store, 1)
        assert known.retired
        begin(store, crawl, self.START + 1000 * DAY)
        assert not self.due(store, crawl)
        assert store.page(crawl, 1) is not None, "the last version stays"
        checked = Check(crawl=crawl, fingerprint=1, at_ms=9000, url="http://example.org/1")
        assert not store.commit(Commit(checks=[checked])).retired
        begin(store, crawl, self.START + 1001 * DAY)
        assert len(self.due(store, crawl)) == 1, "it is there again"
        assert store.final(crawl, 1) is None

    def test_short_periods_retire_nothing_and_failures_count_as_no_miss(self, store: Store) -> None:
        crawl = self.planned(store, every="15s")
        for n, state in ((1, "gone"), (2, "dead")):
            store.commit(Commit([page(crawl, n)]))
            for period in (*range(1, 20), *range(30, 300, 10)):
                begin(store, crawl, self.START + n * 100_000 + period * 15)
                if any(one.fingerprint == n for one in self.due(store, crawl)):
                    work = Commit(finals=[final(crawl, n, 2000 + period, state)])
                    assert not store.commit(work).retired
            known = self.row(store, n)
            assert not known.retired
            assert known.misses == (9 if n == 1 else 0)

    def test_a_url_that_never_had_a_page_is_in_the_calendar_only_if_it_is_gone(
        self, store: Store
    ) -> None:
        crawl = self.planned(store, depth=2)
        states = ("gone", "dead", "excluded", "parked")
        store.commit(Commit(finals=[final(crawl, n, state=s) for n, s in enumerate(states)]))
        store.commit(Commit([page(crawl, 7, depth=3)]))
        planned = [store.planned(crawl, n) is not None for n in (*range(4), 7)]
        assert planned == [True, False, False, False, False]
        sitemap = page(crawl, 8, task=TaskKind.SITEMAP)
        image = page(crawl, 9, task=TaskKind.REQUISITE)
        store.commit(Commit([sitemap, image]))
        begin(store, crawl, self.START + DAY)
        found = {one.fingerprint: one.item for one in self.due(store, crawl)}
        kinds = {number: item.kind for number, item in found.items() if item}
        assert kinds == {0: TaskKind.REFETCH, 8: TaskKind.SITEMAP, 9: TaskKind.REQUISITE}
        assert found[0] == Admission("http://example.org/0", 2, kind=TaskKind.REFETCH)

    def test_calendar_rows_fetched_meanwhile_or_of_an_older_epoch_are_not_taken(
        self, store: Store
    ) -> None:
        crawl = self.planned(store)
        store.commit(Commit([page(crawl, n) for n in (1, 2, 3)]))
        begin(store, crawl, self.START + 1)
        found = self.due(store, crawl)
        store.commit(Commit([page(crawl, 1, 2000)]))
        store.raise_epoch("a", 0, 5)
        assert store.calendar_taken(crawl, found, "a", 4) == 0
        assert store.calendar_taken(crawl, found, "a", 5) == 2
        (partition,) = {0}
        store.free_calendar(partition, 5)
        assert not self.due(store, crawl)
        store.free_calendar(partition, 6)
        assert {one.fingerprint for one in self.due(store, crawl)} == {2, 3}

    def test_a_late_commit_changes_no_calendar_row_that_waits(self, store: Store) -> None:
        crawl = self.planned(store)
        store.commit(Commit([page(crawl, 1, 2000)]))
        begin(store, crawl, self.START + 1)
        for at_ms in (2000, 1500):  # the same commit again, and an older one
            store.commit(Commit([page(crawl, 1, at_ms)]))
            assert self.due(store, crawl)
        store.calendar_taken(crawl, self.due(store, crawl), "a", 1)
        store.commit(Commit([page(crawl, 1, 2000)]))
        known = self.row(store, 1)
        assert known.queued, "it is on its way still"
        store.commit(Commit([page(crawl, 1, 1900)]))  # by a worker whose clock is slow
        known = self.row(store, 1)
        assert not known.queued

    def test_a_calendar_that_becomes_deeper_takes_in_stored_pages(self, store: Store) -> None:
        crawl = self.planned(store, depth=0)
        store.commit(Commit([page(crawl, n, depth=n) for n in (1, 2)]))
        assert store.planned(crawl, 1) is None
        assert store.put_crawl("again", again(1), []).options.recrawl == Recrawl(
            every="1d", depth=1
        )
        (known,) = store.rounds(crawl)
        assert (known.kind, known.why) == ("plan", "recrawl depth 0 → 1")
        found = [Observation(crawl, n, 1000, "page", f"http://example.org/{n}", n) for n in (1, 2)]
        store.add_calendar(crawl, found)
        store.add_calendar(crawl, found)
        begin(store, crawl, self.START + 1)
        (row,) = self.due(store, crawl)
        assert row.fingerprint == 1
        store.calendar_taken(crawl, [row], "a", 1)
        store.add_calendar(crawl, found)
        assert not self.due(store, crawl), "what has a row keeps it"
        store.put_crawl("again", again(0), [])
        store.put_crawl("again", again("all"), [])
        assert self.due(store, crawl), "nothing was noted in it meanwhile"
        store.put_crawl("again", again(0), [])
        assert not self.due(store, crawl)

    def test_calendar_rows_are_read_in_order_and_can_be_dropped_or_postponed(
        self, store: Store
    ) -> None:
        crawl = self.planned(store)
        store.commit(Commit([page(crawl, n) for n in range(5)]))
        begin(store, crawl, self.START + 1)
        first = store.calendar_due(crawl, 0, FIRST, 2)
        rest = store.calendar_due(crawl, 0, first[-1].after, 9)
        assert [one.after for one in first + rest] == sorted(one.after for one in first + rest)
        assert {one.fingerprint for one in first + rest} == set(range(5))
        store.drop_calendar(crawl, first)
        assert store.calendar_due(crawl, 0, FIRST, 9) == rest
        store.postpone_calendar(crawl, 0, rest[0])
        assert not self.due(store, crawl), "all are of one host"
        begin(store, crawl, self.START + 2)
        assert len(self.due(store, crawl)) == 3

    def test_a_due_page_that_is_too_deep_by_now_has_no_item(self, store: Store) -> None:
        crawl = self.planned(store)
        store.commit(Commit([page(crawl, n, depth=n) for n in (1, 2)]))
        store.put_crawl("again", again(1), [])
        begin(store, crawl, self.START + 1)
        items = {one.fingerprint: one.item for one in self.due(store, crawl)}
        assert [items[n] is None for n in (1, 2)] == [False, True]

    def test_a_deleted_crawl_leaves_no_calendar(self, store: Store) -> None:
        crawl = self.planned(store)
        store.commit(Commit([page(crawl, n) for n in range(5)]))
        store.delete_crawl(crawl)
        assert store.planned(crawl, 1) is None
        store.commit(Commit([page(crawl, 1, 2000)]))
        assert store.planned(crawl, 1) is None
