"""What a request failed of, in plain words: each kind of failure is made to happen."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import requests
from gevent import ssl

from greencrawl.cli.reading.failed import reason
from tests.support.certificates import authority, signed
from tests.support.ports import free_port
from tests.support.raw_server import (
    Behaviour,
    RawServer,
    answer,
    send,
    send_then_reset,
    send_then_stall,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"


def failed(url: str, seconds: float = 10.0, proxy: str = "") -> str:
    """Return the words for the failure of a request; only a given proxy is used."""
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": proxy} if proxy else {}
        with pytest.raises((requests.RequestException, ValueError)) as caught:
            session.get(url, timeout=seconds).raise_for_status()
    return reason(caught.value)


def test_a_port_on_which_nothing_listens_refused_the_connection() -> None:
    assert failed(f"http://127.0.0.1:{free_port()}/") == "connection refused"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (socket.EAI_NONAME, "host name does not exist"),
        (socket.EAI_NODATA, "host name does not exist"),
        (socket.EAI_AGAIN, "DNS does not answer"),
    ],
)
def test_a_name_that_does_not_exist_is_told_from_one_that_nobody_answers_for(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def look_up(*_given: object, **_named: object) -> None:
        raise socket.gaierror(code, "as the system's resolver says it")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert failed("http://site.example/") == said


def test_a_server_that_accepts_no_connection_in_time_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        try:
            url = f"http://127.0.0.1:{full.getsockname()[1]}/"
            assert failed(url, 0.3) == "no connection in time"
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (send_then_stall(b""), "too slow"),
        (send_then_stall(HEAD + b"\r\nabc"), "too slow"),
        (send(b""), "connection lost"),
        (send(HEAD + b"\r\nabc"), "connection lost"),
        (send_then_reset(HEAD + b"\r\nabc"), "connection lost"),
        (send(b"SSH-2.0-server\r\n"), "not HTTP"),
        (send(HEAD + b"Content-Encoding: gzip\r\n\r\nno gzip 9"), "content cannot be decoded"),
        (answer(status="503 Busy"), "the server answered 503"),
        (answer(status="302 Found", Location="/"), "too many redirects"),
        (
            answer(status="302 Found", Location="ftp://a.example/"),
            "not a URL that can be requested",
        ),
    ],
)
def test_an_invalid_answer_is_named_in_the_words_of_the_crawler(
    behaviour: Behaviour, said: str
) -> None:
    with RawServer(behaviour) as server:
        assert failed(server.url(), 0.5) == said


def test_a_certificate_that_nobody_trusts_is_named(tmp_path: Path) -> None:
    certificate, key = signed(authority(tmp_path), "a", address="127.0.0.1")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    with RawServer(answer(), tls=serving) as server:
        said = failed(server.url())
    assert said.startswith("TLS failed: unable to get local issuer certificate")


@pytest.mark.parametrize("url", ["http://[::1", "https://.", "http://a.example:port/"])
def test_a_text_that_is_no_url_is_named_as_such(url: str) -> None:
    assert failed(url) == "not a URL that can be requested"


def test_an_address_without_a_route_is_unreachable() -> None:
    assert failed("http://255.255.255.255/").startswith("unreachable: ")


def test_a_proxy_that_does_not_answer_is_named_as_one() -> None:
    said = failed("http://site.example/", proxy=f"http://127.0.0.1:{free_port()}")
    assert said == "the proxy: connection refused"
