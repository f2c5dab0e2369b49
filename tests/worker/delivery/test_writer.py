"""Outbox, sessions and writer: they finish nothing before it is stored, and drop nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gevent
import pytest
from gevent.event import Event
from msgspec.structs import replace

from greencrawl.broker.frontier import Admitted
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Refused, Unavailable, UnknownCrawl
from greencrawl.schema.records import (
    Admission,
    Commit,
    Dead,
    Done,
    Final,
    FinishItem,
    ItemsReply,
    ItemStatus,
    Retry,
    Session,
    Stamp,
    StoredPage,
    Task,
)
from greencrawl.store.base import MARGIN
from greencrawl.store.errors import Unstorable
from greencrawl.worker.delivery import outbox as outbox_module
from greencrawl.worker.delivery.attempts import Journal
from greencrawl.worker.delivery.outbox import Outbox
from greencrawl.worker.delivery.recent import Recent, Recents
from greencrawl.worker.delivery.results import RELEASED_SECONDS, SURPLUS_SECONDS, Result, Results
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.session.held import HeldSession, Sessions
from greencrawl.worker.session.memory_budget import MemoryBudget

TOKEN = "00000000000000aa"


def session(token: str = TOKEN, delay: float = 0.0) -> Session:
    return Session(
        session="1/h",
        token=token,
        crawl=1,
        revision=1,
        host="h",
        ttl=60,
        delay=delay,
        floor=0,
        robots_known=True,
        tasks=(),
    )


def page(url: str, *links: str, body: bytes = b"", crawl: int = 1) -> StoredPage:
    admissions = [Admission(link, 1) for link in links]
    return StoredPage(
        crawl=crawl, fingerprint=hash(url), url=url, status=200, body=body, links=admissions
    )


@dataclass
class World:
    """Store, frontier and broker in one, with one log of all calls in order."""

    log: list[Any] = field(default_factory=list)
    away: dict[str, int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    unstorable: str = ""
    gate: Event | None = None
    statuses: ItemStatus = "ok"
    clock: int = 0
    clock_then: int = 0
    """The clock when a debt is noted, if it is not that of the last commit."""
    epoch: int = 1
    ticks: list[int] = field(default_factory=list)
    known_away: set[str] = field(default_factory=set)
    """Nodes that do not answer, as the frontier knows; all links belong to them, too."""
    missing: dict[str, int] = field(default_factory=dict)
    """Node → number of admissions in which it still does not take part, though it answers."""
    owed: list[set[str]] = field(default_factory=list)
    """The URLs owed by each commit."""
    surplus: set[str] = field(default_factory=set)
    """URLs of pages beyond the crawl's limit, or parked ones whose shape is released."""

    def _meet(self, part: str) -> None:
        if self.away.get(part, 0) > 0:
            self.away[part] -= 1
            self.log.append(f"{part} away")
            raise Unavailable(part)

    def commit(self, work: Commit) -> Stamp:
        self._meet("store")
        if self.gate is not None:
            self.gate.wait()
        for stored in work.pages:
            if stored.url == self.unstorable:
                raise Unstorable(stored.url, "a test")
        self.log.append(
            ("commit", sorted(p.url for p in work.pages), [f.state for f in work.finals])
        )
        self.owed.append(set(work.owes))
        self.clock += 1
        rows: list[StoredPage | Final] = [*work.pages, *work.finals]
        refused = {(row.crawl, row.fingerprint) for row in rows if row.url in self.surplus}
        retired = {(f.crawl, f.fingerprint) for f in work.finals if f.state == "gone"}
        return Stamp(self.clock, {"n": self.epoch}, frozenset(refused), frozenset(retired))

    def owe(self, nodes: Collection[str], since: int | None = None) -> int:
        self._meet("store")
        self.log.append(("owe", sorted(nodes), since))
        return self.clock_then or self.clock

    def away_of(self, items: Iterable[Admission]) -> frozenset[str]:
        return frozenset(self.known_away)

    def nodes_of(self, items: Iterable[Admission]) -> frozenset[str]:
        return frozenset({"n"} if list(items) else ())

    def admit(
        self, crawl_id: int, items: Sequence[Admission], *, stamp: Stamp | None, partial: bool
    ) -> Admitted:
        assert partial
        self._meet("frontier")
        if crawl_id in self.deleted:
            raise UnknownCrawl(str(crawl_id))
        self.log.append(("admit", crawl_id, sorted(item.url for item in items)))
        assert stamp is not None
        assert (stamp.clock, stamp.epochs) == (self.clock, {"n": self.epoch}), "the commit before's"
        away = {*self.known_away, *(node for node, left in self.missing.items() if left)}
        self.missing = {node: max(left - 1, 0) for node, left in self.missing.items()}
        tick = self.ticks.pop(0) if self.ticks else 0
        return Admitted([True] * len(items), tick, {}, away)

    def finish(self, items: Sequence[FinishItem]) -> ItemsReply:
        self._meet("broker")
        self.log.append(("finish", [(i.task, i.outcome) for i in items]))
        return ItemsReply(tuple(self.statuses for _ in items))


