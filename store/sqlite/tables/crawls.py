"""Deletion, dead letters and sums of crawls on SQLite, in a caller's transaction."""

from __future__ import annotations

import sqlite3

from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.records import Purge, SeedBatch
from greencrawl.store import rows
from greencrawl.store.base import NEVER
from greencrawl.store.rows import Codec, Row
from greencrawl.store.sqlite.tables import contents
from greencrawl.store.tables import purges
from greencrawl.store.tables.crawls import IS_FINISHED, add_again, get

PURGE_ROWS = {
    "pages": 200, "bodies": 200, "versions": 2000, "finals": 2000, "attempts": 2000,
    "seed_batches": 20, "overflow": 2000, "hook_failures": 2000, "samples": 2000,
    "calendar": 2000,
}  # fmt: skip
"""Table → rows deleted in one step, so that a step holds the write lock for milliseconds."""
_KEYS = {
    "versions": "(crawl, fingerprint, fetched_ms)",
    "hook_failures": "(crawl, fingerprint, function)",
    "samples": "(crawl, minute)",
    "calendar": "(crawl, fingerprint)",
}


_LAST = ("periods", "rounds", "crawl_changes", "hosts", "limits", "refusals", "purges")


def alive(db: sqlite3.Connection) -> dict[int, bool]:
    """Return crawls that are not deleted, and whether each is finished."""
    sql = f"SELECT id, {IS_FINISHED} FROM crawls WHERE deleted = 0"
    return dict(db.execute(sql).fetchall())


def purge_step(db: sqlite3.Connection, crawl: int) -> int | None:
    """Delete some rows of a crawl marked as deleted; return how many, None if nothing is left."""
    marked = "SELECT 1 FROM crawls WHERE id = ? AND deleted = 1"
    if db.execute(marked, (rows.bounded(crawl),)).fetchone() is None:
        return None
    for table, count in PURGE_ROWS.items():
        if table == "bodies":
            removed = contents.purge(db, crawl, count)
        else:
            key = _KEYS.get(table, "id")
            some = f"SELECT {key.strip('()')} FROM {table} WHERE crawl = ? LIMIT {count}"
            removed = db.execute(f"DELETE FROM {table} WHERE {key} IN ({some})", (crawl,)).rowcount
        if removed:
            return removed
    for table in _LAST:
        db.execute(f"DELETE FROM {table} WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM crawls WHERE id = ?", (crawl,))
    return None


def purge_size(db: sqlite3.Connection, purge: Purge) -> int:
    """Return how many rows are to be deleted: of a crawl, or of a host's overflow."""
    if purge.host:
        return purges.waiting(db, purge)
    sums = " + ".join(
        f"(SELECT COUNT(*) FROM {table} WHERE crawl = :crawl)" for table in PURGE_ROWS
    )
    return int(db.execute(f"SELECT {sums}", {"crawl": purge.instance}).fetchone()[0])


def count_time(db: sqlite3.Connection, crawl: int, now_ms: int, most_ms: int) -> int:
    """See ``Store.count_time``."""
    row = db.execute(
        "UPDATE crawls SET looked_ms = MAX(looked_ms, :now), spent_ms = spent_ms + "
        "iif(:now - looked_ms BETWEEN 0 AND :most, :now - looked_ms, 0) "
        "WHERE id = :id AND deleted = 0 RETURNING spent_ms",
        {"now": now_ms, "most": most_ms, "id": crawl},
    ).fetchone()
    if row is None:
        raise UnknownCrawl(f"no crawl {crawl}")
    return int(row[0])


def dead_rows(
    db: sqlite3.Connection, crawl: int, limit: int, first: int = 0, before: int = NEVER
) -> list[Row]:
    """Return rows of ``rows.FINAL_READ`` of dead letters in row order, from row ``first`` on.

    With ``before`` only letters with an earlier stamp are returned.
    """
    return db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals "
        "WHERE crawl = ? AND state = 'dead' AND id >= ? AND stamp < ? ORDER BY id LIMIT ?",
        (crawl, first, before, limit),
    ).fetchall()


def requeue_dead(
    db: sqlite3.Connection, codec: Codec, crawl: int, limit: int, before: int
) -> SeedBatch | None:
    """See ``Store.requeue_dead``. Raises UnknownCrawl."""
    get(db, crawl)
    found = dead_rows(db, crawl, limit, before=before)
    if not found:
        return None
    db.execute(
        "DELETE FROM finals WHERE crawl = ? AND state = 'dead' AND id <= ? AND stamp < ?",
        (crawl, found[-1][0], before),
    )
    return add_again(db, codec, crawl, list(map(rows.final, found)))


def counts(db: sqlite3.Connection, crawl: int) -> dict[str, int]:
    """See ``Store.counts``."""
    pages, size = db.execute(
        "SELECT COUNT(*), COALESCE(SUM(body_bytes), 0) FROM pages INDEXED BY pages_by_crawl "
        "WHERE crawl = ? AND status BETWEEN 200 AND 299",
        (crawl,),
    ).fetchone()
    attempts, hosts = db.execute(
        "SELECT COALESCE(SUM(attempts), 0), COUNT(*) FROM hosts WHERE crawl = ?", (crawl,)
    ).fetchone()
    found = {
        "pages": pages,
        "bytes": size,
        "attempts": attempts,
        "hosts": hosts,
        "dead": 0,
        "gone": 0,
        "excluded": 0,
        "parked": 0,
    }
    found.update(
        db.execute(
            "SELECT state, COUNT(*) FROM finals WHERE crawl = ? GROUP BY state", (crawl,)
        ).fetchall()
    )
    return found
