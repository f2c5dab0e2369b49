"""The cost of a calendar: bytes a row, CPU of a commit, queueing of due pages, and Redis meanwhile.

* bytes a row: on SQLite and on MariaDB, indexes included, of rows without their pages;
* a commit: the same pages are stored in a crawl with a calendar and in one without, batch by batch
  in turn, first as new ones and then as checks of what has not changed; CPU of this process;
* queueing: pages of many hosts are due, and all are queued and noted, beside all those rows; CPU of
  this process and of Redis together;
* Redis: its memory while this number of rows waits, and when as many pages are queued as it takes.

A million rows take some minutes.

    python -m bench.store.calendar [--rows N] [--pages N] [--hosts N]
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import xxhash  # noqa: E402

from bench.rig.report import Report  # noqa: E402
from bench.store.sqlite import make_batches  # noqa: E402
from greencrawl.broker.frontier import Frontier  # noqa: E402
from greencrawl.broker.service.service import Service  # noqa: E402
from greencrawl.broker.tasks.calendar import Calendar  # noqa: E402
from greencrawl.schema.records import (  # noqa: E402
    Check,
    Commit,
    CrawlOptions,
    Observation,
    Recrawl,
    StoredPage,
)
from greencrawl.store import open_store  # noqa: E402
from greencrawl.store.base import Store  # noqa: E402
from greencrawl.store.mysql.cluster.topology import parse  # noqa: E402
from greencrawl.store.mysql.store import MysqlStore  # noqa: E402
from greencrawl.store.sqlite.store import SqliteStore  # noqa: E402
from tests.support.mariadb import MariaDb  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402
from tests.support.store_calendar import begin  # noqa: E402
from tests.support.system import wait_until  # noqa: E402

OPTIONS = CrawlOptions(
    seeds=("http://h0.example/",), delay=0, recrawl=Recrawl(every="1d", depth="all")
)
AT_ONCE = 5000
FILE = "calendar.sqlite"
POOL_BYTES = 2**30
"""MariaDB's pool: it holds a million rows, which come in random order."""
LEAST_A_SECOND, MOST_DEARER = 5000, 0.10


def observations(crawl: int, rows: int, hosts: int) -> Iterator[list[Observation]]:
    """Yield observations of pages that are nowhere else."""
    for start in range(0, rows, AT_ONCE):
        yield [
            Observation(crawl, number_of(url), 1_700_000_000_000, "page", url, 2)
            for n in range(start, min(start + AT_ONCE, rows))
            for url in [f"http://h{n % hosts}.example{n % hosts}.org/path/of/page/{n}"]
        ]


def number_of(url: str) -> int:
    """Return a number that serves as a fingerprint: 64 bits with a sign."""
    return int(xxhash.xxh3_64_intdigest(url.encode())) - 2**63


def sqlite_bytes(folder: Path, rows: int, hosts: int) -> float:
    """Return bytes a row; the rows stay in the file."""
    store = SqliteStore(folder / FILE)
    crawl = store.put_crawl("x", OPTIONS, ["h0.example"]).id

    def size(db: Any) -> int:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, of = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
        )
        return int(pages * of)

    before = store._questions.run(size)
    for found in observations(crawl, rows, hosts):
        store.add_calendar(crawl, found)
    after = store._questions.run(size)
    store.close()
    return (after - before) / rows


def mariadb_bytes(folder: Path, rows: int, hosts: int) -> float:
    """Return bytes a row."""
    server = MariaDb(folder / "mariadb", f"--innodb-buffer-pool-size={POOL_BYTES}").start()
    try:
        store = MysqlStore(parse(server.database("calendar")))
        crawl = store.put_crawl("x", OPTIONS, ["h0.example"]).id
        for found in observations(crawl, rows, hosts):
            store.add_calendar(crawl, found)

        def size(db: Any) -> int:
            db.execute("ANALYZE TABLE calendar")
            db.fetchall()
            db.execute(
                "SELECT data_length + index_length FROM information_schema.tables "
                "WHERE table_schema = DATABASE() AND table_name = 'calendar'"
            )
            return int(db.fetchall()[0][0])

        found_bytes = store._cluster.read(size)
        store.close()
        return found_bytes / rows
    finally:
        server.stop()


def dearer(folder: Path, pages: int) -> dict[str, float]:
    """Return how much more CPU a commit takes with a calendar, as a share; for new pages and
    checks."""
    stores = [SqliteStore(folder / f"{name}.sqlite") for name in ("with", "without")]
    for store, options in zip(stores, (OPTIONS, CrawlOptions()), strict=True):
        store.put_crawl("x", options, ["h0.example"])
    spent = {what: [0.0, 0.0] for what in ("new pages", "checks")}
    batches = make_batches(pages, 64)
    checks = [
        Commit(
            checks=[
                Check(crawl=p.crawl, fingerprint=p.fingerprint, at_ms=p.fetched_ms + 1, url=p.url)
                for p in work.pages
            ],
            attempts=work.attempts,
        )
        for work in batches
    ]
    for what, works in (("new pages", batches), ("checks", checks)):
        for number, work in enumerate(works):
            for which in (0, 1) if number % 2 else (1, 0):
                began = time.process_time()
                stores[which].commit(work)
                spent[what][which] += time.process_time() - began
    for store in stores:
        store.close()
    return {what: with_ / without - 1 for what, (with_, without) in spent.items()}