class Rig:
    """A writer at work on a :class:`World`."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        self.sessions = Sessions()
        held = self.sessions.hold(session(), 1e12)
        assert held is not None
        self.held = held
        self.outbox: Outbox[FinishItem] = Outbox(
            "finish",
            world.finish,
            lambda item, status: self.sessions.settled(item.token, status),
            linger=0.001,
        )
        self.writer = Writer(
            world, world, self.outbox, self.sessions, **{"linger": 0.005, **options}
        )
        self.greenlets = [gevent.spawn(self.writer.run), gevent.spawn(self.outbox.run)]

    def put(
        self, task: int, stored: StoredPage | None = None, *, held: HeldSession | None = None
    ) -> None:
        result = Result(held=held or self.held, task=task, outcome=Done(), page=stored)
        self.writer.put(result)

    def drain(self) -> list[Any]:
        assert self.writer.join(5)
        assert self.outbox.join(5)
        return self.world.log


def test_links_to_a_node_that_is_away_are_owed_in_the_commit_and_not_waited_for(rig: Rig) -> None:
    rig.world.known_away = {"b"}
    rig.put(1, page("http://h/p", "http://h/a"))
    assert rig.drain() == [
        ("commit", ["http://h/p"], []), ("admit", 1, ["http://h/a"]), ("finish", [(1, Done())]),
    ]  # fmt: skip
    assert rig.world.owed == [{"b"}]


def test_a_page_beyond_the_limit_is_not_stored_and_its_task_waits_uncharged(rig: Rig) -> None:
    rig.world.surplus = {"http://h/q"}
    rig.put(1, page("http://h/p", "http://h/a"))
    rig.put(2, page("http://h/q", "http://h/b"))
    given_back = Retry(wait=SURPLUS_SECONDS, kind="surplus", charge=False)
    assert rig.drain() == [
        ("commit", ["http://h/p", "http://h/q"], []), ("admit", 1, ["http://h/a"]),
        ("finish", [(1, Done()), (2, given_back)]),
    ]  # fmt: skip


def test_a_url_that_is_parked_while_its_shape_is_released_waits_uncharged(rig: Rig) -> None:
    rig.world.surplus = {"http://h/q", "http://h/dead"}
    results = Results(Journal("w"), hash)
    for number, name in enumerate("pq", 1):
        task = Task(number, f"http://h/{name}", depth=3, level=2)
        rig.writer.put(results.parked(rig.held, 1, task, "s" * 400, "d" * 400))
    dead = replace(rig_final(results, rig.held), state="dead", url="http://h/dead", fingerprint=3)
    rig.writer.put(Result(held=rig.held, task=3, outcome=Dead(kind="gone"), finals=[dead]))
    given_back = Retry(wait=RELEASED_SECONDS, kind="released", charge=False)
    assert rig.drain() == [
        ("commit", [], ["parked", "parked", "dead"]),
        ("finish", [(1, Done(kind="parked")), (2, given_back), (3, Dead(kind="gone"))]),
    ]


def test_a_url_that_the_store_retires_is_forgotten_by_the_frontier(rig: Rig) -> None:
    gone = replace(rig_final(Results(Journal("w"), hash), rig.held), state="gone", shape="")
    rig.writer.put(Result(held=rig.held, task=1, outcome=Done(kind="gone"), finals=[gone]))
    rig.put(2, page("http://h/q"))
    forgotten = Done(kind="gone", forget=True)
    assert ("finish", [(1, forgotten), (2, Done())]) in rig.drain()


def rig_final(results: Results, held: HeldSession) -> Final:
    """Return the row of a parked URL."""
    (final,) = results.parked(held, 1, Task(1, "http://h/p", 3, 2), "s" * 400, "d" * 400).finals
    assert (final.state, final.kind, final.depth, final.level) == ("parked", "trap", 3, 2)
    assert (final.shape, final.detail) == ("s" * 300, "d" * 300)
    return final


def test_a_page_beyond_the_limit_is_left_out_when_the_others_are_committed_again(rig: Rig) -> None:
    rig.world.surplus = {"http://h/q"}
    rig.world.ticks = [100]
    rig.put(1, page("http://h/p", "http://h/a"))
    rig.put(2, page("http://h/q", "http://h/b"))
    commits = [entry for entry in rig.drain() if entry[0] == "commit"]
    assert commits == [
        ("commit", ["http://h/p", "http://h/q"], []), ("commit", ["http://h/p"], []),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["over", "lost", "held"])
def test_links_of_a_session_that_has_lost_its_lease_are_owed_in_the_commit(
    rig: Rig, how: str
) -> None:
    """The process may die before it admits them; others have done its task and end the crawl."""
    if how == "over":
        rig.held.deadline = monotonic()
    elif how == "lost":
        rig.held.ended = "stale"
    rig.put(1, page("http://h/a", "http://h/1"))
    rig.put(2, page("http://h/b"))
    rig.drain()
    assert rig.world.owed == [set() if how == "held" else {"n"}]
    assert ("admit", 1, ["http://h/1"]) in rig.world.log, "and it admits them all the same"


@pytest.mark.parametrize("what", ["late", "away", "back"])
def test_debts_to_nodes_are_determined_when_a_commit_succeeds_not_at_its_first_try(
    rig: Rig, what: str
) -> None:
    """While SQL is away, a lease ends and others do the task, or a node goes or comes back."""
    rig.world.away = {"store": 10**6}
    rig.world.known_away = {"b"} if what == "back" else set()
    rig.put(1, page("http://h/p", "http://h/a"))
    until(lambda: rig.world.log.count("store away") > 2)
    if what == "late":
        rig.held.deadline = monotonic()
    else:
        rig.world.known_away = {"b"} if what == "away" else set()
        rig.world.missing = {"b": 1}
    rig.world.away = {}
    log = rig.drain()
    assert rig.world.owed == [{"late": {"n"}, "away": {"b"}, "back": set()}[what]]
    admits = log.count(("admit", 1, ["http://h/a"]))
    assert admits == (2 if what == "back" else 1), "what was not owed is not taken for it"


def test_a_recalled_page_is_owed_to_nodes_that_are_away_when_its_commit_succeeds(rig: Rig) -> None:
    rig.world.away = {"store": 10**6}
    recalling = gevent.spawn(rig.writer.recall, page("http://h/p", "http://h/a"))
    until(lambda: rig.world.log.count("store away") > 2)
    rig.world.known_away = {"b"}
    rig.world.away = {}
    recalling.get(timeout=5)
    assert rig.world.owed == [{"b"}]


def test_a_node_that_is_found_away_is_owed_the_links_before_the_task_is_finished(rig: Rig) -> None:
    rig.world.missing = {"b": 100}
    rig.put(1, page("http://h/p", "http://h/a"))
    log = rig.drain()
    assert log == [
        ("commit", ["http://h/p"], []), *[("admit", 1, ["http://h/a"])] * 4,
        ("owe", ["b"], 1), ("finish", [(1, Done())]),
    ]  # fmt: skip
    assert rig.world.owed == [set()]


@pytest.mark.parametrize("passed", [MARGIN, MARGIN + 1])
def test_a_page_whose_links_are_owed_long_after_its_commit_is_committed_again(
    rig: Rig, passed: int
) -> None:
    """By then the node's tick may be so high that a copy of the node would never be given these
    links."""
    rig.world.missing = {"b": 4}
    rig.world.clock_then = 1 + passed
    rig.put(1, page("http://h/p", "http://h/a"))
    log = rig.drain()
    owed = log.index(("owe", ["b"], 1))
    again = [entry for entry in log[owed:] if entry[0] == "commit"]
    assert len(again) == (passed > MARGIN)


def test_a_node_that_was_only_restarted_is_owed_nothing(rig: Rig) -> None:
    rig.world.missing = {"b": 2}
    rig.put(1, page("http://h/p", "http://h/a"))
    log = rig.drain()
    assert log.count(("admit", 1, ["http://h/a"])) == 3
    assert not [entry for entry in log if entry[0] == "owe"]


def test_a_task_is_finished_only_when_the_debt_for_its_links_is_noted(rig: Rig) -> None:
    rig.world.missing = {"b": 100}
    rig.world.gate = Event()
    rig.put(1, page("http://h/p", "http://h/a"))
    rig.world.gate.set()
    until(lambda: ("commit", ["http://h/p"], []) in rig.world.log)
    rig.world.away = {"store": 2}
    assert rig.drain()[-4:] == [
        "store away", "store away", ("owe", ["b"], 1), ("finish", [(1, Done())]),
    ]  # fmt: skip


def test_recalled_links_are_owed_to_a_node_that_is_away(rig: Rig) -> None:
    rig.world.known_away = {"b"}
    rig.writer.recall(page("http://h/p", "http://h/a"))
    assert rig.world.owed == [{"b"}]


def test_recalled_links_are_committed_again_and_admitted(rig: Rig) -> None:
    rig.world.ticks = [100]
    rig.writer.recall(page("http://h/p", "http://h/a"))
    assert rig.world.log == [
        ("commit", ["http://h/p"], []), ("admit", 1, ["http://h/a"]),
        ("commit", ["http://h/p"], []), ("admit", 1, ["http://h/a"]),
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back off by milliseconds."""

    def delays() -> Iterator[float]:
        while True:
            yield 0.001

    monkeypatch.setattr("greencrawl.worker.session.backoff.delays", delays)
    monkeypatch.setattr("greencrawl.worker.delivery.writer.delays", delays)
    monkeypatch.setattr(outbox_module, "delays", delays)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(World())
    yield made
    gevent.killall(made.greenlets)


