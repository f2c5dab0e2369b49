"""The proxies of the fault rig do to traffic what they promise, and nothing else."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any

import gevent
import pytest
from gevent import socket
from gevent.pywsgi import WSGIServer

from tests.support.proxy import Address, Repeater, TcpProxy
from tests.support.raw_server import RawServer, answer


def _get(port: int, path: str = "/a", seconds: float = 0.3) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_a_new_target_of_the_proxy_applies_only_to_new_connections() -> None:
    with (
        RawServer(answer(b"old")) as old,
        RawServer(answer(b"new")) as new,
        TcpProxy(("127.0.0.1", old.port)) as proxy,
    ):
        kept = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=2)
        kept.request("GET", "/a")
        assert kept.getresponse().read() == b"old"
        proxy.target = ("127.0.0.1", new.port)
        assert _get(proxy.port) == b"new"
        kept.request("GET", "/a")
        assert kept.getresponse().read() == b"old"
        kept.request("GET", "/a")
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            kept.getresponse()


def test_traffic_that_the_proxy_holds_arrives_late_on_the_same_connection() -> None:
    with RawServer(answer(b"x")) as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        proxy.hold()
        reader = gevent.spawn(_get, proxy.port, "/late", 5.0)
        gevent.sleep(0.2)
        assert not reader.ready()
        assert server.paths == []
        proxy.mend()
        assert reader.get(timeout=2) == b"x"
        assert server.paths == ["/late"]


def test_traffic_that_the_proxy_drops_never_arrives_and_its_connection_is_reset() -> None:
    with RawServer(answer(b"x")) as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        kept = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=2)
        kept.request("GET", "/before")
        assert kept.getresponse().read() == b"x"
        proxy.drop()
        kept.request("GET", "/lost")
        with pytest.raises(TimeoutError):
            _get(proxy.port, "/also-lost")
        assert proxy.lost_bytes > 0
        proxy.mend()
        with pytest.raises(ConnectionResetError):
            kept.getresponse()
        assert _get(proxy.port, "/after") == b"x"
        assert server.paths == ["/before", "/after"]


def test_an_answer_that_the_proxy_drops_resets_its_connection() -> None:
    release = gevent.event.Event()

    def slow(sock: socket.socket) -> object:
        release.wait()
        return answer(b"x")(sock)

    with RawServer(slow) as server, TcpProxy(("127.0.0.1", server.port)) as proxy:
        reader = gevent.spawn(_get, proxy.port, "/a", 5.0)
        gevent.sleep(0.1)
        proxy.drop()
        release.set()
        gevent.sleep(0.1)
        assert not reader.ready()
        proxy.mend()
        with pytest.raises(ConnectionResetError):
            reader.get(timeout=2)


def test_a_client_is_refused_if_the_target_refuses() -> None:
    with RawServer(answer()) as server:
        port = server.port
    with TcpProxy(("127.0.0.1", port)) as proxy, pytest.raises(ConnectionError):
        _get(proxy.port)


class _Counting:
    """Answers a body with the body itself and the number of its copy."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self._server = WSGIServer(("127.0.0.1", 0), self._answer, log=None)

    def _answer(self, request: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        body = request["wsgi.input"].read()
        self.seen.append(body)
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"%s #%d" % (body, self.seen.count(body))]

    def __enter__(self) -> _Counting:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(timeout=0.1)

    @property
    def address(self) -> Address:
        return "127.0.0.1", int(self._server.server_port or 0)


def _post(port: int, body: bytes) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", "/a", body)
    return connection.getresponse().read()


def test_the_repeater_delivers_each_post_thrice_in_another_order_and_answers_once() -> None:
    with _Counting() as server, Repeater(server.address, spread_seconds=0.3) as proxy:
        sent = [b"m%02d" % n for n in range(12)]
        posts = [gevent.spawn(_post, proxy.port, body) for body in sent]
        answers = [post.get(timeout=5) for post in posts]
        assert [answer.partition(b" #")[0] for answer in answers] == sent
        assert proxy.settle(5)
    assert sorted(server.seen) == sorted(sent * 3)
    assert server.seen != sorted(server.seen)
    assert proxy.delivered == {"POST /a": 36}
    assert proxy.failed == {}


@pytest.mark.parametrize("call", [_get, lambda port: _post(port, b"x")])
def test_the_repeater_closes_the_connection_if_all_copies_of_a_request_fail(
    call: Callable[[int], bytes],
) -> None:
    with RawServer(answer()) as server:
        port = server.port
    with (
        Repeater(("127.0.0.1", port), spread_seconds=0) as proxy,
        pytest.raises(http.client.RemoteDisconnected),
    ):
        call(proxy.port)


def test_requests_other_than_post_are_delivered_once() -> None:
    with RawServer(answer(b"x")) as server, Repeater(("127.0.0.1", server.port)) as proxy:
        assert _get(proxy.port) == b"x"
        assert server.paths == ["/a"]


def test_a_tap_sees_the_answers_and_the_target_is_looked_up_for_each_connection() -> None:
    seen: list[bytes] = []
    ports: list[int] = []
    with TcpProxy(lambda: ("127.0.0.1", ports[-1]), seen.append) as proxy:
        for body in (b"first", b"second"):
            with RawServer(answer(body)) as server:
                ports.append(server.port)
                assert _get(proxy.port) == body
    assert [data[-6:] for data in seen] == [b"\nfirst", b"second"]
