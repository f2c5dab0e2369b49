"""Members on MySQL; see ``Store.put_member``. Each function runs in a caller's transaction."""

from __future__ import annotations

from typing import Any, cast

from greencrawl.schema import wire
from greencrawl.schema.records import Facts, Member, MemberKind
from greencrawl.store import rows as common
from greencrawl.store.base import MEMBERS
from greencrawl.store.mysql.connection import Db
from greencrawl.store.rows import Row

_COLUMNS = "id, node, kind, incarnation, version, address, joined_ms, left_ms, why, facts"


def put(db: Db, member: Member) -> bool:
    """See ``Store.put_member``."""
    key = member.id.encode()
    known = "SELECT incarnation, left_ms, joined_ms FROM members WHERE id = %s FOR UPDATE"
    db.execute(known, (key,))
    row: Any = db.fetchone()
    joined_ms = member.joined_ms
    if row is not None:
        incarnation, left_ms, before_ms = row
        again = incarnation == member.incarnation and left_ms > 0
        if not (member.incarnation > incarnation or again):
            return False
        joined_ms = before_ms if again else joined_ms
    db.execute(
        f"REPLACE INTO members ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, 0, '', %s)",
        (
            key, member.node.encode(), member.kind, member.incarnation,
            common.clean(member.version).encode(), common.clean(member.address).encode(),
            joined_ms, wire.to_json(member.facts),
        ),
    )  # fmt: skip
    return True


def left(
    db: Db, member: str, incarnation: int, why: str, at_ms: int, facts: Facts | None = None
) -> bool:
    """See ``Store.member_left``."""
    told = wire.to_json(facts) if facts is not None else None
    return bool(
        db.execute(
            "UPDATE members SET left_ms = %s, why = %s, facts = COALESCE(%s, facts) "
            "WHERE id = %s AND incarnation = %s AND left_ms = 0",
            (at_ms, common.clean(why).encode(), told, member.encode(), incarnation),
        )
    )


def every(db: Db) -> list[Member]:
    """See ``Store.members``."""
    db.execute(f"SELECT {_COLUMNS} FROM members ORDER BY id")
    return [_member(row) for row in db.fetchall()]


def drop(db: Db, before_ms: int, keep: int = MEMBERS) -> int:
    """See ``Store.drop_members``."""
    db.execute(
        "SELECT left_ms FROM members WHERE left_ms > 0 ORDER BY left_ms DESC LIMIT 1 OFFSET %s",
        (keep,),
    )
    row: Any = db.fetchone()
    last = max(before_ms - 1, row[0] if row else 0)
    return db.execute("DELETE FROM members WHERE left_ms > 0 AND left_ms <= %s", (last,))


def _member(row: Row) -> Member:
    number, node, kind, incarnation, version, address, joined_ms, left_ms, why, facts = row
    return Member(
        id=number.decode(), node=node.decode(), kind=cast(MemberKind, _text(kind)),
        incarnation=incarnation, version=version.decode(), address=address.decode(),
        joined_ms=joined_ms, left_ms=left_ms, why=why.decode(),
        facts=wire.from_json(facts, Facts),
    )  # fmt: skip


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
