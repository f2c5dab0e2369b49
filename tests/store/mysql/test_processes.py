"""Processes on one database: several at once, killed half-way, or with a killed server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store import open_store
from greencrawl.store.mysql.cluster.topology import Topology, parse
from greencrawl.store.mysql.store import MysqlStore
from tests.support.checkout import ROOT
from tests.support.effort import cases
from tests.support.mariadb import MariaDb
from tests.support.mysql_database import rows_of, server, topology
from tests.support.store_records import attempt, page

__all__ = ["server", "topology"]  # fixtures


WRITER = """
from gevent import monkey; monkey.patch_all()
import os, sys
from greencrawl.schema import crash_points
from greencrawl.schema.records import Commit
from greencrawl.store import open_store
from tests.support.store_records import attempt, page
crash_points.arm(os.environ.get("GREENCRAWL_FAULT", ""))
url, crawl, writer, commits = sys.argv[1], *map(int, sys.argv[2:])
store = open_store(url)
for commit in range(commits):
    first = (writer * commits + commit) * 10
    numbers = range(first, first + 10)
    store.commit(Commit([page(crawl, n, body=b"%d" % (n // 3) * 500) for n in numbers],
                        [attempt(crawl, n) for n in numbers]))
    print(commit, flush=True)
store.close()
"""


def run(*arguments: object, fault: str = "") -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "GREENCRAWL_FAULT": fault}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


@pytest.fixture
def url(server: MariaDb, topology: Topology) -> str:
    return server.url.rpartition("/")[0] + f"/{topology.database}"


@pytest.fixture
def store(url: str) -> Iterator[MysqlStore]:
    opened = open_store(url)
    assert isinstance(opened, MysqlStore)
    yield opened
    opened.close()


def test_processes_that_write_at_once_lose_no_row(store: MysqlStore, url: str) -> None:
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    writers = [run(url, crawl, n, 20) for n in (0, 1, 1)]  # two write the same rows
    for writer in writers:
        printed, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        assert printed.split() == [str(n) for n in range(20)]
    counts = store.counts(crawl)
    assert (counts["pages"], counts["attempts"]) == (400, 400)
    stored = {one.fingerprint: one.body for _, one in store.pages(crawl, detail="body")}
    assert stored == {n: b"%d" % (n // 3) * 500 for n in range(400)}


@pytest.mark.parametrize("point", cases(["store.after_commit:6"], ["store.before_commit:6"]))
def test_acknowledged_commits_survive_a_process_that_is_killed_at_a_later_one(
    store: MysqlStore, url: str, topology: Topology, point: str
) -> None:
    crawl = store.put_crawl("news", CrawlOptions(), []).id
    dying = run(url, crawl, 0, 20, fault=point)
    acknowledged = dying.communicate(timeout=60)[0].split()
    assert dying.returncode == -signal.SIGKILL
    assert acknowledged == ["0", "1", "2", "3", "4"]
    stored = {one.fingerprint for _, one in store.pages(crawl)}
    assert stored == set(range(60 if "after" in point else 50)), "the sixth as a whole or not"
    assert run(url, crawl, 0, 20).communicate(timeout=60)[0].split()[-1] == "19"
    assert store.counts(crawl)["pages"] == store.counts(crawl)["attempts"] == 200
    for table in ("pages", "contents", "attempts"):
        assert rows_of(topology, f"SELECT COUNT(*) FROM {table}") == [(200,)]


def test_acknowledged_commits_survive_a_server_that_is_killed_amid_others(tmp_path: Path) -> None:
    server = MariaDb(tmp_path / "own", "--innodb-flush-log-at-trx-commit=1").start()
    store = MysqlStore(parse(server.url))
    crawl = store.put_crawl("a", CrawlOptions(), []).id
    acknowledged: list[int] = []
    unknown: list[Commit] = []

    def write(first: int) -> None:
        for start in range(first, first + 100_000, 10):
            numbers = range(start, start + 10)
            work = Commit(
                [page(crawl, n, body=b"%d" % n) for n in numbers],
                [attempt(crawl, n) for n in numbers],
            )
            try:
                store.commit(work)
            except Unavailable:
                unknown.append(work)
                return
            acknowledged.extend(numbers)

    try:
        jobs = [gevent.spawn(write, 100_000 * n) for n in range(4)]
        with gevent.Timeout(30):
            while len(acknowledged) < 400:
                gevent.sleep(0.005)
        server.kill()
        gevent.joinall(jobs, timeout=30, raise_error=True)
        with pytest.raises(Unavailable):
            store.tick()
        server.start()
        stored = {one.fingerprint for _, one in store.pages(crawl, detail="row")}
        assert set(acknowledged) <= stored
        assert len(unknown) == 4, "of each its outcome is unknown, so it is repeated"
        for work in unknown:
            store.commit(work)
        counts = store.counts(crawl)
        assert counts["pages"] == counts["attempts"] == len(acknowledged) + 40
        assert store.slowest_hosts(crawl)[0][2] == counts["attempts"]
    finally:
        store.close()
        server.stop()
