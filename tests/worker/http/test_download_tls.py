"""The downloader over TLS: it checks names against certificates, whatever the address."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gevent import socket, ssl

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.metrics.table import SLOT
from greencrawl.worker.metrics.tallies import Tallies
from tests.support.raw_server import RawServer, answer, send_then_stall

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a self-signed certificate for site.example, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = f"""openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2
        -subj /CN=site.example -addext subjectAltName=DNS:site.example
        -keyout {folder}/key.pem -out {folder}/cert.pem"""
    subprocess.run(command.split(), check=True, capture_output=True)
    return folder


@pytest.fixture
def serving(certificates: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    return context


@pytest.fixture
def trusting(certificates: Path) -> Iterator[Downloader]:
    """Make a downloader that trusts the certificate and resolves every name to 127.0.0.1."""
    context = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    made = Downloader(
        LOOPBACK, 60, connect_seconds=5, resolver=lambda name: ["127.0.0.1"], tls=context
    )
    yield made
    made.close()


def fetch(downloader: Downloader, url: str) -> Fetched | Failure:
    return downloader.fetch(url, {}, max_body_bytes=1000, deadline=monotonic() + 60)


def test_certificate_of_the_name_is_accepted_and_the_connection_kept(
    serving: ssl.SSLContext, trusting: Downloader
) -> None:
    seen: list[str | None] = []
    serving.sni_callback = lambda sock, name, context: seen.append(name)
    with RawServer(answer(b"secret"), tls=serving) as server:
        for _ in range(3):
            found = fetch(trusting, server.url(name="site.example"))
            assert isinstance(found, Fetched), found
            assert (found.body, found.address) == (b"secret", "127.0.0.1")
        assert (server.connections, len(server.requests)) == (1, 3)
    assert seen == ["site.example"]


def test_handshakes_connections_and_look_ups_are_counted_with_their_time(
    serving: ssl.SSLContext, certificates: Path
) -> None:
    context = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    counted = Tallies()
    names = iter((["127.0.0.1"], ["127.0.0.1"]))
    downloader = Downloader(
        LOOPBACK, 60, resolver=lambda name: next(names), tls=context, tallies=counted
    )

    def counts(*names: str) -> list[float]:
        return [counted.get(SLOT[name]) for name in names]

    try:
        with RawServer(answer(b"secret"), tls=serving) as server:
            for _ in range(3):
                fetch(downloader, server.url(name="site.example"))
            assert isinstance(fetch(downloader, server.url(name="other.example")), Failure)
    finally:
        downloader.close()
    assert counts("requests", "received_bytes") == [3, 18]
    assert counts("connections", "tls_handshakes", "dns_lookups") == [1, 1, 2]
    assert all(0 < seconds < 5 for seconds in counts("tls_handshake_seconds", "dns_lookup_seconds"))


@pytest.mark.parametrize("name", ["other.example", "127.0.0.1"])
def test_certificate_of_another_name_is_a_tls_failure(
    serving: ssl.SSLContext, trusting: Downloader, name: str
) -> None:
    with RawServer(answer(), tls=serving) as server:
        found = fetch(trusting, server.url(name=name))
        assert server.requests == []
    assert isinstance(found, Failure)
    assert (found.kind, found.requests) == (FailureKind.TLS, 0)
    assert name in found.detail


def test_self_signed_certificate_is_a_tls_failure(serving: ssl.SSLContext) -> None:
    downloader = Downloader(LOOPBACK, 5, resolver=lambda name: ["127.0.0.1"])
    with RawServer(answer(), tls=serving) as server:
        found = fetch(downloader, server.url(name="site.example"))
        assert server.requests == []
    downloader.close()
    assert isinstance(found, Failure)
    assert (found.kind, found.requests) == (FailureKind.TLS, 0)
    assert "self-signed" in found.detail


def test_large_bodies_are_sent_and_received_over_one_tls_connection(
    serving: ssl.SSLContext, trusting: Downloader
) -> None:
    sent = bytes(range(256)) * 40_000
    with RawServer(answer(sent), tls=serving) as server:
        for _ in range(2):
            found = trusting.fetch(
                server.url(name="site.example"),
                {},
                max_body_bytes=len(sent),
                deadline=monotonic() + 60,
                method="POST",
                body=sent,
            )
            assert isinstance(found, Fetched), found
            assert found.body == sent
        assert server.bodies == [sent, sent]
        assert server.connections == 1


def test_answer_that_stalls_inside_tls_is_a_timeout(
    certificates: Path, serving: ssl.SSLContext
) -> None:
    context = ssl.create_default_context(cafile=str(certificates / "cert.pem"))
    downloader = Downloader(LOOPBACK, 0.4, resolver=lambda name: ["127.0.0.1"], tls=context)
    half = send_then_stall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    with RawServer({"/": answer(b"x"), "/half": half}, tls=serving) as server:
        assert isinstance(fetch(downloader, server.url("/", "site.example")), Fetched)
        began = monotonic()
        found = fetch(downloader, server.url("/half", "site.example"))
        assert 0.4 <= monotonic() - began < 2
        assert server.connections == 1
    downloader.close()
    assert isinstance(found, Failure)
    assert (found.kind, found.code) == (FailureKind.TIMEOUT, 200)


def test_server_without_tls_is_a_failure_without_a_request() -> None:
    downloader = Downloader(LOOPBACK, 5, connect_seconds=1)
    with RawServer(lambda sock: None) as server:
        found = fetch(downloader, f"https://127.0.0.1:{server.port}/")
    downloader.close()
    assert isinstance(found, Failure)
    assert found.kind in (FailureKind.TLS, FailureKind.RESET, FailureKind.CONNECT_TIMEOUT)
    assert found.requests == 0


def test_handshake_that_stalls_is_a_connect_timeout() -> None:
    downloader = Downloader(LOOPBACK, 5, connect_seconds=0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)  # the kernel accepts, nobody answers
        found = fetch(downloader, f"https://127.0.0.1:{listener.getsockname()[1]}/")
    downloader.close()
    assert isinstance(found, Failure)
    assert (found.kind, found.requests) == (FailureKind.CONNECT_TIMEOUT, 0)
