"""The downloader against broken and hostile peers: it returns every failure and keeps every cap."""

from __future__ import annotations

import gzip
import ipaddress
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import brotli
import gevent
import pytest
import zstandard
from gevent import socket
from gevent.event import Event
from gevent.server import StreamServer

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.http.client import Downloader
from tests.support.raw_server import (
    Behaviour,
    RawServer,
    answer,
    drip,
    send,
    send_forever,
    send_then_reset,
    send_then_stall,
)

gzipped = partial(gzip.compress, mtime=0)  # the same parameters in each process
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
CAP = 100_000
OK = b"HTTP/1.1 200 OK\r\n"
FIELDS = b"".join(b"X-%d: y\r\n" % number for number in range(201))


@pytest.fixture
def downloader() -> Iterator[Downloader]:
    """Give it plenty of time: each fetch ends by itself, also on a busy machine."""
    made = Downloader(LOOPBACK, request_seconds=30)
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[Downloader]:
    made = Downloader(LOOPBACK, request_seconds=0.4)
    yield made
    made.close()


def fetch(downloader: Downloader, behaviour: Behaviour, cap: int = CAP) -> Fetched | Failure:
    """Fetch once; check that exactly one request arrived and no connection was kept."""
    with RawServer(behaviour) as server:
        found = downloader.fetch(server.url(), {}, max_body_bytes=cap, deadline=monotonic() + 60)
        assert len(server.requests) == 1
        assert downloader.idle_connections == 0
    return found


def failure(downloader: Downloader, behaviour: Behaviour) -> Failure:
    found = fetch(downloader, behaviour)
    assert isinstance(found, Failure), found
    assert found.requests == 1
    assert found.detail
    return found


def drip_then_stall(data: bytes, interval: float) -> Behaviour:
    """Send until the client's time is nearly over: one more full time-out would be too long."""

    def behave(sock: socket.socket) -> None:
        drip(data, interval)(sock)
        gevent.sleep(10)

    return behave


@pytest.mark.parametrize(
    "behaviour",
    [
        send_then_stall(b""),
        send_then_stall(b"HTTP/1.1 200 OK\r\nX-Half: he"),
        send_then_stall(OK + b"Content-Length: 10\r\n\r\nhalf"),
        send_then_stall(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"),
        drip(OK + b"X: " + b"y" * 1000, 0.02),
        drip(OK + b"Content-Length: 1000\r\n\r\n" + b"y" * 1000, 0.01),
        drip_then_stall(OK, 0.02),
    ],
    ids=[
        "silence",
        "half a head",
        "half a body",
        "half a chunk",
        "dripping head",
        "dripping body",
        "dripping and then silent",
    ],
)
def test_answer_that_does_not_end_in_time_is_a_timeout(
    hasty: Downloader, behaviour: Behaviour
) -> None:
    began = time.monotonic()
    assert failure(hasty, behaviour).kind is FailureKind.TIMEOUT
    assert 0.3 < time.monotonic() - began < 5, "none of them ends by itself"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x16\x03\x01\x00\xff\x00\x01",
        b"HTTP/1.1 OK\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        OK + b"Content-Length: -5\r\n\r\nhello",
        OK + b"Content-Length: 99999999999999999999999\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nab\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
        OK + FIELDS + b"\r\n",
        OK + FIELDS + b"Content-Length: 0\r\n\r\n",
        OK + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
    ids=[
        "another protocol",
        "TLS",
        "no status",
        "two lengths",
        "negative length",
        "length overflow",
        "chunk size not hexadecimal",
        "chunk size overflow",
        "chunk longer than said",
        "too many fields",
        "too many fields, and at an end",
        "field too long",
    ],
)
def test_answer_that_is_not_http_is_a_protocol_failure(downloader: Downloader, data: bytes) -> None:
    found = failure(downloader, send_then_stall(data, 0.2))
    assert found.kind is FailureKind.PROTOCOL


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (OK, b"X-More: and more\r\n" * 100),
        (OK + b"X: ", b"y" * 1000),
        (b"HTTP/1.1 200 ", b"OK " * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (b"", b"\r\n" * 1000),
    ],
    ids=["headers", "one header", "reason phrase", "interim answers", "empty lines"],
)
def test_head_without_end_is_a_protocol_failure(
    downloader: Downloader, start: bytes, again: bytes
) -> None:
    found = failure(downloader, send_forever(start, again))
    assert found.kind is FailureKind.PROTOCOL


