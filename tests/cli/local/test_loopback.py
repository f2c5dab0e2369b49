"""The browser's way back: one answer that belongs to the request; all other requests are
ignored."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import gevent
import pytest

from greencrawl.cli.local import loopback
from greencrawl.cli.local.loopback import Loopback, is_loopback
from greencrawl.schema.errors import GreencrawlError
from tests.support.ports import free_port


@pytest.fixture
def listening() -> Iterator[Loopback]:
    with Loopback() as opened:
        yield opened


def ask(uri: str, query: str, method: str = "GET", path: str | None = None) -> tuple[int, str]:
    parts = urlsplit(uri)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
    connection.request(method, f"{parts.path if path is None else path}?{query}")
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def expected(url: str) -> bool:
    return "state=right" in url


def test_the_answer_of_the_browser_is_returned_as_the_whole_url(listening: Loopback) -> None:
    waiting = gevent.spawn(listening.wait, expected, 10)
    status, page = ask(listening.uri, "code=a%2Bb&state=right")
    assert status == 200
    assert "close this window" in page
    assert waiting.get() == f"{listening.uri}?code=a%2Bb&state=right"


def test_other_requests_do_not_end_the_wait_for_the_answer_of_the_browser(
    listening: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "READ_SECONDS", 0.3)
    waiting = gevent.spawn(listening.wait, expected, 20)
    parts = urlsplit(listening.uri)
    address = (parts.hostname, parts.port)
    assert ask(listening.uri, "", path="/favicon.ico")[0] == 404
    assert ask(listening.uri, "code=x&state=forged")[0] == 404
    assert ask(listening.uri, "code=x&state=right", method="POST")[0] == 404
    assert ask(listening.uri, "code=x&state=right", path="/callback/other")[0] == 404
    silent = socket.create_connection(address)
    for noise in (b"", b"\x16\x03\x01\x02\x00\x01\xff\xfe\r\n\r\n", b"GET", b"A" * 100_000):
        with socket.create_connection(address) as other:
            other.sendall(noise)
    assert not waiting.ready()
    assert ask(listening.uri, "code=c&state=right")[0] == 200
    assert waiting.get() == f"{listening.uri}?code=c&state=right"
    silent.close()


def test_the_wait_for_the_browser_ends_at_its_timeout(listening: Loopback) -> None:
    with gevent.Timeout(10):
        assert listening.wait(expected, 0.1) is None


def test_a_given_redirect_uri_keeps_its_port_and_path() -> None:
    port = free_port()
    with Loopback(f"http://localhost:{port}/oauth/back") as opened:
        assert opened.uri == f"http://localhost:{port}/oauth/back"
        waiting = gevent.spawn(opened.wait, expected, 10)
        assert ask(f"http://127.0.0.1:{port}/oauth/back", "state=right")[0] == 200
        assert waiting.get() == f"{opened.uri}?state=right"
        with pytest.raises(GreencrawlError, match="cannot listen"):
            Loopback(opened.uri)


@pytest.mark.parametrize(
    "uri",
    [
        "https://127.0.0.1:8400/callback",
        "http://example.org/callback",
        "http://127.0.0.1.example.org/",
        "http://127.0.0.1:99999/",
        "oob",
        "urn:ietf:wg:oauth:2.0:oob",
    ],
)
def test_a_redirect_uri_of_another_machine_is_refused(uri: str) -> None:
    assert not is_loopback(uri)
    with pytest.raises(GreencrawlError, match="--paste"):
        Loopback(uri)
