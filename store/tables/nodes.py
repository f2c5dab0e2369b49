"""The frontier's identity, the log's clock, and its nodes' epochs, addresses and debts.

Each function runs in a caller's transaction. The ``serial`` of a debt is odd while the debt is
replayed, and becomes even when something is added. A commit writes the row of a debt only if the
debt is new, begins later than the commit, or is being replayed: many commits look at the row while
a node is away, and they do not wait for each other. Rows of debts are locked last, in the order of
their keys. A commit that finds its debt noted shares a lock of the row with other commits; a replay
waits until they end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from greencrawl.schema import wire
from greencrawl.schema.records import Debt, FrontierIdentity, Stamp
from greencrawl.store.tables.sql import FOR_UPDATE, SHARE_LOCK, Db, change, first, found, is_sqlite

_IDENTITY = "SELECT identity FROM frontier"


def frontier(db: Db, lock: str = "") -> FrontierIdentity | None:
    """See ``Store.frontier``."""
    row = first(db, _IDENTITY + lock)
    return wire.from_json(row[0], FrontierIdentity) if row else None


def create_frontier(db: Db, identity: FrontierIdentity) -> FrontierIdentity:
    """See ``Store.create_frontier``."""
    only = "only" if is_sqlite(db) else "only_row"
    sql = f"INSERT INTO frontier ({only}, identity) VALUES (1, ?) ON CONFLICT DO NOTHING"
    change(db, sql, (wire.to_json(identity).decode(),))
    return frontier(db) or identity


def put_layout(db: Db, layout: int) -> FrontierIdentity:
    """See ``Store.put_layout``."""
    known = frontier(db, FOR_UPDATE)
    assert known is not None
    changed = replace(known, layout=layout)
    change(db, "UPDATE frontier SET identity = ?", (wire.to_json(changed).decode(),))
    return changed


def tick(db: Db) -> int:
    """Raise the clock, and return it."""
    change(db, "UPDATE clock SET value = value + 1")
    return clock(db).clock


def clock(db: Db) -> Stamp:
    """Return the store's clock and the epochs, read together."""
    rows = found(db, "SELECT value, id, epoch FROM clock LEFT JOIN nodes ON TRUE")
    return Stamp(rows[0][0], {node: epoch for _, node, epoch in rows if node})


def epochs(db: Db) -> dict[str, int]:
    """Return node → its epoch, without nodes that were never opened. No epoch changes until the
    transaction ends."""
    rows = found(db, f"SELECT id, epoch FROM nodes{SHARE_LOCK}")
    return {node: epoch for node, epoch in rows if node}


def raise_epoch(db: Db, node: str, known: int, epoch: int) -> bool:
    """See ``Store.raise_epoch``. Waits for the commits under way, which share the row ``''``."""
    first(db, f"SELECT id FROM nodes WHERE id = ''{FOR_UPDATE}")
    row = first(db, f"SELECT epoch FROM nodes WHERE id = ?{FOR_UPDATE}", (node,))
    if (row[0] if row else 0) != known:
        return False
    sql = "INSERT INTO nodes (id, epoch) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET"
    change(db, f"{sql} epoch = excluded.epoch", (node, epoch))
    return True


def owe_now(db: Db, nodes: Collection[str], since: int | None = None) -> int:
    """See ``Store.owe``."""
    now = clock(db).clock
    owe(db, nodes, now if since is None else since)
    return now


def addresses(db: Db) -> dict[str, str]:
    """See ``Store.addresses``."""
    return dict(found(db, "SELECT node, address FROM addresses"))


def put_addresses(db: Db, addresses: Mapping[str, str]) -> None:
    """See ``Store.put_addresses``."""
    for node, address in sorted(addresses.items()):
        change(db, "DELETE FROM addresses WHERE address = ?", (address,))
        change(db, "REPLACE INTO addresses (node, address) VALUES (?, ?)", (node, address))


def owe(db: Db, nodes: Collection[str], since: int) -> None:
    """Note that all that is stamped ``since`` or later may be missing in ``nodes``."""
    for node in sorted(nodes):
        known = first(db, f"SELECT since, serial FROM debts WHERE node = ?{SHARE_LOCK}", (node,))
        if known is None or known[0] > since or known[1] % 2:
            change(
                db,
                "INSERT INTO debts (node, since, serial) VALUES (?, ?, 0) ON CONFLICT (node) DO "
                "UPDATE SET since = CASE WHEN excluded.since < debts.since THEN excluded.since "
                "ELSE debts.since END, serial = serial + serial % 2",
                (node, since),
            )


def debts(db: Db) -> dict[str, Debt]:
    """Return node → its debt."""
    rows = found(db, "SELECT node, since, serial FROM debts ORDER BY node")
    return {node: Debt(since, serial) for node, since, serial in rows}


def begin_replay(db: Db, node: str) -> Debt | None:
    """See ``Store.begin_replay``. It waits for the commits under way that add to the debt."""
    row = first(db, f"SELECT since, serial FROM debts WHERE node = ?{FOR_UPDATE}", (node,))
    if row is None:
        return None
    debt = Debt(row[0], row[1] + 1 + row[1] % 2)
    change(db, "UPDATE debts SET serial = ? WHERE node = ?", (debt.serial, node))
    return debt


def end_replay(db: Db, node: str, serial: int) -> bool:
    """See ``Store.end_replay``."""
    return bool(change(db, "DELETE FROM debts WHERE node = ? AND serial = ?", (node, serial)))
