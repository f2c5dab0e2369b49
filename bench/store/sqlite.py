"""Rows a second and CPU a page of the SQLite store, beside a bare ``executemany``.

Both write the same bytes into the same tables with the same indexes and the same durability (WAL,
synchronous=FULL, a commit a batch), in turn, in one run on one core; the median of the rounds is
shown.

* ``bare``: pages are compressed one call at a time; then an ``executemany`` for each table (pages,
  bodies, contents, attempts), and nothing is looked up.
* ``store``: the store, which also finds out what replaces what, and which bodies are there already,
  and deletes final states and overflow rows that no longer hold.
* ``again``: the store, when all pages are there already: a refetch that found half of them changed.
* ``store x8``: eight greenlets commit at a time.
* ``… busy``: the same while a greenlet computes without a pause, as in a worker that parses.

    python -m bench.store.sqlite [--pages N] [--batch N] [--rounds N] [--json FILE] [--folder DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import os
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
from msgspec.structs import replace

from bench.rig.report import write_json
from greencrawl.schema import wire
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Admission, Attempt, Commit, CrawlOptions, StoredPage
from greencrawl.store.rows import ATTEMPT, PAGE, Codec
from greencrawl.store.sqlite.connection import SqliteThread, transaction
from greencrawl.store.sqlite.migrations import prepare
from greencrawl.store.sqlite.store import SqliteStore

Batches = Sequence[Commit]
Run = Callable[[Path, Batches], None]


def make_batches(pages: int, batch: int) -> list[Commit]:
    """Return pages of 20 KB with 5 KB of text and 40 links, an attempt each; the same at every
    call."""
    rng = random.Random(1)
    words = [f"w{rng.getrandbits(24):x}" for _ in range(4000)]

    def one(number: int) -> tuple[StoredPage, Attempt]:
        url = f"http://site{number % 50}.example.org/{number}.html"
        chosen = rng.choices(words, k=1500)
        body = " ".join(f"<p>{word}</p>" for word in chosen).encode()[:20_000]
        page = StoredPage(
            crawl=1,
            fingerprint=rng.getrandbits(63),
            url=url,
            final_url=url,
            status=200,
            headers={"content-type": "text/html", "server": "bench"},
            fetched_ms=number,
            body=body,
            digest=_hash(body),
            text=" ".join(chosen)[:5000],
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
    """Commit to our store, with ``greenlets`` callers at a time."""
    store = SqliteStore(folder / "content.sqlite")
    store.put_crawl("bench", CrawlOptions(), [])
    for start in range(0, len(batches), greenlets):
        callers = [gevent.spawn(store.commit, work) for work in batches[start : start + greenlets]]
        gevent.joinall(callers, raise_error=True)
    assert store.counts(1)["pages"] == sum(len(work.pages) for work in batches)
    store.close()


def run_again(folder: Path, batches: Batches) -> None:
    """Commit pages that already exist to our store."""
    store = SqliteStore(folder / "content.sqlite")
    for work in batches:
        store.commit(work)
    store.close()


def refetched(batches: Batches) -> list[Commit]:
    """Return the same pages an hour later; every second one has changed."""
    return [
        Commit(
            [
                replace(page, fetched_ms=page.fetched_ms + 3_600_000, body=body, digest=_hash(body))
                for n, page in enumerate(work.pages)
                for body in [page.body if n % 2 else b"<!-- new -->" + page.body]
            ],
            [replace(tried, at_ms=tried.at_ms + 3_600_000) for tried in work.attempts],
        )
        for work in batches
    ]


def _hash(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:16]


def insertion(table: str, columns: str) -> str:
    """Return the statement that inserts a row with these columns."""
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(columns.split(', ')))})"


def run_bare(folder: Path, batches: Batches) -> None:
    """Write the same rows with a bare ``executemany``, from a thread of the same kind."""
    prepare(folder / "content.sqlite")
    lane = SqliteThread(folder / "content.sqlite")
    codec = Codec()
    number = 0

    def row(page: StoredPage) -> tuple[object, ...]:
        return (
            1, page.crawl, page.fingerprint, page.fetched_ms, page.elapsed_ms, page.status,
            page.depth, len(page.body), page.truncated, page.digest, page.url, None,
            page.language, page.encoding, page.title, wire.to_json(page.headers).decode(), None,
            codec.pack_links(page.links), len(page.text.encode()), b"",
        )  # fmt: skip

    def tried(one: Attempt) -> tuple[object, ...]:
        return (
            one.crawl, one.fingerprint, one.at_ms, one.code, one.errors, one.wait, one.elapsed_ms,
            host_of(one.url), one.kind, one.url, one.worker, one.detail,
        )  # fmt: skip

    for work in batches:

        def insert(db: sqlite3.Connection, work: Commit = work) -> None:
            nonlocal number
            pages = [row(page) for page in work.pages]
            contents = [
                (number + n, codec.pack(page.text.encode() + page.body))
                for n, page in enumerate(work.pages, start=1)
            ]
            bodies = [
                (page.crawl, page.digest, 1, number + n)
                for n, page in enumerate(work.pages, start=1)
            ]
            number += len(pages)
            attempts = [tried(one) for one in work.attempts]
            with transaction(db):
                db.executemany(insertion("pages", f"stamp, {PAGE}"), pages)
                db.executemany(insertion("contents", "id, body"), contents)
                db.executemany(insertion("bodies", "crawl, digest, uses, content"), bodies)
                db.executemany(insertion("attempts", ATTEMPT), attempts)

        lane.run(insert)
    lane.close()


@contextmanager
def busy_hub() -> Iterator[Callable[[], float]]:
    """Run a greenlet that computes, yielding every 0.1 ms or so; yield the CPU seconds that it
    took."""
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
    run: Run, batches: Batches, place: str | None, *, busy: bool = False, before: Batches = ()
) -> tuple[float, float]:
    """Return (pages a second, CPU µs a page) of one run, without the busy greenlet's own CPU.

    ``before`` is stored first.
    """
    pages = sum(len(work.pages) for work in batches)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        if before:
            run_store(Path(folder), before)
        wall, cpu, spent = time.perf_counter(), time.process_time(), 0.0
        if busy:
            with busy_hub() as taken:
                run(Path(folder), batches)
                spent = taken()
        else:
            run(Path(folder), batches)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu - spent
    return pages / wall, cpu / pages * 1e6


SUBJECTS: dict[str, tuple[Run, bool]] = {
    "bare": (run_bare, False),
    "store": (run_store, False),
    "store x8": (lambda folder, batches: run_store(folder, batches, 8), False),
    "bare busy": (run_bare, True),
    "store busy": (run_store, True),
    "store x8 busy": (lambda folder, batches: run_store(folder, batches, 8), True),
}


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 if the store is slower than 0.8 of the bare inserts."""
    parser = argparse.ArgumentParser(description="SQLite store beside a bare executemany")
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64, help="pages a commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where the databases are written")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    batches = make_batches(options.pages, options.batch)
    few = batches[: max(8, len(batches) // 8)]  # the bare inserts are very slow beside a busy hub
    figures: dict[str, list[tuple[float, float]]] = {
        name: [] for name in (*SUBJECTS, "again", "again busy")
    }
    for _ in range(options.rounds):
        for name, (run, busy) in SUBJECTS.items():
            some = few if busy else batches
            figures[name].append(measure(run, some, options.folder, busy=busy))
        later = refetched(batches)
        figures["again"].append(measure(run_again, later, options.folder, before=batches))
        figures["again busy"].append(
            measure(run_again, later[: len(few)], options.folder, busy=True, before=few)
        )
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
        write_json(options.json, medians)
    return int(medians["store"][0] < 0.8 * medians["bare"][0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
