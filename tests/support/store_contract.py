"""The contract of every store, whatever its database.

A test module subclasses :class:`StoreContract` and provides the fixture ``open_store``: a function
that opens one more store on the same empty database (as another process would) and that closes all
of them at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from msgspec.structs import replace

from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import DutyLost, UnknownCrawl
from greencrawl.schema.records import (
    STOPPED,
    STOPPING,
    STOPPING_NOW,
    Admission,
    Commit,
    Crawl,
    CrawlOptions,
    CrawlState,
    Duty,
    FrontierIdentity,
    Recrawl,
    StoredPage,
    TaskKind,
)
from greencrawl.store.base import DUTY_SECONDS, MARGIN, Store
from greencrawl.store.mysql.store import MysqlStore
from greencrawl.store.sqlite.store import SqliteStore
from greencrawl.store.tables import periods
from tests.support.store_calendar import CalendarContract
from tests.support.store_content import ContentContract
from tests.support.store_hooks import HookContract
from tests.support.store_members import MembersContract
from tests.support.store_parked import ParkedContract
from tests.support.store_records import attempt, beyond, final, links, page, urls
from tests.support.store_retention import RetentionContract
from tests.support.store_watching import WatchingContract

Opener = Callable[[], Store]

__all__ = ["attempt", "beyond", "final", "links", "page", "urls"]


@pytest.fixture
def store(open_store: Opener) -> Store:
    return open_store()


@pytest.fixture
def crawl(store: Store) -> int:
    return store.put_crawl("news", CrawlOptions(), ["example.org"]).id


def rows_of_crawl(store: Store, crawl: int) -> set[str]:
    """Return the tables that have rows of a crawl."""

    def ask(db: Any) -> set[str]:
        if isinstance(store, SqliteStore):
            found = db.execute(
                "SELECT m.name FROM sqlite_schema m, pragma_table_info(m.name) c "
                "WHERE m.type = 'table' AND c.name = 'crawl'"
            ).fetchall()
        else:
            db.execute(
                "SELECT table_name FROM information_schema.columns "
                "WHERE table_schema = DATABASE() AND column_name = 'crawl'"
            )
            found = db.fetchall()
        left = set()
        for (table,) in found:
            rows = db.execute(f"SELECT 1 FROM {table} WHERE crawl = {crawl} LIMIT 1")
            if rows.fetchall() if isinstance(store, SqliteStore) else rows:
                left.add(table)
        return left

    if isinstance(store, SqliteStore):
        return store._questions.run(ask)
    assert isinstance(store, MysqlStore)
    return store._cluster.read(ask)


def wait_ms(moment: int) -> None:
    """Wait until the clock has passed a time within the next milliseconds."""
    while epoch_ms() <= moment:
        gevent.sleep(0.001)


def shift_duty(store: Store, name: str, seconds: float) -> None:
    """Move the end of a duty, as if this much time had passed, or as if the clock had been set."""
    sql = "UPDATE duties SET until_ms = until_ms + {} WHERE name = {}"
    values = (round(seconds * 1000), name)
    if isinstance(store, SqliteStore):
        store._write(lambda db: db.execute(sql.format("?", "?"), values))
    else:
        assert isinstance(store, MysqlStore)
        store._cluster.write(lambda db: db.execute(sql.format("%s", "%s"), values))


class StoreContract(
    CalendarContract,
    ContentContract,
    HookContract,
    MembersContract,
    ParkedContract,
    RetentionContract,
    WatchingContract,
):
    """Run on an implementation by subclassing; see the module's text."""

    # -- identity and clock

    def test_the_first_identity_of_a_frontier_stays_in_force(self, open_store: Opener) -> None:
        first, second = open_store(), open_store()
        mine = FrontierIdentity(
            id="f1", secret=2**64 - 1, partitions=64, suffixes="psl", canonicaliser=1, layout=1,
            nodes=("n0", "n1"), placement=(0, 1),
        )  # fmt: skip
        assert first.frontier() is None
        assert first.create_frontier(mine) == mine
        other = FrontierIdentity(
            id="f2", secret=1, partitions=2, suffixes="psl", canonicaliser=1, layout=1,
            nodes=("n9",), placement=(0, 0),
        )  # fmt: skip
        assert second.create_frontier(other) == mine
        assert second.frontier() == mine
        assert second.put_layout(2) == replace(mine, layout=2) == first.frontier()

    def test_ticks_of_all_processes_rise_and_never_repeat(self, open_store: Opener) -> None:
        first, second = open_store(), open_store()
        seen = [s.tick() for s in (first, second, second, first)]
        assert seen == sorted(set(seen))

    def test_a_commit_returns_the_clock_of_its_own_transaction(
        self, store: Store, crawl: int
    ) -> None:
        tick = store.tick()
        assert store.commit(Commit(pages=[page(crawl, 1)])).clock == tick
        assert store.commit(Commit(pages=[page(crawl, 1)])).clock == tick
        tick = store.tick()
        assert store.commit(Commit()).clock == tick

    def test_a_commit_and_the_clock_return_the_epochs_which_rise_by_compare_and_set(
        self, store: Store, crawl: int
    ) -> None:
        assert store.clock().epochs == {}
        assert store.raise_epoch("a", 0, 1)
        assert not store.raise_epoch("a", 0, 2)
        assert store.raise_epoch("a", 1, 5)
        assert store.raise_epoch("b", 0, 1)
        assert store.commit(Commit([page(crawl, 1)])).epochs == {"a": 5, "b": 1}
        assert store.clock() == store.commit(Commit())

    # -- duties

    def test_a_commit_notes_its_debts_to_nodes_with_its_stamp(
        self, store: Store, crawl: int
    ) -> None:
        assert store.debts() == {}
        store.tick()
        stamp = store.commit(Commit(pages=[page(crawl, 1)], owes=frozenset({"a", "b"})))
        assert {node: debt.since for node, debt in store.debts().items()} == {
            "a": stamp.clock, "b": stamp.clock,
        }  # fmt: skip
        store.tick()
        store.commit(Commit(pages=[page(crawl, 2)], owes=frozenset({"a"})))
        assert store.debts()["a"].since == stamp.clock, "the first of them counts"
        assert store.owe(["a"], stamp.clock - 1) == store.clock().clock
        assert store.owe(["b"]) == store.clock().clock == stamp.clock + 1
        assert [debt.since for debt in store.debts().values()] == [stamp.clock - 1, stamp.clock]

    def test_a_debt_ends_with_a_replay_unless_more_was_added_meanwhile(
        self, store: Store, crawl: int, open_store: Opener
    ) -> None:
        assert store.begin_replay("a") is None
        store.owe(["a"], 0)
        first = store.begin_replay("a")
        assert first is not None
        assert first.since == 0
        open_store().commit(Commit(pages=[page(crawl, 1)], owes=frozenset({"a"})))
        assert not store.end_replay("a", first.serial)
        second = store.begin_replay("a")
        third = open_store().begin_replay("a")
        assert second is not None
        assert third is not None
        assert third.since == 0
        assert not store.end_replay("a", second.serial), "another began anew"
        assert store.end_replay("a", third.serial)
        assert store.debts() == {}
        assert not store.end_replay("a", third.serial)

    def test_many_commits_add_to_a_debt_at_once_and_none_is_passed_over(
        self, store: Store, crawl: int
    ) -> None:
        def commit(number: int) -> None:
            work = Commit(pages=[page(crawl, number)], owes=frozenset({"a", "b"}))
            store.commit(work)
            committed.append(number)

        committed: list[int] = []
        store.owe(["a"], 0)
        jobs = [gevent.spawn(commit, number) for number in range(1, 13)]
        begun = store.begin_replay("a")
        assert begun is not None
        there = {mark.url for marks in store.replay_marks(0) for mark in marks}
        gevent.joinall(jobs, raise_error=True)
        missed = {page(crawl, n).url for n in range(1, 13)} - there
        assert not (store.end_replay("a", begun.serial) and missed)
        assert sorted(committed) == list(range(1, 13))

    def test_a_crawl_is_not_done_while_a_node_is_owed_something(
        self, store: Store, crawl: int
    ) -> None:
        store.owe(["a"])
        assert store.set_state(crawl, "done", "finished").state == "active"
        assert store.set_state(crawl, "done", "max_pages").state == "active"
        debt = store.begin_replay("a")
        assert debt is not None
        assert store.end_replay("a", debt.serial)
        assert store.set_state(crawl, "done", "finished").state == "done"

    def test_addresses_of_nodes_are_stored_and_no_two_nodes_share_one(self, store: Store) -> None:
        assert store.addresses() == {}
        store.put_addresses({"a": "redis://1", "b": "redis://2"})
        store.put_addresses({"a": "redis://2"})
        assert store.addresses() == {"a": "redis://2"}
        store.put_addresses({"a": "redis://1", "b": "redis://2"})
        assert store.addresses() == {"a": "redis://1", "b": "redis://2"}

    def test_a_store_tells_its_size_and_no_lags_without_replicas(
        self, store: Store, crawl: int
    ) -> None:
        before = store.size()
        assert before > 1000
        store.commit(Commit([page(crawl, n, body=b"%d" % n * 9000) for n in range(40)]))
        assert store.size() >= before
        assert store.lags() == {}

    def test_a_duty_has_one_holder_until_it_is_given_back(self, open_store: Opener) -> None:
        first, second = open_store(), open_store()
        assert first.take_duties("a", ["tick", "purge"]) == {"tick": 1, "purge": 1}
        assert first.take_duties("a", ["tick"]) == {"tick": 1}, "renewed"
        assert second.take_duties("b", ["tick", "scan"]) == {"scan": 1}
        assert second.take_duties("b", ["tick"]) == {}
        second.release_duties("b", ["tick"])
        assert second.take_duties("b", ["tick"]) == {}, "it was not b's to give back"
        first.release_duties("a", ["tick"])
        assert second.take_duties("b", ["purge", "tick"]) == {"tick": 2}
        second.release_duties("b", ["tick"])
        assert second.take_duties("b", ["tick"]) == {"tick": 3}, "it was free in between"

    def test_a_duty_that_was_not_renewed_can_be_taken_by_another_broker(
        self, open_store: Opener
    ) -> None:
        first, second = open_store(), open_store()
        first.take_duties("a", ["tick"])
        shift_duty(first, "tick", -DUTY_SECONDS)
        assert second.take_duties("b", ["tick"]) == {"tick": 2}
        assert first.take_duties("a", ["tick"]) == {}

    def test_a_duty_that_ends_too_far_in_the_future_can_be_taken_by_another_broker(
        self, open_store: Opener
    ) -> None:
        """The clock went back after the duty was taken."""
        first, second = open_store(), open_store()
        first.take_duties("a", ["tick"])
        shift_duty(first, "tick", 3600.0)
        assert second.take_duties("b", ["tick"]) == {"tick": 2}

    def test_duties_that_many_brokers_want_at_once_have_one_holder_each(
        self, open_store: Opener
    ) -> None:
        stores = [open_store() for _ in range(3)]
        names = ["clock", "purge", "tick"]
        jobs = [
            gevent.spawn(store.take_duties, f"h{i}", names[i:] + names[:i])
            for i, store in enumerate(stores)
        ]
        gevent.joinall(jobs, raise_error=True)
        taken = [name for job in jobs for name in job.get()]
        assert sorted(taken) == names

    def test_a_write_is_refused_under_a_duty_that_another_broker_has_taken(
        self, open_store: Opener, crawl: int
    ) -> None:
        first, second = open_store(), open_store()
        duty = Duty("tick", first.take_duties("a", ["tick"])["tick"])
        holder = first.under(duty)
        before = holder.tick()
        shift_duty(first, "tick", -DUTY_SECONDS)
        assert holder.tick() == before + 1, "nobody has taken it"
        second.take_duties("b", ["tick"])
        batch = first.add_seeds(crawl, links("http://a/"))
        for write in (
            holder.tick,
            lambda: holder.set_state(crawl, "paused"),
            lambda: holder.seeds_admitted(batch),
            lambda: holder.add_seeds(crawl, links("http://b/")),
            lambda: holder.commit(Commit([page(crawl, 1)], finals=[final(crawl, 2)])),
        ):
            with pytest.raises(DutyLost):
                write()
        assert first.clock().clock == before + 1
        assert first.crawl(crawl).state == "active"
        assert [pending.id for pending in first.pending_seeds()] == [batch]
        assert first.page(crawl, 1) is None
        assert first.commit(Commit([page(crawl, 1)])).clock == before + 1
        assert first.page(crawl, 1) is not None, "the others' writes go on"

    def test_a_commit_is_stored_beside_one_that_fails_for_a_lost_duty(
        self, store: Store, crawl: int
    ) -> None:
        holder = store.under(Duty("purge", 7))
        jobs = [
            gevent.spawn(one.commit, Commit([page(crawl, number)]))
            for number, one in enumerate((store, holder, store, holder, store))
        ]
        gevent.joinall(jobs)
        assert [job.successful() for job in jobs] == [True, False, True, False, True]
        assert all(isinstance(job.exception, DutyLost) for job in jobs[1::2])
        assert [store.page(crawl, n) is not None for n in range(5)] == [True, False] * 2 + [True]

    # -- reading the log

    def test_a_window_of_the_replay_log_has_exactly_the_rows_stamped_in_it(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit([page(crawl, 1, links=links("http://a/"))], finals=[final(crawl, 2)]))
        store.add_seeds(crawl, links("http://old/"))
        since = store.tick()
        store.commit(
            Commit(
                [page(crawl, 3, links=links("http://b/")), page(crawl, 4, status=404)],
                finals=[final(crawl, 5), final(crawl, 6, state="gone")],
            )
        )
        batch = store.add_seeds(crawl, links("http://new/"), force=True)
        store.seeds_admitted(batch)
        assert store.replay_size(since) == (2, 2, 1)
        assert store.replay_size(0) == (3, 3, 2)
        marks = [mark for chunk in store.replay_marks(since) for mark in chunk]
        assert [(m.kind, m.crawl) for m in marks] == [(kind, crawl) for kind in "SODO"]
        assert marks[0].url == page(crawl, 3).url
        assert marks[0].bytes == len(page(crawl, 3).body)
        found = [row for chunk in store.replay_links(since) for row in chunk]
        assert found == [(crawl, list(links("http://b/")))]
        assert list(store.replay_seeds(since, force=False)) == []
        (seeds,) = store.replay_seeds(since, force=True)
        assert (seeds.id, seeds.urls, seeds.force, seeds.stamp) == (
            batch, tuple(links("http://new/")), True, since,
        )  # fmt: skip

    def test_a_long_window_of_the_replay_log_is_read_whole_if_a_stamp_spans_many_chunks(
        self, store: Store, crawl: int
    ) -> None:
        for start in range(0, 1200, 400):
            store.commit(Commit([page(crawl, n) for n in range(start, start + 400)]))
            if start:
                store.tick()
        marks = [mark.url for chunk in store.replay_marks(0) for mark in chunk]
        assert sorted(marks) == sorted(page(crawl, n).url for n in range(1200))

    def test_a_row_that_is_written_again_has_the_later_stamp(
        self, store: Store, crawl: int
    ) -> None:
        work = Commit([page(crawl, 1, links=links("http://a/"))], finals=[final(crawl, 2)])
        store.commit(work)
        batch = store.add_seeds(crawl, links("http://s/"))
        since = store.tick()
        assert store.replay_size(since) == (0, 0, 0)
        assert store.commit(work).clock == since
        assert store.restamp_seeds(batch).clock == since
        assert store.replay_size(since) == (1, 1, 1)
        number = page(crawl, 1).fingerprint
        assert store.stamps(crawl, [number, final(crawl, 2).fingerprint, 77]) == {
            number: since,
            final(crawl, 2).fingerprint: since,
        }

    def test_a_batch_of_seeds_stays_pending_if_it_is_admitted_too_late_or_in_an_old_epoch(
        self, store: Store, crawl: int
    ) -> None:
        batch = store.add_seeds(crawl, links("http://s/"))
        stamp = store.clock().clock
        assert not store.seeds_admitted(batch, stamp + MARGIN + 1)
        store.raise_epoch("n", 0, 3)
        assert not store.seeds_admitted(batch, stamp, {"n": 2})
        assert [b.id for b in store.pending_seeds()] == [batch]
        assert store.seeds_admitted(batch, stamp + MARGIN, {"n": 3})
        assert store.pending_seeds() == []
        assert store.seeds_admitted(batch, stamp), "again"
        assert store.seeds_admitted(batch + 1, stamp), "of a deleted crawl"

    # -- crawls

    def test_a_new_crawl_is_active_and_found_by_name_and_id(self, store: Store) -> None:
        options = CrawlOptions(seeds=("http://a.org/",), delay=0.5, exclude=(r"\.zip$",))
        made = store.put_crawl("a", options, ["a.org"])
        assert (made.state, made.revision, made.roots, made.options) == (
            "active", 1, ("a.org",), options,
        )  # fmt: skip
        assert made.created_ms > 0
        assert store.crawl("a") == store.crawl(made.id) == made

    def test_updating_a_crawl_raises_its_revision_only_if_something_changed(
        self, store: Store
    ) -> None:
        made = store.put_crawl("a", CrawlOptions(), ["a.org"])
        assert store.put_crawl("a", CrawlOptions(), ["a.org"]) == made
        changed = store.put_crawl("a", CrawlOptions(depth=3), ["b.org"])
        assert (changed.id, changed.revision) == (made.id, 2)
        assert changed.roots == ("a.org", "b.org")
        assert store.add_roots(made.id, ["b.org"]).revision == 2
        assert store.add_roots(made.id, ["c.org", "a.org"]).roots == ("a.org", "b.org", "c.org")
        assert store.crawl("a").revision == 3

    def test_crawls_are_listed_oldest_first(self, store: Store) -> None:
        made = [store.put_crawl(name, CrawlOptions(), []) for name in ("z", "a", "m")]
        assert store.crawls() == made

    @pytest.mark.parametrize("unknown", ["none", 77, 2**80, "\ud800"])
    def test_an_unknown_crawl_is_an_error_except_for_a_deletion(
        self, store: Store, unknown: str | int
    ) -> None:
        with pytest.raises(UnknownCrawl):
            store.crawl(unknown)
        if isinstance(unknown, int):
            with pytest.raises(UnknownCrawl):
                store.set_state(unknown, "paused")
            with pytest.raises(UnknownCrawl):
                store.add_seeds(unknown, [Admission("http://a.org/")])
            with pytest.raises(UnknownCrawl):
                store.requeue_dead(unknown)
            with pytest.raises(UnknownCrawl):
                store.add_roots(unknown, ["a.org"])
            store.delete_crawl(unknown)  # idempotent, so it raises nothing

    def test_the_state_of_a_crawl_has_its_reason_and_times(self, store: Store, crawl: int) -> None:
        started = store.crawl(crawl).started_ms
        assert started > 0
        assert store.set_state(crawl, "paused", "by hand").reason == "by hand"
        done = store.set_state(crawl, "done", "max_pages")
        assert (done.state, done.reason, done.started_ms) == ("done", "max_pages", started)
        assert done.finished_ms >= started
        again = store.set_state(crawl, "active")
        assert (again.state, again.reason, again.finished_ms) == ("active", "", 0)

    def test_a_crawl_with_pending_seeds_does_not_become_done(
        self, store: Store, crawl: int
    ) -> None:
        batch = store.add_seeds(crawl, links("http://example.org/"))
        assert store.set_state(crawl, "done", "finished").state == "active"
        store.seeds_admitted(batch)
        assert store.set_state(crawl, "done", "finished").state == "done"

    def test_a_crawl_can_be_done_while_another_has_pending_seeds(
        self, store: Store, crawl: int
    ) -> None:
        other = store.put_crawl("other", CrawlOptions(), []).id
        store.add_seeds(other, links("http://other.org/"))
        assert store.set_state(crawl, "done").state == "done"

    def test_seeding_a_done_crawl_makes_it_active_again(self, store: Store, crawl: int) -> None:
        store.set_state(crawl, "done", "finished")
        store.add_seeds(crawl, links("http://example.org/"))
        again = store.crawl(crawl)
        assert (again.state, again.reason, again.finished_ms) == ("active", "", 0)

    def test_seeding_a_paused_crawl_leaves_it_paused(self, store: Store, crawl: int) -> None:
        store.set_state(crawl, "paused", "by hand")
        store.add_seeds(crawl, links("http://example.org/"))
        assert store.crawl(crawl).state == "paused"

    def test_a_crawl_can_be_stopped_while_seeds_overflow_and_debts_wait(
        self, store: Store, crawl: int
    ) -> None:
        store.add_seeds(crawl, links("http://example.org/"))
        store.put_overflow(crawl, beyond([3], host="a.org"))
        store.owe(["a"])
        asked = store.set_state(crawl, "paused", STOPPING)
        assert asked.stopping
        done = store.set_state(crawl, "done", STOPPED, version=asked.version)
        assert (done.state, done.reason, done.finished) == ("done", STOPPED, False)
        assert done.finished_ms >= done.started_ms > 0
        assert store.set_state(crawl, "active", version=asked.version) == done

    def test_links_and_overflow_reopen_no_crawl_that_a_person_stops(
        self, store: Store, crawl: int
    ) -> None:
        stopped = (("paused", STOPPING), ("paused", STOPPING_NOW), ("done", STOPPED))
        for number, (state, reason) in enumerate(stopped):
            known = store.set_state(crawl, state, reason)  # type: ignore[arg-type]
            assert (known.state, known.reason) == (state, reason)
            store.commit(Commit([page(crawl, number, links=links("http://example.org/new"))]))
            store.put_overflow(crawl, beyond([10 + number], host="a.org"))
            store.owe(["a"])
            assert store.reopen(crawl, known.version) == known
            assert store.crawl(crawl) == known

    def test_seeds_reopen_a_crawl_that_is_being_stopped_or_is_stopped(
        self, store: Store, crawl: int
    ) -> None:
        for state, reason in (("paused", STOPPING), ("paused", STOPPING_NOW), ("done", STOPPED)):
            known = store.set_state(crawl, state, reason)  # type: ignore[arg-type]
            store.add_seeds(crawl, links("http://example.org/"))
            again = store.crawl(crawl)
            assert (again.state, again.reason, again.finished_ms) == ("active", "", 0)
            assert again.version == known.version + 1
            assert store.set_state(crawl, "done", STOPPED, version=known.version) == again

    def test_a_crawl_rests_until_its_next_period_is_due(self, store: Store, crawl: int) -> None:
        options = CrawlOptions(recrawl=Recrawl(every="1h"))
        read = store.put_crawl("news", options, [])
        rests = store.rest(crawl, 3_600_000, version=read.version)
        assert (rests.state, rests.reason, rests.finished) == ("resting", "finished", True)
        assert rests.wakes_ms == read.started_ms + 3_600_000
        (first,) = store.periods(crawl)
        assert (first.number, first.started_ms) == (1, read.started_ms)
        assert first.ended_ms >= first.started_ms
        assert store.rest(crawl, 3_600_000, version=read.version) == rests
        assert store.begin_period(crawl, links("http://example.org/")) == rests, "it is not due"
        assert store.pending_seeds() == []
        assert [one.state for one in store.crawls()] == ["resting"]
        store.put_crawl("news", CrawlOptions(recrawl=Recrawl(every="1s")), [])
        began = store.begin_period(crawl, links("http://example.org/"))
        assert began.state == "active", "no period is so far off: the clock went back"

    def test_one_period_at_most_begins_early_after_the_clock_went_back(
        self, store: Store, crawl: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, hour = epoch_ms(), 3_600_000
        monkeypatch.setattr("greencrawl.store.common.epoch_ms", lambda: now)
        read = store.put_crawl("news", CrawlOptions(recrawl=Recrawl(every="1h")), [])
        store.rest(crawl, hour, version=read.version)
        now -= 2 * hour
        began = []
        for minute in range(4):
            known = store.begin_period(crawl, links("http://example.org/"))
            if known.state == "active":
                began.append(minute)
                for batch in store.pending_seeds():
                    store.seeds_admitted(batch.id)
                assert store.rest(crawl, hour, version=known.version).state == "resting"
            now += 60_000
        assert began == [0]
        now += hour
        assert store.begin_period(crawl, links("http://example.org/")).state == "active"

    def test_a_period_begins_with_one_batch_of_seeds_though_two_stores_begin_it(
        self, open_store: Opener
    ) -> None:
        first, second = open_store(), open_store()
        options = CrawlOptions(recrawl=Recrawl(every="1h"))
        crawl = first.put_crawl("news", options, ["example.org"]).id
        for number in (2, 3):
            rests = first.rest(crawl, 1, version=first.crawl(crawl).version)
            assert rests.wakes_ms <= rests.finished_ms + 1
            wait_ms(rests.wakes_ms)
            jobs = [
                gevent.spawn(store.begin_period, crawl, links("http://example.org/"))
                for store in (first, second)
            ]
            gevent.joinall(jobs, raise_error=True)
            began = first.crawl(crawl)
            assert (began.state, began.reason, began.wakes_ms) == ("active", "", 0)
            (batch,) = first.pending_seeds()
            assert (batch.force, batch.urls) == (True, tuple(links("http://example.org/")))
            latest, before = first.periods(crawl, 2)
            assert (latest.number, latest.ended_ms, before.number) == (number, 0, number - 1)
            assert before.ended_ms > 0
            for one in first.pending_seeds():
                first.seeds_admitted(one.id)
            assert first.begin_period(crawl, links("http://example.org/")) == began
        first.set_state(crawl, "paused", "stopping")
        assert first.periods(crawl, 1)[0].ended_ms == 0
        stopped = first.set_state(crawl, "done", "stopped")
        assert first.periods(crawl, 1)[0].ended_ms == stopped.finished_ms
        first.delete_crawl(crawl)
        assert first.periods(crawl) == []

    def test_a_crawl_that_becomes_wider_gets_a_round_over_its_pages(
        self, store: Store, crawl: int
    ) -> None:
        name = store.crawl(crawl).name
        assert store.put_crawl(name, CrawlOptions(depth=2), []).id == crawl
        assert store.rounds(crawl) == [], "nothing was ever given to it"
        pages = [page(crawl, 1, depth=1), page(crawl, 2, depth=2), page(crawl, 3, depth=3)]
        store.commit(Commit(pages))
        store.set_state(crawl, "done", "finished")
        assert store.put_crawl(name, CrawlOptions(depth=1), []).state == "done"
        assert store.rounds(crawl) == [], "fewer links are followed"
        assert store.put_crawl(name, CrawlOptions(depth=3), []).state == "active"
        (found,) = store.rounds(crawl)
        assert (found.kind, found.why, found.least_depth) == ("read", "depth 1 → 3", 1)
        assert (found.total, found.ended_ms, found.cursor) == (-1, 0, "")
        assert store.count_round(crawl, found).total == 3
        assert [one.total for one in store.rounds(crawl)] == [3]
        store.put_crawl(name, CrawlOptions(depth=3, scope="any"), [])
        (wider,) = store.rounds(crawl)
        assert (wider.why, wider.least_depth) == ("depth 1 → 3, scope host → any", 0)
        stopped = store.set_state(crawl, "done", "stopped")
        assert store.put_crawl(name, CrawlOptions(depth=4, scope="any"), []).state == "done"
        assert stopped.reason == "stopped"

    def test_a_crawl_that_becomes_wider_gets_a_round_though_its_first_pages_are_under_way(
        self, store: Store, crawl: int
    ) -> None:
        name = store.crawl(crawl).name
        store.put_crawl(name, CrawlOptions(depth=1), [])
        store.seeds_admitted(store.add_seeds(crawl, links("http://example.org/")))
        store.put_crawl(name, CrawlOptions(depth=2), [])
        (found,) = store.rounds(crawl)
        assert (found.why, found.ended_ms) == ("depth 1 → 2", 0)
        assert store.crawl(crawl).state == "active"

    @pytest.mark.parametrize(("most", "total"), [(2, 2), (1, -1)])
    def test_the_pages_of_a_round_are_counted_only_if_they_are_few(
        self, store: Store, crawl: int, monkeypatch: pytest.MonkeyPatch, most: int, total: int
    ) -> None:
        monkeypatch.setattr(periods, "COUNT_PAGES", most)
        empty = store.begin_round(crawl, "anew")
        assert store.count_round(crawl, empty).total == -1, "there was none when it began"
        store.queue_round(crawl, empty, "", [], end=True)
        store.commit(Commit([page(crawl, 1), page(crawl, 2)]))
        assert store.count_round(crawl, store.begin_round(crawl, "anew")).total == total
        assert [one.total for one in store.rounds(crawl)] == [total]

    def test_a_page_that_is_stored_again_with_more_links_keeps_its_place_in_lists(
        self, store: Store, crawl: int
    ) -> None:
        def order() -> list[int]:
            steps = store.page_steps(crawl, detail="row")
            return [one.fingerprint for step in steps for _, one in step.pages]

        made = [page(crawl, n, body=b"x", fields={"a": n}, title="é") for n in (1, 2, 3)]
        store.commit(Commit(made))
        before = order()
        stored = store.page(crawl, before[0])
        assert stored is not None
        stored.links = links("http://example.org/more")
        store.commit(Commit([stored]))
        assert order() == before, "a round that reads it does not meet it again"
        found = store.page(crawl, before[0])
        assert found is not None
        assert "http://example.org/more" in {link.url for link in found.links}
        stored.fields = {"a": 7}
        store.commit(Commit([stored]))
        found = store.page(crawl, before[0])
        assert found is not None
        assert found.fields == {"a": 7}

    def test_a_step_of_a_round_is_queued_once_and_its_crawl_is_not_done_before_its_end(
        self, open_store: Opener
    ) -> None:
        first, second = open_store(), open_store()
        crawl = first.put_crawl("x", CrawlOptions(), ["example.org"]).id
        first.commit(Commit([page(crawl, 1)]))
        first.set_state(crawl, "done", "stopped")
        begun = first.begin_round(crawl, "anew")
        assert (begun.kind, first.crawl(crawl).state) == ("fetch", "active")
        assert second.begin_round(crawl, "anew once more") == begun
        urls = links("http://example.org/")
        jobs = [
            gevent.spawn(store.queue_round, crawl, begun, "p:1", urls, end=False)
            for store in (first, second)
        ]
        gevent.joinall(jobs, raise_error=True)
        assert sorted(job.value for job in jobs) == [False, True]
        (batch,) = first.pending_seeds()
        assert (batch.force, batch.urls) == (True, tuple(urls))
        first.seeds_admitted(batch.id)
        assert first.set_state(crawl, "done", "finished").state == "active"
        (now,) = first.rounds(crawl)
        assert (now.cursor, now.queued, now.ended_ms) == ("p:1", 1, 0)
        assert first.queue_round(crawl, now, "p:1", [], end=True)
        assert not first.queue_round(crawl, now, "p:1", [], end=True)
        assert first.pending_seeds() == []
        assert first.set_state(crawl, "done", "finished").state == "done"
        assert first.begin_round(crawl, "again").queued == 0
        assert first.set_state(crawl, "done", "max_pages").state == "done", "a limit ends all"
        first.delete_crawl(crawl)
        assert first.rounds(crawl) == []

    @pytest.mark.parametrize(
        ("state", "reason"),
        [("paused", ""), ("paused", "stopping"), ("paused", "stopping_now"), ("done", "stopped")],
    )
    def test_a_round_goes_on_only_while_its_crawl_is_active(
        self, store: Store, crawl: int, state: CrawlState, reason: str
    ) -> None:
        begun = store.begin_round(crawl, "anew")
        stopped = store.set_state(crawl, state, reason)
        for end in (False, True):
            assert not store.queue_round(crawl, begun, "p:1", links("http://a.org/"), end=end)
        assert store.crawl(crawl) == stopped, "whoever stopped it is not undone"
        assert (store.rounds(crawl), store.pending_seeds()) == ([begun], [])
        store.set_state(crawl, "active")
        assert store.queue_round(crawl, begun, "p:1", links("http://a.org/"), end=False)

    def test_links_overflow_and_seeds_wake_a_resting_crawl(self, store: Store, crawl: int) -> None:
        rests = store.rest(crawl, 3_600_000, version=store.crawl(crawl).version)
        for number in range(4):
            if number == 0:
                store.commit(Commit([page(crawl, 1, links=links("http://example.org/new"))]))
            elif number == 1:
                store.reopen(crawl, rests.version)
            elif number == 2:
                store.put_overflow(crawl, beyond([1], host="a.org"))
                store.overflow_taken(store.overflow(crawl, 7, "a.org", 9), "n", 1)
            else:
                store.seeds_admitted(store.add_seeds(crawl, links("http://example.org/")))
            awake = store.crawl(crawl)
            assert (awake.state, awake.wakes_ms, awake.reason) == ("active", 0, "")
            rests = store.rest(crawl, 3_600_000, version=awake.version)
            assert rests.state == "resting", "the same period goes on"
        assert len(store.periods(crawl)) == 1

    def test_a_crawl_does_not_rest_while_a_node_is_owed_rows_and_never_wakes_once_stopped(
        self, store: Store, crawl: int
    ) -> None:
        read = store.crawl(crawl)
        store.owe(["a"])
        assert store.rest(crawl, 1, version=read.version) == read
        debt = store.begin_replay("a")
        assert debt is not None
        store.end_replay("a", debt.serial)
        rests = store.rest(crawl, 1, version=read.version)
        assert rests.state == "resting"
        stopped = store.set_state(crawl, "paused", STOPPING, version=rests.version)
        ended = store.set_state(crawl, "done", STOPPED, version=stopped.version)
        assert (ended.state, ended.wakes_ms) == ("done", 0)
        wait_ms(rests.wakes_ms)
        assert store.begin_period(crawl, []) == ended

    def test_the_version_rises_with_every_change_of_a_crawl_and_with_no_other(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit([page(crawl, 1)], [attempt(crawl, 1)], [final(crawl, 2)]))
        store.seeds_admitted(store.add_seeds(crawl, links("http://example.org/")))
        store.count_time(crawl, 1000, 10)
        assert store.set_state(crawl, "active").version == 1
        assert store.add_roots(crawl, ["new.org"]).version == 2
        assert store.add_roots(crawl, ["new.org"]).version == 2
        assert store.put_crawl("news", CrawlOptions(depth=9), []).version == 3
        assert store.put_crawl("news", CrawlOptions(depth=9), []).version == 3
        assert store.set_state(crawl, "paused").version == 4
        assert store.set_state(crawl, "paused").version == 4
        assert store.set_state(crawl, "done", "max_pages").version == 5
        store.add_seeds(crawl, links("http://example.org/2"))
        assert store.crawl(crawl).version == 6
        assert [one.version for one in store.crawls()] == [6]

    def test_a_change_of_state_is_refused_if_it_names_an_older_version_of_the_crawl(
        self, store: Store, crawl: int
    ) -> None:
        read = store.crawl(crawl)
        paused = store.set_state(crawl, "paused", version=read.version)
        assert paused.state == "paused"
        for state in ("active", "done"):
            assert store.set_state(crawl, state, "finished", version=read.version) == paused
        ended = store.set_state(crawl, "done", "finished", version=paused.version)
        assert ended.finished

    def test_reopening_a_crawl_undoes_its_end_but_no_pause_and_no_limit(
        self, store: Store, crawl: int
    ) -> None:
        read = store.crawl(crawl)
        assert store.reopen(crawl, read.version).version == read.version + 1
        assert store.reopen(crawl, read.version).version == read.version + 1, "known already"
        assert store.set_state(crawl, "done", "finished", version=read.version).state == "active"
        ended = store.set_state(crawl, "done", "finished")
        again = store.reopen(crawl, read.version)
        assert (again.state, again.reason, again.finished_ms) == ("active", "", 0)
        assert again.version == ended.version + 1
        for state, reason in (("paused", ""), ("done", "max_pages")):
            known = store.set_state(crawl, state, reason)
            assert store.reopen(crawl, known.version) == known
        with pytest.raises(UnknownCrawl):
            store.reopen(crawl + 1, 1)

    def test_links_that_are_committed_make_a_finished_crawl_active(
        self, store: Store, crawl: int
    ) -> None:
        ended = store.set_state(crawl, "done", "finished")
        other = store.put_crawl("other", CrawlOptions(), [])
        store.set_state(other.id, "done", "finished")
        store.commit(Commit([page(crawl, 1)], [attempt(crawl, 1)], [final(crawl, 2)]))
        assert store.crawl(crawl) == ended, "nothing came to it"
        store.commit(Commit([page(crawl, 3, links=links("http://example.org/new"))]))
        again = store.crawl(crawl)
        assert (again.state, again.reason, again.finished_ms) == ("active", "", 0)
        assert again.version == ended.version + 1
        assert store.crawl(other.id).finished
        for state, reason in (("paused", ""), ("done", "max_bytes")):
            known = store.set_state(crawl, state, reason)
            store.commit(Commit([page(crawl, 4, links=links("http://example.org/new"))]))
            assert store.crawl(crawl) == known

    def test_no_more_pages_are_stored_than_the_limit_and_the_others_are_named(
        self, store: Store
    ) -> None:
        crawl = store.put_crawl("few", CrawlOptions(max_pages=3), []).id
        assert store.stored(crawl) == 0
        some = [page(crawl, n, status=200 if n != 2 else 404, body=b"x") for n in range(6)]
        tried = [attempt(crawl, n) for n in range(6)]
        stamp = store.commit(Commit(some, tried))
        assert stamp.refused == {(crawl, 4), (crawl, 5)}
        assert store.counts(crawl)["pages"] == store.stored(crawl) == 3
        assert store.page(crawl, 4) is None
        assert store.page(crawl, 2) is not None, "it is no page, but a row"
        again = store.commit(Commit(some, tried))
        assert again.refused == stamp.refused, "repeating is safe"
        assert store.counts(crawl)["attempts"] == 6

    def test_a_limit_that_is_set_later_is_counted_by_a_commit_of_known_pages(
        self, store: Store
    ) -> None:
        crawl = store.put_crawl("x", CrawlOptions(), []).id
        store.commit(Commit([page(crawl, 1), page(crawl, 2)]))
        store.put_crawl("x", CrawlOptions(max_pages=9), [])
        assert store.stored(crawl) == 0
        assert not store.commit(Commit([page(crawl, 1, fetched_ms=999)])).refused
        assert store.stored(crawl) == 2

    def test_a_page_that_replaces_another_does_not_count_towards_the_limit(
        self, store: Store
    ) -> None:
        crawl = store.put_crawl("few", CrawlOptions(max_pages=2), []).id
        store.commit(Commit([page(crawl, 1), page(crawl, 2), page(crawl, 3, status=404)]))
        late = page(crawl, 1, 500)
        assert not store.commit(Commit([page(crawl, 1, 2000), late, page(crawl, 2, 2000)])).refused
        assert store.commit(Commit([page(crawl, 3, 2000)])).refused == {(crawl, 3)}
        assert store.page(crawl, 3).status == 404  # type: ignore[union-attr]
        store.commit(Commit([page(crawl, 1, 3000, status=500)]))
        assert store.stored(crawl) == 1
        assert not store.commit(Commit([page(crawl, 3, 2000)])).refused
        assert store.counts(crawl)["pages"] == store.stored(crawl) == 2

    def test_a_page_that_is_refused_for_the_limit_changes_no_other_row(self, store: Store) -> None:
        crawl = store.put_crawl("few", CrawlOptions(max_pages=1), []).id
        store.commit(Commit([page(crawl, 1)], finals=[final(crawl, 8)]))
        store.put_overflow(crawl, beyond([0], "example.org", first=7))
        store.overflow_taken(store.overflow(crawl, 7, "example.org", 9), "n", 0)
        ended = store.set_state(crawl, "done", "finished")
        some = [page(crawl, n, 2000, links=links("http://example.org/new")) for n in (7, 8)]
        assert store.commit(Commit(some)).refused == {(crawl, 7), (crawl, 8)}
        assert store.final(crawl, 8) is not None
        assert store.crawl(crawl) == ended
        store.free_overflow(7)
        assert len(store.overflow(crawl, 7, "example.org", 9)) == 1

    def test_the_limit_of_pages_can_be_set_raised_and_removed_later(self, store: Store) -> None:
        def limit(most: int) -> int:
            return store.put_crawl("few", CrawlOptions(max_pages=most), []).id

        crawl = limit(0)
        store.commit(Commit([page(crawl, n) for n in range(3)]))
        assert store.stored(crawl) == 0
        limit(4)
        stamp = store.commit(Commit([page(crawl, n) for n in (3, 4)]))
        assert stamp.refused == {(crawl, 4)}
        limit(6)
        assert store.commit(Commit([page(crawl, n) for n in (4, 5, 6)])).refused == {(crawl, 6)}
        limit(0)
        assert not store.commit(Commit([page(crawl, n) for n in (6, 7, 8)])).refused
        limit(10)
        assert store.commit(Commit([page(crawl, n) for n in (9, 10)])).refused == {(crawl, 10)}
        assert store.counts(crawl)["pages"] == store.stored(crawl) == 10

    def test_two_stores_that_commit_at_once_stay_within_the_limit_together(
        self, open_store: Opener
    ) -> None:
        first, second = open_store(), open_store()
        crawl = first.put_crawl("few", CrawlOptions(max_pages=20), []).id
        other = first.put_crawl("all", CrawlOptions(), []).id

        def work(store: Store, start: int) -> int:
            refused = 0
            for n in range(start, start + 12, 3):
                both = [page(c, k) for k in range(n, n + 3) for c in (crawl, other)]
                refused += len(store.commit(Commit(both)).refused)
            return refused

        stores = enumerate((first, second, first, second))
        jobs = [gevent.spawn(work, store, 12 * number) for number, store in stores]
        gevent.joinall(jobs, timeout=30, raise_error=True)
        assert first.counts(crawl)["pages"] == first.stored(crawl) == 20
        assert first.counts(other)["pages"] == 48
        assert all(isinstance(job.get(), int) for job in jobs)

    def test_an_overflow_makes_a_finished_crawl_active(self, store: Store, crawl: int) -> None:
        ended = store.set_state(crawl, "done", "finished")
        store.put_overflow(crawl, beyond([0], "example.org"))
        assert store.crawl(crawl).version == ended.version + 1
        assert store.set_state(crawl, "done", "finished").state == "active"

    def test_a_deleted_crawl_leaves_nothing_and_its_number_is_not_used_again(
        self, store: Store, crawl: int
    ) -> None:
        kept = store.put_crawl("kept", CrawlOptions(), []).id
        for number in (crawl, kept):
            store.commit(
                Commit(
                    [page(number, n) for n in range(300)],
                    [attempt(number, n) for n in range(300)],
                    [final(number, n, 2000) for n in range(300)],
                )
            )
            store.add_seeds(number, links("http://example.org/"))
        store.delete_crawl(crawl)
        with pytest.raises(UnknownCrawl):
            store.crawl("news")
        assert not any(store.counts(crawl).values())
        assert (store.page(crawl, 1), store.final(crawl, 1)) == (None, None)
        assert (store.attempts(crawl, 1), store.slowest_hosts(crawl)) == ([], [])
        assert (list(store.pages(crawl)), list(store.finals(crawl))) == ([], [])
        assert [batch.crawl for batch in store.pending_seeds()] == [kept]
        assert store.counts(kept)["pages"] == store.counts(kept)["dead"] == 300
        assert store.put_crawl("news", CrawlOptions(), []).id > kept
        store.delete_crawl(crawl)

    def test_a_deleted_crawl_leaves_no_row_in_any_table(self, store: Store) -> None:
        limited = store.put_crawl("limited", CrawlOptions(max_pages=9), []).id
        for fetched_ms in (1000, 2000):
            pages = [page(limited, n, fetched_ms, body=b"%d" % (n + fetched_ms)) for n in range(3)]
            store.commit(Commit(pages, [attempt(limited, 1)], [final(limited, 7)]))
        store.add_seeds(limited, links("http://example.org/"))
        store.put_overflow(limited, beyond([0], "example.org"))
        there = rows_of_crawl(store, limited)
        assert {"pages", "versions", "limits", "attempts", "finals", "overflow"} <= there
        store.delete_crawl(limited)
        assert rows_of_crawl(store, limited) == set()

    def test_a_commit_writes_nothing_for_a_deleted_crawl_and_all_for_others(
        self, store: Store, crawl: int
    ) -> None:
        kept = store.put_crawl("kept", CrawlOptions(), []).id
        store.delete_crawl(crawl)
        store.commit(
            Commit(
                [page(crawl, 1), page(kept, 1)],
                [attempt(crawl, 1), attempt(kept, 1)],
                [final(crawl, 2), final(kept, 2)],
            )
        )
        assert not any(store.counts(crawl).values())
        assert store.counts(kept)["pages"] == store.counts(kept)["attempts"] == 1
        assert store.counts(kept)["dead"] == 1

    # -- seeds

    def test_pending_batches_of_seeds_are_listed_oldest_first_until_they_are_admitted(
        self, store: Store, crawl: int
    ) -> None:
        seeds = [Admission("http://example.org/ä", 1, 2, 3), Admission("http://example.org/b")]
        first = store.add_seeds(crawl, seeds)
        second = store.add_seeds(crawl, links("http://example.org/c"), force=True)
        pending = store.pending_seeds()
        assert [batch.id for batch in pending] == [first, second]
        assert [batch.force for batch in pending] == [False, True]
        assert pending[0].urls == tuple(seeds)
        assert len(store.pending_seeds(limit=1)) == 1
        assert [batch.id for batch in store.pending_seeds(limit=1, after=first)] == [second]
        store.seeds_admitted(first)
        store.seeds_admitted(first)
        assert [batch.id for batch in store.pending_seeds()] == [second]

    def test_a_batch_of_seeds_is_claimed_before_it_is_listed_as_pending(
        self, store: Store, crawl: int
    ) -> None:
        claimed: list[int] = []
        found: list[int] = []

        def claim(batch: int) -> None:
            claimed.append(batch)
            time.sleep(0.5)  # the other looks meanwhile
            claimed.append(batch)

        seeding = gevent.spawn(store.add_seeds, crawl, links("http://example.org/"), claim=claim)
        limit = monotonic() + 10
        while len(claimed) < 2 and monotonic() < limit:
            pending = store.pending_seeds()
            if len(claimed) == 1:
                found.append(len(pending))
            gevent.sleep(0.01)
        batch = seeding.get(timeout=10)
        assert claimed == [batch, batch]
        assert found, "nobody looked while the batch was claimed and not committed"
        assert not any(found)
        assert [one.id for one in store.pending_seeds()] == [batch]

    def test_an_empty_batch_of_seeds_is_stored_as_pending(self, store: Store, crawl: int) -> None:
        batch = store.add_seeds(crawl, [])
        assert store.pending_seeds()[0].urls == ()
        store.seeds_admitted(batch)
        assert store.pending_seeds() == []

    def test_dead_letters_become_one_forced_batch_and_are_dead_no_longer(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(Commit(finals=[final(crawl, n) for n in range(5)]))
        store.commit(Commit(finals=[final(crawl, 9, state="gone")]))
        store.set_state(crawl, "done", "finished")
        batch = store.requeue_dead(crawl, limit=3)
        assert batch is not None
        assert store.pending_seeds() == [batch]
        assert batch.force
        assert batch.urls == tuple(Admission(f"http://example.org/{n}", 2, 3) for n in range(3))
        assert [row.fingerprint for _, row in store.dead(crawl)] == [3, 4]
        assert store.counts(crawl)["gone"] == 1
        assert store.crawl(crawl).state == "active"
        assert store.requeue_dead(crawl) is not None
        assert store.requeue_dead(crawl) is None

    def test_a_requeued_dead_letter_keeps_the_kind_of_its_task(
        self, store: Store, crawl: int
    ) -> None:
        one = replace(final(crawl, 1), task=TaskKind.REQUISITE)
        store.commit(Commit(finals=[one]))
        batch = store.requeue_dead(crawl)
        assert batch is not None
        again = Admission("http://example.org/1", 2, 3, kind=TaskKind.REQUISITE)
        assert batch.urls == (again,)
        assert store.pending_seeds()[0].urls == (again,)

    def test_dead_letters_that_die_again_during_a_requeue_are_left_for_the_next(
        self, store: Store, crawl: int
    ) -> None:
        store.tick()
        store.commit(Commit(finals=[final(crawl, n) for n in range(5)]))
        now, found = store.tick(), []
        while (batch := store.requeue_dead(crawl, limit=2, before=now)) is not None:
            found += [item.url for item in batch.urls]
            again = [final(crawl, int(url.rpartition("/")[2]), at_ms=99) for url in found]
            store.commit(Commit(finals=again))
            assert len(found) <= 5
        assert sorted(found) == [f"http://example.org/{n}" for n in range(5)]
        assert len(store.dead(crawl)) == 5, "they wait for the next time"

    # -- commits

    def test_a_page_comes_back_as_it_was_written(self, store: Store, crawl: int) -> None:
        written = page(
            crawl, -(2**63), 5, final_url="http://example.org/to", status=301, elapsed_ms=120,
            depth=4,
            headers={"content-type": "text/html", "x": "ü"}, body=bytes(range(256)) * 40,
            truncated=True, title="标题", text="text " * 500, language="zh-Hant",
            encoding="gb18030",
            fields={"price": 9.5, "tags": ["a", None], "deep": {"n": 1}}, items=b'[{"n":1}]',
            links=[Admission("http://example.org/x?q=%C4", 5, 31, 1), Admission("https://b.org/")],
        )  # fmt: skip
        store.commit(Commit([written]))
        assert store.page(crawl, -(2**63)) == written

    def test_an_empty_page_comes_back_as_it_was_written(self, store: Store, crawl: int) -> None:
        written = StoredPage(crawl=crawl, fingerprint=0, url="http://example.org/", status=204)
        store.commit(Commit([written]))
        assert store.page(crawl, 0) == written
        assert store.page(crawl, 1) is None

    def test_an_older_page_does_not_replace_a_newer_one(self, store: Store, crawl: int) -> None:
        store.commit(Commit([page(crawl, 1, 2000, title="new", body=b"new")]))
        store.commit(Commit([page(crawl, 1, 1000, title="old", body=b"old old")]))
        stored = store.page(crawl, 1)
        assert stored is not None
        assert (stored.title, stored.body, stored.fetched_ms) == ("new", b"new", 2000)
        assert store.counts(crawl)["bytes"] == 3

    def test_a_refetch_removes_no_link_from_the_log(self, store: Store, crawl: int) -> None:
        store.commit(Commit([page(crawl, 1, 2000, links=links("http://a/", "http://b/"))]))
        store.commit(Commit([page(crawl, 1, 3000, links=links("http://b/", "http://c/"))]))
        assert urls(store.page(crawl, 1)) == {"http://a/", "http://b/", "http://c/"}
        store.commit(Commit([page(crawl, 1, 4000)]))
        assert urls(store.page(crawl, 1)) == {"http://a/", "http://b/", "http://c/"}

    def test_a_page_that_came_too_late_still_adds_its_links(self, store: Store, crawl: int) -> None:
        store.commit(Commit([page(crawl, 1, 2000, links=links("http://a/", depth=3))]))
        late = page(crawl, 1, 1000, links=[*links("http://a/", depth=2), *links("http://b/")])
        store.commit(Commit([late, page(crawl, 2)]))
        stored = store.page(crawl, 1)
        assert urls(stored) == {"http://a/", "http://b/"}
        assert stored is not None
        assert {link.url: link.depth for link in stored.links}["http://a/"] == 2
        assert stored.fetched_ms == 2000

    def test_the_newest_of_several_pages_in_one_commit_is_kept(
        self, store: Store, crawl: int
    ) -> None:
        store.commit(
            Commit(
                [
                    page(crawl, 1, 1000, title="old", links=links("http://a/")),
                    page(crawl, 1, 3000, title="new", links=links("http://b/")),
                    page(crawl, 1, 2000, title="late", links=links("http://c/")),
                ]
            )
        )
        stored = store.page(crawl, 1)
        assert stored is not None
        assert stored.title == "new"
        assert urls(stored) == {"http://a/", "http://b/", "http://c/"}

    def test_a_page_removes_the_final_state_before_it(self, store: Store, crawl: int) -> None:
        store.commit(Commit(finals=[final(crawl, 1, 1000), final(crawl, 2, 1000)]))
        store.commit(Commit([page(crawl, 1, 1000)]))
        assert store.final(crawl, 1) is None
        assert store.final(crawl, 2) == final(crawl, 2, 1000)

    def test_a_final_state_never_removes_a_page(self, store: Store, crawl: int) -> None:
        store.commit(Commit([page(crawl, 1, 1000, body=b"kept")]))
        store.commit(Commit(finals=[final(crawl, 1, 2000, "gone"), final(crawl, 1, 500)]))
        stored = store.page(crawl, 1)
        assert stored is not None
        assert stored.body == b"kept"
        assert store.final(crawl, 1) == final(crawl, 1, 2000, "gone")

    def test_an_older_final_state_changes_nothing(self, store: Store, crawl: int) -> None:
        store.commit(Commit(finals=[final(crawl, 1, 2000, "gone")]))
        store.commit(Commit(finals=[final(crawl, 1, 1000, "dead")]))
        assert store.final(crawl, 1) == final(crawl, 1, 2000, "gone")
        store.commit(Commit([page(crawl, 2, 2000)], finals=[final(crawl, 2, 1000)]))
        assert store.final(crawl, 2) is None

    def test_an_attempt_written_again_changes_nothing(self, store: Store, crawl: int) -> None:
        tries = [
            attempt(crawl, 1, 1000, code=503, kind="unavailable", errors=1, wait=30.5, worker="w1"),
            attempt(crawl, 1, 2000, code=0, kind="reset", errors=2, wait=60.0, detail="lost"),
            attempt(crawl, 1, 3000),
        ]
        store.commit(Commit(attempts=tries))
        store.commit(Commit(attempts=[*tries, attempt(crawl, 2, 3000)]))
        assert store.attempts(crawl, 1) == tries[::-1]
        assert store.attempts(crawl, 1, limit=1) == tries[2:]
        assert store.counts(crawl)["attempts"] == 4
        assert store.slowest_hosts(crawl) == [("example.org", 0.1, 3)]

    def test_many_greenlets_commit_and_each_is_stored(self, store: Store, crawl: int) -> None:
        jobs = [
            gevent.spawn(store.commit, Commit([page(crawl, 10 * n + k) for k in range(7)]))
            for n in range(40)
        ]
        gevent.joinall(jobs, timeout=30)
        assert all(job.successful() for job in jobs)
        assert store.counts(crawl)["pages"] == 280

    def test_other_greenlets_run_while_one_commits(self, store: Store, crawl: int) -> None:
        beats = 0

        def beat() -> None:
            nonlocal beats
            while True:
                gevent.sleep(0.001)
                beats += 1

        heart = gevent.spawn(beat)
        body = b"<p>some words</p>" * 5000
        for first in range(0, 2500, 500):  # a busy machine may leave the hub no turn in one of them
            numbers = range(first, first + 500)
            store.commit(Commit([page(crawl, n, body=body + bytes([n % 256])) for n in numbers]))
            if beats >= 3:
                break
        heart.kill()
        assert beats >= 3

    def test_text_that_is_no_unicode_is_stored_and_read(self, store: Store, crawl: int) -> None:
        written = page(
            crawl, 1, title="nul \0 end", text="lone \ud800 pair \ud83d\ude00 nul \0",
            headers={"x": "\udcff"}, fields={"k\ud800": ["\udc00", {"n": "\0"}]},
            links=[Admission("http://example.org/\udc80")],
        )  # fmt: skip
        lost = attempt(crawl, 1, detail="\ud800", worker="\udfff", url="http://example.org/\ud800")
        store.commit(Commit([written], [lost], [final(crawl, 3)]))
        stored = store.page(crawl, 1)
        assert stored is not None
        assert (stored.title, stored.text) == ("nul \0 end", "lone � pair 😀 nul \0")
        assert stored.headers == {"x": "�"}
        assert stored.fields == {"k�": ["�", {"n": "\0"}]}
        assert stored.links[0].url == "http://example.org/�"
        assert store.attempts(crawl, 1)[0].detail == "�"

    def test_numbers_beyond_a_column_are_cut_not_refused(self, store: Store, crawl: int) -> None:
        store.commit(Commit([page(crawl, 1, 2**70, elapsed_ms=-(2**70), depth=2**64)]))
        stored = store.page(crawl, 1)
        assert stored is not None
        assert (stored.fetched_ms, stored.elapsed_ms) == (2**63 - 1, -(2**63))
        assert stored.depth == 2**63 - 1

    # -- blocks

    def test_overflow_comes_back_by_level_then_in_order_of_arrival(
        self, store: Store, crawl: int
    ) -> None:
        store.put_overflow(crawl, beyond([3, 1, 3, 0], host="a.org"))
        store.put_overflow(crawl, beyond([2], host="b.org", first=50))
        found = store.overflow(crawl, 7, "a.org", 10)
        assert [(row.fingerprint, row.item.level) for row in found] == [
            (13, 0), (11, 1), (10, 3), (12, 3),
        ]  # fmt: skip
        assert [row.fingerprint for row in store.overflow(crawl, 7, "a.org", 2)] == [13, 11]
        assert store.overflow(crawl, 8, "a.org", 10) == []
        assert store.overflow_hosts(crawl, 7, "", 10) == ["a.org", "b.org"]
        assert store.overflow_hosts(crawl, 7, "a.org", 10) == ["b.org"]
        assert store.overflow_places() == [(crawl, 7)]

    def test_overflow_that_is_put_again_waits_again_at_the_better_level(
        self, store: Store, crawl: int
    ) -> None:
        store.put_overflow(crawl, beyond([3, 3], host="a.org"))
        store.overflow_taken(store.overflow(crawl, 7, "a.org", 10), "n", 1)
        assert store.overflow(crawl, 7, "a.org", 10) == []
        assert store.overflow_places() == []
        store.put_overflow(crawl, beyond([1], host="a.org", first=11))
        assert [(r.fingerprint, r.item.level) for r in store.overflow(crawl, 7, "a.org", 10)] == [
            (11, 1)
        ]

    def test_a_url_that_is_put_twice_at_once_waits_at_the_better_level(
        self, store: Store, crawl: int
    ) -> None:
        store.put_overflow(crawl, [row for n in (3, 1, 2) for row in beyond([n], host="a.org")])
        (row,) = store.overflow(crawl, 7, "a.org", 10)
        assert (row.fingerprint, row.item.level) == (10, 1)

    def test_overflow_that_was_taken_waits_again_once_it_is_freed(
        self, store: Store, crawl: int
    ) -> None:
        store.put_overflow(crawl, beyond([3, 3, 3], host="a.org"))
        rows = store.overflow(crawl, 7, "a.org", 10)
        store.overflow_taken(rows[:2], "n", 1)
        assert store.overflow(crawl, 7, "a.org", 10) == rows[2:]
        assert [r for _, some in store.overflow_of(7) for r in some] == rows, "it is not fetched"
        store.free_overflow(7)
        assert store.overflow(crawl, 7, "a.org", 10) == rows

    def test_overflow_taken_under_an_epoch_that_is_over_waits_on(
        self, store: Store, crawl: int
    ) -> None:
        store.put_overflow(crawl, beyond([3], host="a.org"))
        rows = store.overflow(crawl, 7, "a.org", 10)
        store.raise_epoch("n", 0, 2)
        store.overflow_taken(rows, "n", 1)
        assert store.overflow(crawl, 7, "a.org", 10) == rows
        store.overflow_taken(rows, "n", 2)
        assert store.overflow(crawl, 7, "a.org", 10) == []

    def test_overflow_that_was_taken_goes_with_its_page_or_final_state(
        self, store: Store, crawl: int
    ) -> None:
        store.put_overflow(crawl, beyond([3, 3, 3, 3], host="a.org"))
        rows = store.overflow(crawl, 7, "a.org", 10)
        store.overflow_taken(rows[:2], "n", 1)
        store.commit(Commit(pages=[page(crawl, 10)], finals=[final(crawl, 11)]))
        assert [r for _, some in store.overflow_of(7) for r in some] == rows[2:]
        store.commit(Commit(pages=[page(crawl, 12)]))
        assert store.overflow(crawl, 7, "a.org", 10) == rows[2:], "a node counts on it"
        store.commit(Commit(pages=[page(crawl, 50)]))
        store.put_overflow(crawl, beyond([0], host="a.org", first=50))
        store.overflow_taken(store.overflow(crawl, 7, "a.org", 10), "n", 1)
        assert [r for _, some in store.overflow_of(7) for r in some] == rows[3:], "fetched already"

    def test_overflow_is_freed_and_read_by_the_window_it_was_stamped_in(
        self, store: Store, crawl: int
    ) -> None:
        def read(since: int) -> list[int]:
            found = [r for _, some in store.overflow_since(7, since) for r in some]
            return [row.fingerprint for row in found]

        store.put_overflow(crawl, beyond([3, 3, 3], host="a.org"))
        old = store.overflow(crawl, 7, "a.org", 10)
        store.overflow_taken(old[:1], "n", 1)
        since = store.tick()
        store.put_overflow(crawl, beyond([3, 3], host="b.org", first=50))
        store.put_overflow(crawl, beyond([3], host="b.org", first=60))
        new = store.overflow(crawl, 7, "b.org", 10)
        store.overflow_taken([old[1], new[0]], "n", 1)
        assert read(since) == [51, 60]
        assert read(since + 1) == []
        assert store.overflow(crawl, 7, "a.org", 10) == old[2:]
        store.tick()
        store.free_overflow(7, since)
        assert store.overflow(crawl, 7, "a.org", 10) == old[1:], "what was queued before stays"
        assert store.overflow(crawl, 7, "b.org", 10) == new
        assert read(since) == [51, 60, 11, 50], "freed rows wait from then on"
        store.free_overflow(7)
        assert store.overflow(crawl, 7, "a.org", 10) == old
        assert read(0) == [12, 51, 60, 10, 11, 50]

    def test_a_long_window_of_the_overflow_is_read_whole(self, store: Store, crawl: int) -> None:
        store.put_overflow(crawl, beyond([3] * 1200, host="a.org"))
        found = [row for _, some in store.overflow_since(7, store.clock().clock) for row in some]
        assert [row.fingerprint for row in found] == list(range(10, 1210))

    def test_a_page_or_final_state_is_stamped_anew_when_its_overflow_row_is_taken(
        self, store: Store, crawl: int
    ) -> None:
        """A Redis that comes back in its state from before the row was taken still waits for it."""
        store.put_overflow(crawl, beyond([3, 3, 3], host="a.org"))
        rows = store.overflow(crawl, 7, "a.org", 10)
        store.commit(Commit(pages=[page(crawl, 10)], finals=[final(crawl, 11)]))
        since = store.tick()
        assert store.replay_size(since) == (0, 0, 0)
        store.overflow_taken(rows, "n", 1)
        assert store.replay_size(since) == (1, 1, 0)
        marks = [mark for chunk in store.replay_marks(since) for mark in chunk]
        assert [mark.kind for mark in marks] == ["S", "D"]

    def test_overflow_of_a_deleted_crawl_goes_with_it(self, store: Store, crawl: int) -> None:
        store.put_overflow(crawl, beyond([3] * 10, host="a.org"))
        store.delete_crawl(crawl)
        assert store.overflow_places() == []
        store.put_overflow(crawl, beyond([3], host="a.org"))
        assert list(store.overflow_of(7)) == [], "nobody could ask for it"

    def test_deletions_are_listed_in_the_order_in_which_they_were_asked_for(
        self, store: Store, crawl: int
    ) -> None:
        asked = [f"{n}.org" for n in range(40, 10, -1)]  # more than there are crawls
        for host in asked:
            store.add_purge(crawl, host)
        if isinstance(store, SqliteStore):  # rows without an order come in reverse
            turned = "PRAGMA reverse_unordered_selects = ON"
            store._questions.run(lambda db: db.execute(turned).close())
        assert [one.host for one in store.purges()] == asked

    def test_a_crawl_with_overflow_ends_only_at_a_limit(self, store: Store, crawl: int) -> None:
        store.put_overflow(crawl, beyond([3], host="a.org"))
        assert store.set_state(crawl, "done", "finished").state == "active"
        assert store.set_state(crawl, "done", "max_pages").state == "done"

    def test_a_block_of_a_host_is_never_shortened(self, store: Store) -> None:
        store.put_block("a.org", 2000, "429")
        store.put_block("a.org", 1000, "503")
        store.put_block("b.org:8080", 900, "503")
        assert store.blocks(500) == [("a.org", 2000, "429"), ("b.org:8080", 900, "503")]
        assert store.blocks(1999) == [("a.org", 2000, "429")]
        store.put_block("a.org", 3000, "again")
        assert store.blocks(2000) == [("a.org", 3000, "again")]
        assert store.blocks(3000) == []

    def test_a_block_that_was_lifted_is_forgotten(self, store: Store) -> None:
        store.put_block("a.org", 2000, "429")
        store.put_block("b.org", 2000, "429")
        store.lift_block("a.org")
        store.lift_block("c.org")
        assert store.blocks(500) == [("b.org", 2000, "429")]
        store.put_block("a.org", 1000, "503")
        assert store.blocks(500)[0] == ("a.org", 1000, "503"), "a new one may be shorter"

    def test_an_operators_delay_stays_until_it_is_lifted(self, store: Store, crawl: int) -> None:
        store.put_delay("a.org", 30_000)
        store.put_delay("a.org", 30_000)
        store.put_delay("b.org:8080", 500)
        store.put_delay("B.org:8080", 700)
        store.put_delay("a.org", 86_400_000)
        assert (store.delay("a.org"), store.delay("c.org")) == (86_400_000, 0)
        assert sum(store.drop_expired(2**52)) == 0
        store.delete_crawl(crawl)
        every = {"a.org": 86_400_000, "b.org:8080": 500, "B.org:8080": 700}
        assert store.delays() == every
        store.put_delay("a.org", 0)
        store.put_delay("c.org", 0)
        assert store.delay("a.org") == 0
        del every["a.org"]
        assert store.delays() == every

    # -- questions

    def test_dead_letters_are_listed_in_pages_by_row(self, store: Store, crawl: int) -> None:
        store.commit(Commit(finals=[final(crawl, n) for n in range(7)]))
        store.commit(Commit(finals=[final(crawl, 50, state="gone")]))
        first = store.dead(crawl, limit=4)
        rest = store.dead(crawl, limit=4, after=first[-1][0])
        assert [row.fingerprint for _, row in first + rest] == list(range(7))
        assert first[0][1] == final(crawl, 0)

    def test_the_running_time_of_a_crawl_excludes_stops_and_counts_nothing_twice(
        self, store: Store, crawl: int
    ) -> None:
        looks = (100_000, 103_000, 103_000, 102_000, 105_000, 900_000, 901_000)
        spent = [store.count_time(crawl, now, 10_000) for now in looks]
        assert spent == [0, 3000, 3000, 3000, 5000, 5000, 6000]
        with pytest.raises(UnknownCrawl):
            store.count_time(crawl + 1, 1, 1)

    def test_the_counts_of_a_crawl_follow_its_stored_rows(self, store: Store, crawl: int) -> None:
        store.put_crawl("other", CrawlOptions(), [])
        store.commit(
            Commit(
                [page(crawl, 1, body=b"12345"), page(crawl, 2, body=b"678")],
                [attempt(crawl, n) for n in range(1, 6)],
                [final(crawl, 3), final(crawl, 4, state="gone"), final(crawl, 5, state="excluded")],
            )
        )
        counted = {"pages": 2, "bytes": 8, "attempts": 5, "hosts": 1}
        expected = counted | {"dead": 1, "gone": 1, "excluded": 1, "parked": 0}
        assert store.counts(crawl) == expected
        store.commit(Commit([page(crawl, 1, 5000, body=b"1")]))
        assert store.counts(crawl) == expected | {"bytes": 4}
        store.commit(Commit([page(crawl, 9, status=301)]))
        assert store.counts(crawl) == expected | {"bytes": 4}, "a redirect is no page"

    def test_the_list_of_slowest_hosts_counts_only_answers(self, store: Store, crawl: int) -> None:
        store.commit(
            Commit(
                attempts=[
                    attempt(crawl, 1, url="http://slow.org/", elapsed_ms=3000),
                    attempt(crawl, 2, url="http://slow.org/", elapsed_ms=1000, code=404),
                    attempt(crawl, 3, url="http://fast.org:8080/", elapsed_ms=10),
                    attempt(crawl, 4, url="http://dead.org/", elapsed_ms=60_000, code=0),
                ]
            )
        )
        assert store.slowest_hosts(crawl) == [("slow.org", 2.0, 2), ("fast.org:8080", 0.01, 1)]
        assert store.slowest_hosts(crawl, limit=1) == [("slow.org", 2.0, 2)]

    def test_pages_stream_in_row_order_and_go_on_after_a_row(
        self, store: Store, crawl: int
    ) -> None:
        other = store.put_crawl("other", CrawlOptions(), []).id
        for start in range(0, 1200, 400):
            store.commit(
                Commit(
                    [page(crawl, -n, body=b"b", title=str(n)) for n in range(start, start + 400)]
                    + [page(other, n) for n in range(start, start + 400)]
                )
            )
        streamed = list(store.pages(crawl))
        assert [stored.title for _, stored in streamed] == [str(n) for n in range(1200)]
        assert len({cursor for cursor, _ in streamed}) == 1200
        assert {stored.body for _, stored in streamed} == {b""}
        tail = list(store.pages(crawl, detail="body", after=streamed[1099][0]))
        assert [stored.title for _, stored in tail] == [str(n) for n in range(1100, 1200)]
        assert {stored.body for _, stored in tail} == {b"b"}

    def test_final_states_stream_completely(self, store: Store, crawl: int) -> None:
        extremes = [-(2**63), 2**63 - 1]
        store.commit(Commit(finals=[final(crawl, n) for n in [*range(-600, 600), *extremes]]))
        streamed = [row.fingerprint for _, row in store.finals(crawl)]
        assert sorted(streamed) == sorted([*range(-600, 600), *extremes])

    def test_a_commit_of_one_store_is_read_by_another(self, open_store: Opener) -> None:
        first, second = open_store(), open_store()
        made: Crawl = first.put_crawl("a", CrawlOptions(), [])
        first.commit(Commit([page(made.id, 1)]))
        assert second.page(made.id, 1) == page(made.id, 1)
        second.commit(Commit([page(made.id, 1, 2000, title="newer")]))
        stored = first.page(made.id, 1)
        assert stored is not None
        assert stored.title == "newer"

    def test_close_is_idempotent(self, open_store: Opener) -> None:
        store = open_store()
        store.tick()
        store.close()
        store.close()
