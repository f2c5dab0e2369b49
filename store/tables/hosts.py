"""Blocks of hosts, operators' delays, and which hosts are slow.

Each function runs in a caller's transaction.
"""

from __future__ import annotations

from greencrawl.store.rows import bounded, clean
from greencrawl.store.tables.sql import Db, change, drop, first, found

_DAY_MS = 86_400_000
_STEP = 1000


def put_block(db: Db, host: str, until_ms: int, reason: str) -> None:
    """See ``Store.put_block``."""
    change(
        db,
        "INSERT INTO blocks (host, until_ms, reason) VALUES (?, ?, ?) "
        "ON CONFLICT (host) DO UPDATE SET reason = CASE "
        "WHEN excluded.until_ms > blocks.until_ms THEN excluded.reason ELSE blocks.reason END, "
        "until_ms = CASE WHEN excluded.until_ms > blocks.until_ms THEN excluded.until_ms "
        "ELSE blocks.until_ms END",  # the reason first: MySQL goes from left to right
        (clean(host), bounded(until_ms), clean(reason)),
    )


def lift_block(db: Db, host: str) -> None:
    """See ``Store.lift_block``."""
    change(db, "DELETE FROM blocks WHERE host = ?", (clean(host),))


def blocks(db: Db, now_ms: int) -> list[tuple[str, int, str]]:
    """See ``Store.blocks``."""
    sql = "SELECT host, until_ms, reason FROM blocks WHERE until_ms > ? ORDER BY host"
    return [(host, until_ms, reason) for host, until_ms, reason in found(db, sql, (now_ms,))]


def put_delay(db: Db, host: str, delay_ms: int) -> None:
    """See ``Store.put_delay``."""
    change(db, "DELETE FROM delays WHERE host = ?", (clean(host),))
    if delay_ms:
        sql = "INSERT INTO delays (host, delay_ms) VALUES (?, ?)"
        change(db, sql, (clean(host), bounded(delay_ms)))


def delay(db: Db, host: str) -> int:
    """See ``Store.delay``."""
    row = first(db, "SELECT delay_ms FROM delays WHERE host = ?", (clean(host),))
    return int(row[0]) if row else 0


def delays(db: Db) -> dict[str, int]:
    """See ``Store.delays``."""
    return dict(found(db, "SELECT host, delay_ms FROM delays"))


def drop_expired(db: Db, now_ms: int) -> int:
    """Delete some blocks that ended a day ago, expired refusals of workers, and empty sums."""
    return (
        drop(db, "blocks", "host", "until_ms < ?", (now_ms - _DAY_MS,), _STEP)
        + drop(db, "refusals", "worker, crawl", "until_ms < ?", (now_ms,), _STEP)
        + drop(db, "hook_sums", "crawl, function, message", "pages = 0", (), _STEP)
    )


def slowest(db: Db, crawl: int, limit: int = 5) -> list[tuple[str, float, int]]:
    """See ``Store.slowest_hosts``; an answer is an attempt with a status code."""
    rows = found(
        db,
        "SELECT host, SUM(elapsed_ms), SUM(answers) AS total FROM hosts WHERE crawl = ? "
        "GROUP BY host HAVING total > 0 "
        "ORDER BY SUM(elapsed_ms) / (1.0 * SUM(answers)) DESC, host LIMIT ?",
        (crawl, limit),
    )
    return [(host, int(ms) / (1000.0 * int(answers)), int(answers)) for host, ms, answers in rows]
