"""The end of a crawl, its limits, pending seeds, the store's clock; on a double of the frontier."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.frontier.coordination.duties import ASK_SECONDS, UPKEEP
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.patience import FORGOTTEN_SECONDS, MOST_SECONDS
from greencrawl.broker.tasks.upkeep import (
    BUSY_SECONDS,
    HELD_SECONDS,
    QUIET_SECONDS,
    Upkeep,
    limit_reached,
)
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Admission, Commit, Crawl, CrawlOptions
from tests.support.queue_double import Parts, Sums
from tests.support.store_records import page


class House(Parts):
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
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.upkeep.stop()
    made.service.duties.stop()
    made.service.stop()
    made.store.close()


def test_a_crawl_is_done_after_two_equal_scans_that_find_nothing(house: House) -> None:
    crawl = house.crawl()
    assert house.see(crawl, admitted=3, finished=3) == BUSY_SECONDS
    assert house.state()[0] == "active"
    house.see(crawl, admitted=3, finished=3)
    assert house.state() == ("done", "finished")
    assert house.queue.crawls[crawl.id].state == "done"


@pytest.mark.parametrize("left", ["waiting", "leased", "later"])
def test_a_crawl_with_anything_left_is_not_done(house: House, left: str) -> None:
    crawl = house.crawl()
    for _ in range(3):
        assert house.see(crawl, admitted=3, finished=2, **{left: 1}) == QUIET_SECONDS
    assert house.state()[0] == "active"


def test_totals_that_changed_between_two_scans_start_over(house: House) -> None:
    crawl = house.crawl()
    house.see(crawl, admitted=3, finished=3)
    house.see(crawl, admitted=4, finished=4)
    assert house.state()[0] == "active"
    house.see(crawl, admitted=4, finished=4, waiting=1)
    house.see(crawl, admitted=4, finished=4)
    assert house.state()[0] == "active"


def test_a_void_scan_starts_over(house: House) -> None:
    crawl = house.crawl()
    house.see(crawl, admitted=3, finished=3)
    house.queue.sums[crawl.id] = None
    house.upkeep.step()
    house.see(crawl, admitted=3, finished=3)
    assert house.state()[0] == "active"


def test_a_crawl_with_a_pending_batch_is_not_even_tried_to_be_set_done(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = house.crawl()
    tried: list[object] = []

    def away(*_: object, **__: object) -> list[bool]:
        raise Unavailable("one partition is away")

    monkeypatch.setattr(house.queue, "admit", away)
    monkeypatch.setattr(house.store, "set_state", lambda *given: tried.append(given))
    house.see(crawl, admitted=1, finished=1)
    house.store.add_seeds(crawl.id, [Admission("https://a.example/")])
    for _ in range(3):
        assert house.see(crawl, admitted=1, finished=1) == QUIET_SECONDS
    assert tried == []
    assert len(house.store.pending_seeds()) == 1


def test_limit_holds_while_a_batch_is_pending_and_the_crawl_ends_once_it_is_not(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = house.crawl(max_bytes=10)

    def away(*_: object, **__: object) -> list[bool]:
        raise Unavailable("one partition is away")

    house.store.add_seeds(crawl.id, [Admission("https://a.example/")])
    with monkeypatch.context() as patch:
        patch.setattr(house.queue, "admit", away)
        house.see(crawl, bytes=11)
        house.see(crawl, bytes=11)
    assert house.queue.states[crawl.id] == "stop"
    assert house.state()[0] == "active"
    house.see(crawl, bytes=11)
    assert house.state() == ("done", "max_bytes")


def test_a_crawl_takes_nothing_in_before_it_is_done(house: House) -> None:
    crawl = house.crawl()
    house.see(crawl)
    house.see(crawl)
    assert house.queue.told[-2:] == [(crawl.id, "done"), (crawl.id, "done")]
    versions = [house.queue.crawls[crawl.id].version, crawl.version]
    assert versions == [house.store.crawl(crawl.id).version, crawl.version]
    assert versions[0] > versions[1]


def test_what_came_before_a_crawl_was_shut_keeps_it_active(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = house.crawl()
    shut = house.queue.shut

    def links_come(one: Crawl) -> None:
        house.queue.admit(crawl.id, [Admission("https://a.example/late")])
        shut(one)

    monkeypatch.setattr(house.queue, "shut", links_come)
    house.see(crawl)
    house.see(crawl)
    assert house.state()[0] == "active"
    assert house.queue.states[crawl.id] == "active"


def test_who_comes_to_a_crawl_that_is_shut_keeps_it_from_being_done(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = house.crawl()
    shut = house.queue.shut

    def somebody_comes(one: Crawl) -> None:
        shut(one)
        house.store.reopen(one.id, one.version)

    monkeypatch.setattr(house.queue, "shut", somebody_comes)
    house.see(crawl)
    house.see(crawl)
    assert house.state()[0] == "active"
    assert house.queue.states[crawl.id] == "active"


def test_a_pause_outlives_the_end_that_was_about_to_come(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = house.crawl()
    shut = house.queue.shut

    def paused_meanwhile(one: Crawl) -> None:
        shut(one)
        house.queue.put_crawl(house.store.set_state(one.id, "paused"))

    monkeypatch.setattr(house.queue, "shut", paused_meanwhile)
    house.see(crawl)
    house.see(crawl)
    assert house.state()[0] == "paused"
    assert house.queue.states[crawl.id] == "paused"


def test_who_dies_after_shutting_a_crawl_leaves_it_to_the_next(house: House) -> None:
    crawl = house.crawl()
    house.queue.shut(crawl)
    house.see(crawl, waiting=1)
    assert house.queue.states[crawl.id] == "active"


def test_pending_batches_are_admitted_and_settled(house: House) -> None:
    crawl = house.crawl()
    house.store.add_seeds(
        crawl.id, [Admission("https://a.example/"), Admission("https://a.example/2")]
    )
    house.upkeep.step()
    assert house.queue.seen[crawl.id] == ["https://a.example/", "https://a.example/2"]
    assert house.store.pending_seeds() == []


@pytest.mark.parametrize(
    ("options", "sums", "reason"),
    [
        ({"max_pages": 10}, {"stored": 10, "waiting": 5}, "max_pages"),
        ({"max_bytes": 1000}, {"bytes": 1200, "later": 1}, "max_bytes"),
    ],
)
def test_at_a_limit_leasing_stops_and_the_crawl_is_done_when_nothing_is_leased(
    house: House, options: dict[str, int], sums: dict[str, int], reason: str
) -> None:
    crawl = house.crawl(**options)
    house.see(crawl, **sums, leased=3)
    assert house.queue.states[crawl.id] == "stop"
    house.see(crawl, **sums, leased=1)
    assert house.state()[0] == "active"
    assert house.queue.told.count((crawl.id, "stop")) == 1
    house.see(crawl, **sums, leased=0)
    assert house.state() == ("done", reason)


def test_a_crawl_ends_when_the_store_takes_no_more_whatever_was_counted(house: House) -> None:
    """A page is in the store whose task was never finished, and is given back for ever."""
    crawl = house.crawl(max_pages=2)
    house.store.commit(Commit([page(crawl.id, 1), page(crawl.id, 2)]))
    house.see(crawl, stored=1, leased=1)
    assert house.queue.states[crawl.id] == "stop"
    house.see(crawl, stored=1, later=1)
    assert house.state() == ("done", "max_pages")


def test_leasing_goes_on_when_the_limit_was_raised(house: House) -> None:
    crawl = house.crawl(max_pages=10)
    house.see(crawl, stored=10, leased=3, waiting=5)
    raised = house.crawl(max_pages=20)
    house.queue.crawls.clear()
    house.see(raised, stored=11, leased=2, waiting=5)
    assert house.queue.crawls[crawl.id].options.max_pages == 20
    assert house.state()[0] == "active"


def test_time_is_a_limit_too() -> None:
    crawl = Crawl(id=1, name="t", state="active", options=CrawlOptions(max_seconds=60))
    assert limit_reached(crawl, Sums(), 59.999) == ""
    assert limit_reached(crawl, Sums(), 60.0) == "max_seconds"


def test_the_logs_clock_steps_once_a_second_and_only_in_use(house: House) -> None:
    first = house.store.tick()
    house.upkeep.step()
    house.upkeep.step()
    house.now += 1.0
    house.upkeep.step(())
    house.upkeep.step()
    assert house.store.tick() == first + 3


def test_of_two_brokers_one_raises_the_logs_clock_and_the_other_when_that_has_stopped(
    house: House,
) -> None:
    other = Upkeep(Service(house.queue, house.store, clock=lambda: house.now))
    house.upkeep.step()
    first = house.store.clock().clock
    for _ in range(5):
        house.now += 1.0
        house.upkeep.step()
        assert other.step() == QUIET_SECONDS
    assert house.store.clock().clock == first + 5
    house.service.duties.stop()
    gevent.sleep(ASK_SECONDS)  # it has just asked
    house.now += 1.0
    other.step()
    assert house.store.clock().clock == first + 6


def test_the_tick_is_a_value_read_before_the_clock_is_raised(house: House) -> None:
    house.upkeep.step()
    assert house.queue.ticks == [house.store.clock().clock - 1]


def test_a_crawl_that_ended_unheard_of_is_looked_at_by_its_note(house: House) -> None:
    """The broker that took the last finish died before it could say so."""
    crawl = house.crawl()
    house.see(crawl, admitted=1, finished=0, waiting=1)
    clock, scans = house.store.clock().clock, house.queue.scans
    house.queue.sums[crawl.id] = Sums(admitted=1, finished=1)
    house.now += QUIET_SECONDS
    house.queue.still = {crawl.id: QUIET_SECONDS + 1.0}
    house.upkeep.step(())
    assert house.queue.scans == scans, "that was before the last look"
    house.now += QUIET_SECONDS
    house.queue.still = {crawl.id: 2.0}
    assert house.upkeep.step(()) <= BUSY_SECONDS
    house.now += BUSY_SECONDS
    house.upkeep.step(())
    assert house.state() == ("done", "finished")
    assert house.store.clock().clock == clock, "to look is no use of the frontier"


@pytest.mark.parametrize("part", ["count", "look"])
def test_a_note_is_not_used_up_by_a_step_that_is_cut_short(
    house: House, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """SQL or Redis are away for a moment, and the next look is minutes away."""
    crawls = [house.crawl(), house.store.put_crawl("other", CrawlOptions(), ["b.example"])]
    for crawl in crawls:
        house.queue.put_crawl(crawl)
        house.queue.sums[crawl.id] = Sums(admitted=1, waiting=1)
    house.upkeep.step()
    for crawl in crawls:
        house.queue.sums[crawl.id] = Sums(admitted=1, finished=1)
    house.now += QUIET_SECONDS
    ended = house.now - 2.0

    def away(*_: object) -> None:
        raise Unavailable("a moment of an outage")

    with monkeypatch.context() as patch:
        patch.setattr(house.queue, part, away)
        house.queue.still = {crawl.id: 2.0 for crawl in crawls}
        with pytest.raises(Unavailable):
            house.upkeep.step(())
    for _ in range(2):
        house.now += QUIET_SECONDS
        house.queue.still = {crawl.id: house.now - ended for crawl in crawls}
        house.upkeep.step(())
    assert {crawl.state for crawl in house.store.crawls()} == {"done"}


def test_a_holder_that_reaches_no_redis_leaves_the_duty_to_others(house: House) -> None:
    """Nothing is heard of crawls, and none is due to be scanned."""
    crawl = house.crawl()
    house.see(crawl, admitted=1, waiting=1)
    clock = house.store.clock().clock
    began = house.now
    house.queue.away = True
    while house.service.duties.get(UPKEEP):
        assert house.now - began < 15
        house.now += house.upkeep.step(())
    assert house.store.clock().clock == clock
    house.queue.away = False


@pytest.fixture
def given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When upkeep was left to others, each time; nobody takes it, and it may be taken at once."""
    times: list[float] = []
    give_up = house.service.duties.give_up

    def noted(name: str, seconds: float) -> None:
        times.append(house.now)
        give_up(name, seconds)

    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.CUT_SECONDS", 0.0)
    monkeypatch.setattr(house.service.duties, "give_up", noted)
    return times


