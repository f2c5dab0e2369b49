"""The rows that a broker drops from the store by itself, when, and under which duty; without a
Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from greencrawl.broker.frontier.coordination.duties import RETENTION
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks import throttle
from greencrawl.broker.tasks.retention import (
    DAY_SECONDS,
    FIRST_SECONDS,
    HOUR_SECONDS,
    Limits,
    Retention,
)
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.records import Admission, Commit, CrawlOptions, Final, StoredPage
from greencrawl.store import open_store
from greencrawl.store.months import month_of, start_ms
from tests.support.queue_double import QueueDouble
from tests.support.store_records import attempt

DAY_MS = 86_400_000
NOW_MS = start_ms(month_of(1_900_000_000_000)) + 20 * DAY_MS
ALL = Limits(journal_months=2, journal_days=30, version_days=10)


class Rig:
    """A store with one crawl, and brokers that share it; ``now`` is their clock in seconds."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.queue = QueueDouble()
        self.store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
        self.crawl = self.store.put_crawl("test", CrawlOptions(), ["a.example"]).id
        self.services: list[Service] = []

    def broker(self, limits: Limits = ALL) -> Retention:
        service = Service(self.queue, self.store, clock=lambda: self.now)
        self.services.append(service)
        return Retention(service, limits)

    def seed(self, *names: str, force: bool = False) -> int:
        urls = [Admission(f"http://a.example/{name}") for name in names]
        batch = self.store.add_seeds(self.crawl, urls, force=force)
        self.store.seeds_admitted(batch)
        return batch

    def page(self, name: str, at_ms: int = 1000) -> None:
        url = f"http://a.example/{name}"
        page = StoredPage(
            crawl=self.crawl, fingerprint=self.queue.fingerprint(url), url=url, status=200,
            fetched_ms=at_ms,
        )  # fmt: skip
        self.store.commit(Commit([page]))

    def dead(self, name: str) -> None:
        url = f"http://a.example/{name}"
        number = self.queue.fingerprint(url)
        final = Final(
            crawl=self.crawl, fingerprint=number, url=url, state="dead", kind="timeout", at_ms=1
        )
        self.store.commit(Commit(finals=[final]))

    @property
    def batches(self) -> list[int]:
        return [batch.id for batch in self.store.seeds(self.crawl)]

    def months_kept(self) -> list[int]:
        present = month_of(NOW_MS)
        return [present - month_of(one.at_ms) for one in self.store.attempts(self.crawl, 1)]

    def store_months(self) -> None:
        present = month_of(NOW_MS)
        tries = [
            attempt(self.crawl, 1, start_ms(present - ago) + 5, kind="timeout", code=0)
            for ago in range(5)
        ]
        self.store.commit(Commit(attempts=tries))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    for service in made.services:
        service.duties.stop()
    made.store.close()


def test_months_of_the_journal_are_dropped_once_an_hour_and_other_rows_once_a_day(rig: Rig) -> None:
    retention = rig.broker()
    rig.store_months()
    batch = rig.seed("a")
    rig.page("a")
    retention.look(NOW_MS)
    assert rig.months_kept() == [0, 1, 2]
    assert rig.batches == [batch]
    rig.now += FIRST_SECONDS
    retention.look(NOW_MS)
    assert rig.batches == []
    rig.store_months()
    rig.seed("a")
    rig.now += HOUR_SECONDS - FIRST_SECONDS - 1
    retention.look(NOW_MS)
    assert rig.months_kept() == [0, 1, 2, 3, 4]
    rig.now += 1
    retention.look(NOW_MS)
    assert rig.months_kept() == [0, 1, 2]
    assert len(rig.batches) == 1
    rig.now += DAY_SECONDS
    retention.look(NOW_MS)
    assert rig.batches == []


def test_attempts_and_versions_of_pages_are_kept_without_limits(rig: Rig) -> None:
    retention = rig.broker(Limits())
    rig.store_months()
    for day in range(3):
        rig.page("a", 1000 + day)
    rig.store.commit(Commit(attempts=[attempt(rig.crawl, 1, 1)]))
    rig.now += FIRST_SECONDS
    retention.look(NOW_MS)
    assert len(rig.store.attempts(rig.crawl, 1)) == 6
    number = rig.queue.fingerprint("http://a.example/a")
    assert len(rig.store.history(rig.crawl, number)) == 3


