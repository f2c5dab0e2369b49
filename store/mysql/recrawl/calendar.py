"""The calendar on MySQL; each function runs in a caller's transaction.

Rows are locked in the order of their keys, after those of pages and final states. A row that is not
there yet cannot be locked: if two processes insert it, the second one replaces the row of the
first.
"""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema.records import Due, Observation
from greencrawl.store import recrawl_calendar
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.statements import chunks, insert, keys, numbers, raw
from greencrawl.store.recrawl_calendar import Plan, Settled
from greencrawl.store.rows import Row
from greencrawl.store.tables.plans import plan_of

FREED_ROWS = 1000
"""Rows that one transaction of :func:`free` changes."""
_STATEMENT = 1024 * 1024
_COLUMNS = recrawl_calendar.COLUMNS.replace("partition,", "partition_no,")
_REPLACE = "ON DUPLICATE KEY UPDATE " + ", ".join(
    f"{name} = VALUES({name})" for name in _COLUMNS.split(", ")[2:]
)
_WAITING = "FROM calendar FORCE INDEX (calendar_due) WHERE queued = 0 AND crawl = %s"


def settle(db: Db, observations: Sequence[Observation], by_crawl: dict[int, Plan]) -> Settled:
    """Write the changes that observations make."""
    known: dict[recrawl_calendar.Key, recrawl_calendar.Row] = {}
    wanted = recrawl_calendar.grouped((one.crawl, one.fingerprint) for one in observations)
    for crawl, some in wanted.items():
        sql = f"SELECT {_COLUMNS} FROM calendar WHERE"
        for row in keys(db, sql, crawl, some, "ORDER BY fingerprint FOR UPDATE"):
            known[row[:2]] = recrawl_calendar.Row(*row)
    settled = recrawl_calendar.settle(observations, known, by_crawl, _partitions(db))
    changed: list[Row] = [tuple(map(int, row)) for row in sorted(settled.changed)]
    insert(db, "calendar", _COLUMNS, changed, most_bytes=_STATEMENT, tail=_REPLACE)
    return settled


def _partitions(db: Db) -> int:
    db.execute("SELECT identity FROM frontier")
    found = db.fetchone()
    return recrawl_calendar.partitions_of(found[0] if found else None)


def add(db: Db, crawl: int, observations: Sequence[Observation]) -> None:
    """Add rows for URLs that have none: each is due in the next period."""
    if plan := plan_of(db, crawl):
        wanted = sorted({one.fingerprint for one in observations})
        sql = "SELECT fingerprint FROM calendar WHERE"
        there = {row[0] for row in keys(db, sql, crawl, wanted, "FOR UPDATE")}
        settle(db, [o for o in observations if o.fingerprint not in there], {crawl: plan})


def due(db: Db, crawl: int, partition: int, after: tuple[int, int, int], limit: int) -> list[Due]:
    """Return rows that are due, by date, host, and fingerprint, beginning after ``after``.

    Rows deeper than the crawl's calendar now goes have no item.
    """
    plan = plan_of(db, crawl)
    if plan is None:
        return []
    due_s, host, number = after
    found: list[Row] = []
    for where, values in (
        ("due_s = %s AND host = %s AND fingerprint > %s", (due_s, host, number)),
        ("due_s = %s AND host > %s", (due_s, host)),
        ("due_s > %s", (due_s,)),
    ):
        if len(found) < limit:
            db.execute(
                f"SELECT fingerprint, due_s, host, checked_ms, depth, task {_WAITING} "
                f"AND partition_no = %s AND due_s <= %s AND {where} "
                "ORDER BY due_s, host, fingerprint LIMIT %s",
                (crawl, partition, plan.started_s, *values, limit - len(found)),
            )
            found += db.fetchall()
    urls = _urls(db, crawl, sorted(row[0] for row in found))
    item_of, deepest = recrawl_calendar.item_of, plan.deepest
    return [
        Due(
            number, (due_s, host, number), checked_ms,
            None if depth > deepest else item_of(urls.get(number), depth, task),
        )
        for number, due_s, host, checked_ms, depth, task in found
    ]  # fmt: skip


def _urls(db: Db, crawl: int, numbers_: Sequence[int]) -> dict[int, str]:
    """Return fingerprint → URL, of final states and of pages."""
    found: dict[int, str] = {}
    if numbers_:
        sql = "SELECT fingerprint, url FROM finals WHERE"
        found.update(keys(db, sql, crawl, numbers_))
        beside = "c.crawl = p.crawl AND c.place = p.place AND c.fingerprint = p.fingerprint"
        for some in chunks(numbers_):
            sql_ = b"SELECT p.fingerprint, c.url FROM pages p JOIN contents c ON %b "
            where = b"WHERE p.crawl = %d AND p.fingerprint IN (%b)"
            raw(db, (sql_ + where) % (beside.encode(), crawl, numbers(some)))
            found.update(db.fetchall())
    return found


def taken(db: Db, crawl: int, rows: Sequence[Due], node: str, epoch: int) -> int:
    """Record that the node has rows in memory under ``epoch``; return how many rows that are.

    A row is left out if its URL was fetched since the row was read; all rows are left out if the
    epoch is over.
    """
    sql = "SELECT id, epoch FROM nodes WHERE id IN ('', %s) LOCK IN SHARE MODE"
    db.execute(sql, (node.encode(),))
    if any(name and known > epoch for name, known in db.fetchall()):
        return 0
    checked = {one.fingerprint: one.checked_ms for one in rows}
    sql = "SELECT fingerprint, checked_ms FROM calendar WHERE queued = 0 AND"
    there = keys(db, sql, crawl, sorted(checked), "ORDER BY fingerprint FOR UPDATE")
    found = [number for number, checked_ms in there if checked[number] == checked_ms]
    for some in chunks(found):
        update = b"UPDATE calendar SET queued = %d WHERE crawl = %d AND fingerprint IN (%b)"
        raw(db, update % (epoch, crawl, numbers(some)))
    return len(found)


def postpone(db: Db, crawl: int, partition: int, row: Due) -> int:
    """Move rows of a host with the due date of ``row`` to the next period; return how many rows
    this step moved."""
    plan = plan_of(db, crawl)
    if plan is None:
        return 0
    due_s, host, _ = row.after
    return db.execute(
        "UPDATE calendar SET due_s = %s WHERE queued = 0 AND crawl = %s AND partition_no = %s "
        f"AND due_s = %s AND host = %s LIMIT {FREED_ROWS}",
        (plan.started_s + 1, crawl, partition, due_s, host),
    )


def free(db: Db, partition: int, epoch: int) -> int:
    """Let rows wait that a node has had under an earlier epoch; return how many this step freed."""
    return db.execute(
        "UPDATE calendar SET queued = 0 WHERE partition_no = %s AND queued > 0 AND queued < %s "
        f"LIMIT {FREED_ROWS}",
        (partition, epoch),
    )