@pytest.mark.parametrize(
    "behaviour",
    [
        send(b""),
        send(b"HTTP/1.1 200 OK\r\nX-Half: he"),
        send(OK + b"Content-Length: 10\r\n\r\nshort"),
        send(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        send(b"HTTP/1.1 100 Continue\r\n\r\n"),
        send_then_reset(b""),
        send_then_reset(OK + b"Content-Length: 10\r\n\r\nshort"),
    ],
    ids=[
        "no answer",
        "half a head",
        "short body",
        "no last chunk",
        "interim only",
        "reset at once",
        "reset in mid-body",
    ],
)
def test_connection_lost_before_the_end_is_a_reset(
    downloader: Downloader, behaviour: Behaviour
) -> None:
    assert failure(downloader, behaviour).kind is FailureKind.RESET


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (OK + b"\r\n", b"z" * 9999),
        (OK + b"Content-Length: 99999999999\r\n\r\n", b"z" * 9999),
        (CHUNKED, b"4\r\nzzzz\r\n" * 999),
    ],
    ids=["no length", "huge length", "chunks"],
)
def test_body_without_end_is_cut_exactly_at_the_cap(
    downloader: Downloader, start: bytes, again: bytes
) -> None:
    found = fetch(downloader, send_forever(start, again))
    assert isinstance(found, Fetched)
    assert found.body == b"z" * CAP
    assert found.truncated
    assert found.wire_bytes < CAP + 64 * 1024  # it downloaded at most one read more


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (CHUNKED + b"0\r\n", b"X-Trailer: and more\r\n" * 999),
        (OK + b"Content-Encoding: gzip\r\n\r\n", gzipped(b"") * 999),
        (OK + b"Content-Encoding: br\r\n\r\n", b"\0" * 9999),
    ],
    ids=["trailers", "empty gzip members", "zeros as brotli"],
)
def test_endless_answer_without_body_bytes_is_cut_off(
    downloader: Downloader, start: bytes, again: bytes
) -> None:
    found = fetch(downloader, send_forever(start, again))
    if isinstance(found, Fetched):
        assert found.truncated
        assert found.body == b""
    else:
        # it was cut by its size; a cut by time is another kind
        assert found.kind in (FailureKind.DECODE, FailureKind.PROTOCOL)


def test_body_of_exactly_the_cap_is_whole(downloader: Downloader) -> None:
    with RawServer(answer(b"z" * CAP)) as server:
        found = downloader.fetch(server.url(), {}, max_body_bytes=CAP, deadline=monotonic() + 9)
    assert isinstance(found, Fetched)
    assert len(found.body) == CAP
    assert not found.truncated


FAST_PEER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sock, _ = listener.accept()
sock.recv(65536)
sock.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
chunks = b"8\\r\\nzzzzzzzz\\r\\n" * 10_000
try:
    while True:
        sock.sendall(chunks)
except ConnectionError:
    pass
