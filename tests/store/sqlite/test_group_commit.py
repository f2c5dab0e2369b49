"""Writes of many greenlets in one transaction, on a real SQLite file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.records import Admission, CrawlOptions
from greencrawl.store.errors import Closed
from greencrawl.store.sqlite.connection import SqliteThread, connect
from greencrawl.store.sqlite.group_commit import Grouped
from greencrawl.store.sqlite.store import SqliteStore

SEEDS = [Admission("http://example.org/")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "content.sqlite")
    yield opened
    opened.close()


def test_batches_of_seeds_that_come_together_share_a_commit(store: SqliteStore) -> None:
    crawl = store.put_crawl("a", CrawlOptions(), []).id
    statements: list[str] = []
    store._commits.lane.run(lambda db: db.set_trace_callback(statements.append))
    jobs = [gevent.spawn(store.add_seeds, crawl, SEEDS) for _ in range(20)]
    gevent.joinall(jobs, raise_error=True)
    assert len({job.get() for job in jobs}) == 20
    assert len(store.pending_seeds()) == 20
    assert statements.count("COMMIT") <= 3  # the first one goes alone, the others wait for it
    jobs = [gevent.spawn(store.seeds_admitted, job.get()) for job in jobs]
    gevent.joinall(jobs, raise_error=True)
    assert store.pending_seeds() == []
    assert statements.count("COMMIT") <= 6


def test_seeds_of_an_unknown_crawl_fail_alone(store: SqliteStore) -> None:
    crawl = store.put_crawl("a", CrawlOptions(), []).id
    jobs = [gevent.spawn(store.add_seeds, crawl + n % 2, SEEDS) for n in range(10)]
    gevent.joinall(jobs)
    assert [type(job.exception) for job in jobs] == [type(None), UnknownCrawl] * 5
    assert len(store.pending_seeds()) == 5


@pytest.fixture
def grouped(tmp_path: Path) -> Iterator[Grouped]:
    path = tmp_path / "x.sqlite"
    connection = connect(path, create=True)
    connection.execute("CREATE TABLE rows (value TEXT)")
    connection.close()
    lane = SqliteThread(path)
    yield Grouped(lane, path)
    lane.close()


def insert(db: sqlite3.Connection, value: str) -> int:
    return db.execute("INSERT INTO rows VALUES (?)", (value,)).rowcount


def values(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT value FROM rows ORDER BY 1")]


def test_a_write_of_a_group_that_raises_is_undone_alone(grouped: Grouped) -> None:
    def fails(db: sqlite3.Connection) -> int:
        insert(db, "half")
        raise ValueError("no")

    works = [lambda db: insert(db, "a"), fails, lambda db: insert(db, "b")]
    jobs = [gevent.spawn(grouped.run, work) for work in works]
    gevent.joinall(jobs)
    assert [type(job.exception) for job in jobs] == [type(None), ValueError, type(None)]
    assert grouped.run(values) == ["a", "b"]


def test_a_full_disk_fails_all_writes_of_a_group(grouped: Grouped) -> None:
    def fills(db: sqlite3.Connection) -> int:
        db.execute("PRAGMA max_page_count = 1")  # SQLite raises it to the size of the file
        return insert(db, "x" * 100_000)

    grouped.run(lambda db: insert(db, "first"))
    busy = gevent.spawn(grouped._lane.run, lambda db: time.sleep(0.05))
    gevent.sleep(0)
    works = [lambda db: insert(db, "beside"), fills, lambda db: insert(db, "behind")]
    jobs = [gevent.spawn(grouped.run, work) for work in works]
    gevent.joinall([busy, *jobs])
    assert [type(job.exception) for job in jobs] == [Unavailable] * 3
    assert grouped.run(values) == ["first"]
    assert grouped.run(lambda db: insert(db, "again")) == 1


def test_a_queued_write_is_not_made_if_its_caller_was_killed(grouped: Grouped) -> None:
    busy = gevent.spawn(grouped._lane.run, lambda db: time.sleep(0.05))
    gevent.sleep(0)
    jobs = [gevent.spawn(grouped.run, lambda db, n=n: insert(db, str(n))) for n in range(3)]
    gevent.sleep(0)
    jobs[1].kill(block=False)
    gevent.joinall([busy, *jobs])
    assert grouped.run(values) == ["0", "2"]


def test_a_closed_lane_refuses_writes(grouped: Grouped) -> None:
    grouped._lane.close()
    with pytest.raises(Closed):
        grouped.run(values)
    with pytest.raises(Closed):
        grouped.run(values)
