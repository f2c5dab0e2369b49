"""Parked URLs and released shapes on SQLite; each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greencrawl.schema.records import SeedBatch
from greencrawl.store import rows
from greencrawl.store.rows import Codec, Row
from greencrawl.store.sqlite.batches import marks
from greencrawl.store.tables import crawls
from greencrawl.store.tables.parked import holds

Key = tuple[int, int]
"""A crawl and a fingerprint."""

_STATE, _SHAPE = (rows.FINAL.split(", ").index(name) for name in ("state", "shape"))
_NAMED = 400


def let_go(db: sqlite3.Connection, finals: Sequence[Row]) -> frozenset[Key]:
    """Return the URLs in ``finals`` that are parked by a shape that was released meanwhile."""
    some = [row for row in finals if row[_STATE] == "parked"]
    if not some:
        return frozenset()
    shapes = {crawl: crawls.get(db, crawl).released for crawl in {row[0] for row in some}}
    return frozenset(row[:2] for row in some if holds(shapes[row[0]], row[_SHAPE]))


def release(
    db: sqlite3.Connection, codec: Codec, crawl: int, shape: str | None, limit: int, before: int
) -> SeedBatch | None:
    """See ``Store.release_parked``. Raises UnknownCrawl."""
    crawls.get(db, crawl)
    some, values = "", list[str]()
    if shape is not None:
        some, values = "shape = ? AND ", [rows.shape_name(shape)]
    found = db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals WHERE crawl = ? AND state = 'parked' "
        f"AND {some}stamp < ? LIMIT ?",
        (crawl, *values, before, limit),
    ).fetchall()
    if not found:
        return None
    for start in range(0, len(found), _NAMED):
        numbers = [row[0] for row in found[start : start + _NAMED]]
        db.execute(f"DELETE FROM finals WHERE id IN ({marks(len(numbers))})", numbers)
    return crawls.add_again(db, codec, crawl, list(map(rows.final, found)))
