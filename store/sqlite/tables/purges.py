"""Deletions on SQLite, in steps; each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3

from greencrawl.schema.records import Purge
from greencrawl.store import rows
from greencrawl.store.sqlite.tables import crawls

_READ = (
    "SELECT purges.id, name, purges.crawl, host, asked_ms, total, removed FROM purges "
    "JOIN crawls ON crawls.id = purges.crawl"
)


def every(db: sqlite3.Connection) -> list[Purge]:
    """Return all deletions under way, oldest first."""
    return [_purge(row) for row in db.execute(_READ + " ORDER BY purges.id")]


def _purge(row: rows.Row) -> Purge:
    number, name, crawl, host, asked_ms, total, removed = row
    return Purge(
        id=number, crawl=name, instance=crawl, host=host, asked_ms=asked_ms, total=total,
        removed=removed,
    )  # fmt: skip


def add(db: sqlite3.Connection, crawl: int, host: str, now_ms: int) -> Purge:
    """Start a deletion, or continue the one under way; without a host the crawl becomes unknown.

    Raises UnknownCrawl.
    """
    crawls.get(db, crawl)
    if not host:
        crawls.mark_deleted(db, crawl)
    db.execute(
        "INSERT INTO purges (crawl, host, asked_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (crawl, rows.clean(host), now_ms),
    )
    found = db.execute(_READ + " WHERE purges.crawl = ? AND host = ?", (crawl, rows.clean(host)))
    return _purge(found.fetchone())


def size(db: sqlite3.Connection, purge: Purge) -> int:
    """Return how many rows are to be deleted: of a crawl, or of a host's overflow."""
    if purge.host:
        sql = "SELECT COUNT(*) FROM overflow WHERE queued = 0 AND crawl = ? AND host = ?"
        return int(db.execute(sql, (purge.instance, purge.host)).fetchone()[0])
    sums = " + ".join(
        f"(SELECT COUNT(*) FROM {table} WHERE crawl = :crawl)" for table in crawls.PURGE_ROWS
    )
    return int(db.execute(f"SELECT {sums}", {"crawl": purge.instance}).fetchone()[0])


def note(db: sqlite3.Connection, purge: int, removed: int, total: int = 0) -> None:
    """Add to the number of removed rows; ``total`` is set once, by the first caller who knows
    it."""
    db.execute(
        "UPDATE purges SET removed = removed + ?, total = iif(total = 0, ?, total) WHERE id = ?",
        (removed, total, purge),
    )


def step(db: sqlite3.Connection, purge: Purge) -> bool:
    """Delete some rows of a crawl marked as deleted; return False when nothing is left of it."""
    removed = crawls.purge_step(db, purge.instance)
    if removed is None:
        return False
    note(db, purge.id, removed, 0)
    return True


def end(db: sqlite3.Connection, purge: int) -> None:
    """Record that the deletion is complete."""
    db.execute("DELETE FROM purges WHERE id = ?", (purge,))
