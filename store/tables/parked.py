"""Parked URLs and released shapes; each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import EVERY_SHAPE, RELEASED, ParkedShape
from greencrawl.store.rows import host, shape_name
from greencrawl.store.tables.sql import Db, found, is_sqlite


def united(known: Sequence[str], new: Iterable[str]) -> tuple[str, ...]:
    """Return ``known`` shapes together with ``new`` ones; ``*`` stands for all.

    Raises InvalidConfig for too many.
    """
    shapes = tuple(dict.fromkeys((*known, *map(shape_name, new))))
    if EVERY_SHAPE in shapes:
        return (EVERY_SHAPE,)
    if len(shapes) > RELEASED:
        what = f"a crawl keeps {RELEASED:,} released shapes at most: release all"
        raise InvalidConfig([("shape", what)])
    return shapes


def holds(released: Sequence[str], shape: str) -> bool:
    """Return whether a shape was released."""
    return shape in released or EVERY_SHAPE in released


def with_page(db: Db, crawl: int, fingerprints: Sequence[int]) -> frozenset[int]:
    """See ``Store.with_page``: a URL that has a page is not parked."""
    wanted = ", ".join("?" * len(fingerprints))
    sql = f"SELECT fingerprint FROM pages WHERE crawl = ? AND fingerprint IN ({wanted})"
    return frozenset(number for (number,) in found(db, sql, (crawl, *fingerprints)))


def shapes(db: Db, crawl: int, limit: int = 100) -> list[ParkedShape]:
    """See ``Store.parked_shapes``. It counts in an index, and reads one row for each shape."""
    index = "finals_parked" if is_sqlite(db) else "finals_by_shape"
    where = f"FROM finals INDEXED BY {index} WHERE crawl = ? AND state = 'parked'"
    latest = f"SELECT url, detail {where} AND shape = ? ORDER BY at_ms DESC LIMIT 1"
    counted = found(
        db,
        f"SELECT shape, COUNT(*), MIN(at_ms), MAX(at_ms) {where} "
        "GROUP BY shape ORDER BY COUNT(*) DESC, shape LIMIT ?",
        (crawl, limit),
    )
    return [
        ParkedShape(
            shape=shape, host=host(url), reason=detail, count=count, first_ms=first_ms,
            last_ms=last_ms, example=url,
        )
        for shape, count, first_ms, last_ms in counted
        for url, detail in found(db, latest, (crawl, shape))
    ]  # fmt: skip
