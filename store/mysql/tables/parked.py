"""Parked URLs and released shapes on MySQL; each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema.records import Final, SeedBatch
from greencrawl.store import rows as common
from greencrawl.store.mysql import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.statements import chunks, numbers, raw
from greencrawl.store.mysql.tables.crawls import fewer
from greencrawl.store.mysql.transaction import Key
from greencrawl.store.rows import Codec
from greencrawl.store.tables import crawls
from greencrawl.store.tables.parked import holds
from greencrawl.store.tables.sql import SHARE_LOCK


def let_go(db: Db, finals: Sequence[Final]) -> frozenset[Key]:
    """Return the URLs in ``finals`` that are parked by a shape that was released meanwhile.

    Their crawls are locked in shared mode, so that no release comes in between.
    """
    some = [one for one in finals if one.state == "parked"]
    if not some:
        return frozenset()
    shapes = {
        crawl: crawls.get(db, crawl, SHARE_LOCK).released for crawl in {o.crawl for o in some}
    }
    return frozenset(
        (one.crawl, one.fingerprint)
        for one in some
        if holds(shapes[one.crawl], common.shape_name(one.shape))
    )


def release(
    db: Db, codec: Codec, crawl: int, shape: str | None, limit: int, before: int
) -> SeedBatch | None:
    """See ``Store.release_parked``. Raises UnknownCrawl."""
    crawls.get(db, crawl, SHARE_LOCK)
    some, values = "", list[bytes]()
    if shape is not None:
        some, values = "shape = %s AND ", [common.shape_name(shape).encode()]
    db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals FORCE INDEX (finals_by_shape) "
        f"WHERE crawl = %s AND state = 'parked' AND {some}stamp < %s LIMIT %s FOR UPDATE",
        (crawl, *values, before, limit),
    )
    found = db.fetchall()
    if not found:
        return None
    for part in chunks([row[1] for row in found]):
        sql = b"DELETE FROM finals WHERE crawl = %d AND fingerprint IN (%b)"
        raw(db, sql % (crawl, numbers(part)))
    fewer(db, crawl, "parked", len(found))
    return crawls.add_again(db, codec, crawl, list(map(rows.final, found)))
