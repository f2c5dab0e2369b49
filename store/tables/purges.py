"""Deletions that are under way; each function runs in a caller's transaction.

The rows of a crawl go in steps, which each store makes of its own tables.
"""

from __future__ import annotations

from collections.abc import Callable

from greencrawl.schema.records import Purge
from greencrawl.store.rows import Row, clean
from greencrawl.store.tables import crawls
from greencrawl.store.tables.sql import FOR_UPDATE, Db, add, change, found

_READ = (
    "SELECT purges.id, name, purges.crawl, host, asked_ms, total, removed FROM purges "
    "JOIN crawls ON crawls.id = purges.crawl"
)


def every(db: Db) -> list[Purge]:
    """Return all deletions under way, oldest first."""
    return list(map(_purge, found(db, _READ + " ORDER BY purges.id")))


def _purge(row: Row) -> Purge:
    number, name, crawl, host, asked_ms, total, removed = row
    return Purge(
        id=number, crawl=name, instance=crawl, host=host, asked_ms=asked_ms, total=total,
        removed=removed,
    )  # fmt: skip


def begin(db: Db, crawl: int, host: str, now_ms: int) -> Purge:
    """Start a deletion, or continue the one under way; without a host the crawl becomes unknown.

    Raises UnknownCrawl.
    """
    crawls.get(db, crawl, FOR_UPDATE)
    key = (crawl, clean(host))
    if not found(db, "SELECT 1 FROM purges WHERE crawl = ? AND host = ?", key):
        sql = "INSERT INTO purges (id, crawl, host, asked_ms) VALUES (?, ?, ?, ?)"
        add(db, sql, (*key, now_ms))
    if not host:
        crawls.mark_deleted(db, crawl)
    (row,) = found(db, _READ + " WHERE purges.crawl = ? AND host = ?", key)
    return _purge(row)


def waiting(db: Db, purge: Purge) -> int:
    """Return how many rows of a host's overflow are to be deleted."""
    sql = "SELECT COUNT(*) FROM overflow WHERE queued = 0 AND crawl = ? AND host = ?"
    ((count,),) = found(db, sql, (purge.instance, clean(purge.host)))
    return int(count)


def note(db: Db, purge: int, removed: int, total: int = 0) -> None:
    """Add to the number of removed rows; ``total`` is set once, by the first caller who knows
    it."""
    sql = (
        "UPDATE purges SET removed = removed + ?, "
        "total = CASE WHEN total = 0 THEN ? ELSE total END WHERE id = ?"
    )
    change(db, sql, (removed, total, purge))


def step(db: Db, purge: Purge, rows: Callable[[Db, int], int | None]) -> bool:
    """Delete some ``rows`` of a crawl marked as deleted; False when nothing is left of it."""
    removed = rows(db, purge.instance)
    if removed is None:
        return False
    note(db, purge.id, removed, 0)
    return True


def end(db: Db, purge: int) -> None:
    """Record that the deletion is complete."""
    change(db, "DELETE FROM purges WHERE id = ?", (purge,))