def test_page_is_stored_then_its_links_admitted_then_its_task_finished(rig: Rig) -> None:
    rig.put(1, page("http://h/", "http://h/a"))
    assert rig.drain() == [
        ("commit", ["http://h/"], []),
        ("admit", 1, ["http://h/a"]),
        ("finish", [(1, Done())]),
    ]


@pytest.mark.parametrize("part", ["store", "frontier", "broker"])
def test_the_writer_waits_for_a_part_that_is_away_and_keeps_the_order(rig: Rig, part: str) -> None:
    rig.world.away[part] = 3
    rig.put(1, page("http://h/", "http://h/a"))
    log = rig.drain()
    assert log.count(f"{part} away") == 3
    assert [entry[0] for entry in log if isinstance(entry, tuple)] == ["commit", "admit", "finish"]


@pytest.mark.parametrize(("tick", "commits"), [(11, 1), (12, 2)])
def test_page_whose_links_came_too_late_for_its_stamp_is_committed_again_before_it_is_finished(
    rig: Rig, tick: int, commits: int
) -> None:
    rig.world.ticks = [tick]  # the stamp is 1, and the margin 10
    rig.put(1, page("http://h/a", "http://h/b"))
    steps = [entry[0] for entry in rig.drain()]
    assert steps == [*["commit", "admit"] * commits, "finish"]