def test_a_node_that_nobody_reaches_is_no_reason_to_pass_the_duty_on_all_the_time(
    house: House, given_up: list[float]
) -> None:
    crawl = house.crawl()
    house.see(crawl, admitted=1, waiting=1)
    house.queue.away = True
    while house.now < 500.0:
        house.now += house.upkeep.step(())
    between = [after - before for before, after in pairwise(given_up)]
    assert 5 <= len(given_up) <= 10
    assert between[0] < between[1] < between[2]
    assert min(between[3:]) > MOST_SECONDS - 5
    house.queue.away = False
    house.see(crawl, admitted=1, waiting=1)
    house.queue.away, back = True, house.now
    while given_up[-1] < back:
        house.now += house.upkeep.step(())
    assert given_up[-1] - back < 15, "the next time it is as patient as the first"


@pytest.mark.parametrize("how", ["cut off", "void"])
def test_what_was_met_under_a_duty_that_was_lost_is_none_of_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    crawl = house.crawl()
    house.see(crawl, admitted=1, waiting=1)
    house.queue.away = how == "cut off"
    if how == "void":
        house.queue.sums[crawl.id] = None
    for _ in range(2):
        house.now += 1.5
        house.upkeep.step()
    house.service.duties.lost(UPKEEP)
    house.now += 1000.0
    house.upkeep.step()
    house.now += 1.5
    house.upkeep.step()
    assert house.service.duties.get(UPKEEP), "others had it for long"
    while house.service.duties.get(UPKEEP):
        house.now += 1.0
        house.upkeep.step()
        assert house.now < 1115