def test_an_attempt_is_kept_for_its_days_even_if_months_are_short(rig: Rig) -> None:
    retention = rig.broker(Limits(journal_months=1, journal_days=30))
    march = start_ms(12 * 2031 + 2)
    at = {days: march - days * DAY_MS for days in (28, 29, 30, 31, 59)}
    rig.store.commit(Commit(attempts=[attempt(rig.crawl, 1, at_ms) for at_ms in at.values()]))
    retention.look(march + DAY_MS // 2)
    kept = {one.at_ms for one in rig.store.attempts(rig.crawl, 1)}
    assert {at[28], at[29]} <= kept, "29.5 days old, of a month before the one that is kept"
    rig.now += FIRST_SECONDS
    retention.look(march + DAY_MS // 2)
    assert {one.at_ms for one in rig.store.attempts(rig.crawl, 1)} == {at[28], at[29]}


STEPS = ("drop_months", "drop_expired", "drop_successes", "drop_versions")


@pytest.mark.parametrize("drop", [*STEPS, "drop_seeds"])
def test_each_step_of_the_retention_is_followed_by_a_rest_of_its_length(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, drop: str
) -> None:
    retention = rig.broker()
    rig.seed("a")
    rig.page("a")
    course: list[float] = []

    def step(*_: Any) -> int:
        rig.now += 0.25
        course.append(-0.25)
        return 1

    for name in STEPS:
        steps = (step() for _ in range(3)) if name == drop else iter(())
        monkeypatch.setattr(type(rig.store), name, lambda *_, steps=steps: steps)
    if drop == "drop_seeds":
        monkeypatch.setattr(type(rig.store), drop, step)
    monkeypatch.setattr(throttle, "gevent", SimpleNamespace(sleep=course.append))  # here alone
    rig.now += FIRST_SECONDS
    retention.look(NOW_MS)
    assert [one for one in course if one] == [-0.25, 0.25] * (1 if drop == "drop_seeds" else 3)


def test_the_retention_asks_the_store_again_after_an_outage(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = rig.broker()
    rig.store_months()
    real, prepared = rig.store.prepare_months, list[int]()

    def prepare(self: Any, now_ms: int) -> None:
        prepared.append(now_ms)
        if len(prepared) == 1:
            raise Unavailable("away")
        real(now_ms)

    monkeypatch.setattr(type(rig.store), "prepare_months", prepare)
    with pytest.raises(Unavailable):
        retention.look(NOW_MS)
    retention.look(NOW_MS)
    assert rig.months_kept() == [0, 1, 2]


def test_only_the_holder_of_the_retention_duty_drops_rows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    first, second = rig.broker(), rig.broker()
    rig.store_months()
    first.look(NOW_MS)
    assert rig.months_kept() == [0, 1, 2]
    rig.store_months()
    second.look(NOW_MS)
    assert rig.months_kept() == [0, 1, 2, 3, 4]
    rig.services[0].duties.stop()
    rig.now += HOUR_SECONDS
    second.look(NOW_MS)
    assert rig.months_kept() == [0, 1, 2]


def test_a_pass_of_the_retention_ends_if_the_duty_is_lost_and_the_next_holder_finishes_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = rig.broker(), rig.broker()
    for number in range(3):
        rig.seed(f"s{number}")
        rig.page(f"s{number}")
    duties = rig.services[0].duties
    duty = duties.take(RETENTION)
    assert duty is not None
    real, dropped = type(rig.store).drop_seeds, list[int]()

    def drop(self: Any, batches: Any) -> int:
        if len(dropped) == 1:  # it stopped, and another broker took it
            rig.store.release_duties(duties.holder, [RETENTION])
            assert rig.services[1].duties.take(RETENTION) is not None
        dropped.append(real(self, batches))
        return dropped[-1]

    monkeypatch.setattr(type(rig.store), "drop_seeds", drop)
    with pytest.raises(DutyLost):
        first.sweep(duty, NOW_MS)
    assert len(rig.batches) == 2
    rig.now += FIRST_SECONDS
    second.look(NOW_MS)
    assert rig.batches == []


def test_the_greenlet_of_the_retention_goes_on_after_a_lost_duty(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = rig.broker()
    looks: list[int] = []

    def look(now_ms: int) -> None:
        looks.append(now_ms)
        raise DutyLost("gone")

    monkeypatch.setattr(retention, "look", look)
    monkeypatch.setattr("greencrawl.broker.tasks.retention.LOOK_SECONDS", 0.001)
    retention.start()
    with gevent.Timeout(5):
        while len(looks) < 3:
            gevent.sleep(0.001)
    retention.stop()


# -- batches of seeds


def swept(rig: Rig) -> list[int]:
    retention = rig.broker()
    rig.now += FIRST_SECONDS
    retention.look(NOW_MS)
    rig.services[-1].duties.stop()
    return rig.batches


def test_a_batch_of_seeds_is_dropped_when_each_of_its_urls_is_settled(rig: Rig) -> None:
    done, open_ = rig.seed("a", "b"), rig.seed("a", "c")
    rig.page("a")
    rig.dead("b")
    pending = rig.store.add_seeds(rig.crawl, [Admission("http://a.example/a")])
    assert done not in (left := swept(rig))
    assert left == [open_, pending]


def test_a_forced_batch_is_dropped_when_all_its_urls_were_settled_after_it_was_logged(
    rig: Rig,
) -> None:
    rig.page("a")
    rig.page("b")
    rig.store.tick()
    forced = rig.seed("a", "b", force=True)
    rig.store.tick()
    rig.page("a", 2000)
    assert swept(rig) == [forced]
    rig.page("b", 2000)
    rig.now += DAY_SECONDS
    assert swept(rig) == []


def test_the_batch_that_requeued_a_dead_letter_is_kept(rig: Rig) -> None:
    rig.seed("a")
    rig.dead("a")
    assert swept(rig) == []
    requeued = rig.store.requeue_dead(rig.crawl)
    assert requeued is not None
    rig.store.seeds_admitted(requeued.id)
    rig.now += DAY_SECONDS
    assert swept(rig) == [requeued.id]
