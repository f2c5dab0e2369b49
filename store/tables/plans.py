"""Plans of crawls with a calendar, and the queries about calendars that both stores share.

Each function runs in a caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from greencrawl.schema.records import Due
from greencrawl.store import recrawl_calendar
from greencrawl.store.recrawl_calendar import Plan
from greencrawl.store.tables.sql import Db, change, first, found, is_sqlite

WAITING = "FROM calendar INDEXED BY calendar_due WHERE queued = 0 AND crawl = ?"


def columns(db: Db) -> str:
    """Return ``recrawl_calendar.COLUMNS``; MySQL does not accept the name of one of them."""
    return recrawl_calendar.COLUMNS.replace("partition,", f"{_partition(db)},")


def _partition(db: Db) -> str:
    return "partition" if is_sqlite(db) else "partition_no"


def plans(db: Db, crawls: Collection[int]) -> dict[int, Plan]:
    """Return the plans of those crawls that have a calendar."""
    if not crawls:
        return {}
    rows = found(
        db,
        "SELECT id, JSON_EXTRACT(options, '$.recrawl'), (SELECT started_ms FROM periods "
        "WHERE crawl = crawls.id ORDER BY number DESC LIMIT 1), started_ms FROM crawls "
        f"WHERE id IN ({', '.join('?' * len(crawls))}) AND deleted = 0",
        tuple(crawls),
    )
    made = {row[0]: recrawl_calendar.plan_of(*row[1:]) for row in rows}
    return {crawl: plan for crawl, plan in made.items() if plan.deepest >= 0}


def plan_of(db: Db, crawl: int) -> Plan | None:
    """Return the crawl's plan, if it has a calendar."""
    return plans(db, [crawl]).get(crawl)


def row_of(db: Db, crawl: int, fingerprint: int) -> recrawl_calendar.Row | None:
    """Return a URL's row."""
    sql = f"SELECT {columns(db)} FROM calendar WHERE crawl = ? AND fingerprint = ?"
    row = first(db, sql, (crawl, fingerprint))
    return recrawl_calendar.Row(*row) if row else None


def partitions(db: Db, crawl: int, until_s: int) -> list[int]:
    """Return the partitions in which rows of a crawl are due; this takes a look-up for each."""
    due, p, name = [], -1, _partition(db)
    sql = f"SELECT {name}, due_s {WAITING} AND {name} > ? ORDER BY {name}, due_s LIMIT 1"
    while row := first(db, sql, (crawl, p)):
        p, due_s = row
        if due_s <= until_s:
            due.append(p)
    return due


def is_due(db: Db, crawl: int) -> bool:
    """Return whether a row waits to be asked for in this period; the crawl's row must be locked."""
    plan = plan_of(db, crawl)
    return plan is not None and bool(partitions(db, crawl, plan.started_s))


def places(db: Db) -> list[tuple[int, int]]:
    """Return (crawl, partition) wherever rows of an active crawl are due."""
    active = found(db, "SELECT id FROM crawls WHERE deleted = 0 AND state = 'active' ORDER BY id")
    return [
        (crawl, p)
        for crawl, plan in plans(db, [row[0] for row in active]).items()
        for p in partitions(db, crawl, plan.started_s)
    ]


def drop(db: Db, crawl: int, rows: Sequence[Due]) -> None:
    """Delete rows that cannot be asked for, if nothing was noted of them since they were read."""
    sql = "DELETE FROM calendar WHERE crawl = ? AND fingerprint = ? AND queued = 0"
    for one in sorted(rows):
        change(db, f"{sql} AND checked_ms = ?", (crawl, one.fingerprint, one.checked_ms))


def free_crawl(db: Db, crawl: int) -> None:
    """Let all rows of a crawl wait: it had no calendar for a while, and nothing was noted in
    them."""
    change(db, "UPDATE calendar SET queued = 0 WHERE crawl = ? AND queued <> 0", (crawl,))
