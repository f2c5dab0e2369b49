"""The client and peers that misbehave: it tries the next address, and sends nothing twice."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest
from gevent.server import StreamServer

from greencrawl.broker.client import BrokerClient
from greencrawl.schema.errors import InvalidConfig, Refused, Unavailable
from greencrawl.schema.records import (
    CloseItem,
    CloseRequest,
    FinishRequest,
    HostReport,
    LeaseRequest,
)
from tests.support.ports import free_port

LEASE = LeaseRequest(worker="w", incarnation=1, sequence=1, wait=0.0)
EMPTY = b'{"sessions":[],"waited":0.0}'
CLOSED = b'{"results":["ok","ok"]}'


class Peer:
    """An HTTP peer that records what arrives, and handles each request as the test says."""

    def __init__(self, act: Callable[[socket.socket], bool]) -> None:
        self.act = act
        self.requests: list[bytes] = []
        self.connections = 0
        self.server = StreamServer(("127.0.0.1", 0), self._serve)
        self.server.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def _serve(self, connection: Any, _address: object) -> None:
        self.connections += 1
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            length = next(
                (int(h[15:]) for h in head.split(b"\r\n") if h.startswith(b"Content-Length:")), 0
            )
            while len(body) < length:
                body += connection.recv(65536)
            self.requests.append(head + b"\r\n\r\n" + body[:length])
            data = body[length:]
            if not self.act(connection):
                connection.close()
                return


def answer(status: str, body: bytes) -> Callable[[socket.socket], bool]:
    def act(connection: socket.socket) -> bool:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection.sendall(head + body)
        return True

    return act


def vanish(_connection: socket.socket) -> bool:
    return False


def hang(_connection: socket.socket) -> bool:
    gevent.sleep(60)
    return False


def half_an_answer(connection: socket.socket) -> bool:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    return False


@contextmanager
def peers(*acts: Callable[[socket.socket], bool]) -> Iterator[tuple[BrokerClient, list[Peer]]]:
    made = [Peer(act) for act in acts]
    client = BrokerClient([peer.url for peer in made], "secret", timeout=0.3)
    try:
        yield client, made
    finally:
        client.disconnect()
        for peer in made:
            peer.server.stop(timeout=0.1)


def test_requests_carry_the_token_and_share_a_connection() -> None:
    with peers(answer("200 OK", EMPTY)) as (client, [peer]):
        for _ in range(3):
            assert client.lease(LEASE).sessions == ()
        assert peer.connections == 1
        assert b"Authorization: Bearer secret\r\n" in peer.requests[0] + b"\r\n"
        assert json.loads(peer.requests[0].partition(b"\r\n\r\n")[2])["worker"] == "w"


def told(client: BrokerClient, request: CloseRequest) -> object:
    try:
        return client.close(request).results
    except Refused as refused:
        return refused.status


def test_a_report_is_sent_without_traps_if_an_older_broker_refuses_them() -> None:
    """It refuses the whole request because of the unknown field."""
    old = b"traps"

    def act(connection: socket.socket) -> bool:
        refused = old in peer[0].requests[-1]
        return answer(*(("400 Bad Request", b"{}") if refused else ("200 OK", CLOSED)))(connection)

    peer: list[Peer] = []
    report = HostReport(requests=3, traps=b"known")
    item = CloseItem(session="1/h", token="0" * 16, report=report, release=(4,))
    with peers(act) as (client, found):
        peer += found
        assert told(client, CloseRequest((item, item))) == ("ok", "ok")
        first, second = (json.loads(r.partition(b"\r\n\r\n")[2]) for r in found[0].requests)
        assert first["items"][0]["report"] == {"requests": 3, "traps": "a25vd24="}
        assert second["items"][0] == {**first["items"][0], "report": {"requests": 3}}
    wrong = CloseItem(session="1/h", token="0" * 16)
    with peers(answer("400 Bad Request", b"{}")) as (client, [bad]):
        with pytest.raises(Refused):
            client.close(CloseRequest((wrong,)))
        assert len(bad.requests) == 1


def test_an_address_that_refuses_connections_is_passed_over_and_the_good_one_kept() -> None:
    peer = Peer(answer("200 OK", EMPTY))
    client = BrokerClient([f"http://127.0.0.1:{free_port()}", peer.url])
    client.lease(LEASE)
    client.lease(LEASE)
    assert len(peer.requests) == 2
    client.disconnect()
    peer.server.stop()


@pytest.mark.parametrize("act", [vanish, half_an_answer, answer("503 Away", b"{}")])
def test_a_post_that_may_have_been_processed_is_not_sent_again(
    act: Callable[[socket.socket], bool],
) -> None:
    with peers(act, answer("200 OK", EMPTY)) as (client, [bad, good]):
        with pytest.raises(Unavailable):
            client.lease(LEASE)
        assert (len(bad.requests), len(good.requests)) == (1, 0)
        client.lease(LEASE)  # the caller tries again, and this goes to the next address
        assert (len(bad.requests), len(good.requests)) == (1, 1)


def test_a_get_request_goes_to_another_broker_if_its_answer_is_lost() -> None:
    with peers(vanish, answer("200 OK", b"[]")) as (client, [bad, good]):
        assert client.crawls() == []
        assert (len(bad.requests), len(good.requests)) == (1, 1)


def test_a_broker_that_hangs_is_given_up_in_time() -> None:
    with peers(hang) as (client, [_]), gevent.Timeout(3), pytest.raises(Unavailable):
        client.finish(FinishRequest(items=()))


def test_an_idle_connection_that_the_broker_closed_is_replaced() -> None:
    last = [True]

    def close_after(connection: socket.socket) -> bool:
        answer("200 OK", EMPTY)(connection)
        return not last.pop() if last else True

    with peers(close_after) as (client, [peer]):
        client.lease(LEASE)
        gevent.sleep(0.05)
        client.lease(LEASE)
        assert (peer.connections, len(peer.requests)) == (2, 2)


def test_every_address_is_tried_once_and_all_are_named() -> None:
    addresses = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with pytest.raises(Unavailable) as raised:
        BrokerClient(addresses).crawls()
    assert all(address in str(raised.value) for address in addresses)
    assert not BrokerClient(addresses).ready()


def test_a_4xx_is_refused_with_its_problem() -> None:
    body = b'{"title":"Not Found","status":404,"detail":"no crawl \'x\'"}'
    with peers(answer("404 Not Found", body)) as (client, [_]):
        with pytest.raises(Refused) as raised:
            client.crawl("x")
        assert raised.value.status == 404
        assert raised.value.problem["detail"] == "no crawl 'x'"


@pytest.mark.parametrize("body", [b"<html>", b'{"sessions": 3}', b"\xff"])
def test_an_answer_that_is_not_a_brokers_raises_unavailable(body: bytes) -> None:
    with peers(answer("200 OK", body)) as (client, [_]), pytest.raises(Unavailable):
        client.lease(LEASE)


def test_a_refusal_without_a_problem_body_is_still_refused() -> None:
    with peers(answer("400 Bad", b"<html>")) as (client, [_]), pytest.raises(Refused):
        client.crawls()


def test_a_killed_caller_leaks_no_connection() -> None:
    with peers(hang) as (client, [peer]):
        for _ in range(20):  # more than the pool has
            caller = gevent.spawn(client.lease, LEASE)
            gevent.sleep(0.01)
            caller.kill()
        peer.act = answer("200 OK", EMPTY)
        with gevent.Timeout(3):
            assert client.lease(LEASE).sessions == ()


def test_names_in_paths_are_quoted() -> None:
    with peers(answer("404 Not Found", b"{}")) as (client, [peer]):
        with pytest.raises(Refused):
            client.crawl("a/b c?")
        assert peer.requests[0].startswith(b"GET /v1/crawls/a%2Fb%20c%3F HTTP/1.1\r\n")


def test_wrong_settings_of_the_client_are_named() -> None:
    with pytest.raises(InvalidConfig, match="GREENCRAWL_BROKER"):
        BrokerClient([])
    with pytest.raises(InvalidConfig, match="GREENCRAWL_TLS_CA"):
        BrokerClient(["https://127.0.0.1:1"], ca="/nowhere.pem")


def test_a_broker_that_does_not_reach_all_nodes_is_asked_last_the_next_time() -> None:
    partly = answer("200 OK", b'{"results":["away","ok"]}')
    with peers(partly, answer("200 OK", b'{"results":["ok"]}')) as (client, (first, second)):
        assert client.finish(FinishRequest(())).results == ("away", "ok")
        assert client.finish(FinishRequest(())).results == ("ok",)
        assert client.finish(FinishRequest(())).results == ("ok",)
        assert (len(first.requests), len(second.requests)) == (1, 2)
