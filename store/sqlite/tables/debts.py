"""Debts to nodes that were away, on SQLite; see ``Store.owe``. In a caller's transaction.

``serial`` is odd while a broker replays a debt, and even once something was added since. Only in
the odd state does a commit have to write the row. While a node is away many commits read the row,
and none waits for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from greencrawl.schema.records import Debt


def owe(db: sqlite3.Connection, nodes: Collection[str], since: int) -> None:
    """Note that all that is stamped ``since`` or later may be missing in ``nodes``."""
    for node in sorted(nodes):
        db.execute(
            "INSERT INTO debts (node, since, serial) VALUES (:node, :since, 0) "
            "ON CONFLICT (node) DO UPDATE SET since = MIN(since, :since), "
            "serial = serial + serial % 2 WHERE serial % 2 = 1 OR since > :since",
            {"node": node, "since": since},
        )


def every(db: sqlite3.Connection) -> dict[str, Debt]:
    """Return node → what it is owed."""
    found = db.execute("SELECT node, since, serial FROM debts ORDER BY node").fetchall()
    return {node: Debt(since, serial) for node, since, serial in found}


def begin(db: sqlite3.Connection, node: str) -> Debt | None:
    """See ``Store.begin_replay``."""
    row = db.execute(
        "UPDATE debts SET serial = serial + 1 + serial % 2 WHERE node = ? RETURNING since, serial",
        (node,),
    ).fetchone()
    return None if row is None else Debt(*row)


def end(db: sqlite3.Connection, node: str, serial: int) -> bool:
    """See ``Store.end_replay``."""
    sql = "DELETE FROM debts WHERE node = ? AND serial = ?"
    return db.execute(sql, (node, serial)).rowcount == 1
