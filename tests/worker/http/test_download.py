"""The downloader against well-behaved servers: requests, connections, encodings, addresses."""

from __future__ import annotations

import gzip
import ipaddress
import random
import socket as plain_socket
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import brotli
import gevent
import pytest
import zstandard
from gevent import socket
from gevent.monkey import get_original

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.http.client import Downloader, LeaseExpired
from greencrawl.worker.http.dns.system import Lookup
from tests.support.dns_server import DnsServer, Zone
from tests.support.ports import free_port
from tests.support.raw_server import RawServer, answer, send, send_late, send_then_stall

gzipped = partial(gzip.compress, mtime=0)  # the same parameters in each process
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
MEGABYTE = 1_000_000


plain_sleep = get_original("time", "sleep")


@pytest.fixture
def downloader() -> Iterator[Downloader]:
    made = Downloader(LOOPBACK, 5)
    yield made
    made.close()


def names(*answers: str) -> Lookup:
    return lambda name: list(answers)


def get(downloader: Downloader, url: str, **headers: str) -> Fetched:
    found = downloader.fetch(url, headers, max_body_bytes=MEGABYTE, deadline=monotonic() + 60)
    assert isinstance(found, Fetched), found
    return found


def fail(downloader: Downloader, url: str, cap: int = MEGABYTE, **headers: str) -> Failure:
    found = downloader.fetch(url, headers, max_body_bytes=cap, deadline=monotonic() + 60)
    assert isinstance(found, Failure), found
    return found


def test_answer_is_recorded_with_all_its_fields(downloader: Downloader) -> None:
    with RawServer(answer(b"hello", Content_Type="text/plain", X_Name="\xe9")) as server:
        found = get(downloader, server.url("/a?b=c"))
    assert found.status == 200
    assert found.body == b"hello"
    assert found.url == server.url("/a?b=c")
    assert found.headers == {"content-length": "5", "content-type": "text/plain", "x-name": "é"}
    assert found.address == "127.0.0.1"
    assert found.wire_bytes == 5
    assert not found.truncated
    assert found.fetched_ms > 1_600_000_000_000
    assert 0 <= found.elapsed_ms < 1000


def test_request_carries_host_encodings_and_given_headers_once(downloader: Downloader) -> None:
    with RawServer(answer()) as server:
        downloader.fetch(
            server.url("/p?q=1#part"),
            {"User-Agent": "greencrawl/0.1", "Accept": "text/plain"},
            max_body_bytes=MEGABYTE,
            deadline=monotonic() + 60,
        )
        lines = server.requests[0].split("\r\n")
    assert lines[0] == "GET /p?q=1 HTTP/1.1"
    assert sorted(lines[1:5]) == [
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Accept: text/plain",
        f"Host: 127.0.0.1:{server.port}",
        "User-Agent: greencrawl/0.1",
    ]
    assert lines[5:] == ["", ""]


@pytest.mark.parametrize(
    "headers",
    [{"X": "a\r\nInjected: 1"}, {"X\n": "a"}, {"Host": "other.example"}, {"X": "中"}, {"": "a"}],
)
def test_header_that_http_does_not_allow_is_never_sent(
    downloader: Downloader, headers: dict[str, str]
) -> None:
    with RawServer(answer()) as server:
        found = downloader.fetch(server.url(), headers, max_body_bytes=1, deadline=monotonic() + 9)
        assert server.connections == 0
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.HOOK
    assert found.requests == 0


@pytest.mark.parametrize(
    "url", ["ftp://a/", "http://a", "http://a/b c", "http://é.example/", "//a/"]
)
def test_url_that_is_not_canonical_raises(downloader: Downloader, url: str) -> None:
    with pytest.raises(InvalidUrl):
        downloader.fetch(url, {}, max_body_bytes=1, deadline=monotonic() + 9)


def test_redirect_is_returned_and_not_followed(downloader: Downloader) -> None:
    with RawServer(answer(b"", "302 Found", Location="/b")) as server:
        found = get(downloader, server.url("/a"))
        assert (found.status, found.headers["location"]) == (302, "/b")
        assert server.paths == ["/a"]


