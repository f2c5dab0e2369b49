"""Time is a budget: a peer gets no more of it if it does a little at a time."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from time import thread_time

import gevent
import pytest
from gevent import socket, ssl
from gevent.server import StreamServer

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.http.client import Downloader
from tests.support.certificates import authority, signed
from tests.support.raw_server import Behaviour, RawServer, drip, send, send_then_stall

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SECONDS, LATE = 0.4, 0.3
BYTE = 0.01


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def serving(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*signed(ca, "site", host="site.example"))
    return context


@pytest.fixture
def downloader(ca: Path) -> Iterator[Downloader]:
    trusting = ssl.create_default_context(cafile=str(ca))
    made = Downloader(
        LOOPBACK, SECONDS, resolver=lambda name: ["127.0.0.1", "127.0.0.2"], tls=trusting
    )
    yield made
    made.close()


def failure(downloader: Downloader, url: str, body: bytes = b"") -> tuple[Failure, float]:
    """Return the failure, and the seconds until it came."""
    began = monotonic()
    found = downloader.fetch(
        url, {}, max_body_bytes=10**6, deadline=began + 60, method="POST", body=body
    )
    assert isinstance(found, Failure), found
    return found, monotonic() - began


def shake_hands_slowly(serving: ssl.SSLContext, interval: float) -> StreamServer:
    """Make a TLS server at 127.0.0.1 and 127.0.0.2 that sends its part byte by byte."""

    def serve(sock: socket.socket, _peer: object) -> None:
        came, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = serving.wrap_bio(came, to_send, server_side=True)
        try:
            while data := sock.recv(65536):
                came.write(data)
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                drip(to_send.read(), interval)(sock)
        except OSError:
            pass  # the client gave up, as the test wants
        finally:
            sock.close()

    return StreamServer(("0.0.0.0", 0), serve)


def test_handshake_a_byte_at_a_time_ends_in_time(
    downloader: Downloader, serving: ssl.SSLContext
) -> None:
    server = shake_hands_slowly(serving, BYTE)
    server.start()
    with gevent.Timeout(5):
        found, took = failure(downloader, f"https://site.example:{server.server_port}/")
    server.stop(0.1)
    assert (found.kind, found.requests) == (FailureKind.CONNECT_TIMEOUT, 0)
    assert found.detail.count("127.0.0.") == 2, "both addresses had their share"
    assert SECONDS - 0.05 < took < SECONDS + LATE


def read_slowly(sock: socket.socket) -> None:
    while sock.recv(1):
        gevent.sleep(BYTE)


@pytest.mark.parametrize(
    "behaviour",
    [
        drip(OK + b"X: " + b"y" * 1000, BYTE),
        drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 99, BYTE),
        drip(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 99, BYTE),
        drip(CHUNKED + b"1;" + b"x" * 1000, BYTE),
        drip(CHUNKED + b"1\r\nz\r\n" * 1000, BYTE),
        drip(CHUNKED + b"0\r\n" + b"X-Trailer: y\r\n" * 999, BYTE),
    ],
    ids=["head", "100", "103", "chunk extension", "chunks", "trailers"],
)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_answer_a_byte_at_a_time_ends_in_time(
    downloader: Downloader, serving: ssl.SSLContext, behaviour: Behaviour, secure: bool
) -> None:
    with RawServer(behaviour, tls=serving if secure else None) as server, gevent.Timeout(5):
        found, took = failure(downloader, server.url(name="site.example"))
    assert found.kind is FailureKind.TIMEOUT
    assert SECONDS - 0.05 < took < SECONDS + LATE


def test_request_that_is_read_a_byte_at_a_time_ends_in_time(downloader: Downloader) -> None:
    server = StreamServer(("127.0.0.1", 0), lambda sock, _peer: read_slowly(sock))
    server.start()
    url = f"http://127.0.0.1:{server.server_port}/"
    with gevent.Timeout(5):
        found, took = failure(downloader, url, bytes(20_000_000))
    server.stop(0.1)
    assert (found.kind, found.requests) == (FailureKind.TIMEOUT, 1)
    assert took < SECONDS + LATE


def test_downloader_does_not_wait_for_a_peer_to_answer_the_end_of_tls(
    ca: Path, serving: ssl.SSLContext
) -> None:
    trusting = ssl.create_default_context(cafile=str(ca))
    downloader = Downloader(LOOPBACK, 5, resolver=lambda name: ["127.0.0.1"], tls=trusting)
    length = OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi"
    with RawServer(send_then_stall(length), tls=serving) as server:
        began = monotonic()
        found = downloader.fetch(
            server.url(name="site.example"), {}, max_body_bytes=9, deadline=began + 9
        )
        assert monotonic() - began < 1
    downloader.close()
    assert isinstance(found, Fetched)
    assert found.body == b"hi"


# -- the least rate of a body


def rated(behaviour: Behaviour, size: int = 10**6) -> tuple[Fetched | Failure, float]:
    """Fetch with a least rate of 1,000 bytes a second after 0.3 s; also return how long it took."""
    downloader = Downloader(LOOPBACK, 5, least_rate=1000, rate_seconds=0.3)
    began = monotonic()
    with RawServer(behaviour) as server:
        found = downloader.fetch(server.url(), {}, max_body_bytes=size, deadline=began + 60)
    took = monotonic() - began
    downloader.close()
    return found, took


@pytest.mark.parametrize(
    "start",
    [
        OK + b"Content-Length: 5000\r\n\r\n",
        OK + b"\r\n",
        CHUNKED + b"FFFF\r\n",
        CHUNKED + b"1\r\nz\r\n0\r\nX: ",
    ],
    ids=["length", "no length", "chunk", "trailer"],
)
def test_body_below_the_least_rate_is_a_timeout_that_names_the_rate(start: bytes) -> None:
    def behave(sock: socket.socket) -> None:
        sock.sendall(start)
        drip(b"z" * 500, BYTE)(sock)

    found, took = rated(behave)
    assert isinstance(found, Failure)
    assert (found.kind, found.code) == (FailureKind.TIMEOUT, 200)
    assert "1000 bytes a second" in found.detail
    assert 0.3 < took < 0.3 + LATE


def test_body_above_the_least_rate_comes_whole_and_a_slow_head_does_not_count() -> None:
    def behave(sock: socket.socket) -> None:
        gevent.sleep(0.4)
        sock.sendall(OK + b"Content-Length: 1000\r\n\r\n")
        for _ in range(10):
            gevent.sleep(0.05)
            sock.sendall(b"z" * 100)

    found, took = rated(behave)
    assert isinstance(found, Fetched), found
    assert len(found.body) == 1000
    assert took > 0.8


def test_fast_body_may_pause_for_the_time_that_it_gained() -> None:
    def behave(sock: socket.socket) -> None:
        sock.sendall(OK + b"Content-Length: 601\r\n\r\n" + b"z" * 600)
        gevent.sleep(0.45)
        sock.sendall(b"z")
        gevent.sleep(1)

    found, _ = rated(behave)
    assert isinstance(found, Fetched), found


def test_answers_of_tiny_chunks_use_only_a_part_of_a_core() -> None:
    """Each chunk of eight bytes is a call of the parser: about ten times the CPU of other bytes."""
    body = b"8\r\n01234567\r\n" * 30_000
    patient = Downloader(LOOPBACK, 30)
    with RawServer(send(CHUNKED + body + b"0\r\n\r\n")) as server:
        began, spent = monotonic(), thread_time()
        pages = [
            gevent.spawn(patient.fetch, server.url(), {}, max_body_bytes=10**6, deadline=began + 60)
            for _ in range(3)
        ]
        gevent.joinall(pages, raise_error=True)
        took, spent = monotonic() - began, thread_time() - spent
    patient.close()
    assert [len(page.value.body) for page in pages] == [240_000] * 3
    assert took > 3 * spent, "the server's own part is in there"


def test_answer_with_almost_empty_chunks_is_refused() -> None:
    patient = Downloader(LOOPBACK, 30)
    with RawServer(send(CHUNKED + b"1\r\na\r\n" * 60_000)) as server:
        found = patient.fetch(server.url(), {}, max_body_bytes=10**6, deadline=monotonic() + 60)
    patient.close()
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.PROTOCOL
    assert "its chunks are almost empty" in found.detail
