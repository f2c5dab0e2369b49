"""Equal URLs: which URLs a frontier treats as known, under both versions of its rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.broker.frontier import Frontier, Mode
from greencrawl.broker.frontier.nodes import ring
from greencrawl.schema.errors import FrontierMismatch, Unavailable
from greencrawl.schema.records import Admission, Crawl, Done, FinishItem, Retry
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.broker.frontier.test_frontier import Worker, close, finish_all, new_crawl
from tests.support.redis_server import RedisServer

HOST = "http://h.example"
FIRST, *OTHERS = SPELLINGS = [f"{HOST}/%7ea/%c3?b=%2D%2f", f"{HOST}/~a/%C3?b=-%2F",
                              f"{HOST}/%7Ea/%C3?b=%2d%2F"]  # fmt: skip
DIFFERENT = [f"{HOST}/~a/%C3?b=-/", f"{HOST}/%257Ea/%C3?b=-%2F", f"{HOST}/~A/%C3?b=-%2F"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    yield store
    store.close()


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version that a new frontier gets."""
    monkeypatch.setattr(ring, "CANONICALISER", request.param)
    return int(request.param)


@pytest.fixture
def frontier(version: int, redis_server: RedisServer, store: Store) -> Iterator[Frontier]:
    frontier = Frontier([redis_server.url], store, partitions=8, request_seconds=5, create=True)
    frontier.start()
    yield frontier
    frontier.stop()


@pytest.fixture
def crawl(frontier: Frontier, store: Store) -> Crawl:
    return new_crawl(frontier, store, delay=0.0)


def admissions(*urls: str) -> list[Admission]:
    return [Admission(url) for url in urls]


def test_a_reopened_frontier_keeps_its_version_of_the_url_rules(
    version: int,
    frontier: Frontier,
    store: Store,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # this program makes the newest version
    try:
        again = Frontier([redis_server.url], store, partitions=8, request_seconds=5)
    except FrontierMismatch as error:
        pytest.fail(f"this program refuses it: {error}")
    numbers = {again.fingerprint(url) for url in SPELLINGS}
    assert numbers == {frontier.fingerprint(url) for url in SPELLINGS}
    assert len(numbers) == (3 if version == 1 else 1)
    identity = store.frontier()
    assert identity is not None
    assert identity.canonicaliser == version


def test_a_worker_makes_no_frontier(redis_server: RedisServer, store: Store) -> None:
    with pytest.raises(Unavailable, match="start a broker first"):
        Frontier([redis_server.url], store, partitions=8)
    assert store.frontier() is None
    store.create_frontier(ring.new_identity(1, 8))
    with pytest.raises(Unavailable, match="is empty: waiting for a broker"):
        Frontier([redis_server.url], store, partitions=8)
    assert redis_server.client.keys() == []


def test_a_new_frontier_has_the_newest_rules() -> None:
    assert ring.new_identity(1, 8).canonicaliser == 2


def test_the_first_spelling_of_a_url_is_queued_and_leased_unchanged(
    version: int, frontier: Frontier, crawl: Crawl
) -> None:
    """This holds in one batch, in a later one, and together with URLs that are not equivalent."""
    one = version == 2
    assert frontier.admit(crawl.id, admissions(*SPELLINGS, *DIFFERENT)) == [
        True, not one, not one, *[True] * len(DIFFERENT),
    ]  # fmt: skip
    assert frontier.admit(crawl.id, admissions(*SPELLINGS)) == [False] * 3
    (session,) = Worker(frontier).lease()
    assert [task.url for task in session.tasks] == [
        FIRST, *([] if one else OTHERS), *DIFFERENT,
    ]  # fmt: skip


def test_the_state_of_a_url_does_not_depend_on_its_spelling(
    version: int, frontier: Frontier, crawl: Crawl
) -> None:
    """The URL waits, is leased, or is to be tried again."""
    frontier.admit(crawl.id, admissions(FIRST))
    asked = SPELLINGS if version == 2 else [FIRST]

    def states() -> set[str]:
        return {frontier.find_url(crawl, url).state for url in asked}

    assert {frontier.find_url(crawl, url).state for url in DIFFERENT} == {"unseen"}
    if version == 1:
        assert {frontier.find_url(crawl, url).state for url in OTHERS} == {"unseen"}
    assert states() == {"waiting"}
    (session,) = Worker(frontier).lease()
    assert states() == {"leased"}
    retry = Retry(wait=99, kind="timeout")
    item = FinishItem(session=session.session, token=session.token, task=1, outcome=retry)
    assert frontier.finish([item]) == ["ok"]
    assert states() == {"later"}
    assert {frontier.find_url(crawl, url).state for url in DIFFERENT} == {"unseen"}
    frontier.admit(crawl.id, admissions(OTHERS[0]), mode=Mode.FORCE)
    close(frontier, session)
    (session,) = Worker(frontier, "v").lease()
    assert [task.url for task in session.tasks] == [OTHERS[0]]
    finish_all(frontier, session)
    assert states() == {"later"}


def test_links_that_were_rewritten_are_counted(frontier: Frontier, crawl: Crawl) -> None:
    frontier.admit(crawl.id, admissions(f"{HOST}/1", f"{HOST}/2"))
    (session,) = Worker(frontier).lease()
    for task, rewritten in zip(session.tasks, (3, 4), strict=True):
        done = Done(stored=True, rewritten=rewritten)
        item = FinishItem(
            session=session.session, token=session.token, task=task.number, outcome=done
        )
        assert frontier.finish([item]) == ["ok"]
    totals = frontier.scan(crawl.id)
    assert totals is not None
    assert totals.rewritten == 7
