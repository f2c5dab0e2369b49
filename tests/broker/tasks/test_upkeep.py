"""The end of a crawl, its limits, pending seeds, the store's clock; on a double of the frontier."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.frontier.coordination.duties import ASK_SECONDS, UPKEEP
from greencrawl.broker.frontier.scripts.partition import state_of
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks import periods as periods_module
from greencrawl.broker.tasks.duty_timeout import FORGOTTEN_SECONDS, MOST_SECONDS
from greencrawl.broker.tasks.upkeep import (
    BUSY_SECONDS,
    HELD_SECONDS,
    QUIET_SECONDS,
    Upkeep,
    limit_reached,
)
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    STOPPED,
    STOPPING,
    STOPPING_NOW,
    Admission,
    Commit,
    Crawl,
    CrawlOptions,
    CrawlStats,
    Recrawl,
    TaskKind,
)
from greencrawl.store import common
from tests.support.queue_double import Parts, Sums
from tests.support.store_records import page


class Rig(Parts):
    """Upkeep with its parts and one crawl."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.upkeep = Upkeep(self.service)

    def crawl(self, **options: Any) -> Crawl:
        made = self.store.put_crawl("test", CrawlOptions(**options), ["a.example"])
        self.queue.put_crawl(made)
        return made

    def see(self, crawl: Crawl, **sums: int) -> float:
        self.queue.sums[crawl.id] = Sums(**sums)
        return self.upkeep.step()

    def state(self) -> tuple[str, str]:
        crawl = self.store.crawl("test")
        return crawl.state, crawl.reason


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.upkeep.stop()
    made.service.duties.stop()
    made.service.stop()
    made.store.close()


def test_a_crawl_is_done_after_two_equal_scans_that_find_nothing(rig: Rig) -> None:
    crawl = rig.crawl()
    assert rig.see(crawl, admitted=3, finished=3) == BUSY_SECONDS
    assert rig.state()[0] == "active"
    rig.see(crawl, admitted=3, finished=3)
    assert rig.state() == ("done", "finished")
    assert rig.queue.crawls[crawl.id].state == "done"


@pytest.mark.parametrize("left", ["waiting", "leased", "later"])
def test_a_crawl_with_anything_left_is_not_done(rig: Rig, left: str) -> None:
    crawl = rig.crawl()
    for _ in range(3):
        assert rig.see(crawl, admitted=3, finished=2, **{left: 1}) == QUIET_SECONDS
    assert rig.state()[0] == "active"


