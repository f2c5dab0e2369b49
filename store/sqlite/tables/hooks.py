"""Pages whose hook failed, on SQLite; each function runs in a caller's transaction.

Triggers keep the sums by message. A message with parts that differ from page to page would be
another message on each page. So after the first :data:`MESSAGES` of a crawl the others are counted
under :data:`OTHER`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from greencrawl.schema.records import HookCount, HookFailure, HookRefusal, HookRun, Refusal
from greencrawl.store import rows
from greencrawl.store.sqlite.batches import padded, parts, values

MESSAGES = 200
"""About how many messages of a crawl are counted apart."""
MESSAGE_CHARS = 200
OTHER = "other"

Key = tuple[str, str]
"""A function and a message."""


def cleaned(run: HookRun) -> list[Key]:
    """Return a run's failures as columns hold them."""
    return [(rows.clean(name)[:64], shortened(text)) for name, text in sorted(run.failures.items())]


def shortened(message: str) -> str:
    """Return ``message`` as a column holds it."""
    return rows.clean(message)[:MESSAGE_CHARS]


def told_apart(key: Key, known: Collection[Key]) -> Key:
    """Return what ``key`` is counted under when ``known`` exist."""
    return key if key in known or len(known) < MESSAGES else (key[0], OTHER)


def settle(db: sqlite3.Connection, runs: Sequence[HookRun]) -> None:
    """Note the results of hooks on pages that are stored in this transaction, or were before."""
    due = [run for run in runs if run.failures]
    if not due and not _any(db, {run.crawl for run in runs}):
        return
    there = _there(db, runs)
    for run in runs:
        if (run.failures or (run.crawl, run.fingerprint) in there) and not _outdated(db, run):
            _replace(db, run)


def _any(db: sqlite3.Connection, crawls: Iterable[int]) -> bool:
    sql = "SELECT 1 FROM hook_sums WHERE crawl = ? LIMIT 1"
    return any(db.execute(sql, (crawl,)).fetchone() for crawl in crawls)


def _there(db: sqlite3.Connection, runs: Sequence[HookRun]) -> set[tuple[int, int]]:
    """Return the runs' pages that have a known failure."""
    found: set[tuple[int, int]] = set()
    for some in parts([(run.crawl, run.fingerprint) for run in runs]):
        asked = padded(list(some))
        sql = (
            "SELECT crawl, fingerprint FROM hook_failures WHERE (crawl, fingerprint) IN "
            f"(VALUES {values('crawl, fingerprint', len(asked))})"
        )
        found.update(db.execute(sql, list(chain.from_iterable(asked))).fetchall())
    return found


def _outdated(db: sqlite3.Connection, run: HookRun) -> bool:
    """Tell whether the page was fetched again since."""
    sql = "SELECT 1 FROM pages WHERE crawl = ? AND fingerprint = ? AND fetched_ms > ?"
    key = run.crawl, run.fingerprint, rows.bounded(run.at_ms)
    return db.execute(sql, key).fetchone() is not None


def _replace(db: sqlite3.Connection, run: HookRun) -> None:
    page = run.crawl, run.fingerprint
    for function in run.functions:
        db.execute(
            "DELETE FROM hook_failures WHERE crawl = ? AND fingerprint = ? AND function = ?",
            (*page, function),
        )
    failures = cleaned(run)
    if not failures:
        return
    sql = "SELECT function, message FROM hook_sums WHERE crawl = ?"
    known = set(db.execute(sql, (run.crawl,)).fetchall())
    for key in failures:
        function, message = told_apart(key, known)
        known.add((function, message))
        db.execute(
            "INSERT INTO hook_failures (crawl, fingerprint, function, at_ms, url, message) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*page, function, rows.bounded(run.at_ms), rows.clean(run.url), message),
        )


def counts(db: sqlite3.Connection, crawl: int) -> list[HookCount]:
    """See ``Store.hook_counts``."""
    sql = (
        "SELECT function, message, pages FROM hook_sums WHERE crawl = ? "
        "ORDER BY pages DESC, function, message"
    )
    return [HookCount(*row) for row in db.execute(sql, (crawl,))]


def failures(
    db: sqlite3.Connection,
    crawl: int,
    function: str,
    message: str,
    first: int,
    limit: int,
) -> list[tuple[int, HookFailure]]:
    """Return (fingerprint, failure) by fingerprint, from ``first`` on; see
    ``Store.hook_failures``."""
    sql = (
        "SELECT fingerprint, url, function, message, at_ms FROM hook_failures "
        "WHERE crawl = ? AND function = ? AND message = ? AND fingerprint >= ? "
        "ORDER BY fingerprint LIMIT ?"
    )
    found = db.execute(sql, (crawl, function, shortened(message), first, limit))
    return [
        (number, HookFailure(url=url, function=name, message=text, at_ms=at_ms))
        for number, url, name, text, at_ms in found
    ]


def pages(
    db: sqlite3.Connection, crawl: int, functions: Sequence[str], first: int, limit: int
) -> list[int]:
    """See ``Store.hook_pages``."""
    named = ", ".join("?" * len(functions))
    sql = (
        "SELECT DISTINCT fingerprint FROM hook_failures WHERE crawl = ? AND fingerprint >= ? "
        f"AND function IN ({named}) ORDER BY fingerprint LIMIT ?"
    )
    return [row[0] for row in db.execute(sql, (crawl, first, *functions, limit))]


def put_refusals(
    db: sqlite3.Connection, worker: str, host: str, refusals: Sequence[Refusal], until_ms: int
) -> None:
    """See ``Store.put_refusals``."""
    db.execute("DELETE FROM refusals WHERE worker = ?", (worker,))
    for one in refusals:
        db.execute(
            "INSERT INTO refusals (worker, crawl, host, hook, reason, until_ms) "
            "SELECT ?, id, ?, ?, ?, ? FROM crawls WHERE id = ? AND deleted = 0 "
            "ON CONFLICT DO NOTHING",
            (worker, rows.clean(host), rows.clean(one.hook), rows.clean(one.reason), until_ms,
             one.crawl),
        )  # fmt: skip


def refusals(db: sqlite3.Connection, now_ms: int) -> list[tuple[int, HookRefusal]]:
    """See ``Store.refusals``."""
    sql = (
        "SELECT crawl, worker, host, hook, reason FROM refusals WHERE until_ms > ? "
        "ORDER BY worker, crawl"
    )
    return [(crawl, HookRefusal(*rest)) for crawl, *rest in db.execute(sql, (now_ms,))]
