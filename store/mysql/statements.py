"""Statements with many rows, as bytes: the driver's own escaping costs most of the time.

The driver writes binary values in hexadecimal, twice their size. Here they are sent as they are. On
a connection with utf8mb4 and without NO_BACKSLASH_ESCAPES, only the quote and the backslash have a
meaning in a literal: no character of UTF-8 beyond ASCII holds a byte below 0x80.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from greencrawl.store.errors import Unstorable
from greencrawl.store.mysql.connection import Db
from greencrawl.store.rows import Row

STATEMENT_BYTES = 4 * 1024 * 1024
"""A statement has at most this many bytes, or fewer if the server's ``max_allowed_packet`` is
lower."""
NAMED = 400
"""Keys named in one statement."""


def raw(db: Db, sql: bytes) -> int:
    """Execute a complete statement; return how many rows it found or changed."""
    return db.execute(sql)  # type: ignore[call-overload, no-any-return]  # it takes bytes too


def literal(value: Any) -> bytes:
    """Return ``value`` as SQL: None, a number, text (which must be valid Unicode), bytes or a
    buffer."""
    kind = type(value)
    if kind is int:
        return b"%d" % value
    if kind is str:
        return b"'%b'" % value.encode().replace(b"\\", b"\\\\").replace(b"'", b"\\'")
    if value is None:
        return b"NULL"
    if kind is bool:
        return b"1" if value else b"0"
    if kind is float:
        return repr(value).encode() if math.isfinite(value) else b"NULL"
    return b"_binary'%b'" % bytes(value).replace(b"\\", b"\\\\").replace(b"'", b"\\'")


def numbers(values: Iterable[int]) -> bytes:
    """Return ``values`` for ``IN (…)``."""
    return b",".join([b"%d" % value for value in values])


def chunks(items: Sequence[Any], size: int = NAMED) -> Iterator[Sequence[Any]]:
    """Yield ``items`` in parts of ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))


def insert(
    db: Db,
    table: str,
    columns: str,
    rows: Sequence[Row],
    *,
    most_bytes: int,
    names: Sequence[str] = (),
    tail: str = "",
) -> None:
    """INSERT ``rows``, in as few statements as ``most_bytes`` allows; ``tail`` follows each.

    ``names[i]`` names ``rows[i]`` to a person. Raises Unstorable for a row that alone is larger
    than ``most_bytes``.
    """
    head = f"INSERT INTO {table} ({columns}) VALUES ".encode()
    end = tail.encode()
    room = most_bytes - len(head) - len(end) - 1
    parts: list[bytes] = []
    size = 0
    for index, row in enumerate(rows):
        part = b"(" + b",".join(map(literal, row)) + b")"
        if len(part) > room:
            name = names[index] if names else table
            raise Unstorable(
                name,
                f"a row of {len(part):,} bytes is beyond the server's max_allowed_packet: raise it "
                "there, or lower max_body_bytes",
            )
        if parts and size + len(part) > min(room, STATEMENT_BYTES):
            raw(db, head + b",".join(parts) + end)
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        raw(db, head + b",".join(parts) + end)


def keys(db: Db, sql: str, crawl: int, fingerprints: Sequence[int], tail: str = "") -> list[Row]:
    """Return rows of ``sql``, which ends in WHERE, for fingerprints of one crawl."""
    found: list[Row] = []
    for some in chunks(fingerprints):
        where = b"%b crawl = %d AND fingerprint IN (%b) %b"
        raw(db, where % (sql.encode(), crawl, numbers(some), tail.encode()))
        found += db.fetchall()
    return found
