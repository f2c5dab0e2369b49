"""The contract on MariaDB with bodies in WARC files.

By day only the tests about bodies run: the others run on MariaDB without files, and with files on
SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.store.base import Store
from greencrawl.store.mysql.cluster.topology import Topology
from greencrawl.store.mysql.store import MysqlStore
from greencrawl.store.warc.files import WarcFiles
from tests.support.archive import check
from tests.support.effort import LONG
from tests.support.mysql_database import server, topology
from tests.support.store_content import ContentContract
from tests.support.store_contract import Opener, StoreContract, crawl, store
from tests.support.store_retention import RetentionContract

__all__ = ["crawl", "server", "store", "topology"]  # fixtures


@pytest.fixture
def open_store(topology: Topology, tmp_path: Path) -> Iterator[Opener]:
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(MysqlStore(topology, WarcFiles(tmp_path / "warc")))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
    files = sorted((tmp_path / "warc").glob("*.warc.gz"))
    assert not files or check(files) == ""


if LONG:

    class TestMysqlWithWarc(StoreContract):
        pass

else:

    class TestBodies(ContentContract, RetentionContract):
        pass
