"""Logical time: it stands still in an outage while sessions are open, and corrects jumps of Redis'
clock.

Here the longest pause that is no outage is a second, and a session is reaped after three. A jump of
the machine's clock is simulated in the owner record: logical time and the time since the last call
both move by the jump.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.addresses import ShareRequest
from greencrawl.broker.frontier.nodes import keys
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import ExtendItem, LeaseRequest, Session
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.broker.frontier.test_frontier import Worker, close, finish_all, new_crawl, until, urls
from tests.support.faketime import ClockedRedis, library
from tests.support.redis_server import RedisServer

HOUR = 3_600_000
OUTAGE_SECONDS = 4.0
REAP_SECONDS = 3.0
"""Duration of a lease, and of the longest request."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


def broker(server: RedisServer, store: Store) -> Frontier:
    made = Frontier(
        [server.url], store, partitions=8, lease_seconds=2, request_seconds=1, create=True
    )
    made.start()
    return made


@pytest.fixture
def frontier(redis_server: RedisServer, store: Store) -> Iterator[Frontier]:
    made = broker(redis_server, store)
    yield made
    made.stop()


def leased(frontier: Frontier, store: Store) -> Session:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    request = LeaseRequest(worker="w", incarnation=1, sequence=1, ttl=2, wait=1)
    (session,) = frontier.lease(request).sessions
    return session


def owner(server: RedisServer) -> dict[str, int]:
    found = server.client.hmget(keys.OWNER, "offset", "jumps", "used")
    return dict(zip(("offset", "jumps", "used"), (int(v or 0) for v in found), strict=True))


def jump(server: RedisServer, ms: int) -> None:
    """The clock of Redis' machine jumps."""
    pipe = server.client.pipeline(transaction=True)
    pipe.hincrby(keys.OWNER, "offset", ms)
    pipe.hincrby(keys.OWNER, "used", -ms)
    pipe.execute()


def extends(frontier: Frontier, session: Session) -> bool:
    item = ExtendItem(session=session.session, token=session.token)
    return frontier.extend([item], 2) == ["ok"]


def uncharged(frontier: Frontier, session: Session) -> bool:
    """Return whether the session's tasks come back as if they had never been leased."""
    close(frontier, session, *(task.number for task in session.tasks))
    worker = Worker(frontier, "other")
    found: list[Session] = []
    while session.host not in {one.host for one in found}:
        found += until(lambda: worker.lease(wait=2))
    (again,) = (one for one in found if one.host == session.host)
    return [task.deliveries for task in again.tasks] == [1, 1, 1]


def test_sessions_outlive_an_outage_of_redis_that_is_longer_than_they_are(
    redis_server: RedisServer, frontier: Frontier, store: Store
) -> None:
    session = leased(frontier, store)
    process = redis_server.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    gevent.sleep(OUTAGE_SECONDS)
    process.send_signal(signal.SIGCONT)
    until(lambda: not frontier.nodes[0].breaker.since_ms)
    assert extends(frontier, session)
    assert owner(redis_server)["jumps"] == 2, "one of the opening, one of the outage"
    assert -OUTAGE_SECONDS * 1000 - 1500 < owner(redis_server)["offset"] < -OUTAGE_SECONDS * 900
    assert uncharged(frontier, session)


def test_sessions_outlive_a_broker_that_was_away_though_workers_went_on_admitting(
    redis_server: RedisServer, frontier: Frontier, store: Store
) -> None:
    session = leased(frontier, store)
    worker = Frontier([redis_server.url], store)
    frontier.stop()
    began = monotonic()
    while monotonic() - began < OUTAGE_SECONDS:
        worker.admit(session.crawl, urls(f"h{round(monotonic() * 1000)}.example", 1))
        gevent.sleep(0.2)
    again = broker(redis_server, store)
    try:
        assert extends(again, session)
        assert owner(redis_server)["offset"] < -(OUTAGE_SECONDS - 1) * 1000
        assert uncharged(again, session)
    finally:
        again.stop()
        worker.stop()


