"""The contract of stores about samples, alerts and the holder of a duty; part of a store's
contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from greencrawl.schema.errors import DutyLost
from greencrawl.schema.records import Alert, Counted, CrawlOptions, Duty
from greencrawl.store.base import MINUTE_MS, Store

FIRST = 30_000_000
"""A minute."""


def sample(crawl: int, minute: int, pages: int = 0, **more: int) -> Counted:
    return Counted(crawl=crawl, minute=FIRST + minute, pages=pages, **more)


def alert(subject: str = "w", since_ms: int = 1000, **more: Any) -> Alert:
    return Alert(kind="node_lost", subject=subject, text="It is löst.", since_ms=since_ms, **more)


def minutes(found: list[Counted]) -> list[int]:
    return [one.minute - FIRST for one in found]


class WatchingContract:
    """See the module's text."""

    # -- samples

    def test_samples_are_kept_by_minute_and_the_first_one_stays(
        self, store: Store, crawl: int
    ) -> None:
        most = 2**53
        one = Counted(
            crawl=crawl, minute=FIRST, pages=most, bytes=most, errors=3, unchanged=4, waiting=5,
            leased=6, later=7, overflow=8, dead=9, parked=10, hosts=11,
        )  # fmt: skip
        store.put_samples([one])
        store.put_samples([replace(one, pages=1), sample(crawl, 1, 2)])
        assert store.samples(crawl) == [one, sample(crawl, 1, 2)]
        assert store.samples(crawl + 1) == []

    def test_a_list_of_samples_includes_the_one_before_its_beginning(
        self, store: Store, crawl: int
    ) -> None:
        store.put_samples([sample(crawl, n) for n in (0, 3, 4, 9)])
        since = (FIRST + 4) * MINUTE_MS
        assert minutes(store.samples(crawl, since)) == [3, 4, 9]
        assert minutes(store.samples(crawl, since + MINUTE_MS)) == [4, 9]
        assert store.samples(crawl, since + 6 * MINUTE_MS) == []

    @pytest.mark.parametrize("points", [2, 3, 10, 59, 60, 61])
    def test_samples_are_thinned_to_the_wanted_points_and_keep_the_last_one(
        self, store: Store, crawl: int, points: int
    ) -> None:
        store.put_samples([sample(crawl, n, n * 7) for n in range(60)])
        found = store.samples(crawl, FIRST * MINUTE_MS, points)
        assert points / 2 <= len(found) <= points
        assert minutes(found)[-1] == 59
        assert all(one.pages == 7 * (one.minute - FIRST) for one in found)
        gaps = {b - a for a, b in zip(minutes(found)[:-2], minutes(found)[1:-1], strict=True)}
        assert len(gaps) <= 1

    def test_old_samples_are_dropped_and_so_are_those_of_a_deleted_crawl(
        self, store: Store, crawl: int
    ) -> None:
        other = store.put_crawl("other", CrawlOptions(), ["b.example"]).id
        store.put_samples([sample(n, m) for n in (crawl, other) for m in range(1500)])
        assert sum(store.drop_samples((FIRST + 1499) * MINUTE_MS)) == 2998
        assert sum(store.drop_samples((FIRST + 1499) * MINUTE_MS)) == 0
        assert minutes(store.samples(crawl)) == minutes(store.samples(other)) == [1499]
        store.delete_crawl(crawl)
        store.put_samples([sample(crawl, 2000), sample(other, 2000)])
        assert store.samples(crawl) == []
        assert minutes(store.samples(other)) == [1499, 2000]

    # -- alerts

    def test_an_alert_is_open_until_its_end_and_untold_until_both_messages_are_sent(
        self, store: Store
    ) -> None:
        seen, other = alert(), alert("x", 900)
        store.put_alerts([seen, other])
        assert store.alerts() == [other, seen]
        assert store.untold_alerts() == []
        begun = replace(seen, began_ms=2000)
        store.put_alerts([begun])
        assert store.untold_alerts() == [begun]
        store.note_told(replace(begun, told=1))
        assert store.untold_alerts() == []
        over = replace(begun, over_ms=3000, told=1)
        store.put_alerts([replace(begun, over_ms=3000)])
        assert store.untold_alerts() == [over], "that it was told is not forgotten"
        assert store.alerts() == [other]
        store.note_told(replace(over, told=2))
        assert store.untold_alerts() == []
        again = alert(since_ms=5000)
        store.put_alerts([again])
        assert store.alerts() == [other, again]

    def test_alerts_are_forgotten_one_by_one_and_dropped_when_they_are_long_over(
        self, store: Store
    ) -> None:
        some = [alert(str(n), n, began_ms=n, over_ms=n) for n in range(1, 6)]
        store.put_alerts([*some, alert("open")])
        store.forget_alerts([alert("open"), alert("none")])
        assert store.alerts() == []
        assert sum(store.drop_alerts(4)) == 3
        assert [one.subject for one in store.untold_alerts()] == ["4", "5"]

    # -- duties

    def test_the_holder_of_a_duty_is_known_while_it_holds_it(
        self, open_store: Callable[[], Store]
    ) -> None:
        first, second = open_store(), open_store()
        assert first.duty_holder("coordinator") == ""
        first.take_duties("a", ["coordinator"])
        assert first.duty_holder("coordinator") == second.duty_holder("coordinator") == "a"
        second.release_duties("a", ["coordinator"])
        assert first.duty_holder("coordinator") == ""

    def test_samples_and_alerts_are_not_written_under_a_duty_that_another_broker_has_taken(
        self, store: Store, crawl: int
    ) -> None:
        epoch = store.take_duties("a", ["coordinator"])["coordinator"]
        mine = store.under(Duty("coordinator", epoch))
        seen = alert()
        mine.put_samples([sample(crawl, 0)])
        mine.put_alerts([seen])
        store.release_duties("a", ["coordinator"])
        store.take_duties("b", ["coordinator"])
        for write in (
            lambda: mine.put_samples([sample(crawl, 1)]),
            lambda: mine.put_alerts([replace(seen, began_ms=1)]),
            lambda: mine.note_told(replace(seen, told=1)),
            lambda: mine.forget_alerts([seen]),
            lambda: list(mine.drop_samples(2**40)),
            lambda: list(mine.drop_alerts(2**40)),
            lambda: mine.member_left("w-0", 1, "lost", 1),
        ):
            with pytest.raises(DutyLost):
                write()
        assert minutes(store.samples(crawl)) == [0]
        assert store.alerts() == [seen]
