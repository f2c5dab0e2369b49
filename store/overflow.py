"""The overflow on SQLite: URLs that wait in SQL; each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain

from schema.records import Admission, Overflow
from schema.urls import host_of
from store import crawls, rows
from store.rows import Row

FREED_ROWS = 5000
"""Rows that one step of :func:`free` changes, so that it holds the write lock for milliseconds."""

_READ = "id, fingerprint, partition, url, depth, level, redirects"
_NAMED = 400


def put(db: sqlite3.Connection, crawl: int, items: Sequence[Overflow]) -> None:
    """Add rows; one that is there waits again, at the better of both levels."""
    db.executemany(
        "INSERT INTO overflow (crawl, fingerprint, partition, level, depth, redirects, host, url) "
        "SELECT ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS "
        "(SELECT 1 FROM crawls WHERE id = ? AND deleted = 0) "
        "ON CONFLICT (crawl, fingerprint) DO UPDATE SET queued = 0, "
        "level = MIN(level, excluded.level)",
        [
            (crawl, one.fingerprint, one.partition, one.item.level, one.item.depth,
             one.item.redirects, host_of(one.item.url), rows.clean(one.item.url), crawl)
            for one in items
        ],
    )  # fmt: skip
    crawls.reopen_finished(db, [crawl])


def best(
    db: sqlite3.Connection, crawl: int, partition: int, host: str, limit: int
) -> list[Overflow]:
    """A host's waiting rows, by level, then in order of arrival."""
    found = db.execute(
        f"SELECT {_READ} FROM overflow INDEXED BY overflow_waiting WHERE queued = 0 "
        "AND crawl = ? AND partition = ? AND host = ? ORDER BY level, id LIMIT ?",
        (crawl, partition, host, limit),
    )
    return [_overflow(row) for row in found]


def _overflow(row: Row) -> Overflow:
    number, fingerprint, partition, url, depth, level, redirects = row
    return Overflow(fingerprint, partition, Admission(url, depth, level, redirects), number)


def hosts(db: sqlite3.Connection, crawl: int, partition: int, after: str, limit: int) -> list[str]:
    """Names of hosts with waiting rows, beginning after ``after``: one look-up a host."""
    found = db.execute(
        "WITH RECURSIVE step (host) AS (SELECT :after UNION ALL SELECT (SELECT MIN(host) "
        "FROM overflow INDEXED BY overflow_waiting WHERE queued = 0 AND crawl = :crawl "
        "AND partition = :partition AND host > step.host) FROM step WHERE step.host IS NOT NULL) "
        "SELECT host FROM step WHERE host IS NOT NULL LIMIT :limit OFFSET 1",
        {"after": after, "crawl": crawl, "partition": partition, "limit": limit},
    )
    return [row[0] for row in found]


def waiting_crawls(db: sqlite3.Connection) -> list[int]:
    """Ids of active crawls with waiting rows: one look-up a crawl."""
    return [
        row[0]
        for row in db.execute(
            "SELECT id FROM crawls WHERE deleted = 0 AND state = 'active' "
            "AND EXISTS (SELECT 1 FROM overflow INDEXED BY overflow_waiting "
            "WHERE queued = 0 AND overflow.crawl = crawls.id)"
        )
    ]


def waiting_partitions(db: sqlite3.Connection, crawl: int) -> list[int]:
    """Partitions in which a crawl has waiting rows: one look-up a partition."""
    found = db.execute(
        "WITH RECURSIVE step (p) AS (SELECT -1 UNION ALL SELECT (SELECT MIN(partition) "
        "FROM overflow INDEXED BY overflow_waiting WHERE queued = 0 AND crawl = :crawl "
        "AND partition > step.p) FROM step WHERE step.p IS NOT NULL) "
        "SELECT p FROM step WHERE p >= 0",
        {"crawl": crawl},
    )
    return [row[0] for row in found]


def page(
    db: sqlite3.Connection, partition: int, after: int, limit: int
) -> list[tuple[int, Overflow]]:
    """(crawl, row) of a partition in order of arrival, beginning after row ``after``."""
    found = db.execute(
        f"SELECT crawl, {_READ} FROM overflow WHERE partition = ? AND id > ? ORDER BY id LIMIT ?",
        (partition, after, limit),
    )
    return [(row[0], _overflow(row[1:])) for row in found]


def taken(db: sqlite3.Connection, items: Sequence[Overflow], node: str, epoch: int) -> None:
    """The node has these in memory under ``epoch``; those that were fetched already go.

    Nothing is noted under an epoch that is over: the node may have forgotten them since.
    """
    if db.execute("SELECT 1 FROM nodes WHERE id = ? AND epoch > ?", (node, epoch)).fetchone():
        return
    for start in range(0, len(items), _NAMED):
        ids = [one.id for one in items[start : start + _NAMED]]
        marks = ", ".join("?" * len(ids))
        db.execute(
            f"DELETE FROM overflow WHERE id IN ({marks}) AND (EXISTS (SELECT 1 FROM pages WHERE "
            "pages.crawl = overflow.crawl AND pages.fingerprint = overflow.fingerprint) OR EXISTS "
            "(SELECT 1 FROM finals WHERE finals.crawl = overflow.crawl "
            "AND finals.fingerprint = overflow.fingerprint))",
            ids,
        )
        db.execute(f"UPDATE overflow SET queued = ? WHERE id IN ({marks})", [epoch, *ids])


def free(db: sqlite3.Connection, partition: int, below: int | None = None) -> int:
    """Let rows wait again that were queued, under an epoch ``below`` that; returns how many."""
    older = "" if below is None else f"AND queued < {below:d} "
    found = db.execute(
        "UPDATE overflow SET queued = 0 WHERE id IN (SELECT id FROM overflow "
        f"INDEXED BY overflow_queued WHERE partition = ? AND queued <> 0 {older}LIMIT ?)",
        (partition, FREED_ROWS),
    )
    return found.rowcount


def settled(db: sqlite3.Connection, keys: Iterable[tuple[int, int]]) -> None:
    """Pages or final states of these (crawl, fingerprint) were just written: their rows go.

    Those that wait stay until a node has taken them (:func:`taken`): it knows them as waiting
    here, and would wait for them for ever. The page came from a session that the node forgot.
    """
    if db.execute("SELECT 1 FROM overflow LIMIT 1").fetchone() is None:
        return
    for chunk in _chunks(list(keys)):
        values = ", ".join(["(?, ?)"] * len(chunk))
        db.execute(
            f"WITH done (crawl, fingerprint) AS (VALUES {values}) DELETE FROM overflow WHERE id IN "
            "(SELECT overflow.id FROM done CROSS JOIN overflow ON overflow.crawl = done.crawl "
            "AND overflow.fingerprint = done.fingerprint AND overflow.queued <> 0)",
            list(chain.from_iterable(chunk)),
        )


def _chunks(keys: Sequence[tuple[int, int]]) -> Iterable[Sequence[tuple[int, int]]]:
    return (keys[start : start + _NAMED] for start in range(0, len(keys), _NAMED))
