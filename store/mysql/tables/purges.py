"""Deletions on MySQL, in steps; each function runs in a caller's transaction."""

from __future__ import annotations

from greencrawl.schema.records import Purge
from greencrawl.store import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.ids import Numbers
from greencrawl.store.mysql.tables import crawls

_READ = (
    "SELECT purges.id, name, purges.crawl, host, asked_ms, total, removed FROM purges "
    "JOIN crawls ON crawls.id = purges.crawl"
)
_COUNTED = {
    "pages": "pages_by_stamp", "digests": "PRIMARY", "versions": "PRIMARY",
    "finals": "finals_by_stamp", "attempts": "PRIMARY", "seed_batches": "seed_batches_by_crawl",
    "overflow": "overflow_waiting", "hook_failures": "PRIMARY",
    "calendar": "PRIMARY",
}  # fmt: skip
_TWICE = ("pages", "digests")  # each has a wide row or a body, too


def every(db: Db) -> list[Purge]:
    """Return all deletions under way, oldest first."""
    db.execute(_READ + " ORDER BY purges.id")
    return [_purge(row) for row in db.fetchall()]


def _purge(row: rows.Row) -> Purge:
    number, name, crawl, host, asked_ms, total, removed = row
    return Purge(
        id=number, crawl=name.decode(), instance=crawl, host=host.decode(), asked_ms=asked_ms,
        total=total, removed=removed,
    )  # fmt: skip


def add(db: Db, ids: Numbers, crawl: int, host: str, now_ms: int) -> Purge:
    """Start a deletion, or continue the one under way; without a host the crawl becomes unknown.

    Raises UnknownCrawl.
    """
    crawls.get(db, crawl, " FOR UPDATE")
    name = rows.clean(host).encode()
    if not db.execute("SELECT 1 FROM purges WHERE crawl = %s AND host = %s", (crawl, name)):
        db.execute(
            "INSERT INTO purges (id, crawl, host, asked_ms) VALUES (%s, %s, %s, %s)",
            (ids.take(), crawl, name, now_ms),
        )
    if not host:
        crawls.mark_deleted(db, crawl)
    db.execute(_READ + " WHERE purges.crawl = %s AND host = %s", (crawl, name))
    (found,) = db.fetchall()
    return _purge(found)


def size(db: Db, purge: Purge) -> int:
    """Return how many rows are to be deleted: of a crawl, or of a host's overflow."""
    if purge.host:
        db.execute(
            "SELECT COUNT(*) FROM overflow WHERE queued = 0 AND crawl = %s AND host = %s",
            (purge.instance, rows.clean(purge.host).encode()),
        )
        ((count,),) = db.fetchall()
        return int(count)
    total = 0
    for table, index in _COUNTED.items():
        hint = f"FORCE INDEX ({index})" if table != "overflow" else ""
        db.execute(f"SELECT COUNT(*) FROM {table} {hint} WHERE crawl = %s", (purge.instance,))
        ((count,),) = db.fetchall()
        total += count * (2 if table in _TWICE else 1)
    return total


def note(db: Db, purge: int, removed: int, total: int = 0) -> None:
    """Add to the number of removed rows; ``total`` is set once, by the first caller who knows
    it."""
    db.execute(
        "UPDATE purges SET removed = removed + %s, total = IF(total = 0, %s, total) WHERE id = %s",
        (removed, total, purge),
    )


def step(db: Db, purge: Purge) -> bool:
    """Delete some rows of a crawl marked as deleted; return False when nothing is left of it."""
    removed = crawls.purge_step(db, purge.instance)
    if removed is None:
        return False
    note(db, purge.id, removed, 0)
    return True


def end(db: Db, purge: int) -> None:
    """Record that the deletion is complete."""
    db.execute("DELETE FROM purges WHERE id = %s", (purge,))
