"""Rows a second and CPU a page of the SQLite store, beside a bare ``executemany``.

Both write the same pages with the same durability (WAL, synchronous=FULL, a commit a batch), in
turn, in one run; the median of the rounds is shown.

* ``bare``: one table with one unique index; pages are compressed one call at a time, then written
  by ``executemany``.
* ``store``: the same pages, and besides their journal, three more indexes, outlived final states.
* ``store x8``: eight greenlets commit at a time.
* ``… busy``: beside a greenlet that computes without a pause, as a worker that parses does.

    python -m bench.store [--pages N] [--batch N] [--rounds N] [--json FILE] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gevent

from schema import wire
from schema.records import Admission, Attempt, Commit, CrawlOptions, StoredPage
from store.connection import Lane, connect, transaction
from store.rows import PAGE, Codec, plain_links
from store.sqlite import SqliteStore

Batches = Sequence[Commit]


def make_batches(pages: int, batch: int) -> list[Commit]:
    """Pages of 20 KB with 5 KB of text and 40 links, an attempt each; the same at every call."""
    rng = random.Random(1)
    words = [f"w{rng.getrandbits(24):x}" for _ in range(4000)]

    def one(number: int) -> tuple[StoredPage, Attempt]:
        url = f"http://site{number % 50}.example.org/{number}.html"
        page = StoredPage(
            crawl=1,
            fingerprint=rng.getrandbits(63),
            url=url,
            final_url=url,
            status=200,
            headers={"content-type": "text/html", "server": "bench"},
            fetched_ms=number,
            body=" ".join(f"<p>{word}</p>" for word in rng.choices(words, k=1500)).encode()[
                :20_000
            ],
            text=" ".join(rng.choices(words, k=700))[:5000],
            title=" ".join(rng.choices(words, k=6)),
            language="en",
            encoding="utf-8",
            links=[Admission(f"{url}/{rng.randrange(10**6)}", 3) for _ in range(40)],
        )
        return page, Attempt(
            crawl=1,
            fingerprint=page.fingerprint,
            url=url,
            code=200,
            kind="ok",
            errors=0,
            at_ms=number,
            elapsed_ms=9,
        )

    made = [one(number) for number in range(pages)]
    parts = [made[start : start + batch] for start in range(0, pages, batch)]
    return [Commit([page for page, _ in part], [tried for _, tried in part]) for part in parts]


def run_store(folder: Path, batches: Batches, greenlets: int = 1) -> None:
    """Our store, with ``greenlets`` callers at a time."""
    store = SqliteStore(folder / "content.sqlite")
    store.put_crawl("bench", CrawlOptions(), [])
    for start in range(0, len(batches), greenlets):
        callers = [gevent.spawn(store.commit, work) for work in batches[start : start + greenlets]]
        gevent.joinall(callers, raise_error=True)
    assert store.counts(1)["pages"] == sum(len(work.pages) for work in batches)
    store.close()


def run_bare(folder: Path, batches: Batches) -> None:
    """The yardstick: ``executemany`` from a thread of the same kind."""
    connect(folder / "bare.sqlite", create=True).close()
    lane = Lane(folder / "bare.sqlite")
    marks = ", ".join("?" * len(PAGE.split(", ")))
    codec = Codec()

    def create(db: sqlite3.Connection) -> None:
        db.execute(f"CREATE TABLE pages (id INTEGER PRIMARY KEY, {PAGE})")
        db.execute("CREATE UNIQUE INDEX pages_by_url ON pages (crawl, fingerprint)")

    def row(page: StoredPage) -> tuple[object, ...]:
        return (
            page.crawl, page.fingerprint, page.fetched_ms, page.elapsed_ms, page.status, page.depth,
            len(page.body), page.truncated, page.digest, page.url, None, page.language,
            page.encoding, page.title, wire.to_json(page.headers).decode(), None,
            codec.pack(plain_links(page.links)), codec.pack(page.text.encode()),
            codec.pack(page.body),
        )  # fmt: skip

    lane.run(create)
    for work in batches:

        def insert(db: sqlite3.Connection, pages: Sequence[StoredPage] = work.pages) -> None:
            rows = [row(page) for page in pages]
            with transaction(db):
                db.executemany(f"INSERT INTO pages ({PAGE}) VALUES ({marks})", rows)

        lane.run(insert)
    lane.close()


@contextmanager
def busy_hub() -> Iterator[Callable[[], float]]:
    """A greenlet that computes, yielding every 0.1 ms or so; gives the CPU seconds it took."""
    spent = 0.0
    stop = False

    def spin() -> None:
        nonlocal spent
        while not stop:
            started = time.thread_time()
            for number in range(3000):
                _ = number * number
            spent += time.thread_time() - started
            gevent.sleep(0)

    spinner = gevent.spawn(spin)
    try:
        yield lambda: spent
    finally:
        stop = True
        spinner.join()


def measure(
    run: Callable[[Path, Batches], None], batches: Batches, place: str | None, busy: bool
) -> tuple[float, float]:
    """(pages a second, CPU µs a page) of one run; the busy greenlet's own CPU is left out."""
    pages = sum(len(work.pages) for work in batches)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        wall, cpu, spent = time.perf_counter(), time.process_time(), 0.0
        if busy:
            with busy_hub() as taken:
                run(Path(folder), batches)
                spent = taken()
        else:
            run(Path(folder), batches)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu - spent
    return pages / wall, cpu / pages * 1e6


SUBJECTS: dict[str, tuple[Callable[[Path, Batches], None], bool]] = {
    "bare": (run_bare, False),
    "store": (run_store, False),
    "store x8": (lambda folder, batches: run_store(folder, batches, 8), False),
    "bare busy": (run_bare, True),
    "store busy": (run_store, True),
    "store x8 busy": (lambda folder, batches: run_store(folder, batches, 8), True),
}


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if the store is slower than 0.8 of the yardstick."""
    parser = argparse.ArgumentParser(description="SQLite store beside a bare executemany")
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64, help="pages a commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the databases are written")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args(arguments)
    batches = make_batches(options.pages, options.batch)
    few = batches[: max(8, len(batches) // 8)]  # the yardstick crawls beside a busy hub
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in SUBJECTS}
    for _ in range(options.rounds):
        for name, (run, busy) in SUBJECTS.items():
            figures[name].append(measure(run, few if busy else batches, options.folder, busy))
    medians = {
        name: tuple(statistics.median(column) for column in zip(*found, strict=True))
        for name, found in figures.items()
    }
    for name, (rate, cpu) in medians.items():
        yardstick = medians["bare busy" if "busy" in name else "bare"][0]
        print(
            f"{name:14} {rate:7.0f} pages/s {cpu:6.0f} µs CPU a page {rate / yardstick:6.2f} × bare"
        )
    if options.json:
        options.json.write_text(json.dumps(medians, indent=1) + "\n")
    return int(medians["store"][0] < 0.8 * medians["bare"][0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
