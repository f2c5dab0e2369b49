"""One MariaDB for a test module, and an empty database on it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from greencrawl.store.mysql.cluster.topology import Topology, parse
from greencrawl.store.mysql.connection import connect
from tests.support.mariadb import MariaDb
from tests.support.memory import memory_folder

_names = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with memory_folder() as folder:
        running = MariaDb(folder / "one").start()
        yield running
        running.stop()


@pytest.fixture
def topology(server: MariaDb) -> Iterator[Topology]:
    """Return the topology of the server, with an empty database."""
    name = f"t{next(_names)}"
    with server.root() as connection, connection.cursor() as db:
        db.execute(f"CREATE DATABASE {name}")
    yield parse(server.url.rpartition("/")[0] + f"/{name}")
    with server.root() as connection, connection.cursor() as db:
        db.execute(f"DROP DATABASE {name}")


def rows_of(topology: Topology, sql: str) -> list[tuple[Any, ...]]:
    """Read or change rows with a plain connection; return them."""
    connection = connect(topology, topology.masters[0])
    with connection.cursor() as db:
        db.execute(sql)
        found = list(db.fetchall())
    connection.close()
    return found


@contextmanager
def held(topology: Topology, table: str) -> Iterator[None]:
    """Lock ``table``: other transactions stop there with all their locks."""
    connection = connect(topology, topology.masters[0])
    with connection.cursor() as db:
        db.execute(f"LOCK TABLES {table} WRITE")
        yield
        db.execute("UNLOCK TABLES")
    connection.close()


@contextmanager
def held_row(topology: Topology, table: str, where: str) -> Iterator[None]:
    """Lock the rows of ``table`` that a key finds: others wait there."""
    connection = connect(topology, topology.masters[0])
    connection.begin()
    with connection.cursor() as db:
        assert db.execute(f"SELECT 1 FROM {table} WHERE {where} FOR UPDATE")
        yield
    connection.rollback()
    connection.close()
