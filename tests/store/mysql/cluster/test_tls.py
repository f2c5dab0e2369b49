"""TLS to the store's servers: verified against the CA that the URL names, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from greencrawl.schema.errors import Unavailable
from greencrawl.store.mysql.cluster.topology import Topology, parse
from greencrawl.store.mysql.connection import connect
from tests.support.certificates import authority, signed
from tests.support.mariadb import MariaDb


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def ca(folder: Path) -> Path:
    return authority(folder / "ca")


@pytest.fixture(scope="module")
def server(folder: Path, ca: Path) -> Iterator[MariaDb]:
    """A server with a certificate for 127.0.0.1."""
    certificate, key = signed(ca, "server", address="127.0.0.1")
    made = MariaDb(
        folder / "db", f"--ssl-ca={ca}", f"--ssl-cert={certificate}", f"--ssl-key={key}"
    ).start()
    yield made
    made.stop()


def cipher(topology: Topology) -> str:
    """Return the server's TLS version of the connection; "" without TLS."""
    connection = connect(topology, topology.masters[0])
    with connection, connection.cursor() as db:
        db.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return str((db.fetchone() or ("", ""))[1])


def test_the_ca_of_the_url_verifies_the_server(server: MariaDb, ca: Path) -> None:
    assert cipher(parse(f"{server.url}?ca={ca}"))


def test_a_server_of_another_ca_is_refused(server: MariaDb, folder: Path) -> None:
    other = authority(folder / "other")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:\d+: .*certificate verify failed"):
        cipher(parse(f"{server.url}?ca={other}"))


def test_a_certificate_of_another_name_is_refused(server: MariaDb, ca: Path) -> None:
    topology = parse(f"{server.url}?ca={ca}")
    [master] = topology.masters
    named = replace(topology, masters=(master._replace(host="localhost"),))
    with pytest.raises(Unavailable, match=r"localhost:\d+: .*not valid for 'localhost'"):
        cipher(named)


def test_a_server_without_tls_is_refused(folder: Path, ca: Path) -> None:
    plain = MariaDb(folder / "plain", "--ssl=OFF").start()
    try:
        with pytest.raises(Unavailable, match="SSL"):
            cipher(parse(f"{plain.url}?ca={ca}"))
    finally:
        plain.stop()


def test_a_client_certificate_is_shown_to_a_server_that_wants_one(
    server: MariaDb, ca: Path
) -> None:
    certificate, key = signed(ca, "client", host="client")
    with server.root() as connection, connection.cursor() as db:
        db.execute("GRANT ALL ON greencrawl.* TO tls@'%' IDENTIFIED BY 'x' REQUIRE X509")
    topology = replace(parse(f"{server.url}?ca={ca}"), user="tls", password="x")
    assert cipher(replace(topology, cert=str(certificate), key=str(key)))
    with pytest.raises(Exception, match="Access denied"):
        cipher(topology)
