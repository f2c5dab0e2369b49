"""Beats of members on a real Redis: whose counts, for how long, and at the memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.broker.frontier.coordination import members
from greencrawl.broker.frontier.coordination.members import MemberBeats
from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import BEAT_SECONDS, Facts
from tests.support.redis_server import RedisServer, binaries


class TimedNode(Node):
    """Its logical time is what a test says."""

    at_ms = 1_000_000.0

    def now_ms(self) -> float:
        return self.at_ms


@pytest.fixture(params=binaries())
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TimedNode]:
    server = RedisServer(tmp_path / "r", request.param).start()
    node = TimedNode(server.url)
    yield node
    node.close()
    server.stop()


def test_a_beat_counts_for_half_a_minute_and_the_latest_life_alone(node: TimedNode) -> None:
    beats = MemberBeats([node])
    assert beats.beat("w", 5, Facts(pages=1), begins=False) == "new"
    assert beats.heard() == {}, "who is not known has to begin"
    assert beats.beat("w", 5, Facts(pages=1), begins=True) == "new"
    assert beats.beat("w", 5, Facts(pages=2), begins=False) == "known"
    assert beats.beat("w", 4, Facts(), begins=True) == "older"
    assert [beat.facts for beat in beats.heard().values()] == [Facts(pages=2)]
    node.at_ms += 1000 * BEAT_SECONDS - 1
    assert beats.heard().keys() == {"w"}
    node.at_ms += 1
    assert beats.heard() == {}
    assert beats.beat("v", 1, Facts(), begins=True) == "new"
    assert node.command("HKEYS", keys.FACTS) == [b"v"], "what is old is dropped"
    assert beats.beat("w", 5, Facts(), begins=False) == "new"


def test_one_that_left_is_forgotten_but_for_a_later_life(node: TimedNode) -> None:
    beats = MemberBeats([node])
    beats.beat("w", 5, Facts(), begins=True)
    beats.gone("w", 4)
    assert beats.heard().keys() == {"w"}
    beats.gone("w", 5)
    assert beats.heard() == {}


def test_beats_are_taken_at_the_memory_limit_and_are_bounded_in_number(
    node: TimedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MOST", 3)
    beats = MemberBeats([node])
    node.command("CONFIG", "SET", "maxmemory", "100kb")
    for number in range(3):
        assert beats.beat(f"w-{number}", 1, Facts(), begins=True) == "new"
    assert beats.beat("w-3", 1, Facts(), begins=True) == "full"
    assert beats.beat("w-2", 1, Facts(), begins=False) == "known"
    assert len(beats.heard()) == 3


def test_beats_are_looked_for_on_all_nodes_that_answer(node: TimedNode, tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "other").start()
    other = TimedNode(server.url)
    both, reverse = MemberBeats([node, other]), MemberBeats([other, node])
    both.beat("w", 1, Facts(pages=1), begins=True)
    reverse.beat("v", 1, Facts(pages=2), begins=True)
    assert both.heard().keys() == reverse.heard().keys() == {"w", "v"}
    server.stop()
    assert both.heard().keys() == {"w"}
    assert reverse.beat("v", 1, Facts(), begins=True) == "new", "on the next node"
    assert both.heard().keys() == {"w", "v"}
    with pytest.raises(Unavailable):
        MemberBeats([other]).beat("w", 1, Facts(), begins=True)
    other.close()
