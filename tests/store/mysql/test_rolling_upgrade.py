"""Databases of earlier versions are taken over, and workers of this one go on during an upgrade.

``store_0.1.0.sql`` is a dump of a database that version 0.1.0 made and wrote to. The next version
is made here: an additive first part, and a second part for later. This version's workers are
processes of their own, which commit without a pause.
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
from greencrawl.store.mysql.cluster.topology import Topology, parse
from greencrawl.store.mysql.connection import connect
from greencrawl.store.mysql.migrations import FOLDER, MysqlUpgrade, migrate, prepare, statements
from greencrawl.store.mysql.store import MysqlStore
from tests.support.mariadb import MariaDb
from tests.support.mysql_database import rows_of, server, topology
from tests.support.store_records import digest, page

__all__ = ["server", "topology"]  # fixtures

DUMP = Path(__file__).with_name("store_0.1.0.sql")
BODIES = {1: b"one " * 50, 2: b"two " * 50, 3: b"one " * 50, 4: b"", 5: b"second"}
SCHEMA = (
    "SELECT table_name, column_name, ordinal_position, column_default, is_nullable, column_type, "
    "collation_name FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY 1, 3",
    "SELECT table_name, index_name, seq_in_index, column_name, non_unique, sub_part "
    "FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY 1, 2, 3",
    "SELECT table_name, engine, table_collation "
    "FROM information_schema.tables WHERE table_schema = DATABASE() ORDER BY 1",
    "SELECT table_name, partition_name, partition_method, partition_expression "
    "FROM information_schema.partitions WHERE table_schema = DATABASE() ORDER BY 1, 2",
    "SELECT number, name, checksum FROM migrations ORDER BY 1",
)

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


@pytest.fixture
def old(topology: Topology) -> Topology:
    """Return the topology of a database of version 0.1.0."""
    connection = connect(topology, topology.masters[0])
    with connection.cursor() as db:
        for statement in statements(DUMP.read_text(encoding="utf-8")):
            db.execute(statement)
    connection.commit()
    connection.close()
    return topology


def test_a_database_of_0_1_0_gets_the_schema_of_a_new_one_and_reads_right(
    old: Topology, server: MariaDb, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfig, match=r"0003_pre_parked is missing\): run `greencrawl migr"):
        MysqlStore(old)
    between = tmp_path / "between"  # the versions since then, one after the other
    between.mkdir()
    cluster = Cluster(old)
    for file in sorted(FOLDER.glob("*.sql")):
        shutil.copy(file, between)
        assert migrate(cluster, between) == (0 if file.stem == "0002_base" else 1)
    cluster.close()
    fresh = parse(server.database("fresh"))
    MysqlStore(fresh).close()
    for sql in SCHEMA:
        assert rows_of(old, sql) == rows_of(fresh, sql)

    store = MysqlStore(old)
    assert store.clock().epochs == {"n0": 4}
    assert [(one.id, one.name) for one in store.crawls()] == [(1, "news")]
    for detail in ("row", "text", "body"):
        found = {one.fingerprint: one for _, one in store.pages(1, detail=detail)}
        assert {n: one.digest for n, one in found.items()} == {
            n: digest(body) if body else b"" for n, body in BODIES.items()
        }
        if detail != "row":
            texts = {n: f"text {n}" if body else "" for n, body in BODIES.items()}
            assert {n: one.text for n, one in found.items()} == texts
        if detail == "body":
            assert {n: one.body for n, one in found.items()} == BODIES
    assert [one.fetched_ms for one in store.history(1, 5)] == [2000, 1000]
    assert [one.at_ms for one in store.attempts(1, 1)] == [2000, 1000]
    dead = store.final(1, 9)
    assert dead is not None
    assert dead.detail == "after 5 tries"
    assert store.delays() == {"a.org": 1500}
    assert [row.item.url for row in store.overflow(1, 7, "a.org", 5)] == ["http://a.org/50"]
    store.free_overflow(7, since=1)
    assert len(store.overflow(1, 7, "a.org", 5)) == 2
    store.commit(Commit([page(1, 1, 3000, body=b"new"), page(1, 2, 3000, body=b"one " * 50)]))
    changed = {one.fingerprint: one.body for _, one in store.pages(1, detail="body")}
    assert changed == BODIES | {1: b"new", 2: b"one " * 50}
    store.close()


def test_a_database_from_before_0_1_0_is_refused_with_the_version_to_start_first(
    old: Topology,
) -> None:
    rows_of(old, "DELETE FROM migrations WHERE number = 2")
    told = (
        r"before 0\.1\.0 \(migration 0002_pre_duties is missing\).*--post` of version 0\.1\.0 once"
    )
    with pytest.raises(InvalidConfig, match=told):
        MysqlStore(old)
    upgrade = MysqlUpgrade(old)
    with pytest.raises(InvalidConfig, match=told):
        upgrade.pending()
    with pytest.raises(InvalidConfig, match=told):
        upgrade.apply(post=True, told=lambda _: None)
    upgrade.close()
    assert rows_of(old, "SELECT number FROM migrations") == [(1,)]