@contextmanager
def frontier_on(folder: Path) -> Iterator[tuple[Frontier, Store, RedisServer]]:
    """Yield a broker's parts on a Redis of their own, and the store, which already has rows."""
    server = RedisServer(folder / "redis", None, "--appendonly", "no").start()
    store = open_store(f"sqlite:///{folder / FILE}")
    frontier = Frontier([server.url], store, create=True)
    frontier.start()
    try:
        wait_until(lambda: not frontier.recovery.owed(), 60, "the empty node was told of the rows")
        yield frontier, store, server
    finally:
        frontier.stop()
        store.close()
        server.stop()


def fill(frontier: Frontier, store: Store, crawl: int, pages: int, hosts: int) -> None:
    """Store small pages, each in the calendar."""
    for start in range(0, pages, 512):
        urls = [
            f"http://h{n % hosts}.example{n % hosts}.org/path/of/page/{n}"
            for n in range(start, min(start + 512, pages))
        ]
        store.commit(
            Commit(
                [
                    StoredPage(
                        crawl=crawl, fingerprint=frontier.fingerprint(url), url=url, status=200,
                        fetched_ms=1_700_000_000_000, depth=2,
                    )
                    for url in urls
                ]
            )
        )  # fmt: skip


def redis_seconds(server: RedisServer) -> float:
    """Return the CPU of Redis so far."""
    info: dict[str, Any] = server.client.info("cpu")  # type: ignore[assignment]
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def redis_bytes(server: RedisServer) -> int:
    """Return the bytes of Redis' data."""
    info: dict[str, Any] = server.client.info("memory")  # type: ignore[assignment]
    return int(info["used_memory"])


def queueing(report: Report, folder: Path, rows: int, pages: int, hosts: int) -> float:
    """Return pages a second of a core that are queued and noted, beside ``rows`` that wait."""
    with frontier_on(folder) as (frontier, store, server):
        crawl = store.put_crawl("queued", OPTIONS, ["h0.example"])
        frontier.put_crawl(crawl)
        empty = redis_bytes(server)
        fill(frontier, store, crawl.id, pages, hosts)
        waiting = redis_bytes(server)
        begin(store, crawl.id, 2_000_000_000)
        calendar = Calendar(Service(frontier, store, duties=frontier.duties))
        began = time.process_time() + redis_seconds(server)
        queued = 0
        while places := store.calendar_places():
            calendar._rests.clear()
            some = calendar.step(places)
            queued += some
            if not some:
                break
        spent = time.process_time() + redis_seconds(server) - began
        full = redis_bytes(server)
        report.figure("Redis, nothing stored", empty / 1e6, "MB")
        report.figure(f"Redis, {rows + pages:,} rows wait for their date", waiting / 1e6, "MB")
        report.figure(f"Redis, {queued:,} of them are queued", full / 1e6, "MB")
        report.claim("Redis grows by less than 1 MB while rows wait", waiting - empty < 1e6)
        report.figure("bytes of Redis a queued page", (full - waiting) / max(queued, 1), "B")
        return queued / spent


def main(arguments: list[str]) -> int:
    """Measure, print and judge; return the exit code."""
    parser = argparse.ArgumentParser(description="What a calendar costs.")
    parser.add_argument("--rows", type=int, default=100_000, help="rows without pages")
    parser.add_argument("--pages", type=int, default=20_000, help="pages that are queued")
    parser.add_argument("--hosts", type=int, default=500)
    given = parser.parse_args(arguments)
    report = Report("calendar", "a calendar: bytes, commits, queueing")
    with tempfile.TemporaryDirectory(prefix="calendar-") as name:
        folder = Path(name)
        report.figure("a row, SQLite", sqlite_bytes(folder, given.rows, given.hosts), "B")
        report.figure("a row, MariaDB", mariadb_bytes(folder, given.rows, given.hosts), "B")
        for what, part in dearer(folder, 4096).items():
            report.figure(f"a commit is dearer, {what}", 100 * part, "%")
            if what == "new pages":
                report.claim(f"at most {MOST_DEARER:.0%} dearer, {what}", part <= MOST_DEARER)
        rate = queueing(report, folder, given.rows, given.pages, given.hosts)
        report.figure("queued and noted", rate, "pages/s of a core, Redis included")
        report.claim(f"at least {LEAST_A_SECOND:,}", rate >= LEAST_A_SECOND)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
