"""One of two Redis nodes is away: the other's hosts go on, and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from io import StringIO
from pathlib import Path

import gevent
import pytest
from gevent.event import AsyncResult, Event
from rich.console import Console

from greencrawl.broker.api.handlers import state as handlers
from greencrawl.broker.api.messages import Health, StatsQuery, UrlQuery
from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination import duties
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.broker.frontier.recovery.debts import Debts
from greencrawl.broker.frontier.recovery.replay import Replay, ReplaySender
from greencrawl.broker.frontier.scripts.partition import Mode
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.cli.commands.status import table
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.errors import DutyLost, Unavailable, UnknownCrawl
from greencrawl.schema.net.urls import fingerprint
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Commit,
    Crawl,
    CrawlOptions,
    Done,
    Duty,
    ExtendItem,
    FinishItem,
    HostPatch,
    HostReport,
    ItemsReply,
    ReconcileReply,
    ReconcileRequest,
    Session,
    StoredPage,
)
from greencrawl.store.base import MARGIN
from greencrawl.worker.delivery.outbox import Outbox
from greencrawl.worker.delivery.results import Result
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.session.held import HeldSession, Sessions
from tests.broker.frontier.test_frontier import Worker, close, finish_all, new_crawl, until, urls
from tests.support.two_nodes import TIMEOUT_SECONDS, TwoNodes, hosts_on


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path) as made:
        yield made


def seeded(rig: TwoNodes, frontier: Frontier, hosts: int = 2, pages: int = 3) -> Crawl:
    """Return a crawl with pages on equally many hosts of both nodes."""
    crawl = new_crawl(frontier, rig.store, delay=0)
    for node in frontier.nodes:
        for host in hosts_on(frontier, node, hosts):
            frontier.admit(crawl.id, urls(host, pages))
    return crawl


def leased(frontier: Frontier, worker: Worker, sessions: int) -> list[Session]:
    found: list[Session] = []
    until(lambda: found.extend(worker.lease()) or len(found) >= sessions)
    return found


def at(frontier: Frontier, node: Node, sessions: list[Session]) -> list[Session]:
    on = set(frontier.partitions_on(node))
    return [one for one in sessions if int(one.session.partition("/")[0]) in on]


def answers(node: Node) -> bool:
    return not node.breaker.since_ms


def finishes(sessions: list[Session]) -> list[FinishItem]:
    return [
        FinishItem(session=s.session, token=s.token, task=t.number, outcome=Done())
        for s in sessions
        for t in s.tasks
    ]


def test_concurrent_calls_to_a_frozen_node_share_one_time_out(rig: TwoNodes) -> None:
    frontier = rig.open(start=False)
    up, away = frontier.nodes
    until(lambda: [away.run_id() for _ in range(3)])  # the pool has a connection
    rig.freeze(away)
    began = monotonic()
    calls = [gevent.spawn(pytest.raises, Unavailable, away.command, "PING") for _ in range(20)]
    gevent.sleep(TIMEOUT_SECONDS / 2)
    late = gevent.spawn(pytest.raises, Unavailable, away.command, "PING")
    gevent.joinall([*calls, late], raise_error=True)
    assert monotonic() - began < TIMEOUT_SECONDS * 1.45, "the late one has waited no longer"
    began = monotonic()
    for _ in range(100):
        with pytest.raises(Unavailable, match="is away"):
            away.command("PING")
    assert monotonic() - began < 100 * TIMEOUT_SECONDS / 10
    ((node, since_ms, why),) = [
        (one.node, one.since_ms, one.why) for one in frontier.nodes_away().values()
    ]
    assert (node, since_ms) == (away.shown, away.breaker.since_ms)
    assert "away" in why
    assert up.command("PING") == b"PONG"
    rig.thaw(away)
    until(lambda: answers(away))
    assert frontier.nodes_away() == {}
    assert away.command("PING") == b"PONG"


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_hosts_of_the_other_node_are_leased_while_one_is_away(rig: TwoNodes, how: str) -> None:
    frontier = rig.open()
    up, away = frontier.nodes
    seeded(rig, frontier, hosts=10, pages=1)
    rig.freeze(away) if how == "frozen" else rig.server_of(away).kill()
    worker, found = Worker(frontier), list[Session]()
    began = monotonic()
    while len(found) < 10:
        found += worker.lease(wait=5)
        assert monotonic() - began < TIMEOUT_SECONDS + 2
    assert at(frontier, up, found) == found
    began = monotonic()
    assert worker.lease(wait=0.2) == (), "what is away is no error to who waits for a host"
    assert monotonic() - began < 1


def test_links_are_checked_until_one_of_each_node_that_is_away_is_found(
    rig: TwoNodes,
) -> None:
    frontier = rig.open()
    up, away = frontier.nodes
    (other,), (gone,) = hosts_on(frontier, up, 1), hosts_on(frontier, away, 1)
    rig.server_of(away).kill()
    with pytest.raises(Unavailable):
        away.command("PING")
    assert frontier.away_of(urls(other, 3)) == frozenset()
    links = iter([*urls(other, 2), *urls(gone, 2)])
    assert frontier.away_of(links) == {away.id}
    assert len(list(links)) == 1, "every page pays for this as long as the node is away"


def test_items_of_a_node_that_is_away_are_answered_away_and_the_others_pass(rig: TwoNodes) -> None:
    frontier = rig.open()
    up, away = frontier.nodes
    seeded(rig, frontier)
    worker = Worker(frontier)
    sessions = leased(frontier, worker, 4)
    rig.server_of(away).kill()
    tasks = finishes(sessions)
    lost = {one.token for one in at(frontier, away, sessions)}
    assert len(lost) == 2
    wanted = ["away" if item.token in lost else "ok" for item in tasks]
    assert frontier.finish(tasks) == wanted
    extends = [ExtendItem(session=one.session, token=one.token) for one in sessions]
    expected = ["away" if one.token in lost else "ok" for one in sessions]
    assert frontier.extend(extends, 60) == expected
    reports = [HostReport(requests=1, failed="timeout") for _ in sessions]
    closes = [
        CloseItem(session=s.session, token=s.token, report=report)
        for s, report in zip(sessions, reports, strict=True)
    ]
    assert frontier.close_sessions(closes) == expected
    blocked = {host for host, _, _ in rig.store.blocks(0)}
    assert blocked == {one.host for one in at(frontier, up, sessions)}
    rig.server_of(away).start()
    until(lambda: answers(away))
    again = [item for item in tasks if item.token in lost]
    until(lambda: set(finish_settled(frontier, again)) <= {"ok", "stale"})


def finish_settled(frontier: Frontier, items: list[FinishItem]) -> list[str]:
    try:
        return list(frontier.finish(items))
    except Unavailable:
        return ["away"]


def test_a_delay_for_a_node_that_is_away_is_refused_and_holds_once_the_node_is_back(
    rig: TwoNodes,
) -> None:
    frontier = rig.open()
    _, away = frontier.nodes
    seeded(rig, frontier)
    (host,) = hosts_on(frontier, away, 1)
    rig.server_of(away).kill()
    with pytest.raises(Unavailable):
        frontier.patch_host(host, HostPatch(delay=30))
    assert rig.store.delays() == {host: 30_000}
    rig.server_of(away).start()
    until(lambda: answers(away) and _delay(frontier, host) == 30)


def _delay(frontier: Frontier, host: str) -> float:
    try:
        return frontier.host(host).delay
    except Unavailable:
        return -1


def test_a_reconcile_names_the_node_that_has_not_heard_it(rig: TwoNodes) -> None:
    frontier = rig.open()
    up, away = frontier.nodes
    seeded(rig, frontier)
    worker = Worker(frontier)
    sessions = leased(frontier, worker, 4)
    rig.freeze(away)
    held = [one.token for one in at(frontier, up, sessions)][:1]
    request = ReconcileRequest(
        worker="w", incarnation=1, sequence=worker.sequence, holding=tuple(held)
    )
    reply = frontier.reconcile(request)
    assert (reply.sessions, reply.away) == (1, (away.shown,))
    rig.thaw(away)
    until(lambda: answers(away))
    reply = until(lambda: heard(frontier, request))
    assert (reply.sessions, reply.away) == (2, ())


def heard(frontier: Frontier, request: ReconcileRequest) -> object:
    reply = frontier.reconcile(request)
    return None if reply.away else reply


def reconcile(
    frontier: Frontier, incarnation: int, sequence: int, *, leaving: bool = False
) -> ReconcileReply:
    request = ReconcileRequest(
        worker="w", incarnation=incarnation, sequence=sequence, leaving=leaving
    )
    with gevent.Timeout(10):
        return frontier.reconcile(request)


def test_a_workers_name_is_free_though_a_node_never_heard_of_its_last_holder(rig: TwoNodes) -> None:
    """While the node was away, a worker started again after a crash, and left."""
    frontier = rig.open()
    ask = partial(reconcile, frontier)
    away = frontier.nodes[0]
    assert ask(1, 1).superseded == 0
    assert ask(5, 1).superseded == 0
    rig.freeze(away)
    with pytest.raises(Unavailable):  # from now on the frontier sends it nothing
        away.command("PING")
    assert ask(7, 1).away
    ask(7, 2, leaving=True)
    rig.thaw(away)
    until(lambda: answers(away))
    assert ask(1, 2).superseded == 0


def test_a_workers_name_is_free_though_nodes_heard_of_different_holders_that_left(
    rig: TwoNodes,
) -> None:
    frontier = rig.open()
    ask = partial(reconcile, frontier)
    away = frontier.nodes[0]
    for incarnation in (1, 5):
        assert ask(incarnation, 1).superseded == 0
    rig.freeze(away)
    with pytest.raises(Unavailable):  # from now on the frontier sends it nothing
        away.command("PING")
    assert ask(7, 1).away
    ask(7, 2, leaving=True)
    rig.thaw(away)
    until(lambda: answers(away))
    assert ask(5, 2).superseded == 0
    ask(5, 3, leaving=True)
    assert ask(1, 2).superseded == 0


def test_a_workers_name_is_free_though_a_node_was_away_when_its_holder_left(rig: TwoNodes) -> None:
    frontier = rig.open()
    first = frontier.nodes[0]

    ask = partial(reconcile, frontier)
    assert ask(1, 1).superseded == 0
    assert ask(7, 1).superseded == 0
    rig.freeze(first)
    assert ask(7, 2, leaving=True).away
    rig.thaw(first)
    until(lambda: answers(first))
    assert ask(1, 2).superseded == 0
    seeded(rig, frontier)
    worker = Worker(frontier, incarnation=1)
    worker.sequence = 2
    assert at(frontier, first, leased(frontier, worker, 4)), "the node has heard of it as well"


def test_calls_fail_while_both_nodes_are_away(rig: TwoNodes) -> None:
    frontier = rig.open()
    seeded(rig, frontier)
    sessions = leased(frontier, Worker(frontier), 4)
    for server in rig.servers:
        server.kill()
    with pytest.raises(Unavailable):
        frontier.finish(finishes(sessions))
    with pytest.raises(Unavailable):
        frontier.extend([ExtendItem(session=s.session, token=s.token) for s in sessions], 60)


# -- what a node that was away is owed


class Pages:
    """A worker's writer on a frontier of its own, which notes the finishes."""

    def __init__(self, rig: TwoNodes, crawl: Crawl) -> None:
        self.crawl = crawl.id
        self.frontier = rig.open(create=False, start=False)
        self.finished: list[int] = []
        self.sessions = Sessions()
        outbox: Outbox[FinishItem] = Outbox("finish", self._finish, lambda *_: None, linger=0)
        self.writer = Writer(rig.store, self.frontier, outbox, self.sessions, linger=0)
        self.greenlets = [gevent.spawn(self.writer.run), gevent.spawn(outbox.run)]

    def _finish(self, items: Sequence[FinishItem]) -> ItemsReply:
        self.finished += [item.task for item in items]
        return ItemsReply(tuple("ok" for _ in items))

    def store(self, number: int, links: list[str], *, late: bool = False) -> None:
        """Hand over a page, after its lease if ``late``, and wait until its task is finished."""
        url = f"http://from.example/{number}"
        stored = StoredPage(
            crawl=self.crawl, fingerprint=fingerprint(url), url=url, status=200, fetched_ms=1000,
            links=[Admission(link, 1) for link in links],
        )  # fmt: skip
        session = Session(
            session="0/from.example", token=f"{number:016x}", crawl=self.crawl, revision=0,
            host="from.example", ttl=60, delay=0, floor=0, robots_known=True, tasks=(),
        )  # fmt: skip
        held = HeldSession(session, monotonic() + (0 if late else 60))
        self.writer.put(Result(held=held, task=number, outcome=Done(), page=stored))
        until(lambda: number in self.finished)

    def stop(self) -> None:
        gevent.killall(self.greenlets)


