"""The replay log on MySQL; see :mod:`greencrawl.store.sqlite.tables.replay_log`.

A window is read crawl by crawl, in the order (stamp, place, fingerprint) of an index. A row's stamp
never goes down. So a row that gets a new stamp during the reading is read again, and not left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from greencrawl.schema.records import Stamp
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.statements import keys
from greencrawl.store.rows import Row
from greencrawl.store.tables.crawls import IS_FINISHED, SEED_ROWS, SEEDS

PACKET_MARGIN = 4096
"""Bytes of a packet around the statement."""


class Begun(NamedTuple):
    """The rows that a writing transaction reads at its start and locks."""

    stamp: Stamp
    alive: frozenset[int]
    """The crawls that are not deleted."""
    finished: frozenset[int]
    """The crawls that are done because nothing was left to do."""
    recurring: frozenset[int]
    """The crawls that begin again."""
    limits: dict[int, int]
    """``max_pages`` of the crawls that have this limit."""
    most_bytes: int
    """A statement may have this many bytes, by ``max_allowed_packet``."""
    connection: int


def begin(db: Db, crawls: Sequence[int] = ()) -> Begun:
    """Take shared locks on the epochs of all nodes and on ``crawls``, and read the clock."""
    some = ", ".join(f"{crawl:d}" for crawl in crawls) or "0"
    # Only the epochs and crawls are locked: a lock clause of the outer statement locks no inner
    # rows.
    db.execute(
        "SELECT nodes.id, nodes.epoch, crawls.id, (SELECT value FROM clock), "
        "@@max_allowed_packet, CONNECTION_ID(), "
        f"{IS_FINISHED}, JSON_EXTRACT(crawls.options, '$.max_pages'), "
        "JSON_EXTRACT(crawls.options, '$.recrawl') FROM nodes "
        f"LEFT JOIN crawls ON crawls.id IN ({some}) AND crawls.deleted = 0 LOCK IN SHARE MODE"
    )
    found = db.fetchall()
    _, _, _, value, packet, connection, *_ = found[0]
    return Begun(
        stamp=Stamp(value, {row[0].decode(): row[1] for row in found if row[0]}),
        alive=frozenset(row[2] for row in found if row[2] is not None),
        finished=frozenset(row[2] for row in found if row[6]),
        recurring=frozenset(row[2] for row in found if row[8]),
        limits={row[2]: int(row[7]) for row in found if row[7] and int(row[7])},
        most_bytes=packet - PACKET_MARGIN,
        connection=connection,
    )


def seeds(db: Db, forced: bool, since: int, after: tuple[int, int]) -> list[Row]:
    """Return rows of :data:`SEEDS` stamped ``since`` or later, after (stamp, id)."""
    found: list[Row] = []
    sql = f"SELECT {SEEDS} FROM seed_batches FORCE INDEX (seed_batches_by_stamp) WHERE forced = %s"
    end = f"ORDER BY stamp, id LIMIT {SEED_ROWS}"
    if after[0] >= since:
        db.execute(f"{sql} AND stamp = %s AND id > %s {end}", (int(forced), *after))
        found += db.fetchall()
        since = after[0] + 1
    if len(found) < SEED_ROWS:
        db.execute(f"{sql} AND stamp >= %s {end}", (int(forced), since))
        found += db.fetchall()
    return found


def stamps(db: Db, crawl: int, fingerprints: Sequence[int]) -> list[Row]:
    """Return (fingerprint, stamp) of pages, and after them of final states."""
    return [
        row
        for table in ("pages", "finals")
        for row in keys(db, f"SELECT fingerprint, stamp FROM {table} WHERE", crawl, fingerprints)
    ]


def stamped(db: Db, table: str, since: int) -> list[int]:
    """Return crawls with rows of a window, one look-up each; ``table`` is pages or finals."""
    db.execute(
        "SELECT id FROM crawls WHERE deleted = 0 AND "
        f"(SELECT 1 FROM {table} FORCE INDEX ({table}_by_stamp) "
        f"WHERE {table}.crawl = crawls.id AND {table}.stamp >= %s LIMIT 1) = 1 ORDER BY id",
        (since,),
    )
    return [row[0] for row in db.fetchall()]


def size(db: Db, since: int) -> tuple[int, int, int]:
    """Return how many rows a window has: pages, final states, batches of seeds."""
    sums = {"pages": 0, "finals": 0}
    for table in sums:
        for crawl in stamped(db, table, since):
            db.execute(
                f"SELECT COUNT(*) FROM {table} FORCE INDEX ({table}_by_stamp) "
                "WHERE crawl = %s AND stamp >= %s",
                (crawl, since),
            )
            ((count,),) = db.fetchall()
            sums[table] += count
    db.execute("SELECT COUNT(*) FROM seed_batches WHERE forced IN (0, 1) AND stamp >= %s", (since,))
    ((batches,),) = db.fetchall()
    return sums["pages"], sums["finals"], batches