def test_pages_that_end_together_share_one_commit_and_one_admit(rig: Rig) -> None:
    for i in range(5):
        rig.put(i, page(f"http://h/{i}", "http://h/menu", f"http://h/{i}/a"))
    log = rig.drain()
    assert [entry[0] for entry in log] == ["commit", "admit", "finish"]
    assert log[1][2].count("http://h/menu") == 1


def test_acknowledged_link_is_not_admitted_again(rig: Rig) -> None:
    rig.put(1, page("http://h/", "http://h/menu"))
    rig.drain()
    rig.put(2, page("http://h/a", "http://h/menu", "http://h/new"))
    assert [entry[2] for entry in rig.drain() if entry[0] == "admit"] == [
        ["http://h/menu"],
        ["http://h/new"],
    ]


def test_links_of_a_deleted_crawl_are_dropped_and_its_tasks_finished(rig: Rig) -> None:
    rig.world.deleted = {1}
    rig.put(1, page("http://h/", "http://h/a"))
    assert rig.drain()[-1] == ("finish", [(1, Done())])


def test_links_go_to_the_crawl_of_their_page(rig: Rig) -> None:
    rig.put(1, page("http://h/", "http://h/a"))
    rig.put(2, page("http://h/", "http://h/a", crawl=2))
    admits = [entry for entry in rig.drain() if entry[0] == "admit"]
    assert admits == [("admit", 1, ["http://h/a"]), ("admit", 2, ["http://h/a"])]