def linked(frontier: Frontier, node: Node, number: int) -> list[str]:
    return [f"http://{host}/{number}" for host in hosts_on(frontier, node, 3)]


def bring_back(rig: TwoNodes, node: Node, how: str) -> None:
    if how == "frozen":
        rig.thaw(node)
    elif how == "killed":
        rig.server_of(node).start()
    else:
        rig.empty(node)


@pytest.mark.parametrize("how", ["frozen", "killed", "emptied"])
def test_links_to_a_node_that_is_away_are_queued_when_it_is_back(rig: TwoNodes, how: str) -> None:
    frontier = rig.open()
    frontier.recovery.rest_ms = 0  # hosts of a node that was taken over need not rest
    up, away = frontier.nodes
    crawl = new_crawl(frontier, rig.store, delay=0)
    pages = Pages(rig, crawl)
    pages.store(1, linked(frontier, away, 1))
    rig.freeze(away) if how == "frozen" else rig.server_of(away).kill()
    before = monotonic()
    for number in range(2, 8):
        rig.store.tick()
        pages.store(number, [*linked(frontier, up, number), *linked(frontier, away, number)])
    assert monotonic() - before < 3, "pages are finished with a debt"
    assert set(rig.store.debts()) == {away.id}
    late = new_crawl(frontier, rig.store, "late", delay=0)
    assert rig.store.set_state(late.id, "done", "finished").state == "active"
    assert frontier.scan(crawl.id) is None
    bring_back(rig, away, how)
    until(lambda: not rig.store.debts(), 15)
    totals = until(lambda: frontier.scan(crawl.id), 15)
    assert totals.waiting == 3 + 6 * 6
    assert list(frontier.admit(late.id, [Admission(linked(frontier, away, 1)[0])])) == [True]
    found: list[str] = []
    worker = Worker(frontier)

    def all_leased() -> bool:
        for session in worker.lease(100, 100):
            found.extend(task.url for task in session.tasks)
            close(frontier, session)
        return len(set(found)) == 3 + 6 * 6

    until(all_leased, 20)
    pages.stop()