def test_a_crawl_is_not_done_if_its_totals_changed_between_two_scans(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.see(crawl, admitted=3, finished=3)
    rig.see(crawl, admitted=4, finished=4)
    assert rig.state()[0] == "active"
    rig.see(crawl, admitted=4, finished=4, waiting=1)
    rig.see(crawl, admitted=4, finished=4)
    assert rig.state()[0] == "active"


def test_a_crawl_is_not_done_if_there_was_a_void_scan_between_two_scans(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.see(crawl, admitted=3, finished=3)
    rig.queue.sums[crawl.id] = None
    rig.upkeep.step()
    rig.see(crawl, admitted=3, finished=3)
    assert rig.state()[0] == "active"


def test_a_crawl_with_a_pending_batch_is_never_set_done(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig.crawl()
    tried: list[object] = []

    def away(*_: object, **__: object) -> list[bool]:
        raise Unavailable("one partition is away")

    monkeypatch.setattr(rig.queue, "admit", away)
    monkeypatch.setattr(rig.store, "set_state", lambda *given: tried.append(given))
    rig.see(crawl, admitted=1, finished=1)
    rig.store.add_seeds(crawl.id, [Admission("https://a.example/")])
    for _ in range(3):
        assert rig.see(crawl, admitted=1, finished=1) == QUIET_SECONDS
    assert tried == []
    assert len(rig.store.pending_seeds()) == 1


def test_a_limit_stops_leasing_while_a_batch_is_pending_and_ends_the_crawl_afterwards(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig.crawl(max_bytes=10)

    def away(*_: object, **__: object) -> list[bool]:
        raise Unavailable("one partition is away")

    rig.store.add_seeds(crawl.id, [Admission("https://a.example/")])
    with monkeypatch.context() as patch:
        patch.setattr(rig.queue, "admit", away)
        rig.see(crawl, bytes=11)
        rig.see(crawl, bytes=11)
    assert rig.queue.states[crawl.id] == "stop"
    assert rig.state()[0] == "active"
    rig.see(crawl, bytes=11)
    assert rig.state() == ("done", "max_bytes")


def test_a_crawl_is_shut_in_the_frontier_before_it_is_done_in_the_store(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.see(crawl)
    rig.see(crawl)
    assert rig.queue.told[-2:] == [(crawl.id, "done"), (crawl.id, "done")]
    versions = [rig.queue.crawls[crawl.id].version, crawl.version]
    assert versions == [rig.store.crawl(crawl.id).version, crawl.version]
    assert versions[0] > versions[1]


def test_links_that_come_before_a_crawl_is_shut_keep_it_active(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig.crawl()
    shut = rig.queue.shut

    def links_come(one: Crawl) -> None:
        rig.queue.admit(crawl.id, [Admission("https://a.example/late")])
        shut(one)

    monkeypatch.setattr(rig.queue, "shut", links_come)
    rig.see(crawl)
    rig.see(crawl)
    assert rig.state()[0] == "active"
    assert rig.queue.states[crawl.id] == "active"


def test_a_crawl_that_is_reopened_after_it_was_shut_stays_active(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig.crawl()
    shut = rig.queue.shut

    def somebody_comes(one: Crawl) -> None:
        shut(one)
        rig.store.reopen(one.id, one.version)

    monkeypatch.setattr(rig.queue, "shut", somebody_comes)
    rig.see(crawl)
    rig.see(crawl)
    assert rig.state()[0] == "active"
    assert rig.queue.states[crawl.id] == "active"


def test_a_pause_stays_if_it_comes_just_before_the_end_of_the_crawl(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig.crawl()
    shut = rig.queue.shut

    def paused_meanwhile(one: Crawl) -> None:
        shut(one)
        rig.queue.put_crawl(rig.store.set_state(one.id, "paused"))

    monkeypatch.setattr(rig.queue, "shut", paused_meanwhile)
    rig.see(crawl)
    rig.see(crawl)
    assert rig.state()[0] == "paused"
    assert rig.queue.states[crawl.id] == "paused"


def test_pending_batches_are_admitted_and_settled(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.store.add_seeds(
        crawl.id, [Admission("https://a.example/"), Admission("https://a.example/2")]
    )
    rig.upkeep.step()
    assert rig.queue.seen[crawl.id] == ["https://a.example/", "https://a.example/2"]
    assert rig.store.pending_seeds() == []


@pytest.mark.parametrize(
    ("options", "sums", "reason"),
    [
        ({"max_pages": 10}, {"stored": 10, "waiting": 5}, "max_pages"),
        ({"max_bytes": 1000}, {"bytes": 1200, "later": 1}, "max_bytes"),
    ],
)
def test_leasing_stops_at_a_limit_and_the_crawl_is_done_when_no_task_is_leased(
    rig: Rig, options: dict[str, int], sums: dict[str, int], reason: str
) -> None:
    crawl = rig.crawl(**options)
    rig.see(crawl, **sums, leased=3)
    assert rig.queue.states[crawl.id] == "stop"
    rig.see(crawl, **sums, leased=1)
    assert rig.state()[0] == "active"
    assert rig.queue.told.count((crawl.id, "stop")) == 1
    rig.see(crawl, **sums, leased=0)
    assert rig.state() == ("done", reason)


@pytest.mark.parametrize("reason", [STOPPING, STOPPING_NOW])
def test_a_crawl_that_a_person_stops_is_done_once_nothing_of_it_is_leased(
    rig: Rig, reason: str
) -> None:
    crawl = rig.crawl(max_bytes=10)
    rig.see(crawl, waiting=3, leased=2)
    asked = rig.store.set_state(crawl.id, "paused", reason)
    rig.see(asked, waiting=3, leased=2, bytes=20)
    rig.queue.sums[crawl.id] = None
    rig.upkeep.step()
    assert rig.state() == ("paused", reason)
    assert rig.queue.told[-1] == (crawl.id, state_of(asked)), "nothing else is said of it"
    rig.see(asked, waiting=3, leased=1)
    assert rig.state() == ("paused", reason)
    rig.see(asked, waiting=3, later=1)
    assert rig.state() == ("done", STOPPED)
    assert rig.queue.states[crawl.id] == "stop"


def test_a_resumed_crawl_needs_two_equal_scans_again_before_it_is_done(
    rig: Rig,
) -> None:
    crawl = rig.crawl()
    rig.see(crawl)
    rig.store.set_state(crawl.id, "paused", STOPPING)
    rig.see(crawl, leased=1)  # which sends a message
    rig.see(crawl, leased=1)
    rig.store.set_state(crawl.id, "active")
    rig.see(crawl)  # which sends a message
    rig.see(crawl)
    assert rig.state() == ("active", "")
    rig.see(crawl)
    assert rig.state() == ("done", "finished")


def test_a_crawl_with_periods_rests_and_wakes_up_with_its_seeds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [epoch_ms()]
    for module in (periods_module, common):
        monkeypatch.setattr(module, "epoch_ms", lambda: now[0])
    seeds = ("https://a.example/", "https://a.example/news")
    crawl = rig.crawl(seeds=seeds, recrawl=Recrawl(every="1h"))
    rig.see(crawl)
    assert rig.see(crawl) == BUSY_SECONDS
    rests = rig.store.crawl("test")
    assert (rests.state, rests.reason) == ("resting", "finished")
    assert rig.queue.states[crawl.id] == "done"
    scans = rig.queue.scans
    now[0] = rests.wakes_ms - 1500
    assert rig.upkeep.step(()) == 1.5
    assert rig.store.crawl("test") == rests
    assert rig.queue.scans == scans
    now[0] += 1500
    rig.upkeep.step(())
    assert rig.state() == ("active", "")
    assert rig.queue.states[crawl.id] == "active"
    (batch,) = rig.store.pending_seeds()
    assert [(item.url, item.kind) for item in batch.urls] == [
        (seed, TaskKind.REFETCH) for seed in seeds
    ]
    assert batch.force
    rig.upkeep.step(())
    assert rig.store.pending_seeds() == []
    assert rig.queue.seen[crawl.id] == list(seeds)
    now[0] += 60_000
    again = rig.store.crawl("test")
    rig.see(again)
    rig.see(again)
    assert rig.store.crawl("test").wakes_ms == rests.wakes_ms + 3_600_000
    assert [one.number for one in rig.store.periods(crawl.id)] == [2, 1]


def test_a_resting_crawl_without_further_periods_is_done_when_it_would_wake_up(rig: Rig) -> None:
    crawl = rig.crawl(seeds=("https://a.example/",), recrawl=Recrawl(every="1s"))
    rig.store.rest(crawl.id, 1, version=crawl.version)
    rig.crawl(seeds=("https://a.example/",))
    gevent.sleep(0.002)
    rig.upkeep.step(())
    assert rig.state() == ("done", "finished")
    assert rig.store.pending_seeds() == []


def test_a_crawl_ends_when_the_store_has_max_pages_whatever_redis_counted(rig: Rig) -> None:
    """The store has a page whose task was never finished: the task comes back for ever."""
    crawl = rig.crawl(max_pages=2)
    rig.store.commit(Commit([page(crawl.id, 1), page(crawl.id, 2)]))
    rig.see(crawl, stored=1, leased=1)
    assert rig.queue.states[crawl.id] == "stop"
    rig.see(crawl, stored=1, later=1)
    assert rig.state() == ("done", "max_pages")


def test_a_crawl_whose_pages_were_fetched_again_goes_on_until_the_store_has_max_pages(
    rig: Rig,
) -> None:
    crawl = rig.crawl(max_pages=2)
    rig.store.commit(Commit([page(crawl.id, 1)]))
    rig.see(crawl, stored=2, requeued=1, waiting=1)
    assert rig.queue.states[crawl.id] == "active"
    rig.store.commit(Commit([page(crawl.id, 2)]))
    rig.see(crawl, stored=3, requeued=1, waiting=1)
    rig.see(crawl, stored=3, requeued=1, waiting=1)
    assert rig.state() == ("done", "max_pages")


def test_a_limit_that_is_set_after_the_last_page_counts_each_refetched_page_once(
    rig: Rig,
) -> None:
    crawl = rig.crawl()
    rig.store.commit(Commit([page(crawl.id, 1), page(crawl.id, 2)]))
    limited = rig.crawl(max_pages=3)
    assert rig.store.stored(crawl.id) == 0, "no commit has counted them"
    rig.see(limited, stored=4, requeued=2, waiting=1)
    assert rig.queue.states[crawl.id] == "active"


def test_leasing_goes_on_when_the_limit_was_raised(rig: Rig) -> None:
    crawl = rig.crawl(max_pages=10)
    rig.see(crawl, stored=10, leased=3, waiting=5)
    raised = rig.crawl(max_pages=20)
    rig.queue.crawls.clear()
    rig.see(raised, stored=11, leased=2, waiting=5)
    assert rig.queue.crawls[crawl.id].options.max_pages == 20
    assert rig.state()[0] == "active"


def test_leasing_stops_while_nodes_are_away_if_the_others_alone_reach_the_limit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = rig.crawl(max_bytes=100)
    rig.queue.sums[crawl.id] = None
    for found, state in ((99, "active"), (100, "stop")):
        stats = CrawlStats(crawl=crawl.name, state="active", bytes=found)
        monkeypatch.setattr(rig.queue, "stats", lambda _, stats=stats: stats)
        rig.upkeep.step()
        assert rig.queue.states[crawl.id] == state


def test_a_crawl_reaches_its_time_limit_after_max_seconds() -> None:
    crawl = Crawl(id=1, name="t", state="active", options=CrawlOptions(max_seconds=60))
    assert limit_reached(crawl, Sums(), 59.999) == ""
    assert limit_reached(crawl, Sums(), 60.0) == "max_seconds"


def test_the_stores_clock_steps_once_a_second_and_only_in_use(rig: Rig) -> None:
    first = rig.store.tick()
    rig.upkeep.step()
    rig.upkeep.step()
    rig.now += 1.0
    rig.upkeep.step(())
    rig.upkeep.step()
    assert rig.store.tick() == first + 3


def test_one_of_two_brokers_raises_the_stores_clock_until_it_stops(
    rig: Rig,
) -> None:
    other = Upkeep(Service(rig.queue, rig.store, clock=lambda: rig.now))
    rig.upkeep.step()
    first = rig.store.clock().clock
    for _ in range(5):
        rig.now += 1.0
        rig.upkeep.step()
        assert other.step() == QUIET_SECONDS
    assert rig.store.clock().clock == first + 5
    rig.service.duties.stop()
    gevent.sleep(ASK_SECONDS)  # it has just asked
    rig.now += 1.0
    other.step()
    assert rig.store.clock().clock == first + 6


def test_the_tick_is_a_value_read_before_the_clock_is_raised(rig: Rig) -> None:
    rig.upkeep.step()
    assert rig.queue.ticks == [rig.store.clock().clock - 1]


def test_a_crawl_whose_end_was_not_announced_is_found_by_its_note(rig: Rig) -> None:
    """The broker that took the last finish died before it could send the message."""
    crawl = rig.crawl()
    rig.see(crawl, admitted=1, finished=0, waiting=1)
    clock, scans = rig.store.clock().clock, rig.queue.scans
    rig.queue.sums[crawl.id] = Sums(admitted=1, finished=1)
    rig.now += QUIET_SECONDS
    rig.queue.still = {crawl.id: QUIET_SECONDS + 1.0}
    rig.upkeep.step(())
    assert rig.queue.scans == scans, "that was before the last look"
    rig.now += QUIET_SECONDS
    rig.queue.still = {crawl.id: 2.0}
    assert rig.upkeep.step(()) <= BUSY_SECONDS
    rig.now += BUSY_SECONDS
    rig.upkeep.step(())
    assert rig.state() == ("done", "finished")
    assert rig.store.clock().clock == clock, "to look is no use of the frontier"


@pytest.mark.parametrize("part", ["count", "look"])
def test_the_note_of_a_crawls_end_is_kept_if_a_step_is_cut_short(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """SQL or Redis is away for a moment, and the next scan is minutes away."""
    crawls = [rig.crawl(), rig.store.put_crawl("other", CrawlOptions(), ["b.example"])]
    for crawl in crawls:
        rig.queue.put_crawl(crawl)
        rig.queue.sums[crawl.id] = Sums(admitted=1, waiting=1)
    rig.upkeep.step()
    for crawl in crawls:
        rig.queue.sums[crawl.id] = Sums(admitted=1, finished=1)
    rig.now += QUIET_SECONDS
    ended = rig.now - 2.0

    def away(*_: object) -> None:
        raise Unavailable("a moment of an outage")

    with monkeypatch.context() as patch:
        patch.setattr(rig.queue, part, away)
        rig.queue.still = {crawl.id: 2.0 for crawl in crawls}
        with pytest.raises(Unavailable):
            rig.upkeep.step(())
    for _ in range(2):
        rig.now += QUIET_SECONDS
        rig.queue.still = {crawl.id: rig.now - ended for crawl in crawls}
        rig.upkeep.step(())
    assert {crawl.state for crawl in rig.store.crawls()} == {"done"}


def test_a_holder_that_reaches_no_redis_leaves_the_duty_to_others(rig: Rig) -> None:
    """No message names the crawls, and no crawl is due to be scanned."""
    crawl = rig.crawl()
    rig.see(crawl, admitted=1, waiting=1)
    clock = rig.store.clock().clock
    began = rig.now
    rig.queue.away = True
    while rig.service.duties.get(UPKEEP):
        assert rig.now - began < 15
        rig.now += rig.upkeep.step(())
    assert rig.store.clock().clock == clock
    rig.queue.away = False


@pytest.fixture
def given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times at which the holder gave the duty of upkeep up. No other broker takes it,
    though one could take it immediately."""
    times: list[float] = []
    give_up = rig.service.duties.give_up

    def noted(name: str, seconds: float) -> None:
        times.append(rig.now)
        give_up(name, seconds)

    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.CUT_SECONDS", 0.0)
    monkeypatch.setattr(rig.service.duties, "give_up", noted)
    return times


def test_the_upkeep_duty_is_given_up_less_and_less_often_while_nobody_reaches_a_node(
    rig: Rig, given_up: list[float]
) -> None:
    crawl = rig.crawl()
    rig.see(crawl, admitted=1, waiting=1)
    rig.queue.away = True
    while rig.now < 500.0:
        rig.now += rig.upkeep.step(())
    between = [after - before for before, after in pairwise(given_up)]
    assert 5 <= len(given_up) <= 10
    assert between[0] < between[1] < between[2]
    assert min(between[3:]) > MOST_SECONDS - 5
    rig.queue.away = False
    rig.see(crawl, admitted=1, waiting=1)
    rig.queue.away, back = True, rig.now
    while given_up[-1] < back:
        rig.now += rig.upkeep.step(())
    assert given_up[-1] - back < 15, "the next time it is as patient as the first"


@pytest.mark.parametrize("how", ["cut off", "void"])
def test_failures_under_a_lost_duty_do_not_count_under_the_next(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    crawl = rig.crawl()
    rig.see(crawl, admitted=1, waiting=1)
    rig.queue.away = how == "cut off"
    if how == "void":
        rig.queue.sums[crawl.id] = None
    for _ in range(2):
        rig.now += 1.5
        rig.upkeep.step()
    rig.service.duties.lost(UPKEEP)
    rig.now += 1000.0
    rig.upkeep.step()
    rig.now += 1.5
    rig.upkeep.step()
    assert rig.service.duties.get(UPKEEP), "others had it for long"
    while rig.service.duties.get(UPKEEP):
        rig.now += 1.0
        rig.upkeep.step()
        assert rig.now < 1115


def test_a_holder_forgets_after_a_while_how_often_it_gave_up_the_duty(
    rig: Rig, given_up: list[float]
) -> None:
    crawl = rig.crawl()
    rig.see(crawl, admitted=1, waiting=1)
    rig.queue.away = True
    while len(given_up) < 5:
        rig.now += rig.upkeep.step(())
        assert rig.now < 1000
    rig.now += FORGOTTEN_SECONDS + 1.0  # others, which reach all nodes, had the duty meanwhile
    back = rig.now
    while given_up[-1] < back:
        rig.now += rig.upkeep.step(())
        assert rig.now - back < 15


def test_a_holder_keeps_its_duty_if_a_node_is_soon_back(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.see(crawl, admitted=1, waiting=1)
    for away in (True, False) * 3:
        rig.queue.away = away
        for _ in range(3):
            rig.now += 1.0 if away else 2.0
            rig.upkeep.step(())
    assert rig.service.duties.get(UPKEEP)


def test_the_frontier_is_not_scanned_without_an_active_crawl(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.store.set_state(crawl.id, "paused")
    assert rig.upkeep.step(()) == QUIET_SECONDS
    assert rig.queue.scans == 0


def test_a_crawl_that_is_being_deleted_is_not_scanned(rig: Rig) -> None:
    crawl = rig.crawl()
    rig.queue.away = True
    rig.service.purge(crawl)
    gevent.sleep(0.05)
    rig.upkeep.step()
    assert rig.queue.scans == 0


def test_the_greenlet_of_the_upkeep_survives_outages_and_defects_and_ends_the_crawl(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.QUIET_SECONDS", 0.01)
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.BUSY_SECONDS", 0.01)
    rig.crawl()
    failures = [Unavailable("store away"), ZeroDivisionError("a defect")]
    crawls = rig.store.crawls

    def failing() -> list[Crawl]:
        if failures:
            raise failures.pop(0)
        return crawls()

    monkeypatch.setattr(rig.store, "crawls", failing)
    rig.service.clock = monotonic
    rig.service.duties.start()
    rig.upkeep.start()
    with gevent.Timeout(5):
        while rig.state()[0] != "done":
            gevent.sleep(0.01)
    rig.upkeep.stop()
    assert failures == []


def test_the_upkeep_does_not_admit_a_batch_that_a_request_is_admitting(rig: Rig) -> None:
    crawl = rig.crawl()
    batch = rig.store.add_seeds(crawl.id, [Admission("https://a.example/")])
    rig.service.admitting.add(batch)
    for _ in range(3):
        rig.see(crawl)
    assert crawl.id not in rig.queue.seen, "its caller would be told of a duplicate"
    assert rig.state()[0] == "active"
    rig.service.admitting.discard(batch)
    rig.upkeep.step()
    assert rig.queue.seen[crawl.id] == ["https://a.example/"]


def test_the_upkeep_leaves_a_batch_to_its_request_from_the_commit_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of the upkeep may come between the commit and the next step of the request."""
    crawl = rig.crawl()
    add_seeds = rig.store.add_seeds

    def slow(*given: Any, **named: Any) -> int:
        batch = add_seeds(*given, **named)
        rig.upkeep.step()
        return batch

    monkeypatch.setattr(rig.store, "add_seeds", slow)
    assert seeding.admit(rig.service, crawl, [Admission("https://a.example/")], force=False) == [
        True
    ]
    assert rig.store.pending_seeds() == []
    assert rig.service.admitting == set()


def test_batches_that_wait_for_a_node_that_is_away_are_not_admitted_again_and_again(
    rig: Rig,
) -> None:
    crawl = rig.crawl()
    rig.queue.lost_node = "b"
    for n in range(3):
        rig.store.add_seeds(crawl.id, [Admission(f"http://a.example/lost{n}")])
    rig.upkeep.step()
    assert rig.queue.admissions == 3, "each is tried once"
    rig.store.add_seeds(crawl.id, [Admission("http://a.example/other")])
    for _ in range(5):
        rig.upkeep.step()
    assert rig.queue.admissions == 4, "what comes later is not held up"
    assert len(rig.store.pending_seeds()) == 3
    rig.now += HELD_SECONDS + 1
    rig.upkeep.step()
    assert rig.queue.admissions == 7, "all are looked at now and then"
    assert rig.state()[0] == "active"
    rig.queue.lost_node = ""
    rig.upkeep.step()
    assert rig.store.pending_seeds() == []
