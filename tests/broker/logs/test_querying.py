"""A broker asks all loggers: it names the missing ones, and waits for none of them too long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest
from gevent.server import StreamServer

from greencrawl.broker.logs import querying
from greencrawl.broker.logs.querying import Loggers, merge
from greencrawl.broker.logs.records import LogLine, LogsQuery, LogsReply
from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.schema.records import Member
from tests.support.logger_process import line, logger_here, post
from tests.support.ports import free_port


def member(address: str, **more: object) -> Member:
    given = {"id": address, "node": address, "kind": "logger", "incarnation": 1, **more}
    return Member(address=address, **given)  # type: ignore[arg-type]


@contextmanager
def answering(answer: bytes, seconds: float = 0.0) -> Iterator[str]:
    """A server that gives this answer to every request."""

    def handle(sock: object, _: object) -> None:
        sock.recv(10_000)  # type: ignore[attr-defined]
        gevent.sleep(seconds)
        sock.sendall(answer)  # type: ignore[attr-defined]

    server = StreamServer(("127.0.0.1", free_port()), handle)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.stop(timeout=0.1)


def http(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def test_loggers_that_do_not_answer_are_named_beside_the_lines_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(querying, "ASK_SECONDS", 0.3)
    nobody = f"http://127.0.0.1:{free_port()}"
    with (
        logger_here(tmp_path) as (url, _),
        answering(http(200, b"{}"), seconds=30) as hanging,
        answering(http(200, b"no JSON")) as garbled,
        answering(http(401, b"{}")) as strange,
    ):
        post(url, [line("here")])
        wrong = [nobody, hanging, garbled, strange]
        loggers = Loggers(lambda: [member(one) for one in (url, *wrong)])
        began = time.monotonic()
        reply = loggers.logs(LogsQuery(since="1h"))
        assert time.monotonic() - began < 3
    assert [one.event for one in reply.items] == ["here"]
    assert reply.loggers == (url,)
    assert {one.logger for one in reply.silent} == set(wrong)
    assert all(one.why for one in reply.silent)


def test_a_query_that_a_logger_refuses_is_the_callers_mistake(tmp_path: Path) -> None:
    with logger_here(tmp_path) as (url, _):
        loggers = Loggers(lambda: [member(url)])
        with pytest.raises(InvalidConfig):
            loggers.logs(LogsQuery(since="when"))


def test_only_loggers_that_have_not_left_are_asked_for_lines() -> None:
    there = [member("http://a"), member("http://b", left_ms=5), member("http://c", kind="broker")]
    now = [0.0]
    loggers = Loggers(lambda: there, clock=lambda: now[0])
    assert loggers.addresses() == ("http://a",)
    there.append(member("http://d"))
    assert loggers.of("w-0") == ("http://a",)
    now[0] = querying.LOOK_SECONDS
    assert sorted(loggers.of("w-0")) == ["http://a", "http://d"]


def test_the_last_known_loggers_are_used_while_the_store_is_away() -> None:
    away = [False]

    def members() -> list[Member]:
        if away[0]:
            raise Unavailable("the store")
        return [member("http://a")]

    now = [0.0]
    loggers = Loggers(members, clock=lambda: now[0])
    assert loggers.of("w-0") == ("http://a",)
    away[0], now[0] = True, 100.0
    assert loggers.of("w-0") == ("http://a",)


def said(*moments: int, member: str = "w-0") -> tuple[LogLine, ...]:
    return tuple(
        LogLine(
            at_ms=at, member=member, incarnation=1, sequence=at, level="info", event="", said={}
        )
        for at in moments
    )


def test_merged_answers_end_where_an_incomplete_answer_ends() -> None:
    whole = LogsReply(items=said(1, 3, 5, 7, 9))
    part = LogsReply(items=said(2, 4, member="w-1"), next="4-1-4-w-1")
    merged = merge([whole, part], 100)
    assert [one.at_ms for one in merged.items] == [1, 2, 3, 4]
    assert merged.next == "4-1-4-w-1"
    assert merge([whole, part], 2).next == "2-1-2-w-1"
    newest = LogsReply(items=said(6, 8, member="w-1"), next="6-1-6-w-1")
    merged = merge([whole, newest], 100, newest=True)
    assert [one.at_ms for one in merged.items] == [6, 7, 8, 9]
    assert merged.next == "6-1-6-w-1"
