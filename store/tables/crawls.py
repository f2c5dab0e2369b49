"""Crawls and their seeds; each function runs in a caller's transaction.

A writer for a crawl locks the crawl's row in shared mode. Changes that must not meet a writer lock
it exclusively: the end, the deletion, a change of state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from greencrawl.schema import wire
from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.records import (
    FINISHED,
    STOPPED,
    STOPPING,
    STOPPING_NOW,
    Crawl,
    CrawlOptions,
    CrawlState,
    Final,
    SeedBatch,
    Stamp,
    kept_options,
)
from greencrawl.store import rows
from greencrawl.store.rows import Codec, Row
from greencrawl.store.tables import nodes, parked, plans
from greencrawl.store.tables.sql import (
    FOR_UPDATE,
    SHARE_LOCK,
    Db,
    add,
    change,
    first,
    found,
    is_sqlite,
    raw,
)

_READ = (
    "SELECT id, name, state, options, roots, revision, created_ms, started_ms, finished_ms, "
    "reason, version, released, wakes_ms FROM crawls WHERE deleted = 0"
)
IS_FINISHED = f"crawls.state = 'done' AND crawls.reason = '{FINISHED}'"
_REOPEN = (
    "UPDATE crawls SET state = 'active', reason = '', finished_ms = 0, wakes_ms = 0, "
    "version = version + 1 "
    f"WHERE id = ? AND (state = 'done' OR reason IN ('{STOPPING}', '{STOPPING_NOW}'))"
)
SEEDS = "id, crawl, forced, urls, stamp"
SEED_ROWS = 20
"""Batches that are read at a time; one may hold some megabytes."""


def _crawl(row: Row) -> Crawl:
    number, name, state, options, roots, revision, created_ms, *times = row[:9]
    reason, version, shapes, wakes_ms = row[9:]
    if wakes_ms and (state, reason) == ("done", FINISHED):
        state = "resting"
    return Crawl(
        id=number, name=name, state=state, options=wire.from_json(options, CrawlOptions),
        roots=tuple(wire.from_json(roots, list[str])), revision=revision, version=version,
        released=tuple(wire.from_json(shapes or "[]", list[str])), created_ms=created_ms,
        started_ms=times[0], finished_ms=times[1], reason=reason,
        wakes_ms=wakes_ms if state == "resting" else 0,
    )  # fmt: skip


def every(db: Db) -> list[Crawl]:
    """Return all crawls, oldest first."""
    return list(map(_crawl, found(db, _READ + " ORDER BY id")))


def get(db: Db, name_or_id: str | int, lock: str = "") -> Crawl:
    """Return a crawl. Raises UnknownCrawl."""
    if isinstance(name_or_id, int):
        row = first(db, f"{_READ} AND id = ?{lock}", (rows.bounded(name_or_id),))
    else:
        name = "name" if is_sqlite(db) else "living"
        row = first(db, f"{_READ} AND {name} = ?{lock}", (rows.clean(name_or_id),))
    if row is None:
        raise UnknownCrawl(f"no crawl {name_or_id!r}")
    return _crawl(row)


def put(db: Db, name: str, options: CrawlOptions, roots: Sequence[str], now_ms: int) -> Crawl:
    """Create or update a crawl; see ``Store.put_crawl``. A new crawl is active."""
    text = kept_options(options).decode()
    try:
        known = get(db, name, FOR_UPDATE)
    except UnknownCrawl:
        key, given = rows.clean(name), wire.to_json(_united((), roots)).decode()
        columns, values = "name", [key, now_ms, now_ms, text, given]
        number, counted = "NULL", ""
        if not is_sqlite(db):  # MySQL draws no numbers that two masters could share
            change(db, "UPDATE counters SET value = value + 1 WHERE name = 'crawls'")
            columns, values = "living, name", [key, *values]
            number, counted = "value", " FROM counters WHERE name = 'crawls'"
        marks = ", ".join("?" * len(values))
        change(
            db,
            f"INSERT INTO crawls (id, state, reason, {columns}, created_ms, started_ms, options, "
            f"roots) SELECT {number}, 'active', '', {marks}{counted}",
            values,
        )
        return get(db, name)
    united = _united(known.roots, roots)
    if options != known.options or united != known.roots:
        _write(db, known.id, "options = ?, roots = ?", text, wire.to_json(united).decode())
        if not options.max_pages:  # without a limit nothing is counted any more
            change(db, "DELETE FROM limits WHERE crawl = ?", (known.id,))
    return get(db, name)


def _united(known: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *map(rows.clean, new))))


def _write(db: Db, crawl: int, columns: str, *values: str) -> None:
    """Write columns that a person gave; ``columns`` has a mark for each value."""
    sql = f"UPDATE crawls SET {columns}, revision = revision + 1, version = version + 1"
    change(db, f"{sql} WHERE id = ?", (*values, crawl))


def add_roots(db: Db, crawl: int, roots: Sequence[str]) -> Crawl:
    """See ``Store.add_roots``."""
    known = get(db, crawl, FOR_UPDATE)
    united = _united(known.roots, roots)
    if united == known.roots:
        return known
    _write(db, crawl, "roots = ?", wire.to_json(united).decode())
    return get(db, crawl)


def add_released(db: Db, crawl: int, shapes: Sequence[str]) -> Crawl:
    """See ``Store.add_released``. It waits for the crawl's commits that are under way."""
    known = get(db, crawl, FOR_UPDATE)
    united = parked.united(known.released, shapes)
    if united == known.released:
        return known
    _write(db, crawl, "released = ?", wire.to_json(united).decode())
    return get(db, crawl)


