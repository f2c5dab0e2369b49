"""Brokers note in a real Redis that the store takes no writes, also at the memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.broker.frontier.coordination.outages import (
    WRITABLE_SECONDS,
    Outage,
    StoreOutages,
)
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable
from tests.support.redis_server import RedisServer

FIRST, LATER = Outage(1000, "disk full"), Outage(2000, "away")


@pytest.fixture
def nodes(redis_server: RedisServer) -> Iterator[list[Node]]:
    made = [Node(redis_server.url)]
    yield made
    for node in made:
        node.close()


def test_one_broker_notes_an_outage_of_the_store_unless_another_has_just_written(
    nodes: list[Node], redis_server: RedisServer
) -> None:
    one, other = StoreOutages(nodes), StoreOutages(nodes)
    one.writable()
    assert not other.begin(FIRST)
    assert 0 < redis_server.client.pttl(keys.WRITABLE) <= 1000 * WRITABLE_SECONDS
    redis_server.client.delete(keys.WRITABLE)  # the state after some seconds
    assert other.begin(FIRST)
    assert not one.begin(LATER)
    assert one.open() == FIRST
    one.note_told(FIRST)
    assert other.open() == Outage(1000, "disk full", told=True)
    other.end()
    assert one.open() is None
    one.note_told(FIRST)
    assert one.open() is None, "what is over is not noted again"
    assert one.begin(LATER)


def test_an_outage_of_the_store_is_noted_even_at_the_memory_limit(
    nodes: list[Node], redis_server: RedisServer
) -> None:
    redis_server.client.config_set("maxmemory", 1)
    outages = StoreOutages(nodes)
    assert outages.begin(FIRST)
    outages.writable()
    assert outages.open() == FIRST


def test_an_outage_of_the_store_is_noted_on_a_node_that_answers_and_found_on_any_node(
    nodes: list[Node], redis_server: RedisServer, tmp_path: Path
) -> None:
    gone = RedisServer(tmp_path / "gone").start()
    away = Node(gone.url)
    gone.stop()
    one, other = StoreOutages([away, *nodes]), StoreOutages([*nodes, away])
    assert one.begin(FIRST)
    assert other.open() == FIRST
    other.end()
    assert one.open() is None
    with pytest.raises(Unavailable):
        StoreOutages([away]).begin(FIRST)
    with pytest.raises(Unavailable):
        StoreOutages([away]).writable()
    away.close()