def test_repeated_headers_are_joined_and_names_lowered(downloader: Downloader) -> None:
    data = (
        b"HTTP/1.1 200 OK\r\nX-Robots-TAG: a\r\nx-robots-tag: b\r\nE:\r\nContent-Length: 0\r\n\r\n"
    )
    with RawServer(send(*(bytes([byte]) for byte in data))) as server:
        found = get(downloader, server.url())
    assert found.headers == {"x-robots-tag": "a, b", "e": "", "content-length": "0"}


def test_body_is_sent_with_its_length_and_the_connection_kept(downloader: Downloader) -> None:
    def ask(method: str, body: bytes, **headers: str) -> Fetched:
        limit = monotonic() + 60
        found = downloader.fetch(
            server.url("/in"),
            headers,
            max_body_bytes=MEGABYTE,
            deadline=limit,
            method=method,
            body=body,
        )
        assert isinstance(found, Fetched), found
        return found

    with RawServer(answer(b"hello")) as server:
        sent = b"name=ann&password=%00\r\n\r\n" * 20_000
        found = ask("POST", sent, **{"Content-Type": "application/x-www-form-urlencoded"})
        assert (found.status, found.body) == (200, b"hello")
        ask("POST", b"")
        ask("DELETE", b"")
        assert [head.split(" ")[0] for head in server.requests] == ["POST", "POST", "DELETE"]
        assert server.bodies == [sent, b"", b""]
        lengths = [
            [line for line in head.split("\r\n") if line.lower().startswith("content-length")]
            for head in server.requests
        ]
        assert lengths == [[f"Content-Length: {len(sent)}"], ["Content-Length: 0"], []]
        assert server.connections == 1


def test_answer_to_head_has_no_body_whatever_it_announces(downloader: Downloader) -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\n"
    with RawServer(send(data, keep=True)) as server:
        for _ in range(2):
            found = downloader.fetch(
                server.url(), {}, max_body_bytes=9, deadline=monotonic() + 9, method="HEAD"
            )
            assert isinstance(found, Fetched), found
            assert (found.status, found.body, found.truncated) == (200, b"", False)
        assert server.connections == 1


def test_cookies_of_an_answer_are_listed_separately(downloader: Downloader) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nSet-Cookie: early=1\r\n\r\n"
    final = (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Expires=Wed, 09 Jun 2100 10:18:14 GMT\r\n"
        b"X: y\r\nset-cookie: b=\xe9, c=3\r\nContent-Length: 0\r\n\r\n"
    )
    with RawServer(send(early + final)) as server:
        found = get(downloader, server.url())
    assert found.cookies == ("a=1; Expires=Wed, 09 Jun 2100 10:18:14 GMT", "b=é, c=3")
    assert found.headers["set-cookie"] == ", ".join(found.cookies)
    with RawServer(answer()) as server:
        assert get(downloader, server.url()).cookies == ()


def test_interim_answers_are_passed_over(downloader: Downloader) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    for pieces in ((early + final,), (early, final)):
        with RawServer(send(*pieces)) as server:
            found = get(downloader, server.url())
        assert (found.status, found.body, found.headers) == (200, b"ok", {"content-length": "2"})


def test_http_1_0_body_without_length_ends_with_the_connection(downloader: Downloader) -> None:
    with RawServer(send(b"HTTP/1.0 200 OK\r\n\r\n", b"to the ", b"end")) as server:
        found = get(downloader, server.url())
    assert found.body == b"to the end"
    assert not found.truncated


def test_chunked_body_is_put_together_and_its_trailer_ignored(downloader: Downloader) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nX-Trailer: 1\r\n\r\n"
    with RawServer(send(head, body, keep=True)) as server:
        for _ in range(2):
            found = get(downloader, server.url())
            assert found.body == b"abcdefg"
            assert "x-trailer" not in found.headers
        assert server.connections == 1


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answer_without_body_needs_no_length(downloader: Downloader, status: str) -> None:
    data = f"HTTP/1.1 {status}\r\nContent-Encoding: gzip\r\n\r\n".encode()
    with RawServer(send(data, keep=True)) as server:
        for _ in range(2):
            assert get(downloader, server.url()).body == b""
        assert server.connections == 1


