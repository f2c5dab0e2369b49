"""Parked URLs stay parked and released ones are fetched, whatever dies or is lost.

Redis, store and frontier are real; workers act like ``greencrawl.worker.delivery.writer``: commit,
then finish.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.broker.api.handlers.parked import release_parked
from greencrawl.broker.api.messages import ReleaseParkedRequest
from greencrawl.broker.frontier.coordination.fence import StoreContact
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import (
    Commit,
    Done,
    Final,
    FinishItem,
    Outcome,
    Retry,
    Session,
    Task,
)
from greencrawl.store.base import MARGIN
from tests.broker.frontier.recovery.test_recovery import Rig as Recovered
from tests.broker.frontier.test_frontier import Worker, _lease_or_nothing, close, pass_time, until

SHAPE = "http://h.example/{n}"
DAYS = [f"h.example/{n}" for n in range(5)]
"""URLs of the shape; the other URLs are not parked."""


class Rig(Recovered):
    """A crawl with a worker that parks URLs of the shape, as long as it does not know of a
    release."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.at_ms = 1000
        self.fetched: list[str] = []

    def knows(self, revision: int) -> bool:
        """Return whether a worker that gets this revision knows that the shape was released."""
        crawl = self.store.crawl(self.crawl.id)
        return bool(crawl.released) and revision >= crawl.revision

    def settle(self, session: Session, task: Task) -> Outcome:
        """Commit the result of a task; return what is to be reported."""
        name = task.url.removeprefix("http://")
        self.at_ms += 1
        if name not in DAYS or self.knows(session.revision):
            self.fetched.append(name)
            page = self.page(name)
            page.fetched_ms = self.at_ms
            self.store.commit(Commit([page]))
            return Done(stored=True, bytes=5)
        final = Final(
            crawl=self.crawl.id, fingerprint=self.frontier.fingerprint(task.url), url=task.url,
            state="parked", kind="trap", detail="nothing new", shape=SHAPE, at_ms=self.at_ms,
        )  # fmt: skip
        if self.store.commit(Commit(finals=[final])).refused:
            return Retry(wait=2.0, kind="released", charge=False)
        return Done(kind="parked")

    def work(self, *, dies: bool = False) -> list[Session]:
        """Do all tasks; with ``dies`` the worker dies after each commit, before it reports."""
        worker, done = Worker(self.frontier), []
        sessions = until(lambda: _lease_or_nothing(worker), 10)
        while sessions:
            for session in sessions:
                done.append(session)
                names: dict[str, Any] = {"session": session.session, "token": session.token}
                for task in session.tasks:
                    outcome = self.settle(session, task)
                    if not dies:
                        item = FinishItem(**names, task=task.number, outcome=outcome)
                        assert self.frontier.finish([item]) == ["ok"]
                if not dies:
                    close(self.frontier, session)
            sessions = worker.lease(wait=0.2)
        return done

    def release(self) -> int:
        service = Service(self.frontier, self.store)
        reply = release_parked(service, ReleaseParkedRequest(self.crawl.name, SHAPE))
        return reply.added

    @property
    def parked(self) -> int:
        return self.store.counts(self.crawl.id)["parked"]

    def over(self) -> bool:
        """Check that nothing of the crawl is left to do, in Redis or in the store."""
        totals = self.frontier.scan(self.crawl.id)
        assert totals is not None
        return totals.open == 0 and not self.store.pending_seeds()


