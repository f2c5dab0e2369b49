"""The overflow on SQLite: URLs that wait in SQL; each function runs in a caller's transaction.

``stamp`` is the store's clock when a row began to wait. ``queued`` is 0 while the row waits;
otherwise it is :data:`QUEUED` plus the clock when it was queued. Recovery reads the rows since some
value of ``stamp``, or of ``queued``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain

from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Admission, Overflow, pack_redirects, unpack_redirects
from greencrawl.store import rows
from greencrawl.store.rows import Row
from greencrawl.store.tables.crawls import reopen_finished
from greencrawl.store.tables.nodes import clock

FREED_ROWS = 5000
"""Rows that one step of :func:`free` changes, so that it holds the write lock for milliseconds."""

QUEUED = 1 << 40
"""``queued`` is this number plus the store's clock, which is above 0 but may be small."""

_READ = "id, fingerprint, partition, url, depth, level, redirects"
_NAMED = 400


def put(db: sqlite3.Connection, crawl: int, items: Sequence[Overflow]) -> None:
    """Add rows; an existing row waits again, at the better of both levels."""
    stamp = clock(db).clock
    db.executemany(
        "INSERT INTO overflow "
        "(crawl, fingerprint, partition, stamp, level, depth, redirects, host, url) "
        "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS "
        "(SELECT 1 FROM crawls WHERE id = ? AND deleted = 0) "
        "ON CONFLICT (crawl, fingerprint) DO UPDATE SET queued = 0, stamp = excluded.stamp, "
        "level = MIN(level, excluded.level)",
        [
            (crawl, one.fingerprint, one.partition, stamp, one.item.level, one.item.depth,
             pack_redirects(one.item), host_of(one.item.url), rows.clean(one.item.url), crawl)
            for one in items
        ],
    )  # fmt: skip
    reopen_finished(db, [crawl])


def best(
    db: sqlite3.Connection, crawl: int, partition: int, host: str, limit: int
) -> list[Overflow]:
    """Return a host's waiting rows, by level, then in order of arrival."""
    found = db.execute(
        f"SELECT {_READ} FROM overflow INDEXED BY overflow_waiting WHERE queued = 0 "
        "AND crawl = ? AND partition = ? AND host = ? ORDER BY level, id LIMIT ?",
        (crawl, partition, host, limit),
    )
    return [_overflow(row) for row in found]


def _overflow(row: Row) -> Overflow:
    number, fingerprint, partition, url, depth, level, redirects = row
    return Overflow(
        fingerprint, partition, Admission(url, depth, level, *unpack_redirects(redirects)), number
    )


def hosts(db: sqlite3.Connection, crawl: int, partition: int, after: str, limit: int) -> list[str]:
    """Return names of hosts with waiting rows, beginning after ``after``: one look-up a host."""
    found = db.execute(
        "WITH RECURSIVE step (host) AS (SELECT :after UNION ALL SELECT (SELECT MIN(host) "
        "FROM overflow INDEXED BY overflow_waiting WHERE queued = 0 AND crawl = :crawl "
        "AND partition = :partition AND host > step.host) FROM step WHERE step.host IS NOT NULL) "
        "SELECT host FROM step WHERE host IS NOT NULL LIMIT :limit OFFSET 1",
        {"after": after, "crawl": crawl, "partition": partition, "limit": limit},
    )
    return [row[0] for row in found]


def waiting_crawls(db: sqlite3.Connection) -> list[int]:
    """Return ids of active crawls with waiting rows: one look-up a crawl."""
    return [
        row[0]
        for row in db.execute(
            "SELECT id FROM crawls WHERE deleted = 0 AND state = 'active' "
            "AND EXISTS (SELECT 1 FROM overflow INDEXED BY overflow_waiting "
            "WHERE queued = 0 AND overflow.crawl = crawls.id)"
        )
    ]


def waiting_partitions(db: sqlite3.Connection, crawl: int) -> list[int]:
    """Return partitions in which a crawl has waiting rows: one look-up a partition."""
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
    """Return (crawl, row) of a partition in order of arrival, beginning after row ``after``."""
    found = db.execute(
        f"SELECT crawl, {_READ} FROM overflow WHERE partition = ? AND id > ? ORDER BY id LIMIT ?",
        (partition, after, limit),
    )
    return [(row[0], _overflow(row[1:])) for row in found]


def begun(
    db: sqlite3.Connection, partition: int, after: tuple[int, int], limit: int
) -> list[tuple[int, int, Overflow]]:
    """Return (stamp, crawl, row) of a partition's waiting rows, beginning after (stamp, row)."""
    found = db.execute(
        f"SELECT stamp, crawl, {_READ} FROM overflow INDEXED BY overflow_by_stamp "
        "WHERE partition = ? AND (stamp, id) > (?, ?) AND queued = 0 ORDER BY stamp, id LIMIT ?",
        (partition, *after, limit),
    )
    return [(row[0], row[1], _overflow(row[2:])) for row in found]


def taken(db: sqlite3.Connection, items: Sequence[Overflow], node: str, epoch: int) -> None:
    """Note that the node has ``items`` in memory under ``epoch``; delete those that were fetched.

    Nothing is noted under an epoch that is over: the node may have forgotten the rows since. The
    page or final state of a deleted row gets a new stamp. A node that comes back in an older state
    waits for that row; by the new stamp it learns that the URL is settled.
    """
    now = clock(db)
    if now.epochs.get(node, 0) > epoch:
        return
    for start in range(0, len(items), _NAMED):
        ids = [one.id for one in items[start : start + _NAMED]]
        marks = ", ".join("?" * len(ids))
        for table in ("pages", "finals"):
            settled = (
                f"FROM overflow CROSS JOIN {table} ON {table}.crawl = overflow.crawl "
                f"AND {table}.fingerprint = overflow.fingerprint WHERE overflow.id IN ({marks})"
            )
            db.execute(
                f"UPDATE {table} SET stamp = ? WHERE stamp < ? AND id IN "
                f"(SELECT {table}.id {settled})",
                [now.clock, now.clock, *ids],
            )
            db.execute(f"DELETE FROM overflow WHERE id IN (SELECT overflow.id {settled})", ids)
        db.execute(
            f"UPDATE overflow SET queued = ? WHERE id IN ({marks})", [QUEUED + now.clock, *ids]
        )


def free(db: sqlite3.Connection, partition: int, since: int = 0) -> int:
    """Let rows wait again that were queued ``since`` or later; return how many this step freed."""
    stamp = clock(db).clock
    return db.execute(
        "UPDATE overflow SET queued = 0, stamp = ? WHERE id IN (SELECT id FROM overflow "
        "INDEXED BY overflow_queued WHERE partition = ? AND queued <> 0 AND queued >= ? LIMIT ?)",
        (stamp, partition, QUEUED + since, FREED_ROWS),
    ).rowcount


def settled(db: sqlite3.Connection, keys: Iterable[tuple[int, int]]) -> None:
    """Delete the rows of these (crawl, fingerprint) whose page or final state was just written.

    A row that waits stays until a node has taken it (:func:`taken`): its page came from a session
    that the node forgot. The node knows that the row waits here, and would wait for ever if the row
    were deleted.
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
