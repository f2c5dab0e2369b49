"""Parked URLs and released shapes on MySQL; each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema import wire
from greencrawl.schema.records import Crawl, Final, ParkedShape, SeedBatch
from greencrawl.store import released
from greencrawl.store import rows as common
from greencrawl.store.mysql import rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.ids import Numbers
from greencrawl.store.mysql.statements import chunks, numbers, raw
from greencrawl.store.mysql.tables import crawls
from greencrawl.store.mysql.transaction import Key
from greencrawl.store.rows import Codec

_SHARED, _ALONE = " LOCK IN SHARE MODE", " FOR UPDATE"


def let_go(db: Db, finals: Sequence[Final]) -> frozenset[Key]:
    """Return those of ``finals`` that are parked by a shape that was released meanwhile.

    Their crawls are locked in shared mode, so that no release comes in between.
    """
    some = [one for one in finals if one.state == "parked"]
    if not some:
        return frozenset()
    shapes = {crawl: crawls.get(db, crawl, _SHARED).released for crawl in {o.crawl for o in some}}
    return frozenset(
        (one.crawl, one.fingerprint)
        for one in some
        if released.holds(shapes[one.crawl], common.shape_name(one.shape))
    )


def shapes(db: Db, crawl: int, limit: int = 100) -> list[ParkedShape]:
    """See ``Store.parked_shapes``. It counts in an index, and reads one row for each shape."""
    db.execute(
        "SELECT shape, COUNT(*), MIN(at_ms), MAX(at_ms) FROM finals FORCE INDEX (finals_by_shape) "
        "WHERE crawl = %s AND state = 'parked' GROUP BY shape ORDER BY COUNT(*) DESC, shape "
        "LIMIT %s",
        (crawl, limit),
    )
    made = []
    for shape, count, first_ms, last_ms in db.fetchall():
        db.execute(
            "SELECT url, detail FROM finals FORCE INDEX (finals_by_shape) "
            "WHERE crawl = %s AND state = 'parked' AND shape = %s ORDER BY at_ms DESC LIMIT 1",
            (crawl, shape),
        )
        for url, detail in db.fetchall():
            made.append(
                ParkedShape(
                    shape=shape.decode(), host=common.host(url), reason=detail, count=count,
                    first_ms=first_ms, last_ms=last_ms, example=url,
                )
            )  # fmt: skip
    return made


def add_released(db: Db, crawl: int, shapes: Sequence[str]) -> Crawl:
    """See ``Store.add_released``. It waits for the crawl's commits that are under way."""
    known = crawls.get(db, crawl, _ALONE)
    united = released.united(known.released, shapes)
    if united == known.released:
        return known
    db.execute(
        "UPDATE crawls SET released = %s, revision = revision + 1, version = version + 1 "
        "WHERE id = %s",
        (wire.to_json(united).decode(), crawl),
    )
    return crawls.get(db, crawl)


def release(
    db: Db, codec: Codec, ids: Numbers, crawl: int, shape: str | None, limit: int, before: int
) -> SeedBatch | None:
    """See ``Store.release_parked``. Raises UnknownCrawl."""
    crawls.get(db, crawl, _SHARED)
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
    urls = tuple(last.again for last in map(rows.final, found))
    batch = crawls.add_seeds(db, ids, crawl, codec.pack_links(urls), force=True)
    for part in chunks([row[1] for row in found]):
        sql = b"DELETE FROM finals WHERE crawl = %d AND fingerprint IN (%b)"
        raw(db, sql % (crawl, numbers(part)))
    crawls.fewer(db, crawl, "parked", len(found))
    db.execute("SELECT stamp FROM seed_batches WHERE id = %s", (batch,))
    ((stamp,),) = db.fetchall()
    return SeedBatch(id=batch, crawl=crawl, urls=urls, force=True, stamp=stamp)
