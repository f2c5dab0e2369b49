"""Nodes: the line that starts one more worker elsewhere, and the output while Redis is away."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from click.testing import CliRunner
from gevent.pywsgi import WSGIServer

from greencrawl.broker.api.messages import MembersReply
from greencrawl.cli import connecting
from greencrawl.cli.admin.nodes import _line, drain, join_line, nodes
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.schema.records import Facts, MemberState, NodeOrders
from greencrawl.schema.settings import load
from greencrawl.schema.wire import to_json

SHARED = {
    "GREENCRAWL_BROKER": "https://broker.example:8765",
    "GREENCRAWL_WORKER_TOKEN": "it's secret",
    "GREENCRAWL_REDIS": "redis://r1.example:6379,redis://r2.example:6379",
    "GREENCRAWL_STORE": "mysql://u:p@db.example/crawl",
    "GREENCRAWL_ADMIN_TOKEN": "not for workers",
    "GREENCRAWL_REQUEST_SECONDS": "30",
}


@pytest.mark.parametrize(
    ("sessions", "said"), [(0, "0 hosts"), (1, "1 host"), (1500, "1,500 hosts")]
)
def test_a_node_is_listed_with_the_number_of_its_hosts(sessions: int, said: str) -> None:
    member = MemberState(
        id="w-0", node="w", kind="worker", incarnation=1, version="1", status="here",
        facts=Facts(sessions=sessions),
    )  # fmt: skip
    assert _line("w", [member])[:5] == ["w", "worker", "here", "1 process", said]


def test_the_join_line_has_only_the_settings_that_a_worker_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GREENCRAWL_BROKER", SHARED["GREENCRAWL_BROKER"])
    words = shlex.split(join_line(load(SHARED)))
    assert words[-3:] == ["python", "-m", "greencrawl.worker"]
    given = dict(word.split("=", 1) for word in words[:-3])
    assert given == {key: value for key, value in SHARED.items() if "ADMIN" not in key} | {
        "GREENCRAWL_REQUEST_SECONDS": "30.0"
    }
    settings = load(given)
    assert settings.worker_token == "it's secret"
    assert settings.redis == load(SHARED).redis


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("GREENCRAWL_BROKER", "http://127.0.0.1:8765"),
        ("GREENCRAWL_REDIS", ""),
        ("GREENCRAWL_REDIS", "redis://localhost:6379"),
        ("GREENCRAWL_STORE", "sqlite:////data/content.sqlite"),
        ("GREENCRAWL_STORE", "mysql://u:p@localhost/crawl"),
        ("GREENCRAWL_STORE", "mysql://u:p@db.example,127.0.0.1:3307/crawl"),
    ],
)
def test_an_address_that_only_this_machine_reaches_is_named(
    monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    changed = {**SHARED, key: value}
    monkeypatch.setenv("GREENCRAWL_BROKER", changed["GREENCRAWL_BROKER"])
    with pytest.raises(InvalidConfig) as raised:
        join_line(load(changed))
    (problem,) = raised.value.problems
    assert problem[0] == (key if key != "GREENCRAWL_BROKER" else "GREENCRAWL_BIND")


def _redis_is_away(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """A broker that answers while Redis is away, so it knows no members."""
    silent = MemberState(id="w-0", node="w", kind="worker", incarnation=1, status="silent")
    answers = {
        "/healthz": b'{"status": "ok"}',
        "/v1/members": to_json(MembersReply((silent,))),
        "/v1/orders": to_json(NodeOrders(member="w")),
    }
    environ["wsgi.input"].read()
    body = answers.get(environ["PATH_INFO"])
    start("200 OK" if body else "503 Away", [("Content-Type", "application/json")])
    return [body or b'{"title": "Away", "status": 503, "detail": "Redis is away"}']


def test_nodes_are_shown_but_none_is_called_drained_while_redis_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = WSGIServer(("127.0.0.1", 0), _redis_is_away, log=None)
    server.start()
    monkeypatch.setenv("GREENCRAWL_BROKER", f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(Unavailable, match=r"no broker is ready: .*Redis is away"):
        connecting.required(connecting.load())
    assert CliRunner().invoke(nodes, []).output.startswith("w\tworker\tsilent")
    drained = CliRunner().invoke(drain, ["w"])
    assert "drained" not in drained.output
    assert isinstance(drained.exception, GreencrawlError)
    assert "w-0 does not report" in str(drained.exception)
    server.stop()
    with pytest.raises(connecting.NoBroker):
        connecting.living(connecting.load())
