"""Debts to nodes that were away, on MySQL, in a caller's transaction.

See ``greencrawl.store.sqlite.tables.debts``.

Rows are locked last, in the order of their keys. A commit that finds its debt noted holds it: no
replay of the debt begins before that commit ends. Many commits can hold it at once.
"""

from __future__ import annotations

from collections.abc import Collection

from greencrawl.schema.records import Debt
from greencrawl.store.mysql.connection import Db


def owe(db: Db, nodes: Collection[str], since: int) -> None:
    """Note that all that is stamped ``since`` or later may be missing in ``nodes``."""
    for node in sorted(nodes):
        key = node.encode()
        db.execute("SELECT since, serial FROM debts WHERE node = %s LOCK IN SHARE MODE", (key,))
        found = db.fetchone()
        if found is None or found[0] > since or found[1] % 2:
            db.execute(
                "INSERT INTO debts (node, since, serial) VALUES (%s, %s, 0) "
                "ON DUPLICATE KEY UPDATE since = LEAST(since, VALUES(since)), "
                "serial = serial + serial %% 2",
                (key, since),
            )


def every(db: Db) -> dict[str, Debt]:
    """Return node → what it is owed."""
    db.execute("SELECT node, since, serial FROM debts ORDER BY node")
    return {node.decode(): Debt(since, serial) for node, since, serial in db.fetchall()}


def begin(db: Db, node: str) -> Debt | None:
    """See ``Store.begin_replay``. It waits for the commits under way that add to the debt."""
    key = node.encode()
    db.execute("SELECT since, serial FROM debts WHERE node = %s FOR UPDATE", (key,))
    found = db.fetchone()
    if found is None:
        return None
    since, serial = found[0], found[1] + 1 + found[1] % 2
    db.execute("UPDATE debts SET serial = %s WHERE node = %s", (serial, key))
    return Debt(since, serial)


def end(db: Db, node: str, serial: int) -> bool:
    """See ``Store.end_replay``."""
    sql = "DELETE FROM debts WHERE node = %s AND serial = %s"
    return bool(db.execute(sql, (node.encode(), serial)))
