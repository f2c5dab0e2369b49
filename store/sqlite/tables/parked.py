"""Parked URLs and released shapes on SQLite; each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from greencrawl.schema import wire
from greencrawl.schema.records import Crawl, ParkedShape, SeedBatch
from greencrawl.store import released, rows
from greencrawl.store.rows import Codec, Row
from greencrawl.store.sqlite.batches import marks
from greencrawl.store.sqlite.tables import crawls

Key = tuple[int, int]
"""A crawl and a fingerprint."""

_STATE, _SHAPE = (rows.FINAL.split(", ").index(name) for name in ("state", "shape"))
_NAMED = 400


def let_go(db: sqlite3.Connection, finals: Sequence[Row]) -> frozenset[Key]:
    """Return those of ``finals`` that are parked by a shape that was released meanwhile."""
    some = [row for row in finals if row[_STATE] == "parked"]
    if not some:
        return frozenset()
    shapes = {crawl: crawls.get(db, crawl).released for crawl in {row[0] for row in some}}
    return frozenset(row[:2] for row in some if released.holds(shapes[row[0]], row[_SHAPE]))


def shapes(db: sqlite3.Connection, crawl: int, limit: int = 100) -> list[ParkedShape]:
    """See ``Store.parked_shapes``. It counts in an index, and reads one row for each shape."""
    found = db.execute(
        "SELECT shape, COUNT(*), MIN(at_ms), MAX(at_ms) FROM finals INDEXED BY finals_parked "
        "WHERE crawl = ? AND state = 'parked' GROUP BY shape ORDER BY COUNT(*) DESC, shape LIMIT ?",
        (crawl, limit),
    ).fetchall()
    latest = (
        "SELECT url, detail FROM finals INDEXED BY finals_parked "
        "WHERE crawl = ? AND state = 'parked' AND shape = ? ORDER BY at_ms DESC LIMIT 1"
    )
    made = []
    for shape, count, first_ms, last_ms in found:
        url, detail = db.execute(latest, (crawl, shape)).fetchone()
        made.append(
            ParkedShape(
                shape=shape, host=rows.host(url), reason=detail, count=count, first_ms=first_ms,
                last_ms=last_ms, example=url,
            )
        )  # fmt: skip
    return made


def add_released(db: sqlite3.Connection, crawl: int, shapes: Sequence[str]) -> Crawl:
    """See ``Store.add_released``."""
    known = crawls.get(db, crawl)
    united = released.united(known.released, shapes)
    if united == known.released:
        return known
    db.execute(
        "UPDATE crawls SET released = ?, revision = revision + 1, version = version + 1 "
        "WHERE id = ?",
        (wire.to_json(united).decode(), crawl),
    )
    return crawls.get(db, crawl)


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
    urls = tuple(last.again for last in map(rows.final, found))
    batch = crawls.add_seeds(db, crawl, codec.pack_links(urls), force=True)
    for start in range(0, len(found), _NAMED):
        numbers = [row[0] for row in found[start : start + _NAMED]]
        db.execute(f"DELETE FROM finals WHERE id IN ({marks(len(numbers))})", numbers)
    (stamp,) = db.execute("SELECT stamp FROM seed_batches WHERE id = ?", (batch,)).fetchone()
    return SeedBatch(id=batch, crawl=crawl, urls=urls, force=True, stamp=stamp)
