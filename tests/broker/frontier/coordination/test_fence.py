"""While the store does not answer, no session is opened or kept; this is not a failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination.fence import StoreSilent
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.clock import TOLERANCE_MS
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import ExtendItem, LeaseRequest, Session
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.broker.frontier.nodes.test_clock import extends, uncharged
from tests.broker.frontier.test_frontier import close, finish_all, new_crawl, until, urls
from tests.support.cut import CutStore
from tests.support.redis_server import RedisServer

CONTACT_SECONDS = 1.0
LEASE_SECONDS, REQUEST_SECONDS = 2.0, 1.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture
def cut(store: Store) -> Any:
    return CutStore(store)


@pytest.fixture
def frontier(redis_server: RedisServer, cut: Any) -> Iterator[Frontier]:
    made = Frontier(
        [redis_server.url], cut, partitions=8, lease_seconds=LEASE_SECONDS,
        request_seconds=REQUEST_SECONDS, create=True, contact_seconds=CONTACT_SECONDS,
    )  # fmt: skip
    made.start()
    yield made
    made.stop()


def lease(frontier: Frontier, sequence: int = 1, wait: float = 1.0) -> tuple[Session, ...]:
    request = LeaseRequest(worker="w", incarnation=1, sequence=sequence, ttl=2, wait=wait)
    return frontier.lease(request).sessions


def word_runs_out(frontier: Frontier) -> None:
    gevent.sleep(CONTACT_SECONDS + 0.05)
    assert not frontier._store_contact.heard()


def test_no_session_is_opened_or_extended_without_an_answer_of_the_store(
    frontier: Frontier, store: Store, cut: Any, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, [*urls("a.example", 3), *urls("b.example", 3)])
    (session, *_) = lease(frontier)
    cut.cut = True
    word_runs_out(frontier)
    used = redis_server.client.hget(keys.OWNER, "used")
    with pytest.raises(StoreSilent):
        lease(frontier, 2)
    item = ExtendItem(session=session.session, token=session.token)
    with pytest.raises(Unavailable):
        frontier.extend([item], 30)
    with pytest.raises(StoreSilent):
        frontier._wake_ups.heartbeat(frontier.nodes[0], 0)
    finish_all(frontier, session)
    close(frontier, session)
    assert frontier.host("a.example").sessions == 0
    assert redis_server.client.hget(keys.OWNER, "used") == used, "nothing was a sign of life"
    cut.cut = False
    assert until(lambda: _quietly(frontier))


def _quietly(frontier: Frontier) -> tuple[Session, ...]:
    try:
        return lease(frontier, 9)
    except Unavailable:
        return ()


def test_a_session_outlives_an_outage_of_the_store_that_is_longer_than_a_lease(
    frontier: Frontier, store: Store, cut: Any, redis_server: RedisServer
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    (session,) = lease(frontier)
    gevent.sleep(0.3)
    cut.cut = True
    gevent.sleep(CONTACT_SECONDS + LEASE_SECONDS + REQUEST_SECONDS + 1.0)
    cut.cut = False
    until(lambda: frontier._store_contact.heard())
    assert extends(frontier, session), "it was neither reaped nor given to another"
    assert int(redis_server.client.hget(keys.OWNER, "offset") or 0) < -1000
    assert uncharged(frontier, session)


def test_a_broker_that_hears_of_a_higher_epoch_extends_no_session_on_the_old_server(
    frontier: Frontier, store: Store
) -> None:
    crawl = new_crawl(frontier, store, delay=0)
    frontier.admit(crawl.id, urls("h.example", 3))
    (session,) = lease(frontier)
    node = frontier.nodes[0]
    assert store.raise_epoch(node.id, int(node.epoch), int(node.epoch) + 1)
    item = ExtendItem(session=session.session, token=session.token)

    def refused() -> bool:
        try:
            frontier.extend([item], 30)
        except Unavailable as error:
            return "epoch" in str(error)
        return False

    assert until(refused, CONTACT_SECONDS + 1)
    with pytest.raises(Unavailable):
        frontier.extend([item], 30)


def test_a_node_that_was_taken_over_rests_until_sessions_of_cut_off_workers_have_ended(
    redis_server: RedisServer, store: Store
) -> None:
    made = Frontier(
        [redis_server.url], store, partitions=8, lease_seconds=2, request_seconds=1, create=True
    )
    redis_server.client.hset(keys.OWNER, "run", "another")
    made.recovery.reopen(made.nodes[0])
    rest = int(redis_server.client.hget(keys.OWNER, "rest") or 0)
    lasts = (10.0 + LEASE_SECONDS + REQUEST_SECONDS) * 1000 + TOLERANCE_MS
    assert rest - made.nodes[0].now_ms() == pytest.approx(lasts, abs=500)
    made.stop()
