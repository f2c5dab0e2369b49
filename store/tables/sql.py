"""Run a statement on either store.

Statements are written as SQLite reads them. The few rules of :data:`_RULES` make them MySQL's: the
marks of values, the hint of an index, and what to do if a row exists. Parts for MySQL alone, such
as a lock, are in a comment that only MySQL reads, ``/*! FOR UPDATE */``. SQLite needs no lock: only
one transaction writes at a time.

Each function takes what a lane of a store passes to a transaction: a connection to SQLite, or a
cursor of MySQL.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from greencrawl.store.mysql.ids import NUMBERS
from greencrawl.store.rows import Row

FOR_UPDATE = " /*! FOR UPDATE */"
SHARE_LOCK = " /*! LOCK IN SHARE MODE */"

_RULES = (
    (r"%", "%%"),
    (r"\?", "%s"),
    (r"INDEXED BY (\w+)", r"FORCE INDEX (\1)"),
    (r"INSERT INTO (\w+) \((\w+)(.*)ON CONFLICT DO NOTHING",
     r"INSERT INTO \1 (\2\3ON DUPLICATE KEY UPDATE \2 = VALUES(\2)"),
    (r"ON CONFLICT \([\w, ]+\) DO UPDATE SET", "ON DUPLICATE KEY UPDATE"),
    (r"excluded\.(\w+)", r"VALUES(\1)"),
)  # fmt: skip
"""Forms for SQLite and for MySQL, in this order. If a row may exist, its first column is part of
its key, so writing this column again changes nothing."""


LAST = 2**63 - 1
"""The highest number of a row."""


class Db(Protocol):
    """A connection to SQLite, or a cursor of MySQL."""

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """Run a statement of that store."""


def is_sqlite(db: Db) -> bool:
    """Return whether the database is SQLite. A few columns differ between the stores."""
    return isinstance(db, sqlite3.Connection)


@lru_cache(maxsize=1024)
def _of_mysql(sql: str) -> str:
    for ours, theirs in _RULES:
        sql = re.sub(ours, theirs, sql, flags=re.DOTALL)
    return sql


def raw(db: Db, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """Return the rows of a query for blobs."""
    if isinstance(db, sqlite3.Connection):
        return db.execute(sql, values).fetchall()
    cursor: Any = db
    cursor.execute(_of_mysql(sql), values)
    return list(cursor.fetchall())


def found(db: Db, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """Return the rows of a query that is not for blobs. Names and JSON, which MySQL keeps as bytes,
    are text."""
    rows = raw(db, sql, values)
    return rows if is_sqlite(db) else [tuple(map(_text, row)) for row in rows]


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def first(db: Db, sql: str, values: Sequence[Any] = ()) -> Row | None:
    """Return the first row of :func:`found`, or None."""
    return next(iter(found(db, sql, values)), None)


def change(db: Db, sql: str, values: Sequence[Any] = ()) -> int:
    """Run a statement that is no query; return how many rows it changed."""
    if isinstance(db, sqlite3.Connection):
        return db.execute(sql, values).rowcount
    return int(db.execute(_of_mysql(sql), values))


def add(db: Db, sql: str, values: Sequence[Any]) -> int:
    """Insert a row; return its number, which the store chooses and puts before ``values``."""
    if isinstance(db, sqlite3.Connection):
        return int(db.execute(sql, (None, *values)).lastrowid or 0)
    number = NUMBERS.take()
    db.execute(_of_mysql(sql), (number, *values))
    return number


def drop(db: Db, table: str, key: str, where: str, values: Sequence[Any], most: int) -> int:
    """Delete up to ``most`` rows for which ``where`` is true; return how many."""
    if is_sqlite(db):
        some = f"SELECT {key} FROM {table} WHERE {where} LIMIT {most}"
        return change(db, f"DELETE FROM {table} WHERE ({key}) IN ({some})", values)
    return change(db, f"DELETE FROM {table} WHERE {where} ORDER BY {key} LIMIT {most}", values)


def beyond(cursor: str, least: int = 0) -> int:
    """Return the first number after a cursor; ``least`` is the first of all. Raises ValueError."""
    if not cursor:
        return least
    if len(cursor) > 20 or not re.fullmatch(r"-?[0-9]+", cursor):
        raise ValueError(f"no cursor: {cursor[:40]!r}")
    number = int(cursor)
    if not least <= number <= LAST:
        raise ValueError(f"no cursor: {cursor!r}")
    return number + 1