def set_state(
    db: Db, crawl: int, state: CrawlState, reason: str, version: int, now_ms: int
) -> Crawl:
    """See ``Store.set_state``."""
    known = get(db, crawl, FOR_UPDATE)
    reason = rows.clean(reason)
    if version not in (0, known.version) or (known.state, known.reason) == (state, reason):
        return known
    ends = state == "done" and reason != STOPPED
    if not ends or not _waits(db, crawl, seeds_only=reason.startswith("max_")):
        started_ms = known.started_ms or (now_ms if state == "active" else 0)
        change(
            db,
            "UPDATE crawls SET state = ?, reason = ?, started_ms = ?, finished_ms = ?, "
            "wakes_ms = 0, version = version + 1 WHERE id = ?",
            (state, reason, started_ms, now_ms if state == "done" else 0, crawl),
        )
    changed = get(db, crawl)
    if changed.ended:  # whatever ended it, its period is over
        sql = "UPDATE periods SET ended_ms = ? WHERE crawl = ? AND ended_ms = 0"
        change(db, sql, (now_ms, crawl))
    return changed


def _waits(db: Db, crawl: int, *, seeds_only: bool) -> bool:
    """Return whether something of the crawl is still to come; its row must be locked."""
    seeds = "SELECT 1 FROM seed_batches WHERE pending = 1 AND crawl = ? LIMIT 1"
    if first(db, seeds, (crawl,)) or first(db, "SELECT 1 FROM debts LIMIT 1"):
        return True
    rounds = "SELECT 1 FROM rounds WHERE crawl = ? AND ended_ms = 0 LIMIT 1"
    overflow = "SELECT 1 FROM overflow INDEXED BY overflow_waiting WHERE queued = 0 AND crawl = ?"
    return not seeds_only and bool(
        first(db, rounds, (crawl,))
        or first(db, f"{overflow} LIMIT 1", (crawl,))
        or plans.is_due(db, crawl)
    )


def reopen(db: Db, crawl: int, version: int) -> Crawl:
    """See ``Store.reopen``."""
    known = get(db, crawl, FOR_UPDATE)
    if known.version < version:  # Redis has seen a later version, which this store has lost
        change(db, "UPDATE crawls SET version = ? WHERE id = ?", (version + 1, crawl))
    if known.finished:
        reopen_finished(db, [crawl])
    elif known.state == "active" and known.version == version:
        change(db, "UPDATE crawls SET version = version + 1 WHERE id = ?", (crawl,))
    return get(db, crawl)


def reopen_finished(db: Db, crawls: Iterable[int]) -> None:
    """Make finished crawls active; if two transactions share the lock of a crawl, one of the two
    begins again."""
    for crawl in crawls:
        change(db, f"{_REOPEN} AND {IS_FINISHED}", (crawl,))


def reopen_ended(db: Db, crawl: int) -> None:
    """Make a crawl active if it is done or being stopped: a person wants more of it."""
    change(db, _REOPEN, (crawl,))


