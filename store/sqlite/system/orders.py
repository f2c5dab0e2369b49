"""Orders on SQLite; see ``Store.put_orders``. Each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from greencrawl.schema import wire
from greencrawl.schema.records import NodeOptions, NodeOrders, OptionName, OrderChange, Orders
from greencrawl.store import rows
from greencrawl.store.base import NEVER
from greencrawl.store.orders import changes, forgotten
from greencrawl.store.rows import Row

_READ = "SELECT member, revision, options, by_whom, at_ms FROM orders"


def put(
    db: sqlite3.Connection,
    member: str,
    options: NodeOptions,
    unset: tuple[OptionName, ...],
    by_whom: str,
    at_ms: int,
    *,
    revision: int | None = None,
) -> NodeOrders | None:
    """See ``Store.put_orders``."""
    row = db.execute(f"{_READ} WHERE member = ?", (member,)).fetchone()
    known = _ordered(row) if row else NodeOrders(member=member)
    if revision not in (None, known.revision):
        return None
    wanted = options.over(known.options.without(unset))
    if wanted == known.options:
        return known
    changed = changes(known.options, wanted)
    number = _log(db, member, "", changed, by_whom, at_ms)
    db.execute(
        "INSERT OR REPLACE INTO orders (member, revision, options, by_whom, at_ms) "
        "VALUES (?, ?, ?, ?, ?)",
        (member, number, wire.to_json(wanted).decode(), rows.clean(by_whom), at_ms),
    )
    return NodeOrders(
        member=member, revision=number, options=wanted, by_whom=rows.clean(by_whom), at_ms=at_ms
    )


def forget(db: sqlite3.Connection, node: str, by_whom: str, at_ms: int) -> NodeOrders | None:
    """See ``Store.forget_node``."""
    left = db.execute("SELECT left_ms FROM members WHERE node = ?", (node,)).fetchall()
    row = db.execute(f"{_READ} WHERE member = ?", (node,)).fetchone()
    if not (left or row) or any(at == 0 for (at,) in left):
        return None
    db.execute("DELETE FROM members WHERE node = ? AND left_ms > 0", (node,))
    known = _ordered(row) if row else NodeOrders(member=node)
    back = db.execute("SELECT 1 FROM members WHERE node = ? LIMIT 1", (node,)).fetchone()
    kept = known.options if back else NodeOptions()
    number = _log(db, node, "", forgotten(known, kept), by_whom, at_ms)
    if not back:
        db.execute("DELETE FROM orders WHERE member = ?", (node,))
    return NodeOrders(
        member=node, revision=number, options=kept, by_whom=rows.clean(by_whom), at_ms=at_ms
    )


def note_crawl(
    db: sqlite3.Connection,
    crawl: int,
    name: str,
    changed: Mapping[str, Any],
    by_whom: str,
    at_ms: int,
) -> int:
    """See ``Store.note_crawl_change``."""
    number = _log(db, "", name, changed, by_whom, at_ms)
    db.execute(
        "INSERT OR REPLACE INTO crawl_changes (crawl, revision) "
        "SELECT id, ? FROM crawls WHERE id = ? AND deleted = 0",
        (number, crawl),
    )
    return number


def _log(
    db: sqlite3.Connection, member: str, crawl: str, changed: Mapping[str, Any], by: str, at_ms: int
) -> int:
    made = db.execute(
        "INSERT INTO orders_log (member, crawl_name, changed, by_whom, at_ms) "
        "VALUES (?, ?, ?, ?, ?)",
        (member, crawl, wire.to_json(dict(changed)).decode(), rows.clean(by), at_ms),
    )
    return int(made.lastrowid or 0)


def revision(db: sqlite3.Connection) -> int:
    """See ``Store.orders_revision``."""
    return int(db.execute("SELECT COALESCE(MAX(id), 0) FROM orders_log").fetchone()[0])


def every(db: sqlite3.Connection) -> Orders:
    """See ``Store.orders``."""
    nodes = tuple(_ordered(row) for row in db.execute(f"{_READ} ORDER BY member"))
    crawls = dict(db.execute("SELECT crawl, revision FROM crawl_changes").fetchall())
    return Orders(revision(db), nodes, crawls)


def log(
    db: sqlite3.Connection,
    limit: int = 100,
    *,
    before: int = NEVER,
    member: str = "",
    crawl: str = "",
) -> list[OrderChange]:
    """See ``Store.orders_log``."""
    found = db.execute(
        "SELECT id, member, crawl_name, changed, by_whom, at_ms FROM orders_log WHERE id < ? "
        "AND (? = '' OR member = ?) AND (? = '' OR crawl_name = ?) ORDER BY id DESC LIMIT ?",
        (rows.bounded(before), member, member, crawl, crawl, limit),
    )
    return [
        OrderChange(
            revision=number, member=node, crawl=name,
            changed=wire.from_json(changed, dict[str, Any]), by_whom=by_whom, at_ms=at_ms,
        )
        for number, node, name, changed, by_whom, at_ms in found.fetchall()
    ]  # fmt: skip


def drop_log(db: sqlite3.Connection, before_ms: int) -> int:
    """See ``Store.drop_orders_log``."""
    sql = "DELETE FROM orders_log WHERE at_ms < ? AND id < (SELECT MAX(id) FROM orders_log)"
    return db.execute(sql, (before_ms,)).rowcount


def _ordered(row: Row) -> NodeOrders:
    member, number, options, by_whom, at_ms = row
    return NodeOrders(
        member=member, revision=number, options=wire.from_json(options, NodeOptions),
        by_whom=by_whom, at_ms=at_ms,
    )  # fmt: skip
