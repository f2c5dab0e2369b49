"""What the log says of a node that gives no answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from greencrawl.broker.frontier.nodes import breaker
from greencrawl.broker.frontier.nodes.breaker import Breaker
from greencrawl.broker.frontier.nodes.node import Node
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.log import Trouble
from tests.support.redis_server import RedisServer


def test_a_process_that_tries_again_to_start_logs_once_that_a_node_is_away(tmp_path: Path) -> None:
    """It makes its nodes anew with each try."""
    server = RedisServer(tmp_path)
    with capture_logs() as lines:
        for _ in range(5):
            node = Node(server.url)
            with pytest.raises(Unavailable):
                node.command("PING")
            node.breaker.stop()
        server.start()
        node = Node(server.url)
        assert node.command("PING") == b"PONG"
        node.close()
        server.stop()
    assert [
        (line["event"], line["log_level"], line["node"], line.get("times")) for line in lines
    ] == [
        ("node_disconnected", "warning", server.url, None),
        ("node_reconnected", "info", server.url, 5),
    ]


def test_a_node_that_stays_away_is_logged_once_a_minute_with_the_number_of_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    trouble = Trouble(breaker.log, "node_disconnected", "node_reconnected", clock=lambda: now[0])
    monkeypatch.setitem(breaker._troubles, "redis://away", trouble)

    class Silent:
        def answers(self) -> None:
            raise Unavailable("still away")

    silent = Silent()
    with capture_logs() as lines:
        made = Breaker("redis://away", silent.answers)
        made.trip("away")
        made.stop()
        for _ in range(130):
            now[0] += 1
            assert not made.ask()
    assert [(line["event"], line.get("times"), line["reason"]) for line in lines] == [
        ("node_disconnected", None, "away"),
        ("node_disconnected", 61, "still away"),
        ("node_disconnected", 121, "still away"),
    ]