# -- content-encodings

PAGE = b"<p>page</p>" * 1000


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzipped(PAGE)),
        ("x-gzip", gzipped(PAGE[:99]) + gzipped(PAGE[99:])),
        ("gzip", gzipped(PAGE) + b"\0\0\0"),
        ("deflate", zlib.compress(PAGE)),
        ("deflate", raw_deflate(PAGE)),
        ("br", brotli.compress(PAGE)),
        ("zstd", zstandard.compress(PAGE)),
        ("zstd", zstandard.compress(PAGE) + b"\0" * 300),
        ("deflate, gzip", gzipped(zlib.compress(PAGE))),
        ("identity", PAGE),
        ("utf-8", PAGE),
    ],
)
def test_content_encoding_is_undone(downloader: Downloader, coding: str, body: bytes) -> None:
    with RawServer(answer(body, Content_Encoding=coding)) as server:
        found = get(downloader, server.url())
    assert found.body == PAGE
    assert found.wire_bytes == len(body)
    assert not found.truncated


# -- connections


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_large_body_comes_back_packed_if_the_caller_wants_it(
    downloader: Downloader, coding: str
) -> None:
    body = b"<urlset>" * 300_000
    sent = gzipped(body) if coding else body
    fields = {"Content_Encoding": coding} if coding else {}
    for status, pack, packed in (("200 OK", True, len(body)), ("200 OK", False, 0),
                                 ("404 Not Found", True, 0)):  # fmt: skip
        with RawServer(answer(sent, status, **fields)) as server:
            found = downloader.fetch(
                server.url("/"), {}, max_body_bytes=50 * MEGABYTE, deadline=monotonic() + 60,
                pack=pack,
            )  # fmt: skip
        assert isinstance(found, Fetched)
        assert (found.packed, found.truncated, found.wire_bytes) == (packed, False, len(sent))
        found.unpack(50 * MEGABYTE)
        assert found.body == body


def test_gzipped_body_that_stays_packed_is_received_up_to_a_bound(
    downloader: Downloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.http.receiving.MAX_CAME_BYTES", 200_000)
    sent = gzip.compress(random.Random(3).randbytes(2_000_000))
    for fields in ({"Content_Encoding": "gzip"}, {}):
        with RawServer(answer(sent, **fields)) as server:
            found = downloader.fetch(
                server.url("/"), {}, max_body_bytes=50 * MEGABYTE, deadline=monotonic() + 60,
                pack=True,
            )  # fmt: skip
        assert isinstance(found, Fetched)
        assert found.truncated
        assert 200_000 < found.wire_bytes < 400_000


def test_connection_is_kept_and_used_again(downloader: Downloader) -> None:
    with RawServer(answer(b"x")) as server:
        for _ in range(3):
            get(downloader, server.url())
        assert (server.connections, len(server.requests)) == (1, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxjunk",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
        b"HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nbad",
    ],
    ids=["close", "http/1.0", "junk after", "second answer after"],
)
def test_connection_is_not_used_again_after_a_close_or_extra_bytes(
    downloader: Downloader, data: bytes
) -> None:
    with RawServer(send(data, keep=True)) as server:
        for _ in range(2):
            found = get(downloader, server.url())
            assert (found.status, found.body) == (200, b"x")
        assert server.connections == 2


