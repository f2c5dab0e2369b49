"""Clients that send half a request, or a byte now and then: their connections end, others work."""

from __future__ import annotations

import http.client
import os
import resource
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import monkey

from greencrawl.broker.api import bodies, connections
from greencrawl.broker.api.app import ConnectionLog, HttpApp, Server, listener
from greencrawl.broker.api.connections import BoundedServer
from greencrawl.broker.api.security import Guard
from greencrawl.broker.service.service import Service
from greencrawl.schema import log as logs
from greencrawl.store import open_store
from tests.support.certificates import authority, signed
from tests.support.queue_double import QueueDouble

forked = monkey.get_original("os", "fork")
waited = monkey.get_original("os", "waitpid")
LIMIT = 0.4
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/crawls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HANDSHAKE", "HEAD", "LEFT", "SEND"):
        monkeypatch.setattr(connections, f"{name}_SECONDS", LIMIT)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(bodies, "GRACE_SECONDS", LIMIT)


@pytest.fixture
def http_app(tmp_path: Path) -> Iterator[HttpApp]:
    store = open_store(f"sqlite:///{tmp_path / 'content.sqlite'}")
    service = Service(QueueDouble(), store)
    yield HttpApp(service, Guard("", ""))
    service.stop()
    store.close()


@pytest.fixture
def port(http_app: HttpApp) -> Iterator[int]:
    server = Server(http_app, listener(("127.0.0.1", 0)))
    server.start()
    yield server.port
    server.stop()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def trickle(sock: socket.socket, text: bytes) -> None:
    """Send a byte at a time, as long as the other side accepts them."""
    try:
        for byte in text:
            sock.sendall(bytes([byte]))
            gevent.sleep(0.05)
    except OSError:
        pass


def ended(sock: socket.socket) -> tuple[float, bytes]:
    """Return the seconds until the other side ends the connection, and what it sent before."""
    began, said = time.monotonic(), b""
    try:
        while piece := sock.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
    return time.monotonic() - began, said


def served(port: int) -> bool:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    client.request("GET", "/healthz", headers={"Host": "localhost"})
    found = client.getresponse().status == 200
    client.close()
    return found


def test_connections_with_endless_request_heads_are_closed_and_others_are_served(port: int) -> None:
    endless = [connected(port) for _ in range(20)]
    slow = [gevent.spawn(trickle, one, HEAD + b"X: " + b"a" * 200) for one in endless[:10]]
    assert served(port)
    for one in endless:
        seconds, said = ended(one)
        assert seconds < 3 * LIMIT
        assert said == b""
    gevent.joinall(slow)


@pytest.mark.parametrize("pace", ["nothing", "slow", "chunked"])
def test_a_request_whose_body_does_not_arrive_gets_a_408(port: int, pace: str) -> None:
    with connected(port) as one:
        if pace == "chunked":
            one.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{")
        else:
            one.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        if pace == "slow":
            gevent.spawn(trickle, one, b" " * 200)
        assert served(port)
        seconds, said = ended(one)
        assert b" 408 " in said
        assert LIMIT / 2 < seconds < 4 * LIMIT


def test_the_broker_does_not_wait_for_the_rest_of_a_refused_body(port: int) -> None:
    with connected(port) as one:
        one.sendall(POST + b"Content-Length: 99999999\r\n\r\n")
        gevent.spawn(trickle, one, b" " * 200)
        seconds, said = ended(one)
        assert b" 413 " in said
        assert seconds < 4 * LIMIT


def test_an_idle_connection_is_closed_after_its_time_limit(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS", 3 * LIMIT)
    with connected(port) as one:
        for _ in range(2):
            one.sendall(HEAD + b"\r\n")
            assert b" 200 " in one.recv(65536)
            gevent.sleep(1.5 * LIMIT)  # longer than a head may take
        assert ended(one)[0] < 3 * LIMIT


def test_a_request_head_that_is_too_long_is_refused(port: int) -> None:
    with connected(port) as one:
        one.sendall(HEAD + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 8000) for i in range(10)))
        assert b" 400 " in ended(one)[1]


