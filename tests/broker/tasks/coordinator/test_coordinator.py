"""Which broker is the coordinator, what it stores, and that a former coordinator changes
nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from greencrawl.broker.frontier.coordination.duties import COORDINATOR
from greencrawl.broker.frontier.coordination.outages import Outage
from greencrawl.broker.tasks.coordinator.coordinator import (
    CHECK_SECONDS,
    CUT_SECONDS,
    DAY_MS,
    LOOK_SECONDS,
    LOST_SECONDS,
    RANK_SECONDS,
    STILL_MINUTES,
    Watched,
)
from greencrawl.broker.tasks.coordinator.samples import SAME_MINUTES, Samples
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.records import (
    BEAT_SECONDS,
    Alert,
    Commit,
    Counted,
    CrawlOptions,
    CrawlStats,
    Facts,
)
from greencrawl.store.base import MINUTE_MS
from tests.support.cut import CutStore
from tests.support.paced import Pace, PacedStore
from tests.support.store_records import final
from tests.support.watched import START_MS, Broker, Rig

DUTIES = "greencrawl.broker.frontier.coordination.duties"


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(f"{DUTIES}.ASK_SECONDS", 0.0)
    made = Rig(tmp_path)
    yield made
    made.stop()


# -- the election


def test_the_broker_with_the_highest_id_takes_a_vacancy_at_once(rig: Rig) -> None:
    lower, highest, middle = (rig.broker(name) for name in ("b-1", "b-3", "b-2"))
    for broker in (lower, middle, highest):
        broker.look()
    assert [broker.holds for broker in (lower, middle, highest)] == [False, False, True]


def test_the_broker_with_the_second_highest_id_waits_a_second_after_the_highest_died(
    rig: Rig,
) -> None:
    lower, highest, middle = (rig.broker(name) for name in ("b-1", "b-3", "b-2"))
    highest.look()
    rig.vacate(highest)  # its heartbeat is still there
    steps = 0
    while not middle.holds:
        lower.look()
        middle.look()
        assert not lower.holds
        rig.now += LOOK_SECONDS
        steps += 1
    assert steps == RANK_SECONDS / LOOK_SECONDS + 1
    rig.vacate(middle)
    rig.silence("b-3")
    rig.silence("b-2")
    lower.look()
    assert lower.holds, "nobody that is heard of comes before it"


def test_brokers_are_ranked_by_joined_members_if_no_heartbeat_can_be_read(rig: Rig) -> None:
    lower, _ = rig.broker("b-1"), rig.broker("b-2")
    rig.queue.beats.away = True
    lower.look()
    assert not lower.holds
    rig.now += RANK_SECONDS
    lower.look()
    assert lower.holds


def test_the_coordinator_stays_in_office_when_a_higher_id_joins(rig: Rig) -> None:
    first = rig.broker("b-1")
    first.look()
    higher = rig.broker("b-9")
    for _ in range(30):
        higher.look()
        higher.service.duties.renew()
        first.look()
        rig.now += 1
    assert first.holds
    assert not higher.holds


def test_the_renewal_of_other_duties_does_not_take_the_duty_of_the_coordinator(rig: Rig) -> None:
    lower, _ = rig.broker("b-1"), rig.broker("b-2")
    lower.look()
    lower.service.duties.want(COORDINATOR, "upkeep")
    lower.service.duties.renew()
    assert lower.service.duties.get("upkeep") is not None
    assert not lower.holds


def test_no_broker_waits_more_than_eight_seconds_to_become_the_coordinator(rig: Rig) -> None:
    last = rig.broker("a")
    for number in range(20):
        rig.join(f"b-{number}", kind="broker")
    last.look()
    rig.now += 8
    last.look()
    assert last.holds


def test_a_coordinator_that_does_not_reach_a_node_leaves_the_duty_to_others(rig: Rig) -> None:
    one, other = rig.broker("b-2"), rig.broker("b-1")
    one.look()
    rig.queue.lost_node = "n1"
    for _ in range(2):  # it looks between two checks of members
        rig.passed(CHECK_SECONDS / 2 - 1, one)
    assert not one.holds
    other.look()
    rig.now += RANK_SECONDS
    one.look()
    other.look()
    assert other.holds
    rig.vacate(other)
    one.service.duties.give_up("x", 0)  # its own clock is right, and has not moved
    rig.now += CUT_SECONDS
    assert one.coordinator._not_before < rig.now


# -- under an old epoch


def dump(rig: Rig) -> dict[str, list[Any]]:
    db = sqlite3.connect(rig.store.path)  # type: ignore[attr-defined]
    try:
        tables = ("samples", "alerts", "members")
        return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    finally:
        db.close()


def test_a_former_coordinator_that_wakes_up_writes_nothing(rig: Rig) -> None:
    frozen, other = rig.broker("b-2"), rig.broker("b-1")
    rig.join("w-0")
    frozen.look()
    duty = frozen.service.duties.get(COORDINATOR)
    assert duty is not None
    rig.silence("w-0")
    rig.passed(BEAT_SECONDS - CHECK_SECONDS, frozen)
    rig.vacate(frozen)
    rig.silence("b-2")
    other.look()
    assert other.holds
    before = dump(rig)
    rig.now += 3 * MINUTE_MS / 1000  # everything is due: a sample, a lost member, an alert
    rig.store.owe(["n1"])
    assert frozen.service.duties.get(COORDINATOR) == duty, "it believes that it has it"
    for _ in range(3):
        with pytest.raises(DutyLost):
            frozen.coordinator.step(duty, rig.now_ms)
        rig.now += CHECK_SECONDS
    assert dump(rig) == before
    frozen.service.duties.lost(COORDINATOR)
    assert other.holds
    rig.passed(BEAT_SECONDS + 2 * CHECK_SECONDS, other)
    assert dump(rig) != before, "and there was something to write"


def all_due(rig: Rig, frozen: Broker, turn: int) -> None:
    """A sample, a lost member and one that is back, alerts that begin and end, old rows."""
    coordinator, now_ms = frozen.coordinator, rig.now_ms
    rig.now += MINUTE_MS / 1000
    for name in (f"lost-{turn}", f"back-{turn}", f"long-{turn}"):
        rig.join(name)
    rig.silence(f"lost-{turn}")
    coordinator._silent[f"lost-{turn}"] = -1000.0
    for name in (f"back-{turn}", f"long-{turn}"):
        rig.store.member_left(name, 1, "lost", now_ms)
    rig.silence(f"long-{turn}")
    over = Alert(kind="node_lost", subject=f"x-{turn}", text=".", since_ms=1, began_ms=1)
    brief = Alert(kind="crawl_stuck", subject=f"x-{turn}", text=".", since_ms=1)
    rig.store.put_alerts([over, brief, replace(over, subject=f"old-{turn}", over_ms=5)])
    coordinator._alerts._gone["node_lost", f"x-{turn}"] = -1000.0
    rig.store.put_samples([Counted(crawl=rig.crawl, minute=turn)])
    coordinator._samples = Samples()
    coordinator._sweep_at = coordinator._check_at = 0.0
    rig.queue.outages.note = Outage(turn, "It takes no writes.")


def test_a_former_coordinator_writes_nothing_wherever_in_its_step_it_stood_still(rig: Rig) -> None:
    pace = Pace()
    frozen = rig.broker("b-2", store=PacedStore(pace, rig.store))
    for calls in count(1):
        frozen.look()
        duty = frozen.service.duties.get(COORDINATOR)
        assert duty is not None
        frozen.coordinator._watch.look([], [], lambda _, after_ms: (0, after_ms))
        all_due(rig, frozen, calls)
        step = pace.begin("coordinator", partial(frozen.coordinator.step, duty, rig.now_ms))
        if step.step(calls):
            break
        rig.vacate(frozen)
        rig.store.take_duties("another", [COORDINATOR])
        before = dump(rig)
        with suppress(DutyLost):
            step.step(999)
        assert dump(rig) == before, f"after it stood before {step.before}"
        rig.store.release_duties("another", [COORDINATOR])
        frozen.service.duties.lost(COORDINATOR)
    assert calls > 12, "each of its calls was stood before"


def test_a_coordinator_that_was_cut_off_from_the_store_has_lost_the_duty_when_it_is_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, counting = CutStore(rig.store), Counting(rig, monkeypatch)
    cut, other = rig.broker("b-2", store=store), rig.broker("b-1")
    cut.look()
    duty = cut.service.duties.get(COORDINATOR)
    assert duty is not None
    rig.now += CHECK_SECONDS
    store.cut = True
    with pytest.raises(Unavailable):
        cut.look()
    rig.vacate(cut)  # it ends by itself
    other.look()
    rig.now += RANK_SECONDS
    other.look()
    assert other.holds
    store.cut = False
    counting.now["fetched"] = 1
    before = dump(rig)
    rig.now += MINUTE_MS / 1000
    with pytest.raises(DutyLost):
        cut.coordinator.step(duty, rig.now_ms)
    assert dump(rig) == before
    cut.service.duties.lost(COORDINATOR)
    cut.look()
    assert other.holds, "though its id is the higher one"


# -- samples


class Counting:
    """The frontier's counters: ``now`` may be changed at any time."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now: dict[str, Any] = {}
        monkeypatch.setattr(
            rig.queue,
            "stats",
            lambda crawl, _=None: CrawlStats(crawl=crawl.name, state=crawl.state, **self.now),
        )


