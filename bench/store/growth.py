"""Does SQL grow without end? ``python -m bench.store.growth [--short]``.

The benchmark runs three years of a broker's upkeep, with the default limits; each step moves the
clock ten days on. In each step a lasting crawl fetches all of its pages again, seeded by force, a
tenth of them after a failure. Ten short crawls are seeded, fetched and done, and are deleted two
months later. Some hosts answer 429. Retention and deletions are those of the broker, over a real
Redis and a SQLite file.

Rows and bytes of each table are counted every month, and before and after the last time that
anything is dropped. The figure is the most of the last year, divided by the most of the year
before, of rows and of bytes. ``--short`` is a tenth of the pages. Full runs take four minutes,
short ones one.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sqlite3  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from contextlib import closing  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NamedTuple  # noqa: E402

from bench import document  # noqa: E402
from bench.rig.options import parser  # noqa: E402
from bench.rig.record import Cell, Record, draw  # noqa: E402
from greencrawl.broker.frontier import Frontier, Mode  # noqa: E402
from greencrawl.broker.service.service import Service  # noqa: E402
from greencrawl.broker.tasks.purge import Purging  # noqa: E402
from greencrawl.broker.tasks.retention import (  # noqa: E402
    DAY_MS,
    DAY_SECONDS,
    FIRST_SECONDS,
    Limits,
    Retention,
)
from greencrawl.schema import log, settings  # noqa: E402
from greencrawl.schema.records import Admission, Commit, CrawlOptions, StoredPage  # noqa: E402
from greencrawl.store import open_store  # noqa: E402
from greencrawl.store.months import month_of, start_ms  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402
from tests.support.store_records import attempt, digest  # noqa: E402

NAME = "growth"
BEGIN_MS = start_ms(month_of(1_900_000_000_000))
STEP_DAYS, STEPS_A_MONTH, MONTHS = 10, 3, 36
PAGES = 1000
SHORT_CRAWLS, SHORT_PAGES = 10, 20
DELETED_AFTER = 2 * STEPS_A_MONTH
BODY_BYTES = 2000
ON_DISK = ("rows", "bytes")


class Size(NamedTuple):
    """The size of a table with its indexes."""

    rows: int
    bytes: int


def sizes(path: Path) -> dict[str, Size]:
    """Return the size of every table."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        tables = dict(db.execute("SELECT name, tbl_name FROM sqlite_master").fetchall())
        used: dict[str, int] = {}
        for name, size in db.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name"):
            table = tables.get(name, name)
            used[table] = used.get(table, 0) + size
        found = {}
        for table in used:
            (rows,) = db.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()
            found[table] = Size(rows, used[table])
        return found


def defaults() -> Limits:
    """Return the default limits."""
    found = settings.load({})
    return Limits(found.journal_months, found.journal_days, found.version_days)