def test_a_debt_is_paid_once_by_one_broker_however_often_it_is_cut_off(
    rig: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = rig.open()
    _, away = frontier.nodes
    crawl = new_crawl(frontier, rig.store, delay=0)
    pages = Pages(rig, crawl)
    rig.freeze(away)
    pages.store(1, linked(frontier, away, 1))
    frontier.stop()  # the broker is killed with the debt open
    since = rig.store.debts()[away.id].since
    for _ in range(2 * MARGIN):
        rig.store.tick()
    rig.thaw(away)
    seen: list[tuple[int, bool]] = []
    opened: AsyncResult[Frontier] = AsyncResult()
    links = Replay.links

    def cut_off(replay: Replay, put: ReplaySender) -> None:
        second = opened.get()
        second.tick(rig.store.clock())  # no tick is written meanwhile
        tick = int(second.nodes[1].owner()["tick"])
        seen.append((tick, second.scan(crawl.id) is None))
        if len(seen) == 1:
            raise Unavailable("cut off")
        if len(seen) == 2:  # more is owed
            rig.store.owe([second.nodes[1].id])
        links(replay, put)

    monkeypatch.setattr(Replay, "links", cut_off)
    monkeypatch.setattr("greencrawl.broker.frontier.recovery.debts.GIVE_UP_SECONDS", 0.0)
    second = rig.open()
    opened.set(second)
    node = second.nodes[1]
    until(lambda: not rig.store.debts(), 10)
    assert [(tick <= since, void) for tick, void in seen] == [(True, True)] * 3
    assert "debt" not in node.owner()
    second.tick(rig.store.clock())
    assert int(node.owner()["tick"]) == rig.store.clock().clock
    totals = until(lambda: second.scan(crawl.id))
    assert (totals.admitted, totals.waiting) == (3, 3)
    pages.stop()


def test_links_of_a_paid_debt_that_a_node_loses_are_in_the_window_of_its_recovery(
    rig: TwoNodes,
) -> None:
    """After the debt was paid, the node comes back in its state from before the payment."""
    frontier = rig.open()
    frontier.recovery.rest_ms = 0
    _, away = frontier.nodes
    crawl = new_crawl(frontier, rig.store, delay=0)
    pages = Pages(rig, crawl)
    frontier.tick(rig.store.clock())
    server = rig.server_of(away)
    rig.freeze(away)
    pages.store(1, linked(frontier, away, 1))
    for _ in range(3 * MARGIN):
        rig.store.tick()
    shutil.copytree(server.folder, server.folder.with_name("older"))
    rig.thaw(away)
    until(lambda: not rig.store.debts(), 10)
    until(lambda: frontier.scan(crawl.id))
    server.kill()
    shutil.rmtree(server.folder)
    server.folder.with_name("older").rename(server.folder)
    server.start()
    totals = until(lambda: frontier.scan(crawl.id), 15)
    assert totals.waiting == 3
    pages.stop()


def die_before_admission(
    pages: Pages, links: Sequence[str], monkeypatch: pytest.MonkeyPatch, *, late: bool = False
) -> None:
    """Store a page with ``links``, and end its worker before it admits them."""
    reached = Event()

    def killed_at(*_: object, **__: object) -> None:
        reached.set()
        raise gevent.GreenletExit

    monkeypatch.setattr(pages.frontier, "admit", killed_at)
    writing = gevent.spawn(pages.store, 1, links, late=late)
    assert reached.wait(10)
    gevent.killall([writing, *pages.greenlets])


@pytest.mark.parametrize("lost", [0, 1])
def test_links_are_queued_though_their_worker_died_and_a_node_forgot_the_task_of_their_page(
    rig: TwoNodes, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """It died between the commit and the admission; then the node came back without its data."""
    frontier = rig.open()
    frontier.recovery.rest_ms = 0
    crawl = new_crawl(frontier, rig.store, delay=0)
    links = [link for node in frontier.nodes for link in linked(frontier, node, 1)]
    die_before_admission(Pages(rig, crawl), links, monkeypatch)
    assert not rig.store.debts()
    server = rig.servers[lost]
    server.kill()
    shutil.rmtree(server.folder)
    server.folder.mkdir()
    server.start()
    until(lambda: frontier.scan(crawl.id), 15)
    until(lambda: not rig.store.debts(), 10)
    totals = until(lambda: frontier.scan(crawl.id))
    assert totals.waiting == len(links)


def test_links_are_queued_though_their_worker_is_late_and_dies_before_it_admits_them(
    rig: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = rig.open()
    crawl = new_crawl(frontier, rig.store, delay=0)
    links = linked(frontier, frontier.nodes[0], 1)
    die_before_admission(Pages(rig, crawl), links, monkeypatch, late=True)
    worker = Worker(frontier)
    assert len(leased(frontier, worker, 3)) == 3
    until(lambda: not rig.store.debts(), 10)


def test_the_tick_of_a_node_that_only_workers_do_not_reach_stays_until_its_debt_is_paid(
    rig: TwoNodes,
) -> None:
    """Otherwise a copy of the node from before the payment, restored later, would never get the
    links."""
    frontier = rig.open(start=False)
    up, cut = frontier.nodes
    since = rig.store.clock().clock
    rig.store.owe([cut.id])  # the broker reaches it all the time
    for _ in range(3 * MARGIN):
        rig.store.tick()
    now = rig.store.clock()
    frontier.tick(now)
    assert (int(up.owner()["tick"]), int(cut.owner()["tick"])) == (now.clock, since)
    frontier._debts.step()
    assert not rig.store.debts()
    frontier.tick(now)
    assert int(cut.owner()["tick"]) == now.clock


def test_the_tick_of_a_node_goes_back_to_the_start_of_a_debt_until_the_debt_is_paid(
    rig: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A debt may be noted late, by a commit that took long; and a tick may come late."""
    frontier = rig.open(start=False)
    node = frontier.nodes[1]
    since = rig.store.clock().clock
    for _ in range(3 * MARGIN):
        rig.store.tick()
    now = rig.store.clock()
    frontier.tick(now)
    rig.store.owe([node.id], since)
    links, ticks = Replay.links, []

    def paying(replay: Replay, put: ReplaySender) -> None:
        ticks.append(int(node.owner()["tick"]))
        frontier._wake_ups.heartbeat(node, frontier.partitions_on(node)[0], now.clock)
        ticks.append(int(node.owner()["tick"]))
        links(replay, put)

    monkeypatch.setattr(Replay, "links", paying)
    frontier._debts.step()
    assert ticks == [since, since]
    assert not rig.store.debts()


def test_crawls_can_be_made_and_paused_while_a_node_is_away(rig: TwoNodes) -> None:
    frontier = rig.open()
    _, away = frontier.nodes
    old = seeded(rig, frontier)
    rig.freeze(away)
    made = new_crawl(frontier, rig.store, "made", delay=0)
    frontier.put_crawl(rig.store.set_state(old.id, "paused"))
    rig.thaw(away)
    until(lambda: not rig.store.debts(), 10)
    (host,) = hosts_on(frontier, away, 1)
    frontier.admit(made.id, urls(host, 2))
    sessions = Worker(frontier).lease(wait=2)
    assert {session.crawl for session in sessions} == {made.id}


def test_a_debt_is_paid_by_a_broker_that_reaches_the_node_when_its_payer_does_not(
    rig: TwoNodes,
) -> None:
    frontier, other = rig.open(), rig.open(start=False)
    _, away = frontier.nodes
    crawl = seeded(rig, frontier)
    rig.store.owe([away.id])
    until(lambda: not rig.store.debts(), 10)
    assert frontier.duties.get(f"{duties.REPLAY}:{away.id}"), "it pays what is owed to that node"
    away.breaker.stop()
    away.breaker.since_ms = 1  # cut off from this node only
    other.start()
    frontier.put_crawl(rig.store.set_state(crawl.id, "paused"))
    assert rig.store.debts()
    until(lambda: not rig.store.debts(), 15)
    look = other.look(rig.store.crawl(crawl.id))
    assert look is not None
    assert look.states == {"paused"}


def test_a_broker_stops_paying_a_debt_if_its_duty_is_over(
    rig: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = rig.open(start=False)
    node = frontier.nodes[1]
    crawl = new_crawl(frontier, rig.store, delay=0)
    pages = Pages(rig, crawl)
    pages.store(1, linked(frontier, node, 1), late=True)
    duty = frontier.duties.take(f"{duties.REPLAY}:{node.id}")
    assert duty is not None
    links = Replay.links

    def paying(replay: Replay, put: ReplaySender) -> None:
        frontier.duties.lost(duty.name)  # by its own clock; nobody has taken it yet
        links(replay, put)

    monkeypatch.setattr(Replay, "links", paying)
    with pytest.raises(DutyLost):
        frontier._debts._replay(node, duty)
    assert set(rig.store.debts()) == {node.id}
    pages.stop()


def test_a_broker_that_stood_still_does_not_mark_a_paid_debt_as_open(rig: TwoNodes) -> None:
    frontier = rig.open()
    node = frontier.nodes[1]
    fresh = Duty(f"{duties.REPLAY}:{node.id}", 2)
    stale = Duty(fresh.name, 1)
    run = node.run_id()
    Debts._mark(node, run, node.epoch, "1", fresh)
    Debts._mark(node, run, node.epoch, "", fresh)
    with pytest.raises(DutyLost):
        Debts._mark(node, run, node.epoch, "1", stale)
    assert "debt" not in node.owner()


def test_a_crawl_with_a_page_limit_goes_on_while_a_node_is_away(
    rig: TwoNodes,
) -> None:
    frontier = rig.open()
    here, away = frontier.nodes
    rig.freeze(away)
    (host,) = hosts_on(frontier, here, 1)
    crawl = new_crawl(frontier, rig.store, "limited", delay=0, max_pages=10)
    frontier.admit(crawl.id, urls(host, 20))
    worker = Worker(frontier)
    leased = until(lambda: worker.lease(wait=1), 10)
    assert 0 < sum(len(session.tasks) for session in leased) <= 10


@pytest.mark.parametrize("again", ["here", "only there"])
def test_pages_that_were_fetched_again_take_no_room_of_a_limit_while_their_node_is_away(
    rig: TwoNodes, again: str
) -> None:
    frontier = rig.open()
    here, away = frontier.nodes
    host, *more = hosts_on(frontier, here, 20)
    second = next(one for one in more if frontier.partition_of(one) != frontier.partition_of(host))
    (other,) = hosts_on(frontier, away, 1)
    crawl = new_crawl(frontier, rig.store, "limited", delay=0, max_pages=10)
    worker = Worker(frontier)

    def fetch(count: int) -> None:
        """Fetch so many tasks, one at a time, as far as the limit lets them be leased."""
        for number in range(count):
            sessions = until(lambda: worker.lease(sessions=1, tasks=1, wait=1), 10)
            for session in sessions:
                settle(session, number)

    def settle(session: Session, number: int) -> None:
        store_pages(session, number)
        finish_all(frontier, session)
        close(frontier, session)

    def store_pages(session: Session, number: int) -> None:
        pages = [
            StoredPage(
                crawl=crawl.id, fingerprint=frontier.fingerprint(task.url), url=task.url,
                status=200, fetched_ms=epoch_ms() + number,
            )
            for task in session.tasks
        ]  # fmt: skip
        assert not rig.store.commit(Commit(pages)).refused

    known = urls(other, 4)
    frontier.admit(crawl.id, known)
    fetch(4)
    frontier.admit(crawl.id, known, mode=Mode.FORCE)
    fetch(4)
    frontier.admit(crawl.id, urls(other, 5)[4:])
    (late,) = until(lambda: worker.lease(sessions=1, tasks=1, wait=1), 10)
    if again == "here":
        settle(late, 9)
    frontier.admit(crawl.id, urls(host, 20, level=1))
    fetch(1)  # all quota is where tasks wait now
    rig.freeze(away)
    if again == "here":
        frontier.admit(crawl.id, urls(host, 1), mode=Mode.FORCE)
        fetch(5)
    else:
        store_pages(late, 9)  # the node does not hear of it
        frontier.admit(crawl.id, urls(second, 20))
        fetch(4)
    assert rig.store.stored(crawl.id) == 10


def test_links_to_a_crawl_that_a_node_has_not_been_told_of_are_owed_and_not_dropped(
    rig: TwoNodes,
) -> None:
    frontier = rig.open(start=False)
    up, away = frontier.nodes
    crawl = rig.store.put_crawl("new", CrawlOptions(delay=0), [])
    frontier.tell(crawl, up)
    links = [Admission(link) for link in (*linked(frontier, up, 1), *linked(frontier, away, 1))]
    admitted = frontier.admit(crawl.id, links, partial=True)
    assert (admitted.away, admitted.missed) == ({away.id}, {3, 4, 5})
    assert list(admitted) == [True] * 3 + [False] * 3
    assert list(frontier.admit(crawl.id, links)) == [False] * 3 + [True] * 3, "it is told then"
    other = rig.store.put_crawl("other", CrawlOptions(delay=0), [])
    with pytest.raises(Unavailable, match="has not been told"):
        frontier.admit(other.id, links)
    crawl = rig.store.put_crawl("newer", CrawlOptions(delay=0), [])
    rig.store.delete_crawl(crawl.id)
    with pytest.raises(UnknownCrawl):
        frontier.admit(crawl.id, links, partial=True)


# -- beginning while a node is away


@pytest.mark.parametrize("how", ["frozen", "killed", "emptied"])
def test_a_broker_and_a_worker_may_begin_while_a_node_is_away(rig: TwoNodes, how: str) -> None:
    first = rig.open()
    first.recovery.rest_ms = 0
    up, away = first.nodes
    seeded(rig, first)
    first.stop()
    rig.freeze(away) if how == "frozen" else rig.server_of(away).kill()
    rig.hasten()
    broker = rig.open()
    broker.recovery.rest_ms = 0
    assert [node.id for node in broker.nodes] == list(first.identity.nodes)
    assert set(broker.nodes_away()) == {away.id}
    up, away = broker.nodes
    worker = rig.open(create=False, start=False)
    assert [node.id for node in worker.nodes] == list(first.identity.nodes)
    crawl = new_crawl(broker, rig.store, "b", delay=0)
    links = [Admission(link) for link in (*linked(broker, up, 7), *linked(broker, away, 7))]
    admitted = worker.admit(crawl.id, links, partial=True)
    assert (admitted.away, admitted.missed) == ({away.id}, {3, 4, 5})
    assert {one.host for one in Worker(broker).lease(wait=2)} <= set(hosts_on(broker, up, 3))
    bring_back(rig, away, how)
    until(lambda: not rig.store.debts(), 15)
    until(lambda: not worker.nodes_away())
    until(lambda: admitted_all(worker, crawl, links), 10)
    known = until(lambda: broker.scan(crawl.id), 15)
    assert known.admitted == 6


def test_a_worker_that_began_while_a_node_was_away_leaves_its_replay_to_brokers(
    rig: TwoNodes,
) -> None:
    first = rig.open()
    _, away = first.nodes
    crawl = new_crawl(first, rig.store, "b", delay=0)
    links = [Admission(link) for link in linked(first, away, 7)]
    first.stop()
    rig.freeze(away)
    rig.hasten()
    worker = rig.open(create=False, start=False)
    rig.thaw(away)
    owed = rig.server_of(away).client
    owed.hset(keys.OWNER, "owed", 1)  # by a broker that ended long ago
    until(lambda: admitted_all(worker, crawl, links), 10)
    assert not worker.recovery._jobs
    assert owed.hget(keys.OWNER, "owed") == "1"


def admitted_all(frontier: Frontier, crawl: Crawl, links: list[Admission]) -> bool:
    return not frontier.admit(crawl.id, links, partial=True).away


def test_a_node_that_is_away_is_identified_by_its_address_or_as_the_only_one_left(
    rig: TwoNodes,
) -> None:
    first = rig.open(start=False)
    ids = list(first.identity.nodes)
    addresses = {node.id: node.shown for node in first.nodes}
    assert rig.store.addresses() == addresses
    rig.server_of(first.nodes[1]).kill()
    rig.servers.reverse()
    assert [node.id for node in rig.open(start=False).nodes] == ids
    rig.store.put_addresses({ids[1]: "redis://elsewhere"})
    assert [node.id for node in rig.open(start=False).nodes] == ids, "one is left"
    assert rig.store.addresses() == {ids[0]: addresses[ids[0]], ids[1]: "redis://elsewhere"}


def test_an_empty_server_is_not_taken_for_the_node_that_is_away(tmp_path: Path) -> None:
    with TwoNodes(tmp_path, count=3) as rig:
        first = rig.open(start=False)
        ids = list(first.identity.nodes)
        rig.server_of(first.nodes[0]).kill()
        rig.server_of(first.nodes[1]).kill()
        rig.empty(first.nodes[0])
        again = rig.open(start=False)
        assert [node.id for node in again.nodes] == ids
        assert again.nodes[0].owner()["id"] == ids[0]
        rig.server_of(first.nodes[0]).kill()
        rig.empty(first.nodes[0])
        rig.store.put_addresses({i: f"redis://elsewhere{i}" for i in ids[:2]})
        with pytest.raises(Unavailable, match="it is not known which nodes"):
            rig.open(start=False)


def test_a_frontier_is_not_made_while_a_node_is_away(rig: TwoNodes) -> None:
    rig.servers[1].kill()
    with pytest.raises(Unavailable, match="is away"):
        rig.open(start=False)


# -- the messages


def test_a_broker_says_which_node_is_away_and_since_when(
    rig: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = rig.open()
    up, away = frontier.nodes
    seeded(rig, frontier, hosts=2, pages=3)
    service = Service(frontier, rig.store, duties=frontier.duties)
    assert handlers.get_ready(service) == Health()
    rig.server_of(away).kill()
    now_ms = epoch_ms()
    stats = handlers.get_stats(service, StatsQuery())
    assert [one.waiting for one in stats.crawls] == [6], "of the node that answers"
    (one,) = stats.away
    assert (one.node, "away" in one.why) == (away.shown, True)
    assert now_ms - 2000 <= one.since_ms <= epoch_ms()
    assert handlers.get_ready(service) == Health(away=(away.shown,))
    assert [one.up for one in frontier.vitals()].count(False) == 1
    waits, found = (
        handlers.explain_url(service, UrlQuery(url=linked(frontier, node, 1)[0]))[0]
        for node in (away, up)
    )
    assert (waits.state, found.state) == ("away", "waiting")
    assert "since 20" in waits.why
    assert away.shown in waits.why
    console = Console(width=200, file=StringIO())
    console.print(table(stats))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert away.shown in shown
    assert "since 20" in shown
    rig.server_of(up).kill()
    with pytest.raises(Unavailable):
        handlers.get_ready(service)
    with pytest.raises(Unavailable):
        handlers.get_stats(service, StatsQuery())


def test_seeds_are_taken_while_a_node_is_away_and_nothing_is_lost(rig: TwoNodes) -> None:
    frontier = rig.open()
    up, away = frontier.nodes
    crawl = new_crawl(frontier, rig.store, delay=0, scope="any")
    service = Service(frontier, rig.store, duties=frontier.duties)
    upkeep = Upkeep(service)
    rig.freeze(away)
    given = [*linked(frontier, up, 1), *linked(frontier, away, 1)]
    reply = seeding.seed(service, crawl.name, given, force=False)
    assert (reply.added, reply.pending) == (3, 3)
    upkeep.step()
    assert rig.store.crawl(crawl.id).state == "active"
    rig.thaw(away)
    until(lambda: answers(away))
    until(lambda: not upkeep.step() or not rig.store.pending_seeds())
    totals = until(lambda: frontier.scan(crawl.id))
    assert totals.admitted == 6
    again = seeding.seed(service, crawl.name, given, force=False)
    assert again.duplicate == 6
