"""Members; see ``Store.put_member``. Each function runs in a caller's transaction."""

from __future__ import annotations

from greencrawl.schema import wire
from greencrawl.schema.records import Facts, Member
from greencrawl.store.base import MEMBERS
from greencrawl.store.rows import Row, clean
from greencrawl.store.tables.sql import FOR_UPDATE, Db, change, first, found

_COLUMNS = "id, node, kind, incarnation, version, address, joined_ms, left_ms, why, facts"


def put(db: Db, member: Member) -> bool:
    """See ``Store.put_member``."""
    known = f"SELECT incarnation, left_ms, joined_ms FROM members WHERE id = ?{FOR_UPDATE}"
    joined_ms = member.joined_ms
    if row := first(db, known, (member.id,)):
        incarnation, left_ms, before_ms = row
        again = incarnation == member.incarnation and left_ms > 0
        if not (member.incarnation > incarnation or again):
            return False
        joined_ms = before_ms if again else joined_ms
    change(
        db,
        f"REPLACE INTO members ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, 0, '', ?)",
        (
            member.id, member.node, member.kind, member.incarnation, clean(member.version),
            clean(member.address), joined_ms, wire.to_json(member.facts).decode(),
        ),
    )  # fmt: skip
    return True


def left(
    db: Db, member: str, incarnation: int, why: str, at_ms: int, facts: Facts | None = None
) -> bool:
    """See ``Store.member_left``."""
    told = wire.to_json(facts).decode() if facts is not None else None
    sql = (
        "UPDATE members SET left_ms = ?, why = ?, facts = COALESCE(?, facts) "
        "WHERE id = ? AND incarnation = ? AND left_ms = 0"
    )
    return bool(change(db, sql, (at_ms, clean(why), told, member, incarnation)))


def every(db: Db) -> list[Member]:
    """See ``Store.members``."""
    return list(map(_member, found(db, f"SELECT {_COLUMNS} FROM members ORDER BY id")))


def drop(db: Db, before_ms: int, keep: int = MEMBERS) -> int:
    """See ``Store.drop_members``."""
    latest = "SELECT left_ms FROM members WHERE left_ms > 0 ORDER BY left_ms DESC LIMIT 1 OFFSET ?"
    kept = first(db, latest, (keep,))
    last = max(before_ms - 1, kept[0] if kept else 0)
    return change(db, "DELETE FROM members WHERE left_ms > 0 AND left_ms <= ?", (last,))


def _member(row: Row) -> Member:
    number, node, kind, incarnation, version, address, joined_ms, left_ms, why, facts = row
    return Member(
        id=number, node=node, kind=kind, incarnation=incarnation, version=version,
        address=address, joined_ms=joined_ms, left_ms=left_ms, why=why,
        facts=wire.from_json(facts, Facts),
    )  # fmt: skip