def test_connection_that_died_while_idle_is_replaced_without_a_second_request(
    downloader: Downloader,
) -> None:
    with RawServer(send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")) as server:
        get(downloader, server.url("/1"))
        gevent.sleep(0.02)  # the server closes
        get(downloader, server.url("/2"))
        assert server.paths == ["/1", "/2"]
        assert server.connections == 2


def test_connection_lost_under_a_request_is_one_request_and_a_reset(
    downloader: Downloader,
) -> None:
    behaviours = {"/1": answer(b"x"), "/2": lambda sock: None}
    with RawServer(behaviours) as server:
        get(downloader, server.url("/1"))
        failure = fail(downloader, server.url("/2"))
        gevent.sleep(0.05)
        assert server.paths == ["/1", "/2"]
        assert server.connections == 1
    assert (failure.kind, failure.requests) == (FailureKind.RESET, 1)


def test_idle_connections_are_bounded_and_close_when_idle_for_long() -> None:
    downloader = Downloader(LOOPBACK, 5, max_idle=2, idle_seconds=0.1)
    servers = [RawServer(answer(b"x")) for _ in range(3)]
    for server in servers:
        with server:
            get(downloader, server.url())
    assert downloader.idle_connections == 2
    gevent.sleep(0.2)
    assert downloader.idle_connections == 0
    downloader.close()


def test_close_closes_idle_connections_and_keeps_no_new_ones(downloader: Downloader) -> None:
    with RawServer(answer(b"x")) as server:
        get(downloader, server.url())
        downloader.close()
        assert downloader.idle_connections == 0
        get(downloader, server.url())
        assert downloader.idle_connections == 0


def test_killed_greenlet_leaves_no_half_read_connection_behind(downloader: Downloader) -> None:
    stall = send_then_stall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
    with RawServer({"/slow": stall, "/": answer(b"clean")}) as server:
        greenlet = gevent.spawn(get, downloader, server.url("/slow"))
        gevent.sleep(0.05)
        greenlet.kill()
        assert downloader.idle_connections == 0
        assert get(downloader, server.url("/")).body == b"clean"


@pytest.mark.parametrize("pause", [0.25, 0.6], ids=["before its timer rings", "after"])
def test_each_request_on_a_kept_connection_has_the_whole_time(pause: float) -> None:
    late = send_late(0.3, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
    behaviours = {"/": answer(b"x"), "/late": late, "/never": send_then_stall(b"")}
    downloader = Downloader(LOOPBACK, 0.4)
    with RawServer(behaviours) as server:
        get(downloader, server.url("/"))
        gevent.sleep(pause)
        assert get(downloader, server.url("/late")).body == b"late"
        gevent.sleep(pause)
        began = monotonic()
        assert fail(downloader, server.url("/never")).kind is FailureKind.TIMEOUT
        assert 0.4 <= monotonic() - began < 2
        assert (server.connections, len(server.requests)) == (1, 3)
    downloader.close()


@pytest.mark.parametrize("size", [4, 400_000], ids=["small", "large"])
def test_time_in_which_the_process_was_frozen_does_not_count_against_the_peer(size: int) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode()
    behaviours = {"/late": send_late(0.3, head + bytes(size)), "/never": send_then_stall(b"")}
    downloader = Downloader(LOOPBACK, 0.4)

    def frozen(seconds: float) -> None:
        gevent.sleep(0.1)
        plain_sleep(seconds)  # it freezes the whole process

    with RawServer(behaviours) as server:
        gevent.spawn(frozen, 1.0)
        assert len(get(downloader, server.url("/late")).body) == size
        gevent.spawn(frozen, 1.0)
        began = monotonic()
        assert fail(downloader, server.url("/never")).kind is FailureKind.TIMEOUT
        assert 1.1 < monotonic() - began < 2, "for what has not come nobody waits longer"
    downloader.close()


def test_body_that_no_socket_buffer_holds_is_sent_whole(downloader: Downloader) -> None:
    sent = bytes(range(256)) * 40_000
    with RawServer(answer(b"had it")) as server:
        found = downloader.fetch(
            server.url(), {}, max_body_bytes=9, deadline=monotonic() + 9, method="POST", body=sent
        )
        assert server.bodies == [sent]
    assert isinstance(found, Fetched), found
    assert found.body == b"had it"


def test_body_that_the_peer_does_not_read_is_a_timeout() -> None:
    downloader = Downloader(LOOPBACK, 0.4)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, nobody reads
        began = monotonic()
        found = downloader.fetch(
            f"http://127.0.0.1:{listener.getsockname()[1]}/", {}, max_body_bytes=9,
            deadline=began + 9, method="POST", body=bytes(20_000_000),
        )  # fmt: skip
    assert isinstance(found, Failure)
    assert (found.kind, found.requests) == (FailureKind.TIMEOUT, 1)
    assert monotonic() - began < 2
    downloader.close()


def test_expired_lease_sends_nothing(downloader: Downloader) -> None:
    with RawServer(answer()) as server:
        with pytest.raises(LeaseExpired):
            downloader.fetch(server.url(), {}, max_body_bytes=1, deadline=monotonic() - 0.001)
        gevent.sleep(0.02)
        assert server.requests == []


def test_lease_that_expires_while_connecting_sends_nothing() -> None:
    def slow(name: str) -> Sequence[str]:
        threading.Event().wait(0.1)
        return ["127.0.0.1"]

    downloader = Downloader(LOOPBACK, 5, resolver=slow)
    with RawServer(answer()) as server:
        with pytest.raises(LeaseExpired):
            downloader.fetch(
                server.url(name="slow.example"), {}, max_body_bytes=1, deadline=monotonic() + 0.05
            )
        assert server.requests == []
    downloader.close()


# -- addresses


def test_loopback_is_refused_unless_it_is_allowed() -> None:
    downloader = Downloader()
    with RawServer(answer()) as server:
        for url in (server.url(), server.url(name="localhost"), server.url(name="[::1]")):
            failure = fail(downloader, url)
            assert failure.kind is FailureKind.ADDRESS_FORBIDDEN
            assert failure.requests == 0
        assert server.connections == 0
    downloader.close()


def test_a_name_server_is_asked_and_its_answer_judged_and_kept() -> None:
    zones = {"a.test": Zone(("127.0.0.1",)), "b.test": Zone(("127.0.0.1", "10.0.0.1"))}
    with DnsServer(zones) as dns, RawServer(answer()) as server:
        downloader = Downloader(LOOPBACK, 5, dns_servers=[dns.address])
        for name in ("www.a.test", "www.a.test", "b.test"):
            get(downloader, server.url(name=name))
        for head, name in zip(server.requests, ("www.a.test", "www.a.test", "b.test"), strict=True):
            assert f"host: {name}:{server.port}" in head.lower()
        assert sorted(dns.asked) == ["b.test A", "b.test AAAA", "www.a.test A", "www.a.test AAAA"]
        downloader.close()
        strict = Downloader((), 5, dns_servers=[dns.address])
        failure = fail(strict, server.url(name="b.test"))
        assert failure.kind is FailureKind.ADDRESS_FORBIDDEN
        assert len(server.requests) == 3
        strict.close()


def test_rebinding_name_reaches_the_judged_address_only_and_keeps_its_host_header() -> None:
    asked: list[str] = []

    def rebind(name: str) -> Sequence[str]:
        asked.append(name)
        return ["127.0.0.7", "127.0.0.1"] if len(asked) == 1 else ["127.0.0.7"]

    allow = [ipaddress.ip_network("127.0.0.1/32")]
    downloader = Downloader(allow, 5, resolver=rebind)
    with RawServer(answer()) as judged:
        for _ in range(2):
            found = get(downloader, judged.url(name="rebind.example"))
            assert found.address == "127.0.0.1"
        assert f"Host: rebind.example:{judged.port}" in judged.requests[0]
    assert asked == ["rebind.example"]
    downloader.close()


def test_idle_connection_is_not_used_if_its_name_has_a_new_address() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    clock = [monotonic()]
    downloader = Downloader(
        LOOPBACK, 5, resolver=lambda name: answers.pop(0), clock=lambda: clock[0], idle_seconds=1e6
    )
    with RawServer(answer(), host="0.0.0.0") as server:
        url = server.url(name="moving.example")
        for expected in ("127.0.0.1", "127.0.0.2"):
            found = downloader.fetch(url, {}, max_body_bytes=9, deadline=clock[0] + 60)
            assert isinstance(found, Fetched)
            assert found.address == expected
            clock[0] += 301
        assert server.connections == 2
    downloader.close()


def test_next_address_is_tried_when_one_refuses() -> None:
    with RawServer(answer(b"ok"), host="127.0.0.1") as server:
        downloader = Downloader(LOOPBACK, 5, resolver=names("::1", "127.0.0.5", "127.0.0.1"))
        found = get(downloader, server.url(name="many.example"))
        assert (found.body, found.address) == (b"ok", "127.0.0.1")
        downloader.close()


def test_ipv6_literal_is_fetched_with_brackets_in_its_host_header(downloader: Downloader) -> None:
    with RawServer(answer(b"six"), host="::1") as server:
        found = get(downloader, server.url())
        assert (found.body, found.address) == (b"six", "::1")
        assert f"Host: [::1]:{server.port}\r\n" in server.requests[0]


@pytest.mark.parametrize("port", [3306, 5432, 6379, 9200, 11211, 27017])
def test_ports_of_databases_are_refused_unless_an_operator_allows_them(port: int) -> None:
    tried = 0

    def nobody(name: str) -> list[str]:
        nonlocal tried
        tried += 1
        return ["192.0.2.1"]

    for allowed in ((), (port,)):
        made = Downloader((), 5, resolver=nobody, allow_ports=allowed)
        try:
            url = f"http://db.example:{port}/"
            found = made.fetch(url, {}, max_body_bytes=MEGABYTE, deadline=monotonic() + 60)
            assert isinstance(found, Failure)
            assert ("GREENCRAWL_ALLOW_PORTS" in found.detail) is (not allowed)
            assert tried == len(allowed), "looked up only where it is allowed"
        finally:
            made.close()


@pytest.mark.parametrize("port", [0, 22, 25, 6667, 10080])
def test_port_of_another_protocol_is_refused(downloader: Downloader, port: int) -> None:
    failure = fail(downloader, f"http://127.0.0.1:{port}/")
    assert failure.kind is FailureKind.ADDRESS_FORBIDDEN
    assert str(port) in failure.detail
    assert failure.requests == 0


def test_failure_of_a_refused_connection_names_the_address(downloader: Downloader) -> None:
    failure = fail(downloader, f"http://127.0.0.1:{free_port()}/")
    assert (failure.kind, failure.requests) == (FailureKind.REFUSED, 0)
    assert "127.0.0.1" in failure.detail


@contextmanager
def deaf(host: str, port: int = 0) -> Iterator[int]:
    """Serve a port whose queue of waiting connections is full."""
    with socket.socket() as listener:
        listener.bind((host, port))
        listener.listen(0)
        held = [socket.socket() for _ in range(4)]
        for sock in held:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        gevent.sleep(0.05)
        yield listener.getsockname()[1]
        for sock in held:
            sock.close()


def test_connection_that_nobody_accepts_times_out() -> None:
    downloader = Downloader(LOOPBACK, 5, connect_seconds=0.2)
    with deaf("127.0.0.1") as port:
        failure = fail(downloader, f"http://127.0.0.1:{port}/")
    assert (failure.kind, failure.requests) == (FailureKind.CONNECT_TIMEOUT, 0)
    downloader.close()


def test_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    both = names("127.0.0.5", "127.0.0.1")
    downloader = Downloader(LOOPBACK, 5, connect_seconds=0.4, resolver=both)
    with RawServer(answer(b"ok")) as server, deaf("127.0.0.5", server.port):
        found = get(downloader, server.url(name="half-dead.example"))
    assert (found.body, found.address) == (b"ok", "127.0.0.1")
    downloader.close()


def test_missing_host_name_is_a_failure_of_its_own_kind() -> None:
    def missing(name: str) -> Sequence[str]:
        raise plain_socket.gaierror(plain_socket.EAI_NONAME, "Name or service not known")

    unlucky = Downloader(LOOPBACK, 5, resolver=missing)
    failure = fail(unlucky, "http://nowhere.example/")
    assert (failure.kind, failure.requests) == (FailureKind.DNS_MISSING, 0)
    unlucky.close()
