"""The follower, while the broker answers, is away, or reports changed options of crawls."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.queue import Queue

from greencrawl.broker.api.messages import OrderRequest
from greencrawl.broker.client import BrokerClient
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.records import Facts, MemberReply, MemberRequest, NodeOptions
from greencrawl.worker.orders.following import (
    DRAIN_SECONDS,
    SETTLE_SECONDS,
    WAIT_SECONDS,
    Follower,
)
from greencrawl.worker.orders.kept import KeptOrders, OrdersFile
from tests.support.broker_process import BrokerProcess
from tests.support.redis_server import RedisServer

HERE = MemberRequest(id="w-0", node="w", kind="worker", incarnation=7)


class Broker:
    """A broker that returns the answers of a test one after the other, and raises those that are
    exceptions."""

    def __init__(self) -> None:
        self.asked: list[MemberRequest] = []
        self.answers: Queue[MemberReply | Exception] = Queue()
        self.silent = False
        self.left = 0
        """Calls that were given up."""

    def follow(self, request: MemberRequest) -> MemberReply:
        self.asked.append(request)
        try:
            answer = self.answers.get()
        except gevent.GreenletExit:
            self.left += 1
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def trouble(self, path: str) -> str:
        if self.silent:
            gevent.sleep(60)
        return ""


class Process:
    def __init__(self) -> None:
        self.kept: list[NodeOptions] = []
        self.changed: list[set[int]] = []
        self.error: Exception | None = None
        self.pages = self.sessions = 0
        self.greenlets = 20
        self.loggers: Iterable[str] = ()

    def keep(self, options: NodeOptions) -> None:
        self.kept.append(options)

    def change(self, crawls: Collection[int]) -> None:
        if self.error is not None:
            raise self.error
        self.changed.append(set(crawls))

    def tell(self, loggers: Iterable[str]) -> None:
        self.loggers = loggers

    def facts(self, options: NodeOptions) -> Facts:
        return Facts(pages=self.pages, sessions=self.sessions, greenlets=self.greenlets)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.broker, self.process, self.now = Broker(), Process(), 100.0
        self.file = OrdersFile(folder / "w.orders")
        self.follower = self.made()

    def made(self) -> Follower:
        return self.of(self.broker)

    def of(self, *brokers: Any) -> Follower:
        return Follower(HERE, brokers, self.file, self.process, clock=lambda: self.now)

    def start(self) -> None:
        self.follower.start()
        self.life = gevent.spawn(self.follower.run)

    def answer(self, answer: MemberReply | Exception) -> MemberRequest:
        """Answer the open call; return the next one."""
        count = len(self.broker.asked)
        self.broker.answers.put(answer)
        with gevent.Timeout(5):
            while len(self.broker.asked) == count:
                gevent.sleep(0.001)
        return self.broker.asked[-1]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    def delays() -> Iterator[float]:
        while True:
            yield 0.001

    monkeypatch.setattr("greencrawl.worker.orders.following.delays", delays)
    monkeypatch.setattr("greencrawl.worker.orders.following.UNKNOWN_SECONDS", 0.001)
    made = Rig(tmp_path)
    made.start()
    gevent.sleep(0.001)
    yield made
    made.life.kill()


def test_an_order_is_applied_and_written_down_once(rig: Rig) -> None:
    options = NodeOptions(greenlets=5, processes=3)
    following = rig.answer(MemberReply(revision=4, options=options, next=5, log_to=("a",)))
    assert rig.process.kept == [NodeOptions(), options]
    assert rig.file.read() == KeptOrders(4, options)
    assert (following.revision, following.crawls) == (4, 5)
    assert following.wait > 0
    assert rig.process.loggers == ("a",)
    rig.answer(MemberReply(revision=4, options=options, next=5))
    assert len(rig.process.kept) == 2, "they are the same"


def test_a_worker_reports_more_often_after_an_order_until_its_effect_has_settled(rig: Rig) -> None:
    rig.process.sessions = 20
    rig.answer(MemberReply(next=1))
    fewer = MemberReply(revision=4, options=NodeOptions(greenlets=3), next=5)
    rig.process.greenlets = 3
    told = [rig.answer(fewer) for _ in range(2)]
    assert [(one.wait, one.facts.sessions) for one in told] == [(DRAIN_SECONDS, 20)] * 2
    rig.process.sessions = 3
    told = [rig.answer(fewer) for _ in range(2)]
    assert [(one.wait, one.facts.sessions) for one in told] == [(0.5, 3), (WAIT_SECONDS, 3)]
    rig.process.sessions = 5  # slow ones may be beyond the limit
    rig.answer(MemberReply(revision=6, options=NodeOptions(greenlets=2), next=7))
    rig.now += SETTLE_SECONDS
    assert rig.answer(MemberReply(revision=6, options=NodeOptions(greenlets=2))).wait > 1


def test_earlier_orders_hold_at_a_start_and_while_no_broker_answers(rig: Rig) -> None:
    options = NodeOptions(paused=True)
    rig.answer(MemberReply(revision=4, options=options, next=5))
    for away in (Unavailable("away"), Refused(404, {}), Unavailable("away")):
        asked = rig.answer(away)
        assert asked.revision == 4
    assert rig.process.kept == [NodeOptions(), options]
    rig.life.kill()
    rig.process.kept.clear()
    rig.made().start()
    assert rig.process.kept == [options]


def test_orders_of_a_store_that_was_put_back_to_an_older_copy_are_followed(rig: Rig) -> None:
    rig.answer(MemberReply(revision=9, options=NodeOptions(drain=True), next=10))
    rig.answer(MemberReply(revision=2, options=NodeOptions(), next=3))
    assert rig.process.kept[-1] == NodeOptions()
    assert rig.file.read() == KeptOrders(2)


def test_changes_of_crawls_are_asked_for_until_they_could_be_read(rig: Rig) -> None:
    rig.answer(MemberReply(next=3))
    rig.process.error = Unavailable("the store")
    asked = rig.answer(MemberReply(crawls={7: 3}, next=4))
    assert asked.crawls == 3, "it asks for them again"
    rig.process.error = None
    asked = rig.answer(MemberReply(crawls={7: 3}, next=4))
    assert asked.crawls == 4
    assert rig.process.changed == [{7}]


def test_reported_rates_count_from_the_last_report(rig: Rig) -> None:
    rig.process.pages, rig.now = 40, rig.now + 10
    assert rig.answer(MemberReply(next=1)).facts.pages_per_second == 4.0
    rig.process.pages, rig.now = 60, rig.now + 5
    assert rig.answer(Unavailable("not heard")).facts.pages_per_second == 4.0
    rig.process.pages, rig.now = 70, rig.now + 5
    assert rig.answer(MemberReply(next=1)).facts.pages_per_second == 2.0


def until(holds: Callable[[], object]) -> None:
    with gevent.Timeout(5, False):
        while not holds():
            gevent.sleep(0.001)
    assert holds()


def at_least(broker: Broker, count: int) -> bool:
    return len(broker.asked) >= count


@pytest.mark.parametrize("first", [0, 1])
def test_another_broker_is_called_while_one_is_silent_and_the_first_answer_counts(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    module = "greencrawl.worker.orders.following"
    monkeypatch.setattr(f"{module}.CHECK_SECONDS", 0.01)
    monkeypatch.setattr(f"{module}.SILENT_SECONDS", 0.01)
    rig.life.kill()
    brokers = Broker(), Broker()
    for one in brokers:
        one.silent = True
    rig.follower = rig.of(*brokers)
    rig.start()
    until(lambda: all(one.asked for one in brokers))
    options = NodeOptions(greenlets=5)
    brokers[first].answers.put(MemberReply(revision=4, options=options, next=5))
    until(lambda: len(brokers[first].asked) == 2)
    assert rig.process.kept[-1] == options
    until(lambda: brokers[1 - first].left)
    until(lambda: len(brokers[1 - first].asked) == 2)
    assert brokers[first].asked[1].revision == 4
    rig.life.kill()
    until(lambda: brokers[first].left == 1 and brokers[1 - first].left == 2)


def test_a_broker_that_failed_is_called_again_while_the_other_one_is_silent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "greencrawl.worker.orders.following"
    monkeypatch.setattr(f"{module}.CHECK_SECONDS", 0.01)
    monkeypatch.setattr(f"{module}.SILENT_SECONDS", 0.01)
    rig.life.kill()
    silent, other = Broker(), Broker()
    silent.silent = True
    rig.follower = rig.of(silent, other)
    rig.start()
    for count in (1, 2, 3):
        until(partial(at_least, other, count))
        other.answers.put(Unavailable("it is not back"))
    other.answers.put(MemberReply(revision=4, options=NodeOptions(greenlets=5), next=5))
    until(lambda: rig.process.kept[-1].greenlets == 5)
    assert silent.left == 1


def test_another_broker_is_called_at_once_if_one_fails_and_not_before(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.orders.following.CHECK_SECONDS", 0.01)
    rig.life.kill()
    one, other = Broker(), Broker()
    rig.follower = rig.of(one, other)
    rig.start()
    until(lambda: one.asked)
    gevent.sleep(0.05)
    assert not other.asked
    one.answers.put(Unavailable("it has died"))
    until(lambda: other.asked)
    other.answers.put(MemberReply(revision=4, next=5))
    until(lambda: len(other.asked) == 2)
    assert len(one.asked) == 1, "the one that answered is called again"
    other.answers.put(Unavailable("it has died"))
    until(lambda: len(one.asked) == 2)
    one.answers.put(Unavailable("it is not back"))
    until(lambda: len(one.asked) + len(other.asked) == 5)


def test_orders_come_from_another_broker_while_the_called_one_is_frozen(
    tmp_path: Path,
) -> None:
    redis, data = RedisServer(tmp_path / "redis"), tmp_path / "data"
    with ExitStack() as ends:
        ends.callback(redis.kill)
        redis.start()
        brokers = [BrokerProcess(data, redis=redis.url) for _ in range(2)]
        for broker in brokers:
            ends.callback(broker.stop)
            broker.start()
        frozen, other = brokers
        process, client = Process(), other.client()
        follower = Follower(
            HERE,
            [BrokerClient([broker.url]) for broker in brokers],
            OrdersFile(tmp_path / "w.orders"),
            process,
        )
        follower.start()
        life = gevent.spawn(follower.run)
        ends.callback(life.kill)
        assert frozen.process is not None
        pid = frozen.process.pid
        ends.callback(os.kill, pid, signal.SIGCONT)

        def order(greenlets: int) -> None:
            client.order(OrderRequest("w", NodeOptions(greenlets=greenlets)))
            with gevent.Timeout(WAIT_SECONDS / 2, False):  # a call ends much later by itself
                while process.kept[-1].greenlets != greenlets:
                    gevent.sleep(0.01)
            assert process.kept[-1].greenlets == greenlets

        with gevent.Timeout(20):
            while not client.members("w").members:
                gevent.sleep(0.01)
        order(5)
        os.kill(pid, signal.SIGSTOP)
        order(6)


def test_the_last_report_of_a_worker_says_that_it_leaves(rig: Rig) -> None:
    rig.life.kill()
    rig.broker.answers.put(Unavailable("nobody has to hear it"))
    rig.follower.leave()
    assert rig.broker.asked[-1].leaving