def test_page_that_cannot_be_stored_becomes_a_dead_letter_alone(rig: Rig) -> None:
    rig.world.unstorable = "http://h/bad"
    rig.put(1, page("http://h/bad", "http://h/a"))
    rig.put(2, page("http://h/good"))
    assert rig.drain() == [
        ("commit", ["http://h/good"], ["dead"]),
        ("finish", [(1, Dead("parse")), (2, Done())]),
    ]


def test_a_full_writer_holds_up_new_results_and_fetches() -> None:
    rig = Rig(World(gate=Event()), backlog_bytes=10_000)
    assert rig.world.gate
    rig.put(1, page("http://h/1", body=b"x" * 9000))
    late = [gevent.spawn(rig.put, 2, page("http://h/2")), gevent.spawn(rig.writer.wait_for_room)]
    assert gevent.wait(late, 0.05, count=1) == []
    rig.world.gate.set()
    gevent.joinall(late, 5)
    assert all(one.successful() for one in late)
    rig.drain()
    gevent.killall(rig.greenlets)


@dataclass
class Resting:
    """A rig with a clock that the test turns, and a result of a host that rests for hours."""

    now: float = 0.0
    rig: Rig = field(init=False)
    held: HeldSession = field(init=False)

    def __post_init__(self) -> None:
        self.rig = Rig(World(), clock=lambda: self.now, backlog_bytes=3000)
        held = self.rig.sessions.hold(session("00000000000000bb", delay=36_000), 1e12)
        assert held is not None
        self.held = held
        self.rig.put(1, page("http://h/1"), held=held)
        self.now = 1.0  # many times the linger
        gevent.sleep(0.02)

    def settled(self) -> list[Any]:
        return [task for entry in self.rig.drain() if entry[0] == "finish" for task, _ in entry[1]]


@pytest.fixture
def resting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resting]:
    monkeypatch.setattr("greencrawl.worker.delivery.writer.PATIENCE_SECONDS", 3600.0)
    made = Resting()
    assert made.rig.world.log == []
    yield made
    gevent.killall(made.rig.greenlets)


def test_result_of_a_host_that_rests_leaves_with_an_urgent_result(resting: Resting) -> None:
    resting.rig.put(2)
    resting.now += 0.01
    assert resting.settled() == [1, 2]