@pytest.fixture(autouse=True)
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was taken over rests only as long as the sessions that it forgot may last."""
    monkeypatch.setattr(StoreContact, "margin_ms", 0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.frontier.start()
    yield made
    made.stop()


def test_a_parked_url_holds_no_crawl_open_and_is_not_leased_again(rig: Rig) -> None:
    rig.seed(*DAYS, "other.example/")
    rig.work()
    assert (rig.parked, rig.fetched) == (5, ["other.example/"])
    totals = rig.frontier.scan(rig.crawl.id)
    assert totals is not None
    assert (totals.parked, totals.finished, totals.open) == (5, 6, 0)
    assert "parked" not in totals.failures
    rig.seed(*DAYS)
    assert rig.over(), "it is known"


def test_parked_urls_are_counted_and_not_queued_after_redis_lost_everything(rig: Rig) -> None:
    rig.seed(*DAYS, "other.example/")
    rig.work()
    rig.seed("new.example/")
    rig.tick(3 * MARGIN)
    rig.server.client.flushall()
    totals = rig.refilled()
    assert (totals.parked, totals.finished, totals.waiting) == (5, 6, 1)
    rig.work()
    assert rig.fetched == ["other.example/", "new.example/"]
    assert rig.parked == 5
    assert rig.over()


def test_parked_urls_are_leased_and_parked_again_if_redis_comes_back_older(
    rig: Rig,
) -> None:
    rig.seed(*DAYS[:3])
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    rig.tick(2)
    rig.seed(*DAYS[3:])
    rig.work()
    assert rig.parked == 5
    rig.put_back(copy)
    assert rig.refilled().parked == 2, "the copy holds the others as waiting"
    rig.work()
    assert (rig.parked, rig.fetched) == (5, [])
    assert rig.over()


@pytest.mark.parametrize("loss", ["all", "older"])
def test_released_urls_are_fetched_though_redis_forgot_the_release(rig: Rig, loss: str) -> None:
    rig.seed(*DAYS)
    rig.work()
    rig.tick(MARGIN + 3)
    copy = rig.saved()
    rig.tick(2)
    assert rig.release() == 5
    assert rig.parked == 0
    if loss == "all":
        rig.tick(3 * MARGIN)
        rig.server.client.flushall()
    else:
        rig.put_back(copy)
    assert rig.refilled().waiting == 5
    rig.work()
    assert sorted(rig.fetched) == DAYS
    assert (rig.parked, rig.over()) == (0, True)


def test_a_url_is_parked_once_though_its_worker_dies_before_the_finish(rig: Rig) -> None:
    rig.seed(*DAYS)
    held = rig.work(dies=True)
    assert rig.parked == 5
    assert not rig.over(), "it is leased still"
    assert Worker(rig.frontier, incarnation=2).reconcile() == 5
    pass_time(rig.frontier, 5)
    worker = Worker(rig.frontier, incarnation=2)
    again = until(lambda: _lease_or_nothing(worker), 10)
    assert [task.deliveries for session in again for task in session.tasks] == [2] * 5
    for session in again:
        for task in session.tasks:
            assert rig.settle(session, task) == Done(kind="parked")
            item = FinishItem(
                session=session.session, token=session.token, task=task.number,
                outcome=Done(kind="parked"),
            )  # fmt: skip
            assert rig.frontier.finish([item]) == ["ok"]
    assert (rig.parked, rig.over()) == (5, True)
    (late,) = (s for s in held if s.token not in {s.token for s in again})
    item = FinishItem(session=late.session, token=late.token, task=1, outcome=Done(kind="parked"))
    assert rig.frontier.finish([item]) == ["stale"]


def test_a_worker_that_does_not_know_of_a_release_cannot_park_released_urls(rig: Rig) -> None:
    rig.seed(*DAYS[:2], "other.example/")
    rig.work()
    rig.seed(*DAYS[2:])
    worker = Worker(rig.frontier)
    worker.sequence = 100
    (session,) = until(lambda: _lease_or_nothing(worker), 10)
    assert rig.release() == 2
    outcomes = [rig.settle(session, task) for task in session.tasks]
    assert outcomes == [Retry(wait=2.0, kind="released", charge=False)] * 3
    items = [
        FinishItem(session=session.session, token=session.token, task=task.number, outcome=outcome)
        for task, outcome in zip(session.tasks, outcomes, strict=True)
    ]
    assert rig.frontier.finish(items) == ["ok"] * 3
    close(rig.frontier, session)
    assert rig.parked == 0
    assert session.revision == 1
    pass_time(rig.frontier, 3)
    rig.work()
    until(rig.over)
    assert sorted(rig.fetched) == [*DAYS, "other.example/"]
