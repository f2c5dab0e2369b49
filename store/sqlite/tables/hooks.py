"""Pages whose hook failed, on SQLite; each function runs in a caller's transaction.

Triggers keep the sums by message. Parts that differ from page to page would make a message of its
own for each page. So beyond ``MESSAGES`` of a crawl the rest are counted under ``OTHER``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain

from greencrawl.schema.records import HookRun
from greencrawl.store import rows
from greencrawl.store.sqlite.batches import padded, parts, values
from greencrawl.store.tables.hooks import cleaned, told_apart


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
    """Return whether the page was fetched again since."""
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
