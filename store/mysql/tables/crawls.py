"""Deletion, dead letters and sums of crawls on MySQL, in a caller's transaction."""

from __future__ import annotations

from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.records import Purge, SeedBatch
from greencrawl.store import rows as common
from greencrawl.store.base import NEVER
from greencrawl.store.mysql import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.statements import chunks, numbers, raw
from greencrawl.store.mysql.tables import replay_log
from greencrawl.store.mysql.transaction import SLOTS, SUMS
from greencrawl.store.rows import Codec, Row
from greencrawl.store.tables import purges
from greencrawl.store.tables.crawls import add_again, get
from greencrawl.store.tables.sql import SHARE_LOCK

PURGE_ROWS = {
    "contents": 200, "pages": 1000, "bodies": 100, "digests": 1000, "versions": 1000,
    "finals": 1000, "attempts": 1000, "seed_batches": 20, "overflow": 1000,
    "hook_failures": 1000, "samples": 1000, "calendar": 1000,
}  # fmt: skip
"""Table → rows deleted in one transaction; a replica repeats it as one transaction."""
_LAST = (
    "periods", "rounds", "hook_sums", "refusals", "limits", "hosts", "sums", "times",
    "crawl_changes", "purges",
)  # fmt: skip


_COUNTED = {
    "pages": "pages_by_stamp", "digests": "PRIMARY", "versions": "PRIMARY",
    "finals": "finals_by_stamp", "attempts": "PRIMARY", "seed_batches": "seed_batches_by_crawl",
    "overflow": "overflow_waiting", "hook_failures": "PRIMARY",
    "calendar": "PRIMARY",
}  # fmt: skip
_TWICE = ("pages", "digests")  # each row goes with another: a wide row or a body


def purge_step(db: Db, crawl: int) -> int | None:
    """Delete some rows of a crawl marked as deleted; return how many, None if nothing is left."""
    crawl = common.bounded(crawl)
    if not db.execute("SELECT 1 FROM crawls WHERE id = %s AND deleted = 1 FOR UPDATE", (crawl,)):
        return None
    for table, count in PURGE_ROWS.items():
        if removed := db.execute(f"DELETE FROM {table} WHERE crawl = %s LIMIT {count}", (crawl,)):
            return removed
    for table in _LAST:
        db.execute(f"DELETE FROM {table} WHERE crawl = %s", (crawl,))
    db.execute("DELETE FROM crawls WHERE id = %s", (crawl,))
    return None


def count_time(db: Db, crawl: int, now_ms: int, most_ms: int) -> int:
    """See ``Store.count_time``."""
    if not db.execute("SELECT 1 FROM crawls WHERE id = %s AND deleted = 0", (crawl,)):
        raise UnknownCrawl(f"no crawl {crawl}")
    db.execute(
        "INSERT INTO times (crawl, spent_ms, looked_ms) VALUES (%s, 0, 0) "
        "ON DUPLICATE KEY UPDATE crawl = VALUES(crawl)",
        (crawl,),
    )
    db.execute("SELECT spent_ms, looked_ms FROM times WHERE crawl = %s FOR UPDATE", (crawl,))
    ((spent_ms, looked_ms),) = db.fetchall()
    if 0 <= now_ms - looked_ms <= most_ms:
        spent_ms += now_ms - looked_ms
    db.execute(
        "UPDATE times SET spent_ms = %s, looked_ms = %s WHERE crawl = %s",
        (spent_ms, max(looked_ms, now_ms), crawl),
    )
    return int(spent_ms)


def purge_size(db: Db, purge: Purge) -> int:
    """Return how many rows are to be deleted: of a crawl, or of a host's overflow."""
    if purge.host:
        return purges.waiting(db, purge)
    total = 0
    for table, index in _COUNTED.items():
        hint = f"FORCE INDEX ({index})" if table != "overflow" else ""
        db.execute(f"SELECT COUNT(*) FROM {table} {hint} WHERE crawl = %s", (purge.instance,))
        ((count,),) = db.fetchall()
        total += count * (2 if table in _TWICE else 1)
    return total


def dead_rows(
    db: Db,
    crawl: int,
    limit: int,
    after: int | None = None,
    lock: str = "",
    before: int = NEVER,
) -> list[Row]:
    """Return rows of ``rows.FINAL_READ`` of dead letters by fingerprint, beginning after ``after``.

    With ``before`` only letters with an earlier stamp are returned.
    """
    db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals FORCE INDEX (finals_by_state) "
        "WHERE crawl = %s AND state = 'dead' AND fingerprint > %s AND stamp < %s "
        f"ORDER BY fingerprint LIMIT %s{lock}",
        (crawl, -(2**64) if after is None else after, before, limit),
    )
    return list(db.fetchall())


def requeue_dead(db: Db, codec: Codec, crawl: int, limit: int, before: int) -> SeedBatch | None:
    """See ``Store.requeue_dead``. Raises UnknownCrawl."""
    get(db, crawl, SHARE_LOCK)
    found = dead_rows(db, crawl, limit, lock=" FOR UPDATE", before=before)
    if not found:
        return None
    for some in chunks([row[1] for row in found]):
        sql = b"DELETE FROM finals WHERE crawl = %d AND fingerprint IN (%b)"
        raw(db, sql % (crawl, numbers(some)))
    fewer(db, crawl, "dead", len(found))
    return add_again(db, codec, crawl, list(map(rows.final, found)))


def fewer(db: Db, crawl: int, state: str, count: int) -> None:
    """Subtract ``count`` final states of a crawl that were removed without a commit."""
    slot = replay_log.begin(db).connection % SLOTS
    changes = ", ".join(str(-count if name == state else 0) for name in SUMS.split(", "))
    db.execute(
        f"INSERT INTO sums (crawl, slot, {SUMS}) VALUES (%s, %s, {changes}) "
        f"ON DUPLICATE KEY UPDATE {state} = {state} + VALUES({state})",
        (crawl, slot),
    )


def counts(db: Db, crawl: int) -> dict[str, int]:
    """See ``Store.counts``."""
    names = SUMS.split(", ")
    totals = ", ".join(f"COALESCE(SUM({name}), 0)" for name in names)
    db.execute(f"SELECT {totals} FROM sums WHERE crawl = %s", (crawl,))
    (found,) = db.fetchall()
    db.execute(
        "SELECT COALESCE(SUM(attempts), 0), COUNT(DISTINCT host) FROM hosts WHERE crawl = %s",
        (crawl,),
    )
    ((attempts, hosts),) = db.fetchall()
    counted = {name: int(count) for name, count in zip(names, found, strict=True)}
    return {
        "pages": counted.pop("pages"), "bytes": counted.pop("bytes"), "attempts": int(attempts),
        "hosts": hosts, **counted,
    }  # fmt: skip