def test_a_frozen_broker_is_an_outage_too(
    redis_server: RedisServer, frontier: Frontier, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the broker goes on, it expects another time than the node has, and takes the node's."""
    session = leased(frontier, store)
    frozen = [gevent.spawn(lambda: None)]
    monkeypatch.setattr(frontier._wake_ups, "heartbeat", lambda *_, **__: frozen.append(None) or 0)
    gevent.sleep(1.6)
    assert frozen[1:], "it would have beaten"
    assert extends(frontier, session)
    assert owner(redis_server)["jumps"] == 2


def test_a_quiet_second_with_heartbeats_is_not_taken_for_an_outage(
    redis_server: RedisServer, frontier: Frontier, store: Store
) -> None:
    session = leased(frontier, store)
    before = owner(redis_server)
    gevent.sleep(1.8)
    assert extends(frontier, session)
    after = owner(redis_server)
    assert (after["offset"], after["jumps"]) == (before["offset"], before["jumps"])
    assert after["used"] > before["used"]


def test_a_session_whose_worker_died_is_reaped_in_time_while_a_broker_lives(
    frontier: Frontier, store: Store
) -> None:
    session = leased(frontier, store)
    began = monotonic()
    (again,) = until(lambda: Worker(frontier, "other").lease(wait=2), 8)
    assert REAP_SECONDS - 0.2 < monotonic() - began < 2 * REAP_SECONDS
    assert again.token != session.token
    assert [task.deliveries for task in again.tasks] == [2, 2, 2]


def test_a_delay_passes_while_an_idle_frontier_has_no_broker(
    redis_server: RedisServer, frontier: Frontier, store: Store
) -> None:
    session = leased(frontier, store)
    finish_all(frontier, session)
    close(frontier, session, delay=5.0)
    frontier.stop()
    redis_server.client.hincrby(keys.OWNER, "used", -HOUR)
    redis_server.client.hincrby(keys.OWNER, "offset", 6000)  # six seconds later, say
    again = broker(redis_server, store)
    try:
        assert again.host("h.example").next_in == 0
        assert owner(redis_server)["offset"] == 6000
    finally:
        again.stop()


@pytest.mark.parametrize("ms", [HOUR, -HOUR, 10_000, -10_000])
def test_a_jump_of_the_clock_moves_no_deadline(
    redis_server: RedisServer, frontier: Frontier, store: Store, ms: int
) -> None:
    session = leased(frontier, store)
    node = frontier.nodes[0]
    before = node.now_ms()
    jump(redis_server, ms)
    assert extends(frontier, session)
    assert node.now_ms() == pytest.approx(before, abs=1500)
    assert uncharged(frontier, session)


@pytest.mark.parametrize("ms", [HOUR, -HOUR])
def test_a_jump_of_the_clock_ends_no_block_on_an_idle_node(
    redis_server: RedisServer, frontier: Frontier, store: Store, ms: int
) -> None:
    session = leased(frontier, store)
    finish_all(frontier, session)
    close(frontier, session, failed="http_429", block=600.0)
    gevent.sleep(1.2)  # no heartbeats any more, since no session is open
    jump(redis_server, ms)
    assert 590 < frontier.host("h.example").blocked_in <= 600


@pytest.mark.skipif(library() is None, reason="libfaketime is not installed")
def test_blocks_and_shares_of_addresses_outlive_a_jump_of_redis_own_clock(
    tmp_path: Path, store: Store
) -> None:
    """Redis drops expired data by its own clock, whatever logical time the node has."""
    server = ClockedRedis(tmp_path / "redis")
    server.start()
    try:
        frontier = broker(server, store)
        session = leased(frontier, store)
        finish_all(frontier, session)
        close(frontier, session, failed="http_429", block=600.0)
        frontier.shares("a", [ShareRequest("4:203.0.113.7", 1.0, 10, 0, 10, 100, 0, 10)])
        server.set_clock(10 * 24 * HOUR // 1000)
        assert 580 < frontier.host("h.example").blocked_in <= 600
        assert len(server.client.keys("gc:{*}:ad:*")) == 1, "what another holds is not forgotten"
        frontier.stop()
    finally:
        server.stop()


def test_reopening_a_healthy_node_does_not_accept_a_jump_of_its_clock(
    redis_server: RedisServer, frontier: Frontier, store: Store
) -> None:
    session = leased(frontier, store)
    finish_all(frontier, session)
    close(frontier, session, failed="http_429", block=600.0)
    gevent.sleep(1.2)
    jump(redis_server, HOUR)
    frontier.recovery.reopen(frontier.nodes[0])
    assert 590 < frontier.host("h.example").blocked_in <= 600


def test_two_brokers_that_meet_a_jump_correct_it_once(
    redis_server: RedisServer, frontier: Frontier, store: Store
) -> None:
    session = leased(frontier, store)
    other = broker(redis_server, store)
    try:
        before = frontier.nodes[0].now_ms()
        assert other.nodes[0].now_ms() == pytest.approx(before, abs=200)
        redis_server.client.hset(keys.OWNER, "gap", HOUR)
        jump(redis_server, 600_000)
        jobs = [gevent.spawn(extends, one, session) for one in (frontier, other) * 4]
        gevent.joinall(jobs)
        assert all(job.get() for job in jobs)
        now = [one.nodes[0].now_ms() for one in (frontier, other)]
        assert now == pytest.approx([before, before], abs=1500)
        assert owner(redis_server)["offset"] == pytest.approx(0, abs=1500)
    finally:
        other.stop()


@pytest.mark.parametrize("met", [False, True])
def test_urls_admitted_while_the_clock_is_ahead_are_leased_once_it_is_set_back(
    redis_server: RedisServer,
    frontier: Frontier,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    met: bool,
) -> None:
    """The calls of a worker expect no time. If ``met``, a broker without the duty has seen the jump
    before."""
    crawl = new_crawl(frontier, store, delay=0)
    worker, node = Frontier([redis_server.url], store), frontier.nodes[0]
    monkeypatch.setattr(frontier._wake_ups, "heartbeat", lambda *_, **__: 0)
    before = node.now_ms()
    gevent.sleep(1.2)
    with monkeypatch.context() as patch:
        patch.setattr(node.clock, "duty", lambda: None)
        jump(redis_server, HOUR)
        if met:
            with pytest.raises(Unavailable, match="waiting for the broker that sets it"):
                frontier.host("h.example")
        assert worker.admit(crawl.id, urls("h.example", 3)) == [True] * 3
    (session,) = until(lambda: Worker(frontier).lease(wait=1), 5)
    assert [task.url for task in session.tasks] == [item.url for item in urls("h.example", 3)]
    assert node.now_ms() == pytest.approx(before, abs=8000), "the clock was set"
    worker.stop()