def test_what_did_not_help_long_ago_is_forgotten(house: House, given_up: list[float]) -> None:
    crawl = house.crawl()
    house.see(crawl, admitted=1, waiting=1)
    house.queue.away = True
    while len(given_up) < 5:
        house.now += house.upkeep.step(())
        assert house.now < 1000
    house.now += FORGOTTEN_SECONDS + 1.0  # others have had it, and reach all nodes
    back = house.now
    while given_up[-1] < back:
        house.now += house.upkeep.step(())
        assert house.now - back < 15


def test_a_node_that_is_soon_back_costs_no_duty(house: House) -> None:
    crawl = house.crawl()
    house.see(crawl, admitted=1, waiting=1)
    for away in (True, False) * 3:
        house.queue.away = away
        for _ in range(3):
            house.now += 1.0 if away else 2.0
            house.upkeep.step(())
    assert house.service.duties.get(UPKEEP)


def test_without_an_active_crawl_the_frontier_is_not_asked(house: House) -> None:
    crawl = house.crawl()
    house.store.set_state(crawl.id, "paused")
    assert house.upkeep.step(()) == QUIET_SECONDS
    assert house.queue.scans == 0


def test_a_crawl_that_is_being_deleted_is_left_alone(house: House) -> None:
    crawl = house.crawl()
    house.queue.away = True
    house.service.purge(crawl)
    gevent.sleep(0.05)
    house.upkeep.step()
    assert house.queue.scans == 0


