"""The contract of stores about dropping: what they must drop on request, and what they must
keep."""

from __future__ import annotations

import pytest

from greencrawl.schema.errors import DutyLost
from greencrawl.schema.records import Commit, Duty, Refusal
from greencrawl.store.base import Store
from tests.support.store_content import month
from tests.support.store_records import attempt, final, links, page


class RetentionContract:
    """See the module's text."""

    def test_old_attempts_that_brought_a_page_are_dropped_and_others_and_sums_stay(
        self, store: Store, crawl: int
    ) -> None:
        old, young = month(2031, 1, 5), month(2031, 3, 5)
        for at in (old, young):
            store.prepare_months(at)
        numbers = range(1, 2500)
        tries = [attempt(crawl, n, old + n) for n in numbers]
        tries += [attempt(crawl, n, old + 5000 + n, code=0, kind="timeout") for n in (1, 2)]
        tries += [attempt(crawl, n, young) for n in (1, 2)]
        store.commit(Commit([page(crawl, 1, young)], tries))
        counts, slowest = store.counts(crawl), store.slowest_hosts(crawl)
        steps = list(store.drop_successes(month(2031, 3, 1)))
        assert len(steps) > 1
        assert max(steps) < len(numbers)
        assert sum(steps) == len(numbers)
        assert [one.kind for one in store.attempts(crawl, 1)] == ["ok", "timeout"]
        assert store.attempts(crawl, 3) == []
        assert sum(store.drop_successes(month(2031, 3, 1))) == 0
        assert (store.counts(crawl), store.slowest_hosts(crawl)) == (counts, slowest)

    def test_a_retention_pass_that_is_broken_off_is_finished_by_the_next(
        self, store: Store, crawl: int
    ) -> None:
        at = month(2031, 1, 5)
        store.prepare_months(at)
        numbers = range(5000)
        store.commit(Commit(attempts=[attempt(crawl, n, at + n) for n in numbers]))
        first = next(iter(store.drop_successes(month(2031, 3, 1))))
        assert 0 < first < len(numbers)
        assert sum(store.drop_successes(month(2031, 3, 1))) == len(numbers) - first

    def test_old_versions_of_a_page_are_dropped_and_the_present_one_stays(
        self, store: Store, crawl: int
    ) -> None:
        for number in (-(2**63), 5, 2**63 - 1):
            for at in (1000, 2000, 3000):
                store.commit(Commit([page(crawl, number, at)]))
        store.commit(Commit([page(crawl, 7, 1000)]))
        assert sum(store.drop_versions(2000)) == 3
        assert sum(store.drop_versions(2000)) == 0
        for number in (-(2**63), 5, 2**63 - 1):
            assert [one.fetched_ms for one in store.history(crawl, number)] == [3000, 2000]
        assert len(store.history(crawl, 7)) == 1

    def test_expired_blocks_and_refusals_are_dropped(self, store: Store, crawl: int) -> None:
        day = 86_400_000
        store.put_block("old.example", day, "429")
        store.put_block("new.example", day + 5, "429")
        store.put_refusals("w-0", "one", [Refusal(crawl, "a", "b")], 2 * day)
        store.put_refusals("w-1", "one", [Refusal(crawl, "a", "b")], 2 * day + 1)
        assert sum(store.drop_expired(2 * day + 1)) == 2
        assert [host for host, _, _ in store.blocks(0)] == ["new.example"]
        assert [one.worker for _, one in store.refusals(0)] == ["w-1"]

    def test_batches_of_seeds_are_dropped_unless_they_are_pending_or_stamped_anew(
        self, store: Store, crawl: int
    ) -> None:
        gone, pending, anew = (store.add_seeds(crawl, links(f"http://{n}/")) for n in "abc")
        for batch in (gone, anew):
            assert store.seeds_admitted(batch)
        known = [(batch.id, batch.stamp) for batch in store.seeds(crawl)]
        store.tick()
        store.restamp_seeds(anew)
        assert store.seeds_admitted(anew)
        assert store.drop_seeds(known) == 1
        assert [batch.id for batch in store.seeds(crawl)] == [pending, anew]
        assert store.seeds_admitted(gone)
        assert [batch.id for batch in store.replay_seeds(0, force=False)] == [pending, anew]

    def test_no_row_is_dropped_under_a_duty_that_another_broker_has_taken(
        self, store: Store, crawl: int
    ) -> None:
        batch = store.add_seeds(crawl, links("http://a/"))
        store.seeds_admitted(batch)
        store.put_block("old.example", 1, "429")
        store.commit(Commit([page(crawl, 1, 1000)], finals=[final(crawl, 2)]))
        store.commit(Commit([page(crawl, 1, 2000)]))
        epoch = store.take_duties("one", ["retention"])["retention"]
        store.release_duties("one", ["retention"])
        mine = store.under(Duty("retention", epoch))
        store.take_duties("two", ["retention"])
        ((number, stamp),) = [(one.id, one.stamp) for one in store.seeds(crawl)]
        for drop in (
            lambda: mine.drop_seeds([(number, stamp)]),
            lambda: list(mine.drop_versions(9000)),
            lambda: list(mine.drop_expired(2**40)),
        ):
            with pytest.raises(DutyLost):
                drop()
        assert len(list(store.seeds(crawl))) == len(store.blocks(0)) == 1
        assert len(store.history(crawl, 1)) == 2