def mark_deleted(db: Db, crawl: int) -> None:
    """Make the crawl unknown and its name free; this waits for transactions that write for it."""
    free = "" if is_sqlite(db) else ", living = NULL"
    change(db, f"UPDATE crawls SET deleted = 1{free} WHERE id = ?", (rows.bounded(crawl),))


def add_seeds(db: Db, crawl: int, blob: bytes, force: bool) -> int:
    """Log a packed batch; see ``Store.add_seeds``. Raises UnknownCrawl."""
    known = get(db, crawl, SHARE_LOCK)
    batch = add(
        db,
        "INSERT INTO seed_batches (id, crawl, stamp, pending, forced, urls) "
        "SELECT ?, ?, value, 1, ?, ? FROM clock",
        (crawl, int(force), blob),
    )
    if known.ended or known.stopping:
        reopen_ended(db, crawl)
    return batch


def add_again(db: Db, codec: Codec, crawl: int, finals: Sequence[Final]) -> SeedBatch:
    """Log a forced batch of URLs that had these final states."""
    urls = tuple(last.again for last in finals)
    batch = add_seeds(db, crawl, codec.pack_links(urls), force=True)
    ((stamp,),) = found(db, "SELECT stamp FROM seed_batches WHERE id = ?", (batch,))
    return SeedBatch(id=batch, crawl=crawl, urls=urls, force=True, stamp=stamp)


def pending_rows(db: Db, limit: int, after: int) -> list[Row]:
    """Return rows of :data:`SEEDS` of pending batches, oldest first, except those of deleted
    crawls."""
    return raw(
        db,
        f"SELECT {SEEDS} FROM seed_batches INDEXED BY seed_batches_pending "
        "WHERE pending = 1 AND id > ? "
        "AND EXISTS (SELECT 1 FROM crawls WHERE crawls.id = seed_batches.crawl AND deleted = 0) "
        "ORDER BY id LIMIT ?",
        (after, limit),
    )


def seed_rows(db: Db, crawl: int, after: int) -> list[Row]:
    """Return rows of :data:`SEEDS` of a crawl's batches after ``after``, a few at a time."""
    return raw(
        db,
        f"SELECT {SEEDS} FROM seed_batches /*! FORCE INDEX (seed_batches_by_crawl) */ "
        f"WHERE crawl = ? AND id > ? ORDER BY id LIMIT {SEED_ROWS}",
        (crawl, after),
    )


def settle_seeds(db: Db, batch: int, least: int, under: Mapping[str, int]) -> bool:
    """Mark a batch as admitted if it is stamped ``least`` or later and no epoch was raised."""
    known = nodes.epochs(db)
    if any(known.get(node, 0) > epoch for node, epoch in under.items()):
        return False
    row = first(db, f"SELECT stamp, pending FROM seed_batches WHERE id = ?{FOR_UPDATE}", (batch,))
    if row is None:
        return True
    if row[0] < least:
        return False
    if row[1]:
        change(db, "UPDATE seed_batches SET pending = 0 WHERE id = ?", (batch,))
    return True


def restamp_seeds(db: Db, batch: int) -> Stamp:
    """See ``Store.restamp_seeds``."""
    nodes.epochs(db)  # locked: no epoch is raised before the commit
    now = nodes.clock(db)
    for row in found(db, "SELECT crawl FROM seed_batches WHERE id = ?", (batch,)):
        # The end of the crawl must see the batch, or come before it.
        first(db, f"SELECT id FROM crawls WHERE id = ?{SHARE_LOCK}", row)
    sql = (
        "UPDATE seed_batches SET stamp = CASE WHEN stamp < ? THEN ? ELSE stamp END, pending = 1 "
        "WHERE id = ?"
    )
    change(db, sql, (now.clock, now.clock, batch))
    return now


def drop_seeds(db: Db, batches: Sequence[tuple[int, int]]) -> int:
    """See ``Store.drop_seeds``."""
    sql = "DELETE FROM seed_batches WHERE id = ? AND stamp = ? AND pending = 0"
    return sum(change(db, sql, batch) for batch in batches)


def stored(db: Db, crawl: int) -> int:
    """See ``Store.stored``: the number is in the row of limits, and is 0 before pages are
    counted."""
    row = first(db, "SELECT pages FROM limits WHERE crawl = ?", (crawl,))
    return int(row[0]) if row else 0
