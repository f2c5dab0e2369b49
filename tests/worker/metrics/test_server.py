"""The small server of metrics: whom it serves, what, and for how long."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.settings import load
from greencrawl.worker.metrics import server as serving
from greencrawl.worker.metrics import tallies
from greencrawl.worker.metrics.exporter import Exporter, check_settings
from greencrawl.worker.metrics.families import WorkerCollector
from greencrawl.worker.metrics.server import MetricsServer
from tests.support.certificates import authority, signed

Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def served(
    folder: Path, *tokens: str, tls: ssl.SSLContext | None = None, seconds: float = 5.0
) -> Iterator[int]:
    """Serve one worker's metrics; yield the port."""
    tallies.create(tallies.file_of(folder / "worker", "w", 0))
    collector = WorkerCollector(load({}, worker_id="w", data=str(folder)), folder / "worker")
    listening = socket.create_server(("127.0.0.1", 0))
    server = MetricsServer(listening, collector, tokens, tls, seconds=seconds)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.shutdown()
        server.server_close()


def ask(port: int, method: str = "GET", path: str = "/metrics", **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def test_an_exporter_without_tokens_serves_this_machine_but_no_web_page(tmp_path: Path) -> None:
    with served(tmp_path, "", "") as port:
        status, headers, body = ask(port)
        assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
        assert b"\ngreencrawl_worker_processes " in body
        status, headers, body = ask(port, Accept="application/openmetrics-text; version=1.0.0")
        assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert body.endswith(b"# EOF\n")
        status, headers, body = ask(port, "HEAD")
        assert (status, body) == (200, b"")
        assert ask(port, path="/")[0] == 404
        assert ask(port, "POST")[0] == 501
        assert ask(port, Host="evil.example")[0] == 403
        assert ask(port, Origin="https://evil.example")[0] == 403


def test_an_exporter_with_tokens_asks_for_one_of_them(tmp_path: Path) -> None:
    with served(tmp_path, "worker-secret", "") as port:
        status, headers, body = ask(port)
        assert (status, headers.get("WWW-Authenticate")) == (401, 'Bearer realm="greencrawl"')
        assert b"greencrawl_" not in body
        for wrong in ("Bearer wrong", "Bearer ", "worker-secret", "Basic worker-secret"):
            assert ask(port, Authorization=wrong)[0] == 401
        right = "Bearer worker-secret"
        assert ask(port, Authorization=right, Host="worker.internal:8766")[0] == 200
    with served(tmp_path, "worker-secret", "admin-secret") as port:
        assert ask(port, Authorization="Bearer admin-secret")[0] == 200


def test_a_slow_client_of_the_exporter_is_cut_off_and_holds_up_no_other(tmp_path: Path) -> None:
    with (
        served(tmp_path, seconds=0.3) as port,
        socket.create_connection(("127.0.0.1", port)) as slow,
    ):
        slow.sendall(b"GET /metrics HTTP/1.0\r\nHost: ")
        assert ask(port)[0] == 200
        slow.settimeout(5)
        began = time.monotonic()
        with suppress(TimeoutError):
            while slow.recv(1000):
                pass
        assert time.monotonic() - began < 2


def test_the_exporter_refuses_more_than_a_few_connections_at_once(tmp_path: Path) -> None:
    with served(tmp_path, seconds=0.5) as port:
        held = [
            socket.create_connection(("127.0.0.1", port)) for _ in range(serving.MOST_CONNECTIONS)
        ]
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(port)
        for one in held:
            one.close()
        until = time.monotonic() + 5
        while True:
            try:
                assert ask(port)[0] == 200
                break
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < until, "no room again"
                time.sleep(0.02)


def test_an_exporter_with_a_certificate_speaks_tls_and_cuts_off_silent_clients(
    tmp_path: Path,
) -> None:
    ca = authority(tmp_path / "ca")
    certificate, key = signed(ca, "server", address="127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with served(tmp_path, tls=context, seconds=0.5) as port:
        client = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=client, timeout=5)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert (answer.status, b"greencrawl_worker_processes" in answer.read()) == (200, True)
        connection.close()
        with socket.create_connection(("127.0.0.1", port), timeout=5) as silent:
            assert silent.recv(1) == b""


def test_the_exporter_serves_the_network_only_with_a_token() -> None:
    check_settings(load({}))
    check_settings(load({}, metrics_bind="127.0.0.1:0"))
    check_settings(load({}, metrics_bind="0.0.0.0:0", worker_token="t"))
    with pytest.raises(InvalidConfig, match=r"0\.0\.0\.0 is not loopback"):
        Exporter(load({}, metrics_bind="0.0.0.0:0"), lock=-1)


def test_an_unusable_address_or_certificate_of_the_exporter_is_a_wrong_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(InvalidConfig, match=f"METRICS_BIND.*{bind}"):
            Exporter(load({}, metrics_bind=bind), lock=-1)
    with pytest.raises(InvalidConfig, match="TLS_CERT"):
        Exporter(
            load({}, metrics_bind="127.0.0.1:0", tls_cert="/nowhere", tls_key="/nowhere"), lock=-1
        )
    with pytest.raises(InvalidConfig, match="METRICS_BIND"):
        load({}, metrics_bind="8766")
