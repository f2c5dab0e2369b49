"""Workers of this version go on while the database changes to the next version, and after it.

The next version is made here: an additive first part, and a second part for later. This version's
workers are processes of their own, which commit without a pause.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.topology import Topology
from greencrawl.store.mysql.migrations import FOLDER, migrate, prepare
from greencrawl.store.mysql.store import MysqlStore
from tests.support.mysql_database import rows_of, server, topology
from tests.support.store_records import page

__all__ = ["server", "topology"]  # fixtures

PRE = """ALTER TABLE pages ADD COLUMN grade INT NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS grades (grade INT NOT NULL PRIMARY KEY) ENGINE = InnoDB;
INSERT IGNORE INTO grades VALUES (0);
"""
POST = "ALTER TABLE blocks DROP COLUMN reason;\n"

WORKER = """
from gevent import monkey; monkey.patch_all()
import sys
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Commit
from greencrawl.store import open_store
from tests.support.store_records import page
store = open_store(sys.argv[1])
number = int(sys.argv[2])
print("begun", flush=True)
while True:
    number += 1
    work = Commit([page(1, number, body=b"of %d" % number)])
    while True:
        try:
            store.commit(work)
            break
        except Unavailable:
            pass
    print(number, flush=True)
"""


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    folder = tmp_path / "mysql"
    shutil.copytree(FOLDER, folder)
    (folder / "9001_pre_grades.sql").write_text(PRE)
    (folder / "9002_post_reasons.sql").write_text(POST)
    return folder


@pytest.fixture
def workers(topology: Topology, tmp_path: Path) -> Iterator[list[Path]]:
    """Two workers of this version; files in which they note what was acknowledged."""
    store = MysqlStore(topology)
    store.put_crawl("c", CrawlOptions(), [])
    store.close()
    [at] = topology.masters
    url = f"mysql://{topology.user}:{topology.password}@{at}/{topology.database}"
    logs = [tmp_path / f"worker{n}" for n in (1, 2)]
    running = []
    for number, log in enumerate(logs, 1):
        with log.open("wb") as out:
            command = [sys.executable, "-c", WORKER, url, str(number * 1_000_000)]
            running.append(subprocess.Popen(command, stdout=out))
    yield logs
    for one in running:
        one.kill()
        one.wait(10)


def acknowledged(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().splitlines()[1:] if line.isdigit()]


def go_on(logs: list[Path], more: int = 30) -> None:
    """Wait until each worker has had ``more`` commits acknowledged."""
    targets = [len(acknowledged(log)) + more for log in logs]
    end = monotonic() + 60
    while any(len(acknowledged(log)) < target for log, target in zip(logs, targets, strict=True)):
        assert monotonic() < end, [log.read_text()[-200:] for log in logs]
        gevent.sleep(0.05)


def test_workers_of_two_versions_write_to_one_database_during_an_upgrade(
    topology: Topology, newer: Path, workers: list[Path]
) -> None:
    go_on(workers)
    cluster = Cluster(topology)
    assert migrate(cluster, newer, post=False) == 1
    go_on(workers)
    prepare(cluster, newer)  # the next version opens it, with its second part still to come

    def graded() -> None:  # as the next version would write
        cluster.write(lambda db: db.execute("INSERT IGNORE INTO grades VALUES (1)"))
        cluster.write(lambda db: db.execute("UPDATE pages SET grade = 1 WHERE fingerprint % 2 = 0"))

    graded()
    go_on(workers)
    again = MysqlStore(topology)  # this version may also be started on it
    again.commit(Commit([page(1, 5, body=b"of 5")]))
    assert again.page(1, 5) is not None
    for log in workers:
        for number in acknowledged(log):
            stored = again.page(1, number)
            assert stored is not None
            assert stored.body == b"of %d" % number
    again.close()
    assert rows_of(topology, "SELECT COUNT(*) > 0 FROM pages WHERE grade = 1") == [(1,)]
    cluster.close()


def test_the_older_version_does_not_start_after_the_second_part_of_an_upgrade(
    topology: Topology, newer: Path
) -> None:
    MysqlStore(topology).close()
    cluster = Cluster(topology)
    assert migrate(cluster, newer) == 2
    with pytest.raises(InvalidConfig, match="9002_post_reasons"):
        MysqlStore(topology)
    cluster.close()