def test_results_of_hosts_that_rest_leave_when_they_fill_a_batch(
    resting: Resting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.delivery.writer.BATCH_PAGES", 2)
    resting.rig.writer._backlog_bytes = 1_000_000
    resting.rig.put(2, held=resting.held)
    assert resting.settled() == [1, 2]


def test_results_of_hosts_that_rest_leave_when_there_is_no_room_for_more(resting: Resting) -> None:
    resting.rig.put(2, held=resting.held)
    with gevent.Timeout(5):
        resting.rig.put(3, held=resting.held)
    resting.now = 1e9
    resting.rig.put(4)
    assert resting.settled() == [1, 2, 3, 4]


def test_result_of_a_host_that_rests_waits_for_a_moment_only() -> None:
    rig = Rig(World())
    held = rig.sessions.hold(session("00000000000000bb", delay=36_000), 1e12)
    rig.put(1, held=held)
    rig.drain()
    gevent.killall(rig.greenlets)


def test_session_is_held_until_close_and_outcomes_are_acknowledged(rig: Rig) -> None:
    rig.put(1, page("http://h/"))
    rig.sessions.fetched(rig.held, closing=True)
    assert [held.session.token for held in rig.sessions.holding()] == [TOKEN]
    rig.drain()
    assert len(rig.sessions) == 1
    rig.sessions.closed(TOKEN)
    assert len(rig.sessions) == 0


def test_outcome_of_a_deleted_crawl_ends_its_session_which_is_still_to_be_closed(
    rig: Rig,
) -> None:
    rig.world.statuses = "gone"
    rig.put(1)
    rig.drain()
    assert (rig.held.ended, rig.held.lost) == ("stop", False)


def test_a_stale_outcome_does_not_end_its_session(rig: Rig) -> None:
    rig.world.statuses = "stale"
    rig.put(1)
    rig.drain()
    assert not rig.held.ended


def test_lease_that_was_answered_twice_is_held_once() -> None:
    sessions = Sessions()
    assert sessions.hold(session(), 1.0) is not None
    assert sessions.hold(session(), 1.0) is None
    assert sessions.fetching == 1


def test_an_extension_moves_the_deadline_of_a_session_and_never_back() -> None:
    sessions = Sessions()
    held = sessions.hold(session(), 10.0)
    assert held is not None
    sessions.submitted(held)
    sessions.settled(held.session.token, "away")
    assert held.ended == "", "an outcome that its node has not heard of ends nothing"
    sessions.extended(held, "ok", 20.0)
    sessions.extended(held, "stop", 15.0)
    assert (held.deadline, held.ended, held.lost) == (20.0, "stop", False)
    sessions.extended(held, "away", 90.0)
    assert (held.deadline, held.ended) == (20.0, "stop"), "nothing is known of it"
    sessions.extended(held, "stale", 30.0)
    sessions.extended(held, "ok", 40.0)
    assert (held.ended, held.lost) == ("stale", True)


def refusing(bad: set[int], status: int, log: list[Any]) -> Any:
    def send(items: Sequence[int]) -> ItemsReply:
        if bad & set(items):
            raise Refused(status, {"title": "bad"})
        log.append(list(items))
        return ItemsReply(tuple("ok" for _ in items))

    return send


def test_item_that_a_broker_finds_malformed_takes_no_other_with_it() -> None:
    sent: list[Any] = []
    settled: list[Any] = []
    box: Outbox[int] = Outbox("t", refusing({3}, 422, sent), lambda i, s: settled.append((i, s)))
    for i in range(6):
        box.put(i)
    box.flush()
    assert sorted(i for batch in sent for i in batch) == [0, 1, 2, 4, 5]
    assert (3, "stale") in settled
    assert box.join(0)


def test_items_wait_while_the_token_is_wrong() -> None:
    sent: list[Any] = []
    bad = {1}
    box: Outbox[int] = Outbox("t", refusing(bad, 401, sent), lambda *_: None)
    box.put(1)
    sender = gevent.spawn(box.flush)
    gevent.sleep(0.02)
    assert not sent
    bad.clear()
    sender.join(5)
    assert sent == [[1]]


class Nodes:
    """Answers for items; those in ``away`` are at a node that does not answer."""

    def __init__(self, *away: int) -> None:
        self.away = set(away)
        self.sent: list[list[int]] = []
        self.settled: list[int] = []

    def send(self, items: Sequence[int]) -> ItemsReply:
        self.sent.append(list(items))
        return ItemsReply(tuple("away" if i in self.away else "ok" for i in items))

    def box(self) -> Outbox[int]:
        return Outbox("t", self.send, lambda item, _: self.settled.append(item), linger=0)


def test_items_whose_node_is_away_wait_while_others_pass_and_keep_their_order() -> None:
    nodes = Nodes(2, 4, 5)
    box = nodes.box()
    running = gevent.spawn(box.run)
    for i in range(6):
        box.put(i)
    assert box.join(5) is False, "some are postponed"
    assert nodes.settled == [0, 1, 3]
    box.put(6)
    until(lambda: [2, 4, 5] in nodes.sent)
    assert not box.join(0)
    until(lambda: 6 in nodes.settled)
    nodes.away = {4}
    until(lambda: {2, 5} <= set(nodes.settled))
    nodes.away.clear()
    assert box.join(5, postponed_seconds=5)
    assert nodes.settled == [0, 1, 3, 6, 2, 5, 4]
    running.kill()


def test_postponed_items_are_tried_in_turn_a_few_at_a_time_until_their_node_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox_module, "BATCH", 2)
    nodes = Nodes(*range(8))
    box = nodes.box()
    running = gevent.spawn(box.run)
    for i in range(8):
        box.put(i)
    until(lambda: nodes.sent.count([0, 1]) > 1)
    nodes.away = {0, 1, 2, 3}  # one of two nodes is back
    until(lambda: {4, 5, 6, 7} <= set(nodes.settled))
    nodes.away.clear()
    assert box.join(5, postponed_seconds=5)
    assert sorted(nodes.settled) == list(range(8))
    running.kill()