def test_an_answer_that_nobody_reads_is_given_up(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LEAST_RATE", 1e9)
    with connected(port) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        one.settimeout(10)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            one.sendall(ask * 1_000_000)
    assert served(port)


Answering = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def bounded(app: Answering, most: int = 100, **secure: Any) -> BoundedServer:
    server = BoundedServer(
        listener(("127.0.0.1", 0)), app, log=None, error_log=ConnectionLog(), most=most, **secure
    )
    server.start()
    return server


def slowly(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    gevent.sleep(3 * LIMIT)
    start("200 OK", [("Content-Length", "2")])
    return [b"ok"]


def test_an_answer_may_take_longer_than_the_limit_for_a_request() -> None:
    server = bounded(slowly)
    with connected(server.server_port) as one:
        one.sendall(HEAD + b"\r\n")
        assert b" 200 " in one.recv(65536)
    server.stop()


def endlessly(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [])
    while True:
        yield bytes(65536)
        gevent.sleep(0)


@pytest.mark.parametrize("how", ["reset", "closed", "garbage"])
def test_a_tls_client_that_dies_during_its_answer_is_logged_in_one_line_at_most(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("broker", "info")
    ca = authority(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed(ca, "broker", address="127.0.0.1"))
    server = bounded(endlessly, ssl_context=context)
    trusting = ssl.create_default_context(cafile=str(ca))
    one = trusting.wrap_socket(connected(server.server_port), server_hostname="127.0.0.1")
    one.sendall(HEAD + b"\r\n")
    assert b" 200 " in one.recv(65536)
    bare = socket.socket(fileno=one.detach())
    if how == "garbage":
        bare.sendall(b"no TLS" * 100)
    if how == "reset":
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bare.close()
    with gevent.Timeout(10):
        while server.connections:
            gevent.sleep(0.01)
    server.stop()
    said = "".join(capsys.readouterr())
    assert "Traceback" not in said
    assert said.count("\n") <= 1
    assert how == "reset" or said.count("peer_lost") == 1


def test_a_defect_during_an_answer_is_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        raise ValueError("a defect")

    server = bounded(broken)
    with connected(server.server_port) as one:
        one.sendall(HEAD + b"\r\n")
        assert b" 500 " in one.recv(65536)
    server.stop()
    assert "ValueError: a defect" in "".join(capsys.readouterr())


def test_the_oldest_silent_connection_is_closed_if_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HEAD", "HANDSHAKE"):
        monkeypatch.setattr(connections, f"{name}_SECONDS", 60.0)
    server = bounded(slowly, most=5)
    rests, works = connected(server.server_port), connected(server.server_port)
    rests.sendall(HEAD + b"\r\n")
    assert b" 200 " in rests.recv(65536)
    works.sendall(HEAD + b"\r\n")
    silent = [connected(server.server_port) for _ in range(5)]
    gevent.sleep(0.2)
    assert len(server.connections) == 5
    for one in silent[:2]:
        assert ended(one)[0] < 0.5
    assert b" 200 " in works.recv(65536)
    rests.sendall(HEAD + b"\r\n")
    assert b" 200 " in rests.recv(65536)
    server.stop()


def test_the_limit_of_connections_is_below_the_limit_of_open_files() -> None:
    """This runs in a process of its own, because it cannot raise its lowered hard limit again."""
    reading, writing = os.pipe()
    if not (child := forked()):
        try:
            for files in (5000, 1000, 100):
                resource.setrlimit(resource.RLIMIT_NOFILE, (files // 2, files))
                most = connections.most_connections()
                soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                os.write(writing, f"{most} {soft}\n".encode())
        finally:
            os._exit(0)
    waited(child, 0)
    kept = connections.MOST_CONNECTIONS + connections.SPARE_FILES
    assert os.read(reading, 1000).decode().splitlines() == [
        f"{connections.MOST_CONNECTIONS} {kept}", "744 1000", "16 100",
    ]  # fmt: skip
    os.close(reading)
    os.close(writing)


def test_a_tls_handshake_that_does_not_end_is_broken_off(http_app: HttpApp, tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed(ca, "broker", address="127.0.0.1"))
    server = Server(http_app, listener(("127.0.0.1", 0)), context)
    server.start()
    silent, slow = connected(server.port), connected(server.port)
    gevent.spawn(trickle, slow, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + b"\x00" * 200)
    trusting = ssl.create_default_context(cafile=str(ca))
    client = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=5, context=trusting)
    for _ in range(2):
        client.request("GET", "/healthz", headers={"Host": "localhost"})
        answer = client.getresponse()
        assert answer.status == 200
        answer.read()
    for one in (silent, slow):
        assert ended(one)[0] < 3 * LIMIT
    client.close()
    half = trusting.wrap_socket(connected(server.port), server_hostname="127.0.0.1")
    half.sendall(HEAD)
    assert ended(half)[0] < 3 * LIMIT
    server.stop()