class Broker:
    """A broker's upkeep of a store: a frontier, retention and deletions, with a clock that is
    set."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "content.sqlite"
        self.server = RedisServer(folder / "redis").start()
        self.store = open_store(f"sqlite:///{self.path}")
        self.frontier = Frontier([self.server.url], self.store, create=True)
        self.frontier.start()
        self._now = 0.0
        self.service = Service(
            self.frontier, self.store, lambda: self._now, duties=self.frontier.duties
        )
        self._retention = Retention(self.service, defaults())
        self._purging = Purging(self.service)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.frontier.stop()
        self.store.close()
        self.server.stop()

    def look(self, at_ms: int) -> None:
        """Drop the rows that are due at a time."""
        self._now += DAY_SECONDS + FIRST_SECONDS
        self._purging.work()
        self._retention.look(at_ms)

    def crawl(self, name: str, pages: int, at_ms: int, *, again: bool = False) -> int:
        """Seed, fetch and finish this many pages of a crawl."""
        store, frontier = self.store, self.frontier
        crawl = store.put_crawl(name, CrawlOptions(scope="any", delay=0), ())
        frontier.put_crawl(crawl)
        urls = [f"http://{name}.example/some/section/article-{n}.html" for n in range(pages)]
        items = [Admission(url) for url in urls]
        batch = store.add_seeds(crawl.id, items, force=again)
        mode = Mode.FORCE if again else Mode.NEW
        told = frontier.admit(crawl.id, items, mode=mode, batch=batch)
        store.seeds_admitted(batch, told.tick, told.epochs)
        store.tick()
        numbers = [frontier.fingerprint(url) for url in urls]
        work = Commit()
        for n, url in zip(numbers, urls, strict=True):
            body = f"{url} at {at_ms if n % 2 else 0}".encode().ljust(BODY_BYTES, b".")
            work.pages.append(
                StoredPage(
                    crawl=crawl.id, fingerprint=n, url=url, final_url=url, status=200,
                    fetched_ms=at_ms, body=body, digest=digest(body),
                )
            )  # fmt: skip
            work.attempts.append(attempt(crawl.id, n, at_ms, url=url))
            if n % 10 == 0:
                failed = attempt(crawl.id, n, at_ms - 60_000, url=url, kind="timeout", code=0)
                work.attempts.append(failed)
        store.commit(work)
        return crawl.id

    def delete(self, name: str) -> None:
        """Delete a crawl."""
        self.service.purge(self.store.crawl(name))


def measure(folder: Path, pages: int) -> tuple[list[dict[str, Size]], dict[str, Size]]:
    """Return the sizes after each month, and those before the last drop."""
    months, before = [], {}
    with Broker(folder) as broker:
        for step in range(MONTHS * STEPS_A_MONTH):
            at_ms = BEGIN_MS + step * STEP_DAYS * DAY_MS
            broker.crawl("lasting", pages, at_ms, again=step > 0)
            for number in range(SHORT_CRAWLS):
                name = f"short{step}-{number}"
                crawl = broker.crawl(name, SHORT_PAGES, at_ms)
                broker.store.set_state(crawl, "done", "finished")
                broker.store.put_block(f"{name}.example", at_ms + 600_000, "429")
                if step >= DELETED_AFTER:
                    broker.delete(f"short{step - DELETED_AFTER}-{number}")
            before = sizes(broker.path)
            broker.look(at_ms)
            if (step + 1) % STEPS_A_MONTH == 0:
                months.append(sizes(broker.path))
                if len(months) % 6 == 0:
                    print(f"   {len(months)} months: {total(months[-1])}", flush=True)
    return months, before


def total(of: dict[str, Size]) -> Size:
    """Return the sum of all tables."""
    return Size(sum(one.rows for one in of.values()), sum(one.bytes for one in of.values()))


def growth(months: Sequence[dict[str, Size]]) -> dict[str, float]:
    """Return the greatest value of the last third of the time ÷ that of the third before."""
    third = len(months) // 3
    found = {}
    for what in ON_DISK:
        course = [getattr(total(one), what) for one in months]
        found[what] = max(course[2 * third :]) / max(course[third : 2 * third])
    return found


def report(record: Record, months: list[dict[str, Size]], before: dict[str, Size]) -> None:
    """Add figures and tables."""
    year, two, last = months[MONTHS // 3 - 1], months[2 * MONTHS // 3 - 1], months[-1]
    rows: list[list[Cell]] = []
    for table in sorted(last, key=lambda name: -before[name].bytes):
        if not before[table].rows or table.startswith("sqlite"):
            continue
        counts = [one.get(table, Size(0, 0)) for one in (year, two, before, last)]
        kilobytes = counts[-1].bytes / 1000
        a_row = counts[-1].bytes / counts[-1].rows if counts[-1].rows else 0.0
        rows.append([table, *(count.rows for count in counts), kilobytes, a_row])
    record.table(
        "Rows by table, with time moved on",
        ["table", "one year", "two years", "three, before", "after dropping", "KB", "bytes a row"],
        rows,
    )
    found = growth(months)
    record.table(
        "The most of the last year ÷ the most of the year before", ["rows", "bytes"],
        [[found[what] for what in ON_DISK]],
    )  # fmt: skip
    record.figure("last_year_over_before", max(found.values()))
    record.runs("months", [{name: list(size) for name, size in one.items()} for one in months])
    figure = draw(7, 3.2)
    axes = figure.add_subplot(1, 1, 1)
    axes.plot(range(1, len(months) + 1), [total(one).bytes / 1e6 for one in months])
    axes.set(xlabel="months", ylabel="MB in use", ylim=(0, None))
    record.plot("size", figure, "What the store's file has in use")


def main(arguments: Sequence[str]) -> int:
    """Run it; return 0 if all required figures were reached."""
    options = parser("bench.store.growth", __doc__, "a tenth of the pages").parse_args(arguments)
    log.configure("bench", "error")
    pages = PAGES // 10 if options.short else PAGES
    record = Record(NAME, "whether SQL only grows", options.short, packages=("matplotlib",))
    limits = defaults()
    record.note(
        f"SQLite with the default limits: {limits.journal_months} months of the journal,"
        f" {limits.journal_days} days of attempts that brought a page, {limits.version_days} days"
        f" of a page's history. A lasting crawl of {pages} pages is fetched again every"
        f" {STEP_DAYS} days. With each of these, {SHORT_CRAWLS} short crawls of {SHORT_PAGES} pages"
        " begin, which are deleted two months later. Bytes are pages of the file in use, including"
        " indexes."
    )
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        report(record, *measure(Path(folder), pages))
    record.finish()
    return document.missed(NAME)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
