"""The log from which a Redis node is refilled: its clock, the epochs of nodes, and its windows.

Each function runs in a caller's transaction. A window is all that was stamped since some value of
the clock. It is read by (stamp, id), a chunk at a time. So a row that gets a new stamp during the
reading is read again, and none is left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from greencrawl.schema.records import Stamp
from greencrawl.store.rows import Row

MARKS = {
    "pages": (
        "SELECT stamp, id, crawl, url, status, body_bytes FROM pages "
        "WHERE (stamp, id) > (?, ?) ORDER BY stamp, id"
    ),
    "finals": (
        "SELECT stamp, id, crawl, url, state, 0 FROM finals "
        "WHERE (stamp, id) > (?, ?) ORDER BY stamp, id"
    ),
}
"""Queries for what is settled, each table in order of its stamps."""

LINKS = (
    "SELECT stamp, id, crawl, links FROM pages "
    "WHERE (stamp, id) > (?, ?) AND length(links) > 0 ORDER BY stamp, id"
)
SEEDS = (
    "SELECT stamp, id, crawl, forced, urls FROM seed_batches "
    "WHERE (stamp, id) > (?, ?) AND forced = {forced:d} ORDER BY stamp, id"
)

TOGETHER = 500
"""Fingerprints in one statement."""


def clock(db: sqlite3.Connection) -> Stamp:
    """Return the store's clock and the epochs, read together."""
    (value,) = db.execute("SELECT value FROM clock").fetchone()
    return Stamp(value, epochs(db))


def epochs(db: sqlite3.Connection) -> dict[str, int]:
    """Return node → its epoch; none for a node that was never opened."""
    return dict(db.execute("SELECT id, epoch FROM nodes").fetchall())


def raise_epoch(db: sqlite3.Connection, node: str, known: int, epoch: int) -> bool:
    """See ``Store.raise_epoch``."""
    db.execute("INSERT INTO nodes (id, epoch) VALUES (?, 0) ON CONFLICT DO NOTHING", (node,))
    sql = "UPDATE nodes SET epoch = ? WHERE id = ? AND epoch = ?"
    return db.execute(sql, (epoch, node, known)).rowcount == 1


def settle_seeds(db: sqlite3.Connection, batch: int, least: int, under: Mapping[str, int]) -> bool:
    """Mark a batch as admitted if it is stamped ``least`` or later and no epoch was raised."""
    known = epochs(db)
    if any(known.get(node, 0) > epoch for node, epoch in under.items()):
        return False
    sql = "UPDATE seed_batches SET pending = 0 WHERE id = ? AND stamp >= ?"
    if db.execute(sql, (batch, least)).rowcount:
        return True
    return not db.execute("SELECT 1 FROM seed_batches WHERE id = ?", (batch,)).fetchone()


def restamp_seeds(db: sqlite3.Connection, batch: int) -> Stamp:
    """See ``Store.restamp_seeds``."""
    now = clock(db)
    db.execute("UPDATE seed_batches SET stamp = ?, pending = 1 WHERE id = ?", (now.clock, batch))
    return now


def stamps(db: sqlite3.Connection, crawl: int, fingerprints: Sequence[int]) -> list[Row]:
    """Return (fingerprint, stamp) of pages and final states, the latter after the former."""
    some = ", ".join("?" * len(fingerprints))
    found: list[Row] = []
    for table in ("pages", "finals"):
        found += db.execute(
            f"SELECT fingerprint, stamp FROM {table} WHERE crawl = ? AND fingerprint IN ({some})",
            (crawl, *fingerprints),
        ).fetchall()
    return found


def size(db: sqlite3.Connection, since: int) -> tuple[int, int, int]:
    """Return how many rows a window has: pages, final states, batches of seeds."""
    pages, finals, seeds = (
        db.execute(f"SELECT COUNT(*) FROM {table} WHERE stamp >= ?", (since,)).fetchone()[0]
        for table in ("pages", "finals", "seed_batches")
    )
    return pages, finals, seeds
