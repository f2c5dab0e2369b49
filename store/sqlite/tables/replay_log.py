"""Reads a window of the replay log, from which a Redis node is refilled.

Each function runs in a caller's transaction. A window is all that was stamped since some value of
the clock. It is read by (stamp, id), a chunk at a time. So a row that gets a new stamp during the
reading is read again, and none is left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

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
"""Queries for settled rows, each table in order of its stamps."""

LINKS = (
    "SELECT stamp, id, crawl, links FROM pages "
    "WHERE (stamp, id) > (?, ?) AND length(links) > 0 ORDER BY stamp, id"
)
SEEDS = (
    "SELECT stamp, id, crawl, forced, urls FROM seed_batches "
    "WHERE (stamp, id) > (?, ?) AND forced = {forced:d} ORDER BY stamp, id"
)

BATCH = 500
"""Fingerprints in one statement."""


def stamps(db: sqlite3.Connection, crawl: int, fingerprints: Sequence[int]) -> list[Row]:
    """Return (fingerprint, stamp) of pages, and after them of final states."""
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
