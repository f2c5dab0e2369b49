"""Orders on MySQL; see ``Store.put_orders``. Each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greencrawl.schema import wire
from greencrawl.schema.records import NodeOptions, NodeOrders, OptionName, OrderChange, Orders
from greencrawl.store import rows as common
from greencrawl.store.base import NEVER
from greencrawl.store.mysql.connection import Db
from greencrawl.store.orders import changes, forgotten
from greencrawl.store.rows import Row

_READ = "SELECT member, revision, options, by_whom, at_ms FROM orders"


def put(
    db: Db,
    member: str,
    options: NodeOptions,
    unset: tuple[OptionName, ...],
    by_whom: str,
    at_ms: int,
    *,
    revision: int | None = None,
) -> NodeOrders | None:
    """See ``Store.put_orders``."""
    number = _number(db)  # any transaction that changes something locks this row first
    db.execute(f"{_READ} WHERE member = %s FOR UPDATE", (member.encode(),))
    row = db.fetchone()
    known = _ordered(row) if row else NodeOrders(member=member)
    if revision not in (None, known.revision):
        return None
    wanted = options.over(known.options.without(unset))
    if wanted == known.options:
        return known
    _log(db, number, member, "", changes(known.options, wanted), by_whom, at_ms)
    db.execute(
        "REPLACE INTO orders (member, revision, options, by_whom, at_ms) "
        "VALUES (%s, %s, %s, %s, %s)",
        (member.encode(), number, wire.to_json(wanted), common.clean(by_whom).encode(), at_ms),
    )
    return NodeOrders(
        member=member, revision=number, options=wanted, by_whom=common.clean(by_whom), at_ms=at_ms
    )


def forget(db: Db, node: str, by_whom: str, at_ms: int) -> NodeOrders | None:
    """See ``Store.forget_node``."""
    key = node.encode()
    number = _number(db)
    db.execute("SELECT left_ms FROM members WHERE node = %s FOR UPDATE", (key,))
    left = db.fetchall()
    db.execute(f"{_READ} WHERE member = %s", (key,))
    row = db.fetchone()
    if not (left or row) or any(at == 0 for (at,) in left):
        return None
    db.execute("DELETE FROM members WHERE node = %s AND left_ms > 0", (key,))
    known = _ordered(row) if row else NodeOrders(member=node)
    db.execute("SELECT 1 FROM members WHERE node = %s LIMIT 1 FOR UPDATE", (key,))
    back = db.fetchone()
    kept = known.options if back else NodeOptions()
    _log(db, number, node, "", forgotten(known, kept), by_whom, at_ms)
    if not back:
        db.execute("DELETE FROM orders WHERE member = %s", (key,))
    return NodeOrders(
        member=node, revision=number, options=kept, by_whom=common.clean(by_whom), at_ms=at_ms
    )


def note_crawl(
    db: Db, crawl: int, name: str, changed: Mapping[str, Any], by_whom: str, at_ms: int
) -> int:
    """See ``Store.note_crawl_change``."""
    number = _number(db)
    _log(db, number, "", name, changed, by_whom, at_ms)
    db.execute(
        "REPLACE INTO crawl_changes (crawl, revision) "
        "SELECT id, %s FROM crawls WHERE id = %s AND deleted = 0",
        (number, common.bounded(crawl)),
    )
    return number


def _number(db: Db) -> int:
    """Return the next revision.

    The row stays locked until the commit, so that revisions become visible in order.
    """
    db.execute("SELECT value FROM counters WHERE name = 'orders' FOR UPDATE")
    ((value,),) = db.fetchall()
    return int(value) + 1


def _log(
    db: Db, number: int, member: str, crawl: str, changed: Mapping[str, Any], by: str, at_ms: int
) -> None:
    db.execute("UPDATE counters SET value = %s WHERE name = 'orders'", (number,))
    db.execute(
        "INSERT INTO orders_log (id, member, crawl_name, changed, by_whom, at_ms) "
        "VALUES (%s, %s, %s, %s, %s, %s)",
        (number, member.encode(), crawl.encode(), wire.to_json(dict(changed)),
         common.clean(by).encode(), at_ms),
    )  # fmt: skip


def revision(db: Db) -> int:
    """See ``Store.orders_revision``."""
    db.execute("SELECT value FROM counters WHERE name = 'orders'")
    ((value,),) = db.fetchall()
    return int(value)


def every(db: Db) -> Orders:
    """See ``Store.orders``."""
    number = revision(db)
    db.execute(f"{_READ} ORDER BY member")
    nodes = tuple(_ordered(row) for row in db.fetchall())
    db.execute("SELECT crawl, revision FROM crawl_changes")
    return Orders(number, nodes, dict(db.fetchall()))


def log(
    db: Db, limit: int = 100, *, before: int = NEVER, member: str = "", crawl: str = ""
) -> list[OrderChange]:
    """See ``Store.orders_log``."""
    node, name = member.encode(), crawl.encode()
    db.execute(
        "SELECT id, member, crawl_name, changed, by_whom, at_ms FROM orders_log WHERE id < %s "
        "AND (%s = '' OR member = %s) AND (%s = '' OR crawl_name = %s) ORDER BY id DESC LIMIT %s",
        (common.bounded(before), node, node, name, name, limit),
    )
    return [
        OrderChange(
            revision=number, member=node.decode(), crawl=name.decode(),
            changed=wire.from_json(changed, dict[str, Any]), by_whom=by_whom.decode(),
            at_ms=at_ms,
        )
        for number, node, name, changed, by_whom, at_ms in db.fetchall()
    ]  # fmt: skip


def drop_log(db: Db, before_ms: int) -> int:
    """See ``Store.drop_orders_log``."""
    sql = "DELETE FROM orders_log WHERE at_ms < %s AND id < %s"
    return db.execute(sql, (before_ms, revision(db)))


def _ordered(row: Row) -> NodeOrders:
    member, number, options, by_whom, at_ms = row
    return NodeOrders(
        member=member.decode(), revision=number, options=wire.from_json(options, NodeOptions),
        by_whom=by_whom.decode(), at_ms=at_ms,
    )  # fmt: skip
