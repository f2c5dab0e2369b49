"""The engine's loops, with a broker made of a few lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gevent
import pytest
from gevent.event import Event
from structlog.testing import capture_logs

from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.records import (
    CloseItem,
    ExtendRequest,
    HostReport,
    ItemsReply,
    ItemStatus,
    LeaseReply,
    LeaseRequest,
    ReconcileReply,
    ReconcileRequest,
    Session,
)
from greencrawl.worker.child import Worker
from greencrawl.worker.delivery.outbox import Outbox
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.engine import Engine, Limits
from greencrawl.worker.session.held import HeldSession, Sessions


def session(number: int, robots_known: bool = True) -> Session:
    return Session(
        session=f"1/h{number}",
        token=f"{number:016x}",
        crawl=1,
        revision=1,
        host=f"h{number}",
        ttl=60,
        delay=0,
        floor=0,
        robots_known=robots_known,
        tasks=(),
    )


@dataclass
class Broker:
    """A broker that gives out ``sessions``; ``away`` calls in a row fail; ``log`` has every
    call."""

    sessions: list[Session] = field(default_factory=list)
    away: int = 0
    down: bool = False
    status: ItemStatus = "ok"
    nodes_away: tuple[str, ...] = ()
    lost: bool = False
    hosts_away: set[str] = field(default_factory=set)
    superseded: int = 0
    log: list[Any] = field(default_factory=list)
    some: Event = field(default_factory=Event)

    def _meet(self) -> None:
        if self.down:
            raise Unavailable("broker")
        if self.away:
            self.away -= 1
            raise Unavailable("broker")

    def lease(self, request: LeaseRequest) -> LeaseReply:
        self.log.append(request)
        self._meet()
        if self.superseded:
            return LeaseReply(superseded=self.superseded)
        if not self.sessions:
            self.some.wait()
        given = self.sessions[: request.max_sessions]
        del self.sessions[: request.max_sessions]
        if not self.sessions:
            self.some.clear()
        lost, self.lost = self.lost, False
        return LeaseReply(tuple(given), waited=2.0, lost=lost)

    def reconcile(self, request: ReconcileRequest) -> ReconcileReply:
        self.log.append(request)
        self._meet()
        return ReconcileReply(0, 0, self.nodes_away, self.superseded)

    def extend(self, request: ExtendRequest) -> ItemsReply:
        self.log.append(request)
        away = self.hosts_away
        return ItemsReply(
            tuple("away" if i.session in away else self.status for i in request.items)
        )

    def ready(self) -> bool:
        return not self.down

    def add(self, *numbers: int, robots_known: bool = True) -> None:
        self.sessions += [session(number, robots_known) for number in numbers]
        self.some.set()

    def calls(self, kind: type) -> list[Any]:
        return [call for call in self.log if isinstance(call, kind)]


@dataclass
class Runner:
    """A runner whose sessions last until ``release`` is set; then they report ``report``."""

    release: Event = field(default_factory=Event)
    running: dict[str, HeldSession] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    reports: dict[str, HostReport] = field(default_factory=dict)
    error: Exception | None = None

    def run(self, held: HeldSession) -> CloseItem | None:
        host = held.session.host
        self.running[host] = held
        self.ran.append(host)
        self.release.wait()
        del self.running[host]
        if self.error:
            raise self.error
        if held.lost:
            return None
        report = self.reports.get(host, HostReport())
        return CloseItem(session=held.session.session, token=held.session.token, report=report)


class Heartbeat:
    def __init__(self) -> None:
        self.beats = 0
        self.ready = False

    def beat(self) -> None:
        self.beats += 1

    def set_ready(self) -> None:
        self.ready = True


class Rig:
    """An engine; the test controls its broker and its runner."""

    def __init__(
        self,
        greenlets: int = 4,
        lease_seconds: float = 60.0,
        grace_seconds: float = 0.5,
        dead: tuple[int, ...] = (),
        dead_for: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.broker, self.runner, self.crash_record = Broker(), Runner(), Heartbeat()
        self.sessions, self.stopping = Sessions(), Event()
        self.closed: list[str] = []
        self.closes: list[CloseItem] = []
        closing: Outbox[CloseItem] = Outbox(
            "close", self._close, lambda item, _: self.sessions.closed(item.token), linger=0.001
        )
        finishing: Outbox[Any] = Outbox("finish", lambda _: ItemsReply(()), lambda *_: None)
        writer = Writer(None, None, finishing, self.sessions)  # type: ignore[arg-type]
        limits = Limits("w-0", 7, greenlets, lease_seconds, beat_seconds=0.005)
        self.engine = Engine(
            limits,
            self.broker,
            self.runner,
            self.sessions,
            writer,
            (finishing, closing),
            closing,
            self.crash_record,
            dead=dead,
            dead_for=dead_for,
            stopping=self.stopping,
            clock=lambda: 100.0,
        )
        self.life = gevent.spawn(self.engine.run, grace_seconds)

    def _close(self, items: Any) -> ItemsReply:
        self.closed += [item.session for item in items]
        self.closes += items
        return ItemsReply(tuple("ok" for _ in items))

    def until(self, holds: Callable[[], object]) -> None:
        with gevent.Timeout(5):
            while not holds():
                gevent.sleep(0.002)

    def end(self) -> int:
        self.stopping.set()
        self.life.join(5)
        assert self.life.value is not None, "the engine did not end"
        return self.life.value


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    def delays(first: float = 0.1, most: float = 2.0) -> Iterator[float]:
        while True:
            yield 0.001

    monkeypatch.setattr("greencrawl.worker.engine.delays", delays)
    monkeypatch.setattr("greencrawl.worker.session.extending.delays", delays)
    monkeypatch.setattr("greencrawl.worker.engine.LOOK_SECONDS", 0.3)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.runner.release.set()
    made.end()


def test_worker_reconciles_before_its_first_lease(rig: Rig) -> None:
    rig.until(lambda: rig.broker.calls(LeaseRequest))
    first, second = rig.broker.log[:2]
    assert isinstance(first, ReconcileRequest)
    assert (first.holding, first.incarnation) == ((), 7)
    assert second.sequence > first.sequence
    assert rig.crash_record.ready


def test_a_reconcile_that_a_node_has_missed_is_sent_later_while_leasing_goes_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.engine.OWED_SECONDS", 0.0)
    rig.broker.nodes_away = ("redis://b",)
    rig.broker.log.clear()
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running)
    rig.broker.away = 1  # one answer is lost
    rig.broker.add(2)
    rig.until(lambda: len(rig.runner.running) == 2)
    told = len(rig.broker.calls(ReconcileRequest))
    rig.broker.add(3)
    rig.until(lambda: len(rig.broker.calls(ReconcileRequest)) > told)
    last = rig.broker.calls(ReconcileRequest)[-1]
    assert set(last.holding) >= {f"{n:016x}" for n in (1, 2)}, "what is held by now is named"
    rig.broker.nodes_away = ()
    rig.broker.add(4)
    rig.until(lambda: len(rig.runner.running) == 4)
    told = len(rig.broker.calls(ReconcileRequest))
    rig.runner.release.set()
    rig.until(lambda: len(rig.closed) == 4)
    assert len(rig.broker.calls(ReconcileRequest)) == told, "it has heard it"


def test_a_worker_reconciles_if_a_node_may_have_opened_sessions_without_an_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.engine.OWED_SECONDS", 0.0)
    rig.until(lambda: rig.broker.calls(LeaseRequest))
    before = len(rig.broker.calls(ReconcileRequest))
    rig.broker.lost = True
    rig.broker.add(1)
    rig.until(lambda: len(rig.broker.calls(ReconcileRequest)) == before + 1)
    rig.until(lambda: len(rig.broker.calls(LeaseRequest)) == 2)


def test_sessions_whose_node_is_away_are_extended_again_soon_and_alone() -> None:
    rig = Rig(lease_seconds=0.6)
    try:
        rig.broker.hosts_away = {"1/h1"}
        rig.broker.add(1, 2)
        rig.until(lambda: len(rig.runner.running) == 2)
        rig.until(lambda: len(rig.broker.calls(ExtendRequest)) > 3)
        first, *others = [len(call.items) for call in rig.broker.calls(ExtendRequest)[:4]]
        assert (first, others) == (2, [1, 1, 1])
        rig.broker.hosts_away.clear()
        rig.until(lambda: len(rig.broker.calls(ExtendRequest)[-1].items) == 2)
    finally:
        rig.runner.release.set()
        rig.end()


def test_a_worker_whose_id_another_has_reports_it_once_and_leases_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rig = Rig()
    rig.broker.superseded = 9
    rig.until(lambda: len(rig.broker.calls(ReconcileRequest)) >= 5)
    assert not rig.broker.calls(LeaseRequest)
    rig.broker.superseded = 0
    rig.until(lambda: rig.broker.calls(LeaseRequest))
    rig.broker.superseded = 8
    rig.broker.add(1)
    rig.until(lambda: len(rig.broker.calls(ReconcileRequest)) >= 20)
    assert len(rig.broker.calls(LeaseRequest)) == 2, "none more once it was told"
    rig.runner.release.set()
    assert rig.end() == 0
    said = capsys.readouterr().err
    assert said.count("worker_id_taken") == 2, said
    assert "GREENCRAWL_WORKER_ID" in said


def test_pauses_of_a_superseded_worker_grow_to_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[float, ...]] = []

    def delays(*bounds: float) -> Iterator[float]:
        asked.append(bounds)
        while True:
            yield 0.001

    monkeypatch.setattr("greencrawl.worker.engine.delays", delays)
    rig = Rig()
    rig.broker.superseded = 9
    rig.until(lambda: rig.broker.calls(ReconcileRequest))
    rig.end()
    assert (1.0, 5.0) in asked


def test_reconciles_say_who_is_dead_and_the_first_how_long_ago_that_was() -> None:
    rig = Rig(dead=(6, 5), dead_for=lambda: 7.5)
    rig.until(lambda: rig.broker.calls(ReconcileRequest))
    assert rig.broker.calls(ReconcileRequest)[0].dead_for == 7.5
    rig.runner.release.set()
    rig.end()
    assert {call.dead for call in rig.broker.calls(ReconcileRequest)} == {(6, 5)}


def test_the_last_reconcile_of_a_worker_says_that_it_leaves() -> None:
    rig = Rig()
    rig.broker.add(1)
    rig.until(lambda: rig.broker.calls(LeaseRequest))
    rig.runner.release.set()
    assert rig.end() == 0
    said = [request.leaving for request in rig.broker.calls(ReconcileRequest)]
    assert said == [False] * (len(said) - 1) + [True]


def test_a_broker_of_an_older_version_gets_reconciles_without_deaths_and_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def older(self: Broker, request: ReconcileRequest) -> ReconcileReply:
        self.log.append(request)
        if request.dead or request.dead_for or request.leaving:
            raise Refused(400, {"detail": "unknown field"})
        return ReconcileReply(0, 0)

    monkeypatch.setattr(Broker, "reconcile", older)
    rig = Rig(dead=(6,), dead_for=lambda: 7.5)
    rig.until(lambda: rig.broker.calls(LeaseRequest))
    said = [(call.dead, call.dead_for) for call in rig.broker.calls(ReconcileRequest)]
    assert said == [((6,), 7.5), ((), 0.0)]
    rig.runner.release.set()
    rig.end()
    said = [(call.dead, call.leaving) for call in rig.broker.calls(ReconcileRequest)]
    assert said[-2:] == [((6,), True), ((), False)], "another one may be there by now"


def test_as_many_sessions_are_asked_for_as_greenlets_are_free(rig: Rig) -> None:
    rig.broker.add(1, 2, 3)
    rig.until(lambda: len(rig.broker.calls(LeaseRequest)) == 2)
    assert [call.max_sessions for call in rig.broker.calls(LeaseRequest)] == [4, 1]
    rig.broker.add(4)
    rig.until(lambda: len(rig.runner.running) == 4)
    gevent.sleep(0.02)
    assert len(rig.broker.calls(LeaseRequest)) == 2
    rig.runner.release.set()
    rig.until(lambda: len(rig.broker.calls(LeaseRequest)) == 3)
    rig.until(lambda: sorted(rig.closed) == ["1/h1", "1/h2", "1/h3", "1/h4"])


def test_the_deadline_of_a_lease_counts_from_its_request_plus_the_brokers_wait(rig: Rig) -> None:
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running)
    assert rig.runner.running["h1"].deadline == 100.0 + 2.0 + 60.0


def test_a_lost_answer_to_a_lease_is_followed_by_a_reconcile_that_names_held_sessions(
    rig: Rig,
) -> None:
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running)
    rig.until(lambda: len(rig.broker.calls(LeaseRequest)) == 2)
    rig.broker.away = 2  # the next lease, and the first reconcile after it
    rig.broker.add(2)
    rig.until(lambda: len(rig.broker.calls(LeaseRequest)) >= 4)
    names = [type(call).__name__ for call in rig.broker.log]
    lost = names.index("LeaseRequest", 3)
    assert names[lost : lost + 4] == [
        "LeaseRequest",
        "ReconcileRequest",
        "ReconcileRequest",
        "LeaseRequest",
    ]
    reconcile = rig.broker.log[lost + 2]
    assert f"{1:016x}" in reconcile.holding
    sequences = [call.sequence for call in rig.broker.log]
    assert sequences == sorted(set(sequences))


def test_a_session_that_its_worker_has_lost_is_not_closed() -> None:
    rig = Rig(lease_seconds=0.03)
    rig.broker.status = "stale"
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running and rig.runner.running["h1"].lost)
    rig.runner.release.set()
    rig.until(lambda: len(rig.sessions) == 0)
    assert rig.end() == 0
    assert rig.closed == []


def test_held_sessions_are_extended(rig: Rig) -> None:
    quick = Rig(lease_seconds=0.03)
    quick.broker.add(1)
    quick.until(lambda: len(quick.broker.calls(ExtendRequest)) >= 2)
    items = quick.broker.calls(ExtendRequest)[-1].items
    assert [item.session for item in items] == ["1/h1"]
    quick.runner.release.set()
    assert quick.end() == 0


def crawl_along(rig: Rig) -> None:
    """Let all running sessions wait for an answer for longer than a good host takes."""
    for held in rig.runner.running.values():
        held.since = held.since or 100.0 - 3.0


def test_the_place_of_a_slow_session_is_lent_to_another_host(rig: Rig) -> None:
    rig.broker.add(0, 1, 2, 3)
    rig.until(lambda: len(rig.runner.running) == 4)
    rig.broker.add(7)
    gevent.sleep(0.05)
    assert "h7" not in rig.runner.running
    crawl_along(rig)
    rig.until(lambda: "h7" in rig.runner.running)


def test_unknown_hosts_get_places_up_to_twice_the_greenlets_and_good_hosts_go_on(rig: Rig) -> None:
    """There are five hundred hosts that never answer, four greenlets and a few good hosts."""
    rig.broker.add(*range(1000, 1500), robots_known=False)
    rig.until(lambda: len(rig.runner.running) == 4)
    crawl_along(rig)
    rig.until(lambda: len(rig.runner.running) == 8)
    crawl_along(rig)
    rig.until(lambda: len(rig.closes) == 500 - 8)
    assert all(item.report.block > 0 and not item.report.failed for item in rig.closes)
    for number in range(4):
        rig.broker.add(number)
        rig.until(lambda number=number: f"h{number}" in rig.runner.running)
    assert len(rig.runner.running) == 12, "bounded"


def test_hosts_known_to_be_slow_leave_half_of_the_places_to_unknown_hosts(rig: Rig) -> None:
    rig.runner.reports = {f"h{i}": HostReport(latency=9.0) for i in range(6)}
    rig.runner.release.set()
    rig.broker.add(*range(6))
    rig.until(lambda: len(rig.closed) == 6)
    rig.runner.release.clear()
    rig.broker.add(*range(6))
    rig.until(lambda: len(rig.runner.running) == 4)
    crawl_along(rig)
    rig.until(lambda: len(rig.closed) == 8)
    assert {item.report.block > 0 for item in rig.closes[6:]} == {True}
    rig.broker.add(7, robots_known=False)
    rig.until(lambda: "h7" in rig.runner.running)


def test_slow_sessions_are_to_end_soon_when_other_hosts_found_no_place(rig: Rig) -> None:
    rig.broker.add(*range(8), robots_known=False)
    rig.until(lambda: len(rig.runner.running) == 4)
    crawl_along(rig)
    rig.until(lambda: len(rig.runner.running) == 8)
    assert {held.ended for held in rig.runner.running.values()} == {""}
    crawl_along(rig)
    rig.broker.add(9, robots_known=False)
    rig.until(lambda: {held.ended for held in rig.runner.running.values()} == {"stop"})


def test_a_slow_host_that_answers_fast_again_is_no_longer_slow(rig: Rig) -> None:
    rig.runner.release.set()
    for latency in (9.0, 0.1):
        rig.runner.reports = {f"h{i}": HostReport(latency=latency) for i in range(5)}
        rig.broker.add(*range(5))
        rig.until(lambda: rig.broker.sessions == [] and len(rig.sessions) == 0)
    rig.runner.release.clear()
    rig.broker.add(*range(4))
    rig.until(lambda: len(rig.runner.running) == 4)
    crawl_along(rig)
    rig.broker.add(4)
    rig.until(lambda: "h4" in rig.runner.running)


def test_stopping_waits_for_sessions_and_reconciles_at_the_end(rig: Rig) -> None:
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running)
    rig.stopping.set()
    gevent.sleep(0.02)
    assert not rig.life.ready()
    rig.runner.release.set()
    assert rig.end() == 0
    assert rig.closed == ["1/h1"]
    assert isinstance(rig.broker.log[-1], ReconcileRequest)
    assert rig.broker.log[-1].holding == ()


def test_stopping_does_not_wait_beyond_its_grace(rig: Rig) -> None:
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running)
    assert rig.end() == 0
    assert rig.closed == []


@pytest.mark.parametrize("fetching", [True, False])
def test_stopping_does_not_wait_for_a_broker_that_is_gone(fetching: bool) -> None:
    rig = Rig(grace_seconds=3600)
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running)
    rig.broker.down = True
    if not fetching:
        rig.runner.release.set()
        rig.until(lambda: not rig.runner.running)
    with capture_logs() as lines:
        assert rig.end() == 0
    told = "sessions_not_released" if fetching else "worker_stopped"
    ends = ("sessions_not_released", "worker_stopped")
    assert [line["event"] for line in lines if line["event"] in ends] == [told]


def test_an_unforeseen_error_ends_the_process_with_status_1(rig: Rig) -> None:
    rig.runner.error = RuntimeError("a bug")
    rig.runner.release.set()
    rig.broker.add(1)
    rig.life.join(5)
    assert rig.life.value == 1


def test_the_engine_beats_again_and_again(rig: Rig) -> None:
    rig.until(lambda: rig.crash_record.beats > 3)


def test_stopping_does_not_wait_for_a_charge_that_cannot_be_settled() -> None:
    """The broker is away; the verdict stays in the crash record for the next process."""
    events: list[str] = []

    class Part:
        def close(self) -> None:
            events.append("closed")

        def stop(self) -> None:
            events.append("stopped")

    class Stuck(Worker):
        def __init__(self) -> None:
            self._stopping = Event()
            part: Any = Part()
            self._quarantine = self._fetching = self._shares = part
            self._downloader = self._store = self._sender = part

        def _charge(self) -> None:
            self._stopping.set()
            try:
                Event().wait()
            finally:
                events.append("let go")

    with gevent.Timeout(5):
        assert Stuck().run() == 0
    assert events == ["let go", *["closed"] * 5, "stopped"]


def test_an_order_for_fewer_greenlets_ends_surplus_sessions_and_one_for_more_holds_at_once(
    rig: Rig,
) -> None:
    rig.broker.add(*range(4))
    rig.until(lambda: len(rig.runner.running) == 4)
    rig.engine.keep(greenlets=1, paused=False, drain=False)
    ended = [held.ended for held in rig.sessions.holding()]
    assert ended == ["", "stop", "stop", "stop"], "those that are held longest go on"
    rig.runner.release.set()
    rig.until(lambda: len(rig.closed) == 4)
    rig.runner.release.clear()
    rig.broker.add(*range(10, 14))
    rig.until(lambda: len(rig.runner.running) == 1)
    rig.engine.keep(greenlets=3, paused=False, drain=False)
    rig.until(lambda: len(rig.runner.running) == 3)
    assert rig.engine.greenlets == 3


def test_a_paused_worker_leases_nothing_and_hands_back_a_session_on_its_way(rig: Rig) -> None:
    rig.broker.add(1)
    rig.until(lambda: rig.runner.running)
    rig.until(lambda: len(rig.broker.calls(LeaseRequest)) == 2)
    rig.engine.keep(greenlets=4, paused=True, drain=False)
    rig.broker.add(2)
    rig.until(lambda: rig.closed or len(rig.runner.running) == 2)
    assert rig.closed == ["1/h2"]
    assert rig.closes[0].release == tuple(task.number for task in session(2).tasks)
    assert [held.ended for held in rig.sessions.holding()] == [""], "the other goes on"
    gevent.sleep(0.02)
    assert len(rig.broker.calls(LeaseRequest)) == 2
    rig.engine.keep(greenlets=4, paused=False, drain=False)
    rig.until(lambda: len(rig.broker.calls(LeaseRequest)) == 3)


def test_a_drained_worker_ends_all_its_sessions_soon_and_also_resting_ones(rig: Rig) -> None:
    rig.broker.add(1, 2)
    rig.until(lambda: len(rig.runner.running) == 2)
    one, other = rig.sessions.holding()
    rests = gevent.spawn(one.pause, Event().wait, 60)
    gevent.sleep(0)
    rig.engine.keep(greenlets=4, paused=False, drain=True)
    rests.join(1)
    assert rests.ready()
    assert [one.ended, other.ended] == ["stop", "stop"]


def test_the_pause_of_a_session_that_is_roused_at_its_end_ends_once() -> None:
    held = HeldSession(session(1), 1e12)

    def wait(_: float | None) -> None:
        held.interrupt()

    def goes_on() -> str:
        held.pause(wait, 0.5)
        gevent.sleep(0.02)  # nothing may reach it any more during this time
        return "whole"

    going = gevent.spawn(goes_on)
    going.join(0.3)
    assert going.value == "whole", going.exception
