"""Crawls, their seeds and their sums on SQLite; each function runs in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

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
    SeedBatch,
    kept_options,
)
from greencrawl.store import rows
from greencrawl.store.base import NEVER
from greencrawl.store.rows import Codec, Row
from greencrawl.store.sqlite import page_limit
from greencrawl.store.sqlite.recrawl import calendar
from greencrawl.store.sqlite.tables import contents

PURGE_ROWS = {
    "pages": 200, "bodies": 200, "versions": 2000, "finals": 2000, "attempts": 2000,
    "seed_batches": 20, "overflow": 2000, "hook_failures": 2000, "samples": 2000,
    "calendar": 2000,
}  # fmt: skip
"""Table → rows deleted in one step, so that a step holds the write lock for milliseconds."""
_KEYS = {
    "versions": "(crawl, fingerprint, fetched_ms)",
    "hook_failures": "(crawl, fingerprint, function)",
    "samples": "(crawl, minute)",
    "calendar": "(crawl, fingerprint)",
}

_READ = (
    "SELECT id, name, state, options, roots, revision, created_ms, started_ms, finished_ms, "
    "reason, version, released, wakes_ms FROM crawls WHERE deleted = 0"
)
_REOPEN = (
    "UPDATE crawls SET state = 'active', reason = '', finished_ms = 0, wakes_ms = 0, "
    "version = version + 1 "
    f"WHERE id = ? AND (state = 'done' OR reason IN ('{STOPPING}', '{STOPPING_NOW}'))"
)


def _crawl(row: Row) -> Crawl:
    number, name, state, options, roots, revision, created_ms, *times = row[:9]
    reason, version, shapes, wakes_ms = row[9:]
    if wakes_ms and (state, reason) == ("done", FINISHED):
        state = "resting"
    return Crawl(
        id=number, name=name, state=state, options=wire.from_json(options, CrawlOptions),
        roots=tuple(wire.from_json(roots, list[str])), revision=revision, version=version,
        released=tuple(wire.from_json(shapes, list[str])), created_ms=created_ms,
        started_ms=times[0], finished_ms=times[1], reason=reason,
        wakes_ms=wakes_ms if state == "resting" else 0,
    )  # fmt: skip


def every(db: sqlite3.Connection) -> list[Crawl]:
    """Return all crawls, oldest first."""
    return [_crawl(row) for row in db.execute(_READ + " ORDER BY id").fetchall()]


def get(db: sqlite3.Connection, name_or_id: str | int) -> Crawl:
    """Return a crawl. Raises UnknownCrawl."""
    if isinstance(name_or_id, int):
        found = db.execute(_READ + " AND id = ?", (rows.bounded(name_or_id),)).fetchone()
    else:
        found = db.execute(_READ + " AND name = ?", (rows.clean(name_or_id),)).fetchone()
    if found is None:
        raise UnknownCrawl(f"no crawl {name_or_id!r}")
    return _crawl(found)


def put(
    db: sqlite3.Connection, name: str, options: CrawlOptions, roots: Sequence[str], now_ms: int
) -> Crawl:
    """Create or update a crawl; see ``Store.put_crawl``. A new one is active."""
    text = kept_options(options).decode()
    try:
        known = get(db, name)
    except UnknownCrawl:
        db.execute(
            "INSERT INTO crawls (name, state, options, roots, created_ms, started_ms) "
            "VALUES (?, 'active', ?, ?, ?, ?)",
            (name, text, wire.to_json(_united((), roots)).decode(), now_ms, now_ms),
        )
        return get(db, name)
    united = _united(known.roots, roots)
    if options != known.options or united != known.roots:
        db.execute(
            "UPDATE crawls SET options = ?, roots = ?, revision = revision + 1, "
            "version = version + 1 WHERE id = ?",
            (text, wire.to_json(united).decode(), known.id),
        )
        page_limit.follow(db, known.id, options.max_pages)
    return get(db, name)


def _united(known: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *map(rows.clean, new))))


def add_roots(db: sqlite3.Connection, crawl: int, roots: Sequence[str]) -> Crawl:
    """See ``Store.add_roots``."""
    known = get(db, crawl)
    united = _united(known.roots, roots)
    if united == known.roots:
        return known
    db.execute(
        "UPDATE crawls SET roots = ?, revision = revision + 1, version = version + 1 WHERE id = ?",
        (wire.to_json(united).decode(), crawl),
    )
    return get(db, crawl)


def set_state(
    db: sqlite3.Connection, crawl: int, state: CrawlState, reason: str, version: int, now_ms: int
) -> Crawl:
    """See ``Store.set_state``."""
    known = get(db, crawl)
    reason = rows.clean(reason)
    if version not in (0, known.version) or (known.state, known.reason) == (state, reason):
        return known
    if state == "done" and reason != STOPPED:
        if not reason.startswith("max_") and calendar.is_due(db, crawl):
            return known
        db.execute(
            "UPDATE crawls SET state = 'done', reason = ?, finished_ms = ?, wakes_ms = 0, "
            "version = version + 1 "
            "WHERE id = ? AND NOT EXISTS (SELECT 1 FROM seed_batches WHERE crawl = ? "
            "AND pending = 1) AND NOT EXISTS (SELECT 1 FROM debts) AND (? OR (NOT EXISTS "
            "(SELECT 1 FROM overflow INDEXED BY overflow_waiting WHERE crawl = ? AND queued = 0) "
            "AND NOT EXISTS (SELECT 1 FROM rounds WHERE crawl = ? AND ended_ms = 0)))",
            (reason, now_ms, crawl, crawl, reason.startswith("max_"), crawl, crawl),
        )
        return _with_its_period(db, get(db, crawl), now_ms)
    started_ms = known.started_ms or (now_ms if state == "active" else 0)
    db.execute(
        "UPDATE crawls SET state = ?, reason = ?, started_ms = ?, finished_ms = ?, wakes_ms = 0, "
        "version = version + 1 WHERE id = ?",
        (state, reason, started_ms, now_ms if state == "done" else 0, crawl),
    )
    return _with_its_period(db, get(db, crawl), now_ms)


def _with_its_period(db: sqlite3.Connection, crawl: Crawl, now_ms: int) -> Crawl:
    """Return the crawl; if it is done, its period has ended, whatever the reason."""
    if crawl.ended:
        sql = "UPDATE periods SET ended_ms = ? WHERE crawl = ? AND ended_ms = 0"
        db.execute(sql, (now_ms, crawl.id))
    return crawl


def reopen(db: sqlite3.Connection, crawl: int, version: int) -> Crawl:
    """See ``Store.reopen``."""
    known = get(db, crawl)
    if known.version < version:  # Redis has seen a later version, which this store has lost
        db.execute("UPDATE crawls SET version = ? WHERE id = ?", (version + 1, crawl))
    if known.finished:
        reopen_finished(db, [crawl])
    elif known.state == "active" and known.version == version:
        db.execute("UPDATE crawls SET version = version + 1 WHERE id = ?", (crawl,))
    return get(db, crawl)


def reopen_finished(db: sqlite3.Connection, crawls: Iterable[int]) -> None:
    """Make finished crawls active."""
    sql = f"{_REOPEN} AND reason = '{FINISHED}'"
    db.executemany(sql, [(crawl,) for crawl in crawls])


def reopen_ended(db: sqlite3.Connection, crawl: int) -> None:
    """Make a crawl active if it is done or being stopped: a person wants more of it."""
    db.execute(_REOPEN, (crawl,))


def alive(db: sqlite3.Connection) -> dict[int, bool]:
    """Return crawls that are not deleted, and whether each is finished."""
    sql = f"SELECT id, state = 'done' AND reason = '{FINISHED}' FROM crawls WHERE deleted = 0"
    return dict(db.execute(sql).fetchall())


def mark_deleted(db: sqlite3.Connection, crawl: int) -> None:
    """Make the crawl unknown and its name free; :func:`purge_step` deletes its rows."""
    db.execute("UPDATE crawls SET deleted = 1 WHERE id = ?", (rows.bounded(crawl),))


def purge_step(db: sqlite3.Connection, crawl: int) -> int | None:
    """Delete some rows of a crawl marked as deleted; return how many, None if nothing is left."""
    marked = "SELECT 1 FROM crawls WHERE id = ? AND deleted = 1"
    if db.execute(marked, (rows.bounded(crawl),)).fetchone() is None:
        return None
    for table, count in PURGE_ROWS.items():
        if table == "bodies":
            removed = contents.purge(db, crawl, count)
        else:
            key = _KEYS.get(table, "id")
            some = f"SELECT {key.strip('()')} FROM {table} WHERE crawl = ? LIMIT {count}"
            removed = db.execute(f"DELETE FROM {table} WHERE {key} IN ({some})", (crawl,)).rowcount
        if removed:
            return removed
    db.execute("DELETE FROM periods WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM rounds WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM crawl_changes WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM hosts WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM limits WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM refusals WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM purges WHERE crawl = ?", (crawl,))
    db.execute("DELETE FROM crawls WHERE id = ?", (crawl,))
    return None


def add_seeds(db: sqlite3.Connection, crawl: int, blob: bytes, force: bool) -> int:
    """Log a packed batch; see ``Store.add_seeds``. Raises UnknownCrawl."""
    get(db, crawl)
    cursor = db.execute(
        "INSERT INTO seed_batches (crawl, stamp, forced, urls) "
        "VALUES (?, (SELECT value FROM clock), ?, ?)",
        (crawl, force, blob),
    )
    reopen_ended(db, crawl)
    return int(cursor.lastrowid or 0)


def pending_rows(db: sqlite3.Connection, limit: int, after: int) -> list[Row]:
    """Return (id, crawl, forced, blob, stamp) of pending batches, oldest first; none of a deleted
    crawl."""
    return db.execute(
        "SELECT id, crawl, forced, urls, stamp FROM seed_batches WHERE pending = 1 "
        "AND EXISTS (SELECT 1 FROM crawls WHERE id = seed_batches.crawl AND deleted = 0) "
        "AND id > ? ORDER BY id LIMIT ?",
        (after, limit),
    ).fetchall()


def count_time(db: sqlite3.Connection, crawl: int, now_ms: int, most_ms: int) -> int:
    """See ``Store.count_time``."""
    row = db.execute(
        "UPDATE crawls SET looked_ms = MAX(looked_ms, :now), spent_ms = spent_ms + "
        "iif(:now - looked_ms BETWEEN 0 AND :most, :now - looked_ms, 0) "
        "WHERE id = :id AND deleted = 0 RETURNING spent_ms",
        {"now": now_ms, "most": most_ms, "id": crawl},
    ).fetchone()
    if row is None:
        raise UnknownCrawl(f"no crawl {crawl}")
    return int(row[0])


def seed_rows(db: sqlite3.Connection, crawl: int, after: int) -> list[Row]:
    """Return (id, crawl, forced, blob, stamp) of a crawl's batches after ``after``, a few at a
    time."""
    return db.execute(
        "SELECT id, crawl, forced, urls, stamp FROM seed_batches WHERE crawl = ? AND id > ? "
        "ORDER BY id LIMIT 20",
        (crawl, after),
    ).fetchall()


def dead_rows(
    db: sqlite3.Connection, crawl: int, limit: int, first: int = 0, before: int = NEVER
) -> list[Row]:
    """Return rows of ``rows.FINAL_READ`` of dead letters in row order, from row ``first`` on.

    ``before``: only those with an earlier stamp.
    """
    return db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals "
        "WHERE crawl = ? AND state = 'dead' AND id >= ? AND stamp < ? ORDER BY id LIMIT ?",
        (crawl, first, before, limit),
    ).fetchall()


def requeue_dead(
    db: sqlite3.Connection, codec: Codec, crawl: int, limit: int, before: int
) -> SeedBatch | None:
    """See ``Store.requeue_dead``. Raises UnknownCrawl."""
    get(db, crawl)
    found = dead_rows(db, crawl, limit, before=before)
    if not found:
        return None
    urls = tuple(last.again for last in map(rows.final, found))
    batch = add_seeds(db, crawl, codec.pack_links(urls), force=True)
    db.execute(
        "DELETE FROM finals WHERE crawl = ? AND state = 'dead' AND id <= ? AND stamp < ?",
        (crawl, found[-1][0], before),
    )
    (stamp,) = db.execute("SELECT stamp FROM seed_batches WHERE id = ?", (batch,)).fetchone()
    return SeedBatch(id=batch, crawl=crawl, urls=urls, force=True, stamp=stamp)


def counts(db: sqlite3.Connection, crawl: int) -> dict[str, int]:
    """See ``Store.counts``."""
    pages, size = db.execute(
        "SELECT COUNT(*), COALESCE(SUM(body_bytes), 0) FROM pages INDEXED BY pages_by_crawl "
        "WHERE crawl = ? AND status BETWEEN 200 AND 299",
        (crawl,),
    ).fetchone()
    attempts, hosts = db.execute(
        "SELECT COALESCE(SUM(attempts), 0), COUNT(*) FROM hosts WHERE crawl = ?", (crawl,)
    ).fetchone()
    found = {
        "pages": pages,
        "bytes": size,
        "attempts": attempts,
        "hosts": hosts,
        "dead": 0,
        "gone": 0,
        "excluded": 0,
        "parked": 0,
    }
    found.update(
        db.execute(
            "SELECT state, COUNT(*) FROM finals WHERE crawl = ? GROUP BY state", (crawl,)
        ).fetchall()
    )
    return found
