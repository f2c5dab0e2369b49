"""A node comes back as an older copy; it has tasks of pages that were fetched since and are due
again."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.scripts.partition import Mode
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Dead,
    Done,
    FinishItem,
    HostReport,
    Overflow,
    TaskKind,
)
from greencrawl.store import open_store
from greencrawl.store.mysql.store import MysqlStore
from tests.broker.tasks.test_calendar import Rig, on_way
from tests.support.effort import cases
from tests.support.mysql_database import server, topology
from tests.support.redis_dump import Key, contents, dump
from tests.support.redis_server import RedisServer
from tests.support.system import wait_until

__all__ = ["server", "topology"]

URLS = [f"http://a.example/{n}" for n in range(12)]


@pytest.fixture
def always_saved(tmp_path: Path) -> Iterator[RedisServer]:
    """Each copy of a node's disk has everything that was answered before the copy."""
    running = RedisServer(tmp_path / "redis", None, "--appendfsync", "always").start()
    yield running
    running.stop()


@pytest.fixture(params=cases(["sqlite"], ["mysql"]))
def rig(request: pytest.FixtureRequest, tmp_path: Path, always_saved: RedisServer) -> Iterator[Rig]:
    if request.param == "mysql":
        store = MysqlStore(request.getfixturevalue("topology"))
    else:
        store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    frontier = Frontier(
        [always_saved.url], store, partitions=4, lease_seconds=0.5, request_seconds=0.2, create=True
    )
    frontier.start()
    yield Rig(frontier, store)
    frontier.stop()
    store.close()


def copied(rig: Rig, node: RedisServer) -> Path:
    """Return a copy of the present node."""
    rig.frontier.tick(rig.store.clock())
    copy = node.folder.parent / "copy"
    shutil.copytree(node.folder, copy)
    return copy


def put_back(rig: Rig, node: RedisServer, copy: Path) -> None:
    """The node dies and comes back as that copy; it gets what it missed, and the due pages."""
    epoch = rig.frontier.under(0)[1]
    node.kill()
    shutil.rmtree(node.folder)
    copy.rename(node.folder)
    node.start()

    def over() -> bool:
        with suppress(Unavailable):
            rig.frontier.recovery.reopen(rig.frontier.nodes[0])
            rig.step()
            known = rig.frontier.under(0)[1] > epoch and not rig.frontier.recovery.owed()
            return known and not rig.store.calendar_places()
        return False

    wait_until(over, 20, "it is given what it missed, and what is due")


def places(node: RedisServer) -> Counter[Key]:
    """Return how many tasks each URL has."""
    raw = redis.Redis(port=node.port, decode_responses=True, encoding="latin-1")
    return contents(dump(raw)).places


def test_a_due_page_that_waits_as_new_in_an_older_copy_is_fetched_once(
    rig: Rig, always_saved: RedisServer
) -> None:
    crawl = rig.crawl()
    host = "a.example"
    rig.frontier.admit(crawl.id, [Admission(url, 1) for url in URLS[:8]])
    rest = [
        Overflow(rig.frontier.fingerprint(url), rig.frontier.partition_of(host), Admission(url, 1))
        for url in URLS[8:]
    ]
    rig.store.put_overflow(crawl.id, rest)
    while rig.frontier.refill(crawl.id, rig.frontier.partition_of(host), host):
        pass
    copy = copied(rig, always_saved)
    assert rig.fetch(crawl).total() == len(URLS)
    rig.begin(crawl)
    put_back(rig, always_saved, copy)
    raw = redis.Redis(port=always_saved.port, decode_responses=True, encoding="latin-1")
    found = contents(dump(raw))
    assert found.places == Counter((crawl.id, url) for url in URLS), "a URL has one task"
    assert sorted(found.marks[crawl.id]) == sorted(found.again[crawl.id])
    always_saved.client.hdel(keys.OWNER, "rest")  # otherwise it opens no session for a while
    assert rig.fetch(crawl) == Counter(URLS)
    assert not on_way(always_saved, crawl)
    known = [rig.store.planned(crawl.id, rig.frontier.fingerprint(url)) for url in URLS]
    assert {(row.due_s, row.queued) for row in known} == {(rig.started_s + 1, False)}


def test_a_due_page_that_is_queued_in_an_older_copy_has_one_task(
    rig: Rig, always_saved: RedisServer
) -> None:
    crawl = rig.crawl()
    known = rig.pages(crawl, "a.example", 12)
    rig.begin(crawl)
    assert rig.step() == 12
    put_back(rig, always_saved, copied(rig, always_saved))
    assert places(always_saved) == Counter((crawl.id, url) for url in known)


def test_a_page_is_queued_again_if_an_older_copy_has_forgotten_its_task(
    rig: Rig, always_saved: RedisServer
) -> None:
    crawl = rig.crawl()
    known = rig.pages(crawl, "a.example", 12)
    rig.begin(crawl)
    copy = copied(rig, always_saved)
    assert rig.step() == 12
    put_back(rig, always_saved, copy)
    assert places(always_saved) == Counter((crawl.id, url) for url in known)


@pytest.mark.parametrize("outcome", [Dead(kind="server"), Done(kind="parked"), Done(stored=True)])
def test_a_url_that_is_forced_during_its_task_is_tried_again_unless_a_page_was_stored(
    rig: Rig, always_saved: RedisServer, outcome: Dead | Done
) -> None:
    crawl = rig.crawl()
    new = [Admission(URLS[0], 1)]
    rig.frontier.admit(crawl.id, new)
    (session,) = rig.lease()
    assert rig.frontier.admit(crawl.id, new, mode=Mode.FORCE, batch=1) == [False]
    (task,) = session.tasks
    item = FinishItem(
        session=session.session, token=session.token, task=task.number, outcome=outcome
    )
    rig.frontier.finish([item])
    report = HostReport(requests=1, robots=True)
    rig.frontier.close_sessions(
        [CloseItem(session=session.session, token=session.token, report=report)]
    )
    again = not (isinstance(outcome, Done) and outcome.stored)
    rig.frontier.tick(rig.store.clock())
    assert rig.fetch(crawl) == Counter(URLS[:1] if again else [])
    assert not on_way(always_saved, crawl)
    assert not always_saved.client.keys("*:gf:*")


def test_new_urls_take_no_room_from_due_pages_and_force_queues_no_url_twice(
    rig: Rig, always_saved: RedisServer
) -> None:
    crawl = rig.crawl(delay=10.0)
    known = rig.pages(crawl, "a.example", 20)
    new = [Admission(f"http://a.example/new/{n}", 1) for n in range(50)]
    assert all(rig.frontier.admit(crawl.id, new))
    rig.frontier.admit(crawl.id, new[:3], mode=Mode.FORCE, batch=1)
    rig.begin(crawl)
    assert rig.step() == 6, "a minute of work, as if nothing else waited"
    question = Admission(new[5].url, kind=TaskKind.ROBOTS)
    rig.frontier.admit(crawl.id, [question], mode=Mode.FORCE)
    raw = redis.Redis(port=always_saved.port, decode_responses=True, encoding="latin-1")
    found = contents(dump(raw))
    assert found.places.total() == 50 + 6 + 1, "the question is no fetch of the page"
    assert found.refetches_at[("a.example", crawl.id)] == 6
    assert len(found.again[crawl.id]) == 56
    assert len(known) == 20