"""


def test_fast_endless_peer_does_not_keep_other_greenlets_from_running() -> None:
    hasty = Downloader(LOOPBACK, request_seconds=0.5)
    ticks: list[float] = []

    def tick() -> None:
        while True:
            ticks.append(time.monotonic())
            gevent.sleep(0.005)

    # The peer is a process of its own: one in this process could only send while the hasty one
    # waits.

    # Chunks of eight bytes are read more slowly than they are sent, so there are always more.
    with subprocess.Popen([sys.executable, "-c", FAST_PEER], stdout=subprocess.PIPE) as peer:
        assert peer.stdout is not None
        url = f"http://127.0.0.1:{int(peer.stdout.readline())}/"
        ticker = gevent.spawn(tick)
        found = hasty.fetch(url, {}, max_body_bytes=2**30, deadline=monotonic() + 9)
        ticker.kill()
        hasty.close()
        peer.kill()
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TIMEOUT
    assert len(ticks) > 3, "without its yields there is one"


# -- content-encodings that lie


def gzip_bomb(megabytes: int) -> bytes:
    stream = zlib.compressobj(9, wbits=31)
    return b"".join(stream.compress(bytes(2**20)) for _ in range(megabytes)) + stream.flush()


def zstd_bomb(megabytes: int) -> bytes:
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(stream.compress(bytes(2**20)) for _ in range(megabytes)) + stream.flush()


def test_bombs_of_every_coding_cost_no_more_than_the_cap(downloader: Downloader) -> None:
    bombs = {
        "gzip": gzip_bomb(100),
        "deflate": zlib.compress(bytes(100 * 2**20), 9),
        "br": brotli.compress(bytes(100 * 2**20), quality=5),
        "zstd": zstd_bomb(100),
        "gzip, gzip": gzipped(gzip_bomb(100)),
        "zstd, br": brotli.compress(zstd_bomb(100)),
    }
    for coding, bomb in bombs.items():
        with RawServer(answer(bomb, Content_Encoding=coding)) as server:
            tracemalloc.start()
            began = time.process_time()
            found = downloader.fetch(
                server.url(), {}, max_body_bytes=CAP, deadline=monotonic() + 60
            )
            took = time.process_time() - began
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert isinstance(found, Fetched), found
        assert found.body == bytes(CAP), coding
        assert found.truncated
        assert took < 0.3, coding
        assert peak < 20 * 2**20, coding


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"\x89PNG\r\n\x1a\n"),
        ("gzip", gzipped(b"z" * 5000)[:-12]),
        ("gzip", gzipped(b"")[:15] + b"x" * 9),
        ("gzip", gzipped(b"") * 17),
        ("deflate", b"<p>not deflate</p>"),
        ("deflate", zlib.compress(b"z" * 5000)[:-6]),
        ("br", b"<p>not brotli</p>"),
        ("br", brotli.compress(bytes(range(256)))[:-5]),
        ("zstd", b"<p>not zstd</p>"),
        ("zstd", zstandard.compress(bytes(range(256)) * 9)[:-5]),
        ("gzip, br, gzip", gzipped(brotli.compress(gzipped(b"z")))),
        ("gzip, br", gzipped(b"z")),
    ],
)
def test_body_that_cannot_be_decoded_is_a_failure(
    downloader: Downloader, coding: str, body: bytes
) -> None:
    with RawServer(answer(body, Content_Encoding=coding)) as server:
        found = downloader.fetch(server.url(), {}, max_body_bytes=CAP, deadline=monotonic() + 9)
    assert isinstance(found, Failure), found
    assert (found.kind, found.code) == (FailureKind.DECODE, 200)


def test_text_wrongly_declared_as_gzip_is_kept_as_it_is(downloader: Downloader) -> None:
    for text in (b"<p>not gzip</p>", b"\xd6\xd0\xce\xc4", b"a"):
        for coding in ("gzip", "x-gzip", "none, GZIP"):
            with RawServer(answer(text, Content_Encoding=coding)) as server:
                found = downloader.fetch(
                    server.url(), {}, max_body_bytes=CAP, deadline=monotonic() + 9
                )
            assert isinstance(found, Fetched), found
            assert found.body == text
            assert not found.truncated


def test_zstd_window_beyond_8_mib_is_refused(downloader: Downloader) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = stream.compress(b"z" * 5000) + stream.flush()
    with RawServer(answer(body, Content_Encoding="zstd")) as server:
        found = downloader.fetch(server.url(), {}, max_body_bytes=CAP, deadline=monotonic() + 9)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.DECODE


@pytest.mark.parametrize(
    "behaviour",
    [
        send(b"HTTP/1.1 404 No\r\nContent-Length: 10\r\n\r\nshort"),
        send_then_reset(b"HTTP/1.1 404 No\r\nContent-Length: 10\r\n\r\nshort"),
        send_then_stall(b"HTTP/1.1 404 No\r\nContent-Length: 10\r\n\r\nshort"),
        send_then_stall(
            b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nzz\r\n"
        ),
        send(b"HTTP/1.1 404 No\r\nContent-Encoding: gzip\r\n\r\n\x1fshort"),
    ],
    ids=["short", "reset", "stalled", "bad chunk", "bad gzip"],
)
def test_status_other_than_2xx_is_kept_if_the_body_breaks(
    hasty: Downloader, behaviour: Behaviour
) -> None:
    found = fetch(hasty, behaviour)
    assert isinstance(found, Fetched), found
    assert found.status == 404
    assert found.truncated


def test_switching_protocols_is_a_final_status(downloader: Downloader) -> None:
    data = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\x01\x02"
    found = fetch(downloader, send_then_stall(data, 0.1))
    assert isinstance(found, Fetched)
    assert found.status == 101


def test_a_connection_is_not_used_if_it_was_closed_while_its_request_waited() -> None:
    hang_up = Event()
    served: list[int] = []

    def serve(sock: socket.socket, peer: tuple[str, int]) -> None:
        with sock:
            sock.recv(4096)
            served.append(peer[1])
            sock.sendall(OK + b"Content-Length: 2\r\n\r\nhi")
            hang_up.wait()

    class OpenShares:
        """Let every first request through; a second one waits until the peer is gone."""

        def __init__(self) -> None:
            self.under_way = 0

        def enter(self, *_: object, connect: bool, **__: object) -> OpenShares:
            self.under_way += 1
            if not connect:
                hang_up.set()
                gevent.sleep(0.05)
            return self

        def opened(self) -> None:
            return None

        def end(self) -> None:
            self.under_way -= 1

    listener = socket.create_server(("127.0.0.1", 0))
    server = StreamServer(listener, serve)
    server.start()
    shares = OpenShares()
    downloader = Downloader(LOOPBACK, request_seconds=2, shares=cast(Any, shares))
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        for _ in range(2):
            found = downloader.fetch(url, {}, max_body_bytes=CAP, deadline=monotonic() + 60)
            assert isinstance(found, Fetched), found
        assert len(set(served)) == 2
        assert shares.under_way == 0
    finally:
        downloader.close()
        server.stop(timeout=0.1)
