"""One of two Redis nodes is away: what the other holds goes on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from broker.frontier import Frontier
from broker.frontier.node import Node
from schema.clock import monotonic
from schema.errors import Unavailable
from schema.records import (
    CloseItem,
    Crawl,
    Done,
    ExtendItem,
    FinishItem,
    HostReport,
    ReconcileRequest,
    Session,
)
from tests.integration.test_frontier import Worker, new_crawl, until, urls
from tests.support.two_nodes import TIMEOUT_SECONDS, TwoNodes, hosts_on


@pytest.fixture
def house(tmp_path: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path) as made:
        yield made


def seeded(house: TwoNodes, frontier: Frontier, hosts: int = 2, pages: int = 3) -> Crawl:
    """A crawl with pages on as many hosts of either node."""
    crawl = new_crawl(frontier, house.store, delay=0)
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


def test_a_frozen_node_costs_one_time_out_that_all_share(house: TwoNodes) -> None:
    frontier = house.open(start=False)
    up, away = frontier.nodes
    until(lambda: [away.run_id() for _ in range(3)])  # the pool has a connection
    house.freeze(away)
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
    assert monotonic() - began < TIMEOUT_SECONDS / 2
    ((node, since_ms, why),) = [(one.node, one.since_ms, one.why) for one in frontier.away.values()]
    assert (node, since_ms) == (away.shown, away.breaker.since_ms)
    assert "away" in why
    assert up.command("PING") == b"PONG"
    house.thaw(away)
    until(lambda: answers(away))
    assert frontier.away == {}
    assert away.command("PING") == b"PONG"


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_hosts_of_the_other_node_are_leased_while_one_is_away(house: TwoNodes, how: str) -> None:
    frontier = house.open()
    up, away = frontier.nodes
    seeded(house, frontier, hosts=10, pages=1)
    house.freeze(away) if how == "frozen" else house.server_of(away).kill()
    worker, found = Worker(frontier), list[Session]()
    began = monotonic()
    while len(found) < 10:
        found += worker.lease(wait=5)
        assert monotonic() - began < TIMEOUT_SECONDS + 2
    assert at(frontier, up, found) == found
    began = monotonic()
    assert worker.lease(wait=0.2) == (), "what is away is no error to who waits for a host"
    assert monotonic() - began < 1


def test_items_of_a_node_that_is_away_say_so_and_the_others_pass(house: TwoNodes) -> None:
    frontier = house.open()
    up, away = frontier.nodes
    seeded(house, frontier)
    worker = Worker(frontier)
    sessions = leased(frontier, worker, 4)
    house.server_of(away).kill()
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
    blocked = {host for host, _, _ in house.store.blocks(0)}
    assert blocked == {one.host for one in at(frontier, up, sessions)}
    house.server_of(away).start()
    until(lambda: answers(away))
    again = [item for item in tasks if item.token in lost]
    until(lambda: set(finish_settled(frontier, again)) <= {"ok", "stale"})


def finish_settled(frontier: Frontier, items: list[FinishItem]) -> list[str]:
    try:
        return list(frontier.finish(items))
    except Unavailable:
        return ["away"]


def test_reconcile_says_which_node_has_not_heard_it(house: TwoNodes) -> None:
    frontier = house.open()
    up, away = frontier.nodes
    seeded(house, frontier)
    worker = Worker(frontier)
    sessions = leased(frontier, worker, 4)
    house.freeze(away)
    held = [one.token for one in at(frontier, up, sessions)][:1]
    request = ReconcileRequest(
        worker="w", incarnation=1, sequence=worker.sequence, holding=tuple(held)
    )
    reply = frontier.reconcile(request)
    assert (reply.sessions, reply.away) == (1, (away.shown,))
    house.thaw(away)
    until(lambda: answers(away))
    reply = until(lambda: heard(frontier, request))
    assert (reply.sessions, reply.away) == (2, ())


def heard(frontier: Frontier, request: ReconcileRequest) -> object:
    reply = frontier.reconcile(request)
    return None if reply.away else reply


def test_both_away_is_an_error(house: TwoNodes) -> None:
    frontier = house.open()
    seeded(house, frontier)
    sessions = leased(frontier, Worker(frontier), 4)
    for server in house.servers:
        server.kill()
    with pytest.raises(Unavailable):
        frontier.finish(finishes(sessions))
    with pytest.raises(Unavailable):
        frontier.extend([ExtendItem(session=s.session, token=s.token) for s in sessions], 60)
