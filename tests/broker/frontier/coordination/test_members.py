"""Heartbeats of members on a real Redis: which one counts, for how long, and at the memory
limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.broker.frontier.coordination.members import MemberBeats
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import BEAT_SECONDS, Facts
from tests.support.redis_server import RedisServer, binaries


@pytest.fixture(params=binaries())
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    server = RedisServer(tmp_path / "r", request.param).start()
    node = Node(server.url)
    yield node
    node.close()
    server.stop()


def test_a_heartbeat_expires_and_only_the_latest_life_of_a_member_counts(node: Node) -> None:
    beats = MemberBeats([node])
    assert beats.life("w") == 0
    assert beats.beat("w", 5, Facts(pages=1)) == "new"
    assert beats.beat("w", 5, Facts(pages=2)) == "known"
    assert beats.beat("w", 4, Facts(pages=3)) == "older"
    assert beats.life("w") == 5
    assert [beat.facts for beat in beats.heard(["w", "v"]).values()] == [Facts(pages=2)]
    assert 0 < node.command("PTTL", keys.beat("w")) <= 1000 * BEAT_SECONDS
    node.command("PEXPIRE", keys.beat("w"), 0)  # as after a silence of that length
    assert beats.heard(["w"]) == {}
    assert beats.beat("w", 5, Facts()) == "new"


def test_a_heartbeat_costs_one_command_and_so_does_reading_all_of_them(node: Node) -> None:
    beats = MemberBeats([node])
    beats.beat("w", 1, Facts())
    node.command("CONFIG", "RESETSTAT")
    beats.beat("w", 1, Facts())
    beats.heard(["w", "v", "u"])
    stats = node.command("INFO", "commandstats").decode()
    calls = dict(line.split(":calls=") for line in stats.splitlines() if ":calls=" in line)
    assert {name: int(told.split(",")[0]) for name, told in calls.items()} == {
        "cmdstat_set": 1,
        "cmdstat_mget": 1,
        "cmdstat_config|resetstat" if "cmdstat_config|resetstat" in calls else "cmdstat_config": 1,
    }


def test_a_member_that_left_is_forgotten_unless_a_later_life_of_it_was_heard(node: Node) -> None:
    beats = MemberBeats([node])
    beats.beat("w", 5, Facts())
    beats.gone("w", 4)
    assert beats.life("w") == 5
    beats.gone("w", 5)
    assert beats.life("w") == 0


def test_a_heartbeat_is_refused_at_the_memory_limit_and_the_previous_one_stays(node: Node) -> None:
    beats = MemberBeats([node])
    beats.beat("w", 1, Facts(pages=1))
    node.command("CONFIG", "SET", "maxmemory", "100kb")
    with pytest.raises(Unavailable):
        beats.beat("w", 1, Facts(pages=2))
    assert beats.heard(["w"])["w"].facts == Facts(pages=1)


def test_heartbeats_are_read_from_all_nodes_that_answer(node: Node, tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "other").start()
    other = Node(server.url)
    both, reverse = MemberBeats([node, other]), MemberBeats([other, node])
    both.beat("w", 1, Facts(pages=1))
    reverse.beat("v", 1, Facts(pages=2))
    names = ["w", "v"]
    assert both.heard(names).keys() == reverse.heard(names).keys() == {"w", "v"}
    server.stop()
    assert both.heard(names).keys() == {"w"}
    assert reverse.beat("v", 1, Facts()) == "new", "on the next node"
    assert both.heard(names).keys() == {"w", "v"}
    with pytest.raises(Unavailable):
        MemberBeats([other]).beat("w", 1, Facts())
    other.close()
