"""The contract on a real MariaDB, and what is MySQL's own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from store.base import Store
from store.mysql.store import MysqlStore
from store.mysql.topology import Topology, parse
from tests.support.mariadb import MariaDb
from tests.support.store_contract import Opener, StoreContract, crawl, store

__all__ = ["crawl", "store"]  # fixtures

_names = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    running = MariaDb(tmp_path_factory.mktemp("mariadb") / "one").start()
    yield running
    running.stop()


@pytest.fixture
def topology(server: MariaDb) -> Iterator[Topology]:
    name = f"t{next(_names)}"
    with server.root() as connection, connection.cursor() as db:
        db.execute(f"CREATE DATABASE {name}")
    yield parse(server.url.rpartition("/")[0] + f"/{name}")
    with server.root() as connection, connection.cursor() as db:
        db.execute(f"DROP DATABASE {name}")


@pytest.fixture
def open_store(topology: Topology) -> Iterator[Opener]:
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(MysqlStore(topology))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


class TestMysql(StoreContract):
    pass
