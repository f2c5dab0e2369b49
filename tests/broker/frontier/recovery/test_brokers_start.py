"""Brokers that start at the same moment: both serve, and neither takes this for a loss of data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.recovery import opening
from greencrawl.broker.frontier.recovery.opening import Recovery, settled
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import CrawlOptions
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.broker.frontier.test_frontier import Worker, until, urls
from tests.support.redis_server import RedisServer


class Street:
    """Several brokers on one Redis and one store."""

    def __init__(self, server: RedisServer, store: Store) -> None:
        self.server, self.store = server, store
        self.brokers: list[Frontier] = []

    def broker(self) -> Frontier:
        made = Frontier([self.server.url], self.store, partitions=4, create=True)
        self.brokers.append(made)
        return made

    def owner(self) -> Any:
        return self.server.client.hgetall(keys.OWNER)

    def both_serve(self) -> None:
        """A host that one of them admits is leased by the other without a rest."""
        one, other = self.brokers
        crawl = self.store.put_crawl("c", CrawlOptions(scope="any", delay=0), ())
        for broker in (one, other):
            settled(broker.nodes[0], partial(broker.put_crawl, crawl))
        one.admit(crawl.id, urls("h.example", 1))
        assert len(Worker(other).lease(wait=2)) == 1


@pytest.fixture
def street(redis_server: RedisServer, tmp_path: Path) -> Iterator[Street]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    made = Street(redis_server, store)
    yield made
    for broker in made.brokers:
        broker.stop()
    store.close()


def test_a_node_that_another_broker_has_just_opened_is_not_taken_for_one_that_lost_data(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Recovery._owner
    seen: list[dict[str, str]] = []

    def look_too_early(recovery: Recovery, node: Any) -> dict[str, str]:
        if not seen:
            seen.append(look(recovery, node))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Recovery, "_owner", look)
                street.broker().start()  # opens the node before this one goes on
        return seen[0]

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "_owner", look_too_early)
        last = street.broker()
    last.start()
    owner = street.owner()
    assert (owner["state"], owner["epoch"]) == ("open", "2")
    assert not {"owed", "rest"} & owner.keys()
    street.both_serve()


def test_a_node_whose_replay_another_broker_has_begun_is_not_taken_for_one_that_lost_data(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = street.broker()
    street.store.put_crawl("old", CrawlOptions(scope="any"), ())
    look = Recovery._owner

    def look_too_early(recovery: Recovery, node: Any) -> dict[str, str]:
        found = look(recovery, node)
        street.server.client.hset(keys.OWNER, "owed", round(node.now_ms()) + 60_000)
        return {**found, "state": "new"}

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "_owner", look_too_early)
        last = street.broker()
    last.start()
    until(lambda: "owed" not in street.owner(), 5)
    assert street.owner()["epoch"] == "2"
    assert "rest" not in street.owner()
    early.start()
    street.both_serve()


def test_a_broker_tries_again_when_another_raised_the_epoch_first(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_epoch = street.store.raise_epoch

    def raise_too_late(node: str, known: int, epoch: int) -> bool:
        monkeypatch.undo()
        street.broker().start()
        return raise_epoch(node, known, epoch)

    monkeypatch.setattr(street.store, "raise_epoch", raise_too_late)
    street.broker().start()
    assert street.owner()["epoch"] == "1"
    street.both_serve()


def test_a_broker_starts_though_another_reopened_its_node_meanwhile(street: Street) -> None:
    early = street.broker()
    (node,) = early.nodes
    street.store.put_crawl("old", CrawlOptions(scope="any"), ())
    assert street.store.raise_epoch(node.id, 1, 2)
    street.server.client.hset(keys.OWNER, mapping={"epoch": 2})
    street.broker().start()
    early.start()
    assert node.epoch == "2"
    street.both_serve()


def test_a_broker_does_not_try_again_at_a_node_that_does_not_answer(street: Street) -> None:
    street.broker()
    street.server.kill()
    with pytest.raises(Unavailable):
        street.broker()


def test_a_broker_gives_up_its_start_if_others_open_its_node_for_too_long(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = street.broker().nodes
    tries: list[int] = []

    def refused() -> None:
        tries.append(1)
        raise Unavailable("another broker is opening it")

    monkeypatch.setattr(opening, "START_SECONDS", 0.1)
    with gevent.Timeout(5), pytest.raises(Unavailable, match="another broker"):
        settled(node, refused)
    assert len(tries) > 1, "not at once: they may be through in a moment"
