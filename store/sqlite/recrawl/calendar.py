"""The calendar on SQLite; each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from greencrawl.schema.records import Due, Observation
from greencrawl.store import recrawl_calendar
from greencrawl.store.recrawl_calendar import Plan, Settled
from greencrawl.store.sqlite.batches import padded, parts, values
from greencrawl.store.tables.plans import plan_of

FREED_ROWS = 5000
"""Rows that one step changes, so that it holds the write lock for milliseconds."""

_WAITING = "FROM calendar INDEXED BY calendar_due WHERE queued = 0 AND crawl = :crawl"
_COLUMNS = recrawl_calendar.COLUMNS
_REPLACE = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[2:])


def settle(
    db: sqlite3.Connection, observations: Sequence[Observation], by_crawl: Mapping[int, Plan]
) -> Settled:
    """Write the changes that observations make."""
    keys = list(dict.fromkeys((one.crawl, one.fingerprint) for one in observations))
    known: dict[recrawl_calendar.Key, recrawl_calendar.Row] = {}
    for some in parts(padded(keys)) if keys else ():
        named = values("crawl, fingerprint", len(some))
        sql = (
            f"WITH named (crawl, fingerprint) AS (VALUES {named}) SELECT calendar.* FROM named "
            "CROSS JOIN calendar USING (crawl, fingerprint)"
        )
        for row in db.execute(sql, list(chain.from_iterable(some))):
            known[row[:2]] = recrawl_calendar.Row(*row)
    settled = recrawl_calendar.settle(observations, known, by_crawl, _partitions(db))
    for changed in parts(settled.changed):
        db.execute(
            f"INSERT INTO calendar ({_COLUMNS}) VALUES {values(_COLUMNS, len(changed))} "
            f"ON CONFLICT (crawl, fingerprint) DO UPDATE SET {_REPLACE}",
            list(chain.from_iterable(changed)),
        )
    return settled


def _partitions(db: sqlite3.Connection) -> int:
    found = db.execute("SELECT identity FROM frontier").fetchone()
    return recrawl_calendar.partitions_of(found[0] if found else None)


def add(db: sqlite3.Connection, crawl: int, observations: Sequence[Observation]) -> None:
    """Add rows for URLs that have none: each is due in the next period."""
    if plan := plan_of(db, crawl):
        numbers = {one.fingerprint for one in observations}
        there = _there(db, crawl, numbers)
        fresh = [one for one in observations if one.fingerprint not in there]
        settle(db, fresh, {crawl: plan})


def _there(db: sqlite3.Connection, crawl: int, numbers: Iterable[int]) -> set[int]:
    found: set[int] = set()
    for some in parts(sorted(numbers)):
        marks = ", ".join("?" * len(some))
        sql = f"SELECT fingerprint FROM calendar WHERE crawl = ? AND fingerprint IN ({marks})"
        found.update(row[0] for row in db.execute(sql, (crawl, *some)))
    return found


def due(
    db: sqlite3.Connection, crawl: int, partition: int, after: tuple[int, int, int], limit: int
) -> list[Due]:
    """Return rows that are due, by date, host, and fingerprint, beginning after ``after``.

    Rows deeper than the crawl's calendar now goes have no item.
    """
    plan = plan_of(db, crawl)
    if plan is None:
        return []
    found = db.execute(
        "SELECT c.fingerprint, c.due_s, c.host, c.checked_ms, c.depth, c.task, "
        "COALESCE(p.url, f.url) FROM calendar c INDEXED BY calendar_due "
        "LEFT JOIN pages p ON p.crawl = c.crawl AND p.fingerprint = c.fingerprint "
        "LEFT JOIN finals f ON f.crawl = c.crawl AND f.fingerprint = c.fingerprint "
        "WHERE c.queued = 0 AND c.crawl = ? AND c.partition = ? AND c.due_s <= ? "
        "AND (c.due_s, c.host, c.fingerprint) > (?, ?, ?) "
        "ORDER BY c.due_s, c.host, c.fingerprint LIMIT ?",
        (crawl, partition, plan.started_s, *after, limit),
    )
    return [
        Due(
            number, (due_s, host, number), checked_ms,
            None if depth > plan.deepest else recrawl_calendar.item_of(url, depth, task),
        )
        for number, due_s, host, checked_ms, depth, task, url in found
    ]  # fmt: skip


def taken(db: sqlite3.Connection, crawl: int, rows: Sequence[Due], node: str, epoch: int) -> int:
    """Record that the node has rows in memory under ``epoch``; return how many rows that are.

    A row is left out if its URL was fetched since the row was read; all rows are left out if the
    epoch is over.
    """
    known = db.execute("SELECT epoch FROM nodes WHERE id = ?", (node,)).fetchone()
    if known is not None and known[0] > epoch:
        return 0
    changed = 0
    for some in parts([(one.fingerprint, one.checked_ms) for one in rows]):
        changed += db.execute(
            "UPDATE calendar SET queued = ? FROM (SELECT column1 AS number, column2 AS at FROM "
            f"(VALUES {values('number, at', len(some))})) WHERE crawl = ? "
            "AND fingerprint = number AND queued = 0 AND checked_ms = at",
            [epoch, *chain.from_iterable(some), crawl],
        ).rowcount
    return changed


def postpone(db: sqlite3.Connection, crawl: int, partition: int, row: Due) -> int:
    """Move rows of a host with the due date of ``row`` to the next period; return how many rows
    this step moved."""
    plan = plan_of(db, crawl)
    if plan is None:
        return 0
    due_s, host, _ = row.after
    return db.execute(
        "UPDATE calendar SET due_s = :next WHERE (crawl, fingerprint) IN "
        f"(SELECT crawl, fingerprint {_WAITING} AND partition = :partition AND due_s = :due "
        "AND host = :host LIMIT :limit)",
        {
            "next": plan.started_s + 1, "crawl": crawl, "partition": partition, "due": due_s,
            "host": host, "limit": FREED_ROWS,
        },
    ).rowcount  # fmt: skip


def free(db: sqlite3.Connection, partition: int, epoch: int) -> int:
    """Let rows wait that a node has had under an earlier epoch; return how many this step freed."""
    return db.execute(
        "UPDATE calendar SET queued = 0 WHERE (crawl, fingerprint) IN (SELECT crawl, fingerprint "
        "FROM calendar INDEXED BY calendar_queued WHERE partition = ? AND queued <> 0 "
        "AND queued < ? LIMIT ?)",
        (partition, epoch, FREED_ROWS),
    ).rowcount