def test_the_greenlet_survives_outages_and_defects_and_ends_the_crawl(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.QUIET_SECONDS", 0.01)
    monkeypatch.setattr("greencrawl.broker.tasks.upkeep.BUSY_SECONDS", 0.01)
    house.crawl()
    failures = [Unavailable("store away"), ZeroDivisionError("a defect")]
    crawls = house.store.crawls

    def failing() -> list[Crawl]:
        if failures:
            raise failures.pop(0)
        return crawls()

    monkeypatch.setattr(house.store, "crawls", failing)
    house.service.clock = monotonic
    house.service.duties.start()
    house.upkeep.start()
    with gevent.Timeout(5):
        while house.state()[0] != "done":
            gevent.sleep(0.01)
    house.upkeep.stop()
    assert failures == []


def test_a_batch_that_a_request_is_admitting_is_left_to_it(house: House) -> None:
    crawl = house.crawl()
    batch = house.store.add_seeds(crawl.id, [Admission("https://a.example/")])
    house.service.admitting.add(batch)
    for _ in range(3):
        house.see(crawl)
    assert crawl.id not in house.queue.seen, "its caller would be told of a duplicate"
    assert house.state()[0] == "active"
    house.service.admitting.discard(batch)
    house.upkeep.step()
    assert house.queue.seen[crawl.id] == ["https://a.example/"]


def test_a_batch_is_its_requests_own_from_the_moment_it_can_be_found(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the commit and the requester's turn the upkeep may look."""
    crawl = house.crawl()
    add_seeds = house.store.add_seeds

    def slow(*given: Any, **named: Any) -> int:
        batch = add_seeds(*given, **named)
        house.upkeep.step()
        return batch

    monkeypatch.setattr(house.store, "add_seeds", slow)
    assert seeding.admit(house.service, crawl, [Admission("https://a.example/")], force=False) == [
        True
    ]
    assert house.store.pending_seeds() == []
    assert house.service.admitting == set()


def test_batches_that_wait_for_a_node_that_is_away_are_not_admitted_again_and_again(
    house: House,
) -> None:
    crawl = house.crawl()
    house.queue.lost_node = "b"
    for n in range(3):
        house.store.add_seeds(crawl.id, [Admission(f"http://a.example/lost{n}")])
    house.upkeep.step()
    assert house.queue.admissions == 3, "each is tried once"
    house.store.add_seeds(crawl.id, [Admission("http://a.example/other")])
    for _ in range(5):
        house.upkeep.step()
    assert house.queue.admissions == 4, "what comes later is not held up"
    assert len(house.store.pending_seeds()) == 3
    house.now += HELD_SECONDS + 1
    house.upkeep.step()
    assert house.queue.admissions == 7, "all are looked at now and then"
    assert house.state()[0] == "active"
    house.queue.lost_node = ""
    house.upkeep.step()
    assert house.store.pending_seeds() == []
