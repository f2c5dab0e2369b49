"""Members on SQLite; see ``Store.put_member``. Each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3

from greencrawl.schema import wire
from greencrawl.schema.records import Facts, Member
from greencrawl.store import rows
from greencrawl.store.base import MEMBERS
from greencrawl.store.rows import Row

_COLUMNS = "id, node, kind, incarnation, version, address, joined_ms, left_ms, why, facts"


def put(db: sqlite3.Connection, member: Member) -> bool:
    """See ``Store.put_member``."""
    return bool(
        db.execute(
            f"INSERT INTO members ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, 0, '', ?) "
            "ON CONFLICT (id) DO UPDATE SET node = excluded.node, kind = excluded.kind, "
            "joined_ms = iif(excluded.incarnation > incarnation, excluded.joined_ms, joined_ms), "
            "incarnation = excluded.incarnation, version = excluded.version, "
            "address = excluded.address, left_ms = 0, why = '', facts = excluded.facts "
            "WHERE excluded.incarnation > incarnation "
            "OR (excluded.incarnation = incarnation AND left_ms > 0)",
            (
                member.id, member.node, member.kind, member.incarnation,
                rows.clean(member.version), rows.clean(member.address), member.joined_ms,
                wire.to_json(member.facts).decode(),
            ),
        ).rowcount
    )  # fmt: skip


def left(
    db: sqlite3.Connection,
    member: str,
    incarnation: int,
    why: str,
    at_ms: int,
    facts: Facts | None = None,
) -> bool:
    """See ``Store.member_left``."""
    text = wire.to_json(facts).decode() if facts is not None else None
    sql = (
        "UPDATE members SET left_ms = ?, why = ?, facts = COALESCE(?, facts) "
        "WHERE id = ? AND incarnation = ? AND left_ms = 0"
    )
    return bool(db.execute(sql, (at_ms, rows.clean(why), text, member, incarnation)).rowcount)


def every(db: sqlite3.Connection) -> list[Member]:
    """See ``Store.members``."""
    return [_member(row) for row in db.execute(f"SELECT {_COLUMNS} FROM members ORDER BY id")]


def drop(db: sqlite3.Connection, before_ms: int, keep: int = MEMBERS) -> int:
    """See ``Store.drop_members``."""
    latest = "SELECT left_ms FROM members WHERE left_ms > 0 ORDER BY left_ms DESC LIMIT 1 OFFSET ?"
    found = db.execute(latest, (keep,)).fetchone()
    last = max(before_ms - 1, found[0] if found else 0)
    return db.execute("DELETE FROM members WHERE left_ms > 0 AND left_ms <= ?", (last,)).rowcount


def _member(row: Row) -> Member:
    number, node, kind, incarnation, version, address, joined_ms, left_ms, why, facts = row
    return Member(
        id=number, node=node, kind=kind, incarnation=incarnation, version=version,
        address=address, joined_ms=joined_ms, left_ms=left_ms, why=why,
        facts=wire.from_json(facts, Facts),
    )  # fmt: skip