def minutes(rig: Rig) -> list[int]:
    return [one.minute - START_MS // MINUTE_MS for one in rig.store.samples(rig.crawl)]


def test_a_crawl_that_is_under_way_has_one_sample_a_minute(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counting = rig.broker("b-1"), Counting(rig, monkeypatch)
    counts = {
        "fetched": 5, "bytes": 600, "waiting": 7, "leased": 1, "later": 2, "overflow": 3, "dead": 4,
        "parked": 6, "unchanged": 8, "hosts": 9,
    }  # fmt: skip
    counting.now = {**counts, "failures": {"timeout": 2, "http_5xx": 3, "noindex": 4}}
    broker.look()
    for pages in (6, 7):
        counting.now["fetched"] = pages
        rig.passed(60, broker)
    assert minutes(rig) == [0, 1, 2]
    counts["pages"] = counts.pop("fetched")
    first = Counted(crawl=rig.crawl, minute=START_MS // MINUTE_MS, errors=5, **counts)
    assert rig.store.samples(rig.crawl)[0] == first
    assert [one.pages for one in rig.store.samples(rig.crawl)] == [5, 6, 7]


def test_a_sample_has_the_dead_letters_of_now_after_urls_were_queued_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counting = rig.broker("b-1"), Counting(rig, monkeypatch)
    rig.store.commit(Commit(finals=[final(rig.crawl, 1), final(rig.crawl, 2, state="parked")]))
    counting.now = {"fetched": 5, "bytes": 600, "dead": 2, "parked": 3, "requeued": 4}
    broker.look()
    (sample,) = rig.store.samples(rig.crawl)
    assert (sample.pages, sample.bytes, sample.dead, sample.parked) == (5, 600, 1, 1)


def test_a_crawl_that_does_not_change_has_few_samples_between_the_first_and_the_last(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counting = rig.broker("b-1"), Counting(rig, monkeypatch)
    counting.now = {"fetched": 5, "leased": 1}
    broker.look()
    rig.passed(20 * 60, broker)
    counting.now["fetched"] = 6
    rig.passed(60, broker)
    assert minutes(rig) == [0, SAME_MINUTES, 20, 21]
    counting.now["fetched"] = 7
    rig.passed(60, broker)
    assert minutes(rig)[-2:] == [21, 22]


def test_a_crawl_that_is_idle_is_counted_less_often_until_something_changes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counting = rig.broker("b-1"), Counting(rig, monkeypatch)
    asked: list[int] = []
    counting.now["fetched"] = 5
    monkeypatch.setattr(
        rig.queue, "count", lambda some: asked.append((rig.now_ms - START_MS) // MINUTE_MS) or {}
    )
    broker.look()
    rig.passed(10 * 60, broker)
    assert asked == [0, 1, 1 + STILL_MINUTES]
    counting.now["fetched"] = 6
    rig.passed(4 * 60, broker)
    assert asked[3:] == [11, 12], "and as it was again"
    assert minutes(rig) == [0, 6, 11]


def test_the_next_coordinator_adds_no_second_sample_of_a_minute(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = rig.broker("b-2"), rig.broker("b-1")
    counting = Counting(rig, monkeypatch)
    counting.now["fetched"] = 1
    one.look()
    rig.vacate(one)
    rig.silence("b-2")
    counting.now["fetched"] = 2
    other.look()
    assert other.holds
    assert [found.pages for found in rig.store.samples(rig.crawl)] == [1]


def test_a_crawl_has_no_sample_while_a_node_is_away_and_one_after_its_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counting = rig.broker("b-1"), Counting(rig, monkeypatch)
    monkeypatch.setattr(broker.coordinator, "_left_as_cut_off", lambda: False)
    broker.look()
    rig.queue.lost_node = "n1"
    counting.now["fetched"] = 1
    rig.passed(150, broker)
    monkeypatch.setattr(rig.queue, "count", lambda _: {})  # the node has just stopped answering
    rig.passed(60, broker)
    assert minutes(rig) == [0]
    rig.queue.lost_node = ""
    rig.passed(60, broker)
    rig.store.set_state(rig.crawl, "done", "finished")
    for pages in range(3, 6):
        counting.now["fetched"] = pages
        rig.passed(60, broker)
    assert minutes(rig) == [0, 4, 5], "the first, one when it was back, and the end"


def test_a_crawl_that_began_and_ended_between_two_counts_has_one_sample(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counting = rig.broker("b-1"), Counting(rig, monkeypatch)
    broker.look()
    short = rig.store.put_crawl("short", CrawlOptions(), ["a.example"]).id
    counting.now["fetched"] = 3
    rig.now += 10
    monkeypatch.setattr("greencrawl.store.common.epoch_ms", lambda: rig.now_ms)
    rig.store.set_state(short, "done", "finished")
    rig.passed(200, broker)
    assert [one.pages for one in rig.store.samples(short)] == [3]


def test_a_store_that_goes_away_between_two_samples_gets_both_the_next_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counting = rig.broker("b-1"), Counting(rig, monkeypatch)
    counting.now["fetched"] = 1
    other = rig.store.put_crawl("other", CrawlOptions(), ["b.example"]).id
    store, told = type(rig.store), list[int]()
    put = store.put_samples

    def away_at_the_second(self: Any, samples: Any) -> None:
        told.extend(one.crawl for one in samples)
        if len(told) == 2:
            raise Unavailable("it has just gone away")
        put(self, samples)

    monkeypatch.setattr(f"{Samples.__module__}.ROWS", 1)
    monkeypatch.setattr(store, "put_samples", away_at_the_second)
    broker.look()
    assert [rig.store.samples(id_) != [] for id_ in told] == [True, False]
    rig.passed(CHECK_SECONDS, broker)
    for crawl in (rig.crawl, other):
        assert [one.pages for one in rig.store.samples(crawl)] == [1]


def test_a_redis_that_is_away_holds_up_no_alert(rig: Rig) -> None:
    broker = rig.broker("b-1")
    broker.look()
    rig.queue.away = True
    rig.store.owe(["n1"])
    rig.passed(320, broker)
    assert [one.kind for one in rig.alerts] == ["links_owed"]


def test_samples_beyond_their_retention_are_dropped(rig: Rig) -> None:
    broker = rig.broker("b-1")
    broker.look()
    old = Counted(crawl=rig.crawl, minute=(rig.now_ms - 91 * DAY_MS) // MINUTE_MS)
    kept = replace(old, minute=old.minute + 2 * 1440)
    rig.store.put_samples([old, kept])
    rig.passed(3600, broker)
    assert rig.store.samples(rig.crawl)[0].minute == kept.minute
    assert Watched("b").sample_days == 90


# -- members


def here(rig: Rig) -> list[str]:
    return [one.id for one in rig.store.members() if not one.left_ms]


def lost(rig: Rig) -> list[str]:
    return [one.id for one in rig.store.members() if one.why == "lost"]


def test_a_member_that_was_not_heard_of_for_a_minute_is_lost_and_comes_back(rig: Rig) -> None:
    broker = rig.broker("b-1")
    rig.join("w-0")
    rig.join("w-1")
    broker.look()
    rig.silence("w-0")  # as half a minute after its last heartbeat
    rig.passed(LOST_SECONDS - BEAT_SECONDS, broker)
    assert lost(rig) == []
    rig.passed(CHECK_SECONDS, broker)
    assert lost(rig) == ["w-0"]
    rig.queue.beats.beat("w-0", 1, Facts(pages=2))
    rig.passed(CHECK_SECONDS, broker)
    assert here(rig) == ["b-1", "w-0", "w-1"]


def test_no_member_is_lost_while_even_the_brokers_own_heartbeat_is_not_heard(rig: Rig) -> None:
    broker = rig.broker("b-1")
    rig.join("w-0")
    broker.look()
    rig.queue.beats.away = True  # as with a Redis that has lost all heartbeats
    rig.passed(300, broker)
    assert lost(rig) == []
    rig.queue.beats.away = False
    rig.silence("w-0")
    rig.passed(LOST_SECONDS - BEAT_SECONDS, broker)
    assert lost(rig) == []
    rig.passed(CHECK_SECONDS, broker)
    assert lost(rig) == ["w-0"]


def test_members_have_more_time_to_be_heard_of_while_a_node_is_away(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = rig.broker("b-1")
    rig.join("w-0")
    broker.look()
    rig.silence("w-0")
    rig.passed(20, broker)
    monkeypatch.setattr(broker.coordinator, "_left_as_cut_off", lambda: False)
    rig.queue.lost_node = "n1"
    rig.passed(25, broker)
    assert lost(rig) == []
    rig.passed(15, broker)
    assert lost(rig) == ["w-0"]


def test_a_member_is_lost_in_time_though_the_duty_is_left_again_and_again_while_a_node_is_away(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock of the duties does not move here, so the broker can take the duty that it left.
    monkeypatch.setattr("greencrawl.broker.tasks.coordinator.coordinator.CUT_SECONDS", 0.0)
    broker = rig.broker("b-1")
    rig.join("w-0")
    rig.queue.lost_node = "n1"
    rig.silence("w-0")  # as half a minute after its last heartbeat
    began = rig.now
    while not lost(rig):
        assert rig.now - began < 2 * CHECK_SECONDS
        rig.now += LOOK_SECONDS
        broker.look()