def until(condition: Callable[[], object]) -> None:
    with gevent.Timeout(5):
        while not condition():
            gevent.sleep(0.001)


def test_recent_urls_are_forgotten_by_generations() -> None:
    recent = Recent(size=2)
    for url in "abcd":
        recent.add([Admission(url)])
    assert [a.url for a in recent.fresh(Admission(u) for u in "abcde")] == ["e"]
    for url in "efgh":
        recent.add([Admission(url)])
    assert [a.url for a in recent.fresh(Admission(u) for u in "abg")] == ["a", "b"]


def test_recent_urls_of_a_trap_take_no_memory() -> None:
    recent = Recent()
    long = Admission("http://h/" + "a" * 4000)
    recent.add([long, Admission("http://h/b")])
    assert recent.fresh([long, Admission("http://h/b")]) == [long]


def test_recent_urls_are_bounded_in_number_and_go_with_their_crawl() -> None:
    now = [0.0]
    recents = Recents(lambda: now[0])
    for crawl in range(100):
        recent = recents.of(crawl, {})
        for some in range(10):
            links = [Admission(f"http://h/{crawl}/{some}/{n}") for n in range(1000)]
            recent.add(links)
            assert recents.of(crawl, {}).fresh(links) == []
        now[0] += 1
    assert len(recents) == 40
    assert recents.urls() <= 2 * 80_000 + 40 * 1000
    now[0] += 300
    recents.of(100, {}).add([Admission("http://h/")])
    assert (len(recents), recents.urls()) == (1, 1)
    assert recents.of(100, {}).size == 20_000, "and it has all of the room"
    recents.forget(100)
    assert len(recents) == 0


def test_links_are_sent_again_once_a_node_was_opened_anew(rig: Rig) -> None:
    """The node may have forgotten them, and the store that refills it may have lost their rows."""
    rig.put(1, page("http://h/a", "http://h/x"))
    rig.drain()
    rig.put(2, page("http://h/b", "http://h/x"))
    rig.drain()
    rig.world.epoch = 2
    rig.put(3, page("http://h/c", "http://h/x"))
    rig.drain()
    asked = [entry for entry in rig.world.log if entry[0] == "admit"]
    assert asked == [("admit", 1, ["http://h/x"])] * 2


def test_results_are_in_hand_until_they_are_written() -> None:
    memory_budget, gate = MemoryBudget(), Event()
    rig = Rig(World(gate=gate), memory_budget=memory_budget)
    rig.put(1, page("http://h/p", "http://h/a"))
    assert memory_budget.bytes == rig.writer._waiting[0].weight > 0
    gate.set()
    rig.drain()
    assert memory_budget.bytes == 0
    gevent.killall(rig.greenlets)


def test_links_count_towards_the_backlog_with_their_urls() -> None:
    held = HeldSession(session(), 0.0)
    links = [f"http://h/{i}/" + "a" * 4000 for i in range(10)]
    result = Result(held=held, task=1, outcome=Done(), page=page("http://h/", *links))
    assert 40_000 < result.bytes < 50_000
