"""Queries about pages whose hook failed, and about workers that cannot import a hook.

Each function runs in a caller's transaction. Each store keeps the sums by message in its own way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from greencrawl.schema.records import HookCount, HookFailure, HookRefusal, HookRun, Refusal
from greencrawl.store.rows import clean
from greencrawl.store.tables.sql import LAST, Db, change, found

MESSAGES = 200
"""About how many messages of a crawl are counted separately."""
MESSAGE_CHARS = 200
OTHER = "other"

Key = tuple[str, str]
"""A function and a message."""


def cleaned(run: HookRun) -> list[Key]:
    """Return a run's failures as columns hold them."""
    return [(clean(name)[:64], shortened(text)) for name, text in sorted(run.failures.items())]


def shortened(message: str) -> str:
    """Return ``message`` as a column holds it."""
    return clean(message)[:MESSAGE_CHARS]


def told_apart(key: Key, known: Collection[Key]) -> Key:
    """Return the key under which ``key`` is counted when ``known`` exist."""
    return key if key in known or len(known) < MESSAGES else (key[0], OTHER)


def counts(db: Db, crawl: int) -> list[HookCount]:
    """See ``Store.hook_counts``."""
    sql = (
        "SELECT function, message, pages FROM hook_sums WHERE crawl = ? AND pages > 0 "
        "ORDER BY pages DESC, function, message"
    )
    return [HookCount(*row) for row in found(db, sql, (crawl,))]


def failed_since(db: Db, crawl: int, after_ms: int) -> tuple[int, int]:
    """See ``Store.hook_failed_since``."""
    sql = (
        "SELECT COUNT(DISTINCT fingerprint), MAX(at_ms) FROM hook_failures "
        "WHERE crawl = ? AND at_ms > ?"
    )
    ((pages, latest_ms),) = found(db, sql, (crawl, after_ms))
    return pages, latest_ms or after_ms


def failures(
    db: Db, crawl: int, function: str, message: str, first: int, limit: int
) -> list[tuple[int, HookFailure]]:
    """Return (fingerprint, failure) by fingerprint, from ``first`` on; see
    ``Store.hook_failures``."""
    if first > LAST:
        return []
    rows = found(
        db,
        "SELECT fingerprint, url, function, message, at_ms FROM hook_failures "
        "WHERE crawl = ? AND function = ? AND message = ? AND fingerprint >= ? "
        "ORDER BY fingerprint LIMIT ?",
        (crawl, function, shortened(message), first, limit),
    )
    return [
        (number, HookFailure(url=url, function=name, message=text, at_ms=at_ms))
        for number, url, name, text, at_ms in rows
    ]


def pages(db: Db, crawl: int, functions: Sequence[str], first: int, limit: int) -> list[int]:
    """See ``Store.hook_pages``."""
    if first > LAST:
        return []
    named = ", ".join("?" * len(functions))
    sql = (
        "SELECT DISTINCT fingerprint FROM hook_failures WHERE crawl = ? AND fingerprint >= ? "
        f"AND function IN ({named}) ORDER BY fingerprint LIMIT ?"
    )
    return [row[0] for row in found(db, sql, (crawl, first, *functions, limit))]


def put_refusals(
    db: Db, worker: str, host: str, refusals: Sequence[Refusal], until_ms: int
) -> None:
    """See ``Store.put_refusals``."""
    change(db, "DELETE FROM refusals WHERE worker = ?", (worker,))
    for one in refusals:
        change(
            db,
            "INSERT INTO refusals (worker, crawl, host, hook, reason, until_ms) "
            "SELECT ?, id, ?, ?, ?, ? FROM crawls WHERE id = ? AND deleted = 0 "
            "ON CONFLICT DO NOTHING",
            (worker, clean(host), clean(one.hook), clean(one.reason), until_ms, one.crawl),
        )


def refusals(db: Db, now_ms: int) -> list[tuple[int, HookRefusal]]:
    """See ``Store.refusals``."""
    sql = (
        "SELECT crawl, worker, host, hook, reason FROM refusals WHERE until_ms > ? "
        "ORDER BY worker, crawl"
    )
    return [(crawl, HookRefusal(*rest)) for crawl, *rest in found(db, sql, (now_ms,))]
