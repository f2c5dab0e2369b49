"""Rows a second and CPU a page of the MySQL store, beside a bare ``executemany``.

Both write the same bytes into the same tables with the same indexes and the same durability
(``innodb_flush_log_at_trx_commit=1``, ``sync_binlog=1``, a commit a batch), in turn, in one run on
one real MariaDB; the client has one core and the server another. The median of the rounds is shown.

* ``bare``: pages are encoded and compressed as in the store; then the driver's ``executemany`` for
  each table (pages, contents, digests, bodies, attempts), and nothing is looked up.
* ``store``: the store, which also reads clock and epochs, locks, finds out what replaces what and
  which bodies are there already, deletes final states that no longer hold, and keeps the sums.
* ``again``: the store, when all pages are there already: a refetch that found half of them changed.
* ``store x4``: four greenlets commit at a time.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402

from bench.rig.report import Report  # noqa: E402
from bench.store.sqlite import make_batches, refetched  # noqa: E402
from greencrawl.schema.records import Commit, CrawlOptions  # noqa: E402
from greencrawl.store.mysql import rows  # noqa: E402
from greencrawl.store.mysql.cluster.topology import parse  # noqa: E402
from greencrawl.store.mysql.connection import Db  # noqa: E402
from greencrawl.store.mysql.store import MysqlStore  # noqa: E402
from greencrawl.store.mysql.tables.pages import PAGES  # noqa: E402
from greencrawl.store.rows import Codec, Row  # noqa: E402
from tests.support.mariadb import MariaDb  # noqa: E402

PAGES_A_RUN = 4096
BATCH = 64
ROUNDS = 5
GOAL = 0.8
DURABLE = (
    "--innodb-flush-log-at-trx-commit=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--sync-binlog=1",
    "--server-id=1",
    "--innodb-buffer-pool-size=512M",
    "--innodb-log-file-size=256M",
)

Batches = Sequence[Commit]
Run = Callable[[MysqlStore, Batches], None]


def run_store(store: MysqlStore, batches: Batches, greenlets: int = 1) -> None:
    """Commit to the store, with ``greenlets`` callers at a time."""
    for start in range(0, len(batches), greenlets):
        callers = [gevent.spawn(store.commit, work) for work in batches[start : start + greenlets]]
        gevent.joinall(callers, raise_error=True)


def run_bare(store: MysqlStore, batches: Batches) -> None:
    """Write the same rows with a bare ``executemany``."""
    codec = Codec()
    place = 0
    for work in batches:
        prepared = rows.prepare(codec, work)
        rows.pack_bodies(codec, prepared.pages)
        first, place = place, place + len(prepared.pages)
        store._cluster.write(lambda db, work=prepared, first=first: _insert(db, work, first))


def _insert(db: Db, work: rows.Prepared, place: int) -> None:
    pages: list[Row] = []
    contents: list[Row] = []
    digests: list[Row] = []
    bodies: list[Row] = []
    for at, one in enumerate(work.pages, start=place):
        pages.append(
            (*one.key, 1, at, one.fetched_ms, one.status, len(one.plain), one.digest, one.host,
             one.wide_bytes)
        )  # fmt: skip
        contents.append((one.crawl, at, one.fingerprint, *one.wide, one.links, one.text))
        digests.append((one.crawl, one.digest, at, len(one.packed or b"")))
        bodies.append((one.crawl, at, one.digest, "", 0, 0, one.packed))
    db.executemany(_insertion("pages", PAGES), pages)
    db.executemany(_insertion("contents", rows.CONTENTS), contents)
    db.executemany(_insertion("digests", "crawl, digest, place, bytes"), digests)
    db.executemany(_insertion("bodies", "crawl, place, digest, file, start, length, body"), bodies)
    db.executemany(_insertion("attempts", rows.ATTEMPTS), work.attempts)


def _insertion(table: str, columns: str) -> str:
    return (
        f"INSERT INTO {table} ({columns}) VALUES ({', '.join(['%s'] * (columns.count(',') + 1))})"
    )


SUBJECTS: dict[str, Run] = {
    "bare": run_bare,
    "store": run_store,
    "store x4": lambda store, batches: run_store(store, batches, 4),
}


@contextmanager
def served(folder: Path, cores: Sequence[int]) -> Iterator[MariaDb]:
    """Start a MariaDB on the last of ``cores``, with this process on the first."""
    os.sched_setaffinity(0, {cores[-1]})  # its threads inherit it
    server = MariaDb(folder / "server", *DURABLE).start()
    os.sched_setaffinity(0, {cores[0]})
    try:
        yield server
    finally:
        server.stop()


def measure(
    server: MariaDb, run: Run, batches: Batches, before: Batches = ()
) -> tuple[float, float, float]:
    """Return (pages a second, client's CPU µs a page, server's CPU µs a page) on an empty
    database."""
    pages = sum(len(work.pages) for work in batches)
    with server.root() as connection, connection.cursor() as db:
        db.execute("DROP DATABASE IF EXISTS greencrawl")
        db.execute("CREATE DATABASE greencrawl")
    store = MysqlStore(parse(server.url))
    store.put_crawl("bench", CrawlOptions(), [])
    run_store(store, before)
    wall, cpu, theirs = time.perf_counter(), time.process_time(), _cpu_of(server)
    run(store, batches)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    theirs = _cpu_of(server) - theirs
    with server.root() as connection, connection.cursor() as db:
        db.execute("SELECT COUNT(*) FROM greencrawl.pages")
        assert db.fetchone() == (pages,)
    store.close()
    return pages / wall, cpu / pages * 1e6, theirs / pages * 1e6


def _cpu_of(server: MariaDb) -> float:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure alternately, print and store the medians; return 1 if the store is slower than the
    goal."""
    report = Report("store-mysql", "Pages a second into MariaDB beside a bare executemany")
    allowed = os.sched_getaffinity(0)
    batches = make_batches(PAGES_A_RUN, BATCH)
    later = refetched(batches)
    figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in (*SUBJECTS, "again")}
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), sorted(allowed)) as server:
        for _ in range(ROUNDS):
            for name, run in SUBJECTS.items():
                figures[name].append(measure(server, run, batches))
            figures["again"].append(measure(server, run_store, later, batches))
    os.sched_setaffinity(0, allowed)
    medians = {
        name: [statistics.median(column) for column in zip(*found, strict=True)]
        for name, found in figures.items()
    }
    report.figure("load average", round(os.getloadavg()[1], 1))
    for name, (rate, cpu, theirs) in medians.items():
        report.row(
            name,
            pages_a_second=round(rate),
            cpu_us_a_page_client=round(cpu),
            cpu_us_a_page_server=round(theirs),
            of_bare=rate / medians["bare"][0],
        )
    ratio = medians["store"][0] / medians["bare"][0]
    report.claim(f"at least {GOAL} of the bare rate (it is {ratio:.2f})", ratio >= GOAL)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
