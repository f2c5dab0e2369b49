"""The overflow on MySQL: URLs that wait in SQL; each function runs in a caller's transaction.

:mod:`greencrawl.store.sqlite.tables.overflow` decides in one statement; here two are needed. A
commit writes its page and then looks for the page's row. A transaction that takes rows locks them
and then looks for pages; it waits for pages that are being written. So one of the two transactions
sees the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Admission, Overflow, pack_redirects, unpack_redirects
from greencrawl.store import rows as common
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.ids import NUMBERS
from greencrawl.store.mysql.statements import chunks, insert, keys, numbers, raw
from greencrawl.store.rows import Row
from greencrawl.store.sqlite.tables.overflow import QUEUED
from greencrawl.store.tables.crawls import IS_FINISHED, reopen_finished
from greencrawl.store.tables.nodes import clock

FREED_ROWS = 1000
"""Rows that one transaction of :func:`free` changes."""

_READ = "id, fingerprint, partition_no, url, depth, level, redirects"
_WAITING = "FROM overflow FORCE INDEX (overflow_waiting) WHERE queued = 0 AND"
_STATEMENT = 1024 * 1024  # every server takes this much
_COLUMNS = "crawl, fingerprint, id, partition_no, stamp, level, depth, redirects, host, url"


def put(db: Db, crawl: int, items: Sequence[Overflow]) -> None:
    """Add rows; an existing row waits again, at the better of both levels."""
    if not db.execute(
        f"SELECT {IS_FINISHED} FROM crawls WHERE id = %s AND deleted = 0 LOCK IN SHARE MODE",
        (crawl,),
    ):
        return
    if db.fetchall()[0][0]:
        reopen_finished(db, [crawl])
    stamp = clock(db).clock
    wanted: dict[int, Overflow] = {}
    for one in items:
        known = wanted.get(one.fingerprint)
        if known is None or one.item.level < known.item.level:
            wanted[one.fingerprint] = one
    sql = "SELECT fingerprint, level FROM overflow WHERE"
    there: dict[int, int] = dict(
        keys(db, sql, crawl, sorted(wanted), "ORDER BY fingerprint FOR UPDATE")
    )
    for number in sorted(there):
        db.execute(
            "UPDATE overflow SET queued = 0, stamp = %s, level = %s "
            "WHERE crawl = %s AND fingerprint = %s",
            (stamp, min(there[number], wanted[number].item.level), crawl, number),
        )
    new = [one for number, one in wanted.items() if number not in there]
    first = NUMBERS.take(len(new) or 1)
    rows: list[Row] = [
        (
            crawl, one.fingerprint, first + index, one.partition, stamp, one.item.level,
            one.item.depth, pack_redirects(one.item), host_of(one.item.url).encode(),
            common.clean(one.item.url),
        )
        for index, one in enumerate(new)
    ]  # fmt: skip
    insert(db, "overflow", _COLUMNS, sorted(rows), most_bytes=_STATEMENT)


def best(db: Db, crawl: int, partition: int, host: str, limit: int) -> list[Overflow]:
    """Return a host's waiting rows, by level, then in order of arrival."""
    db.execute(
        f"SELECT {_READ} {_WAITING} crawl = %s AND partition_no = %s AND host = %s "
        "ORDER BY level, id LIMIT %s",
        (crawl, partition, common.clean(host).encode(), limit),
    )
    return [_overflow(row) for row in db.fetchall()]


def _overflow(row: Row) -> Overflow:
    number, fingerprint, partition, url, depth, level, redirects = row
    return Overflow(
        fingerprint, partition, Admission(url, depth, level, *unpack_redirects(redirects)), number
    )


def hosts(db: Db, crawl: int, partition: int, after: str, limit: int) -> list[str]:
    """Return names of hosts with waiting rows, beginning after ``after``: one look-up a host."""
    found: list[str] = []
    name = common.clean(after).encode()
    while len(found) < limit and db.execute(
        f"SELECT host {_WAITING} crawl = %s AND partition_no = %s AND host > %s "
        "ORDER BY host LIMIT 1",
        (crawl, partition, name),
    ):
        ((name,),) = db.fetchall()
        found.append(name.decode())
    return found


def places(db: Db) -> list[tuple[int, int]]:
    """Return (crawl, partition) wherever rows of an active crawl wait: one look-up each."""
    found: list[tuple[int, int]] = []
    db.execute("SELECT id FROM crawls WHERE deleted = 0 AND state = 'active' ORDER BY id")
    for (crawl,) in db.fetchall():
        partition = -1
        while db.execute(
            f"SELECT partition_no {_WAITING} crawl = %s AND partition_no > %s "
            "ORDER BY partition_no LIMIT 1",
            (crawl, partition),
        ):
            ((partition,),) = db.fetchall()
            found.append((crawl, partition))
    return found


def page(db: Db, partition: int, after: int, limit: int) -> list[tuple[int, Overflow]]:
    """Return (crawl, row) of a partition in order of arrival, beginning after row ``after``."""
    db.execute(
        f"SELECT crawl, {_READ} FROM overflow FORCE INDEX (overflow_by_id) "
        "WHERE partition_no = %s AND id > %s ORDER BY id LIMIT %s",
        (partition, after, limit),
    )
    return [(row[0], _overflow(row[1:])) for row in db.fetchall()]


def begun(
    db: Db, partition: int, after: tuple[int, int], limit: int
) -> list[tuple[int, int, Overflow]]:
    """Return (stamp, crawl, row) of a partition's waiting rows, beginning after (stamp, row)."""
    sql = (
        f"SELECT stamp, crawl, {_READ} FROM overflow FORCE INDEX (overflow_by_stamp) "
        "WHERE partition_no = %s"
    )
    end = "AND queued = 0 ORDER BY stamp, id LIMIT %s"
    db.execute(f"{sql} AND stamp = %s AND id > %s {end}", (partition, *after, limit))
    found = list(db.fetchall())
    if len(found) < limit:
        db.execute(f"{sql} AND stamp > %s {end}", (partition, after[0], limit - len(found)))
        found += db.fetchall()
    return [(row[0], row[1], _overflow(row[2:])) for row in found]


def taken(db: Db, items: Sequence[Overflow], node: str, epoch: int) -> None:
    """Note that the node has ``items`` in memory under ``epoch``; delete those that were fetched.

    Nothing is noted under an epoch that is over: the node may have forgotten the rows since. The
    page or final state of a deleted row gets a new stamp. A node that comes back in an older state
    waits for that row; by the new stamp it learns that the URL is settled.
    """
    db.execute("SELECT id, epoch FROM nodes WHERE id IN ('', %s) LOCK IN SHARE MODE",
               (node.encode(),))  # fmt: skip
    if any(name and known > epoch for name, known in db.fetchall()):
        return
    stamp = clock(db).clock
    for found in _locked(db, items):
        for crawl, group in groupby(found, itemgetter(0)):
            some = [number for _, number in group]
            fetched: set[int] = set()
            for table in ("pages", "finals"):
                sql = f"SELECT fingerprint FROM {table} WHERE"
                there = [row[0] for row in keys(db, sql, crawl, some, "FOR UPDATE")]
                for part in chunks(there):
                    sql = f"UPDATE {table} SET stamp = %d WHERE stamp < %d AND crawl = %d"
                    where = b" AND fingerprint IN (%b)" % numbers(part)
                    raw(db, (sql % (stamp, stamp, crawl)).encode() + where)
                fetched.update(there)
            _delete(db, crawl, sorted(fetched))
            if left := [number for number in some if number not in fetched]:
                update = b"UPDATE overflow SET queued = %d WHERE crawl = %d AND fingerprint IN (%b)"
                raw(db, update % (QUEUED + stamp, crawl, numbers(left)))


def _locked(db: Db, items: Sequence[Overflow]) -> list[list[tuple[int, int]]]:
    """Lock these rows, and return their keys (crawl, fingerprint) in parts."""
    parts = []
    wanted = sorted(items, key=lambda one: (one.partition, one.id))
    for partition, group in groupby(wanted, key=lambda one: one.partition):
        for some in chunks(list(group)):
            sql = (
                b"SELECT crawl, fingerprint, id FROM overflow FORCE INDEX (overflow_by_id) "
                b"WHERE partition_no = %d AND id IN (%b) FOR UPDATE"
            )
            raw(db, sql % (partition, numbers(one.id for one in some)))
            named = {(one.fingerprint, one.id) for one in some}
            parts.append(sorted(row[:2] for row in db.fetchall() if row[1:] in named))
    return parts


def _delete(db: Db, crawl: int, fingerprints: Sequence[int]) -> None:
    for some in chunks(fingerprints):
        sql = b"DELETE FROM overflow WHERE crawl = %d AND fingerprint IN (%b)"
        raw(db, sql % (crawl, numbers(some)))


def free(db: Db, partition: int, since: int = 0) -> int:
    """Let rows wait again that were queued ``since`` or later; return how many this step freed."""
    stamp = clock(db).clock
    return db.execute(
        "UPDATE overflow SET queued = 0, stamp = %s "
        f"WHERE partition_no = %s AND queued >= %s LIMIT {FREED_ROWS}",
        (stamp, partition, QUEUED + since),
    )


def settled(db: Db, done: Sequence[tuple[int, int]]) -> None:
    """Delete the rows of these keys, in order, whose page or final state was just written.

    A row that waits stays until a node has taken it (:func:`taken`): its page came from a session
    that the node forgot. The node knows that the row waits here, and would wait for ever if the row
    were deleted.
    """
    if not done or not db.execute("SELECT 1 FROM overflow LIMIT 1"):
        return
    for crawl, group in groupby(done, itemgetter(0)):
        some = [number for _, number in group]
        sql = "SELECT fingerprint, queued FROM overflow WHERE"
        found = keys(db, sql, crawl, some, "ORDER BY fingerprint FOR UPDATE")
        _delete(db, crawl, [number for number, queued in found if queued])
