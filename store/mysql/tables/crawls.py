"""Crawls, their seeds and their sums on MySQL; each function runs in a caller's transaction.

A transaction that writes for a crawl locks the crawl's row in shared mode. Changes that must not
meet a writer lock it exclusively: the end, the deletion, a change of state.
"""

from __future__ import annotations

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
from greencrawl.store import rows as common
from greencrawl.store.base import NEVER
from greencrawl.store.mysql import page_limit, rows
from greencrawl.store.mysql.connection import Db
from greencrawl.store.mysql.ids import Numbers
from greencrawl.store.mysql.recrawl import calendar
from greencrawl.store.mysql.statements import chunks, literal, numbers, raw
from greencrawl.store.mysql.tables import replay_log
from greencrawl.store.mysql.transaction import SLOTS, SUMS
from greencrawl.store.rows import Codec, Row

PURGE_ROWS = {
    "contents": 200, "pages": 1000, "bodies": 100, "digests": 1000, "versions": 1000,
    "finals": 1000, "attempts": 1000, "seed_batches": 20, "overflow": 1000,
    "hook_failures": 1000, "samples": 1000, "calendar": 1000,
}  # fmt: skip
"""Table → rows deleted in one transaction; a replica repeats it as one transaction."""
_LAST = (
    "periods", "rounds", "hook_sums", "refusals", "limits", "hosts", "sums", "times",
    "crawl_changes", "purges",
)  # fmt: skip

_READ = (
    "SELECT id, name, state, options, roots, revision, created_ms, started_ms, finished_ms, "
    "reason, version, released, wakes_ms FROM crawls WHERE deleted = 0"
)
_REOPEN = (
    "UPDATE crawls SET state = 'active', reason = '', finished_ms = 0, wakes_ms = 0, "
    "version = version + 1 "
    f"WHERE id = %s AND (state = 'done' OR reason IN ('{STOPPING}', '{STOPPING_NOW}'))"
)
_SHARED = " LOCK IN SHARE MODE"
_ALONE = " FOR UPDATE"


def _crawl(row: Row) -> Crawl:
    number, name, state, options, roots, revision, created_ms, *times = row[:9]
    reason, version, shapes, wakes_ms = row[9:]
    state = state.decode()
    if wakes_ms and (state, reason) == ("done", FINISHED):
        state = "resting"
    return Crawl(
        id=number, name=name.decode(), state=state,
        options=wire.from_json(options, CrawlOptions),
        roots=tuple(wire.from_json(roots, list[str])), revision=revision, version=version,
        released=tuple(wire.from_json(shapes or "[]", list[str])), created_ms=created_ms,
        started_ms=times[0], finished_ms=times[1], reason=reason,
        wakes_ms=wakes_ms if state == "resting" else 0,
    )  # fmt: skip


def every(db: Db) -> list[Crawl]:
    """Return all crawls, oldest first."""
    db.execute(_READ + " ORDER BY id")
    return [_crawl(row) for row in db.fetchall()]


def get(db: Db, name_or_id: str | int, lock: str = "") -> Crawl:
    """Return a crawl. Raises UnknownCrawl."""
    if isinstance(name_or_id, int):
        db.execute(_READ + " AND id = %s" + lock, (common.bounded(name_or_id),))
    else:
        name = common.clean(name_or_id).encode()
        db.execute(_READ + " AND living = %s" + lock, (name,))
    found = db.fetchone()
    if found is None:
        raise UnknownCrawl(f"no crawl {name_or_id!r}")
    return _crawl(found)


def put(db: Db, name: str, options: CrawlOptions, roots: Sequence[str], now_ms: int) -> Crawl:
    """Create or update a crawl; see ``Store.put_crawl``. A new one is active."""
    text = kept_options(options).decode()
    try:
        known = get(db, name, _ALONE)
    except UnknownCrawl:
        db.execute("UPDATE counters SET value = value + 1 WHERE name = 'crawls'")
        key = common.clean(name).encode()
        db.execute(
            "INSERT INTO crawls (id, name, living, state, reason, created_ms, started_ms, options, "
            "roots) SELECT value, %s, %s, 'active', '', %s, %s, %s, %s FROM counters "
            "WHERE name = 'crawls'",
            (key, key, now_ms, now_ms, text, wire.to_json(_united((), roots)).decode()),
        )
        return get(db, name)
    united = _united(known.roots, roots)
    if options != known.options or united != known.roots:
        db.execute(
            "UPDATE crawls SET options = %s, roots = %s, revision = revision + 1, "
            "version = version + 1 WHERE id = %s",
            (text, wire.to_json(united).decode(), known.id),
        )
        page_limit.follow(db, known.id, options.max_pages)
    return get(db, name)


def _united(known: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *map(common.clean, new))))


def add_roots(db: Db, crawl: int, roots: Sequence[str]) -> Crawl:
    """See ``Store.add_roots``."""
    known = get(db, crawl, _ALONE)
    united = _united(known.roots, roots)
    if united == known.roots:
        return known
    db.execute(
        "UPDATE crawls SET roots = %s, revision = revision + 1, version = version + 1 "
        "WHERE id = %s",
        (wire.to_json(united).decode(), crawl),
    )
    return get(db, crawl)


def set_state(
    db: Db, crawl: int, state: CrawlState, reason: str, version: int, now_ms: int
) -> Crawl:
    """See ``Store.set_state``."""
    known = get(db, crawl, _ALONE)
    reason = common.clean(reason)
    if version not in (0, known.version) or (known.state, known.reason) == (state, reason):
        return known
    if state == "done" and reason != STOPPED:
        if not _waits(db, crawl, seeds_only=reason.startswith("max_")):
            db.execute(
                "UPDATE crawls SET state = 'done', reason = %s, finished_ms = %s, wakes_ms = 0, "
                "version = version + 1 WHERE id = %s",
                (reason, now_ms, crawl),
            )
        return _with_its_period(db, get(db, crawl), now_ms)
    started_ms = known.started_ms or (now_ms if state == "active" else 0)
    db.execute(
        "UPDATE crawls SET state = %s, reason = %s, started_ms = %s, finished_ms = %s, "
        "wakes_ms = 0, version = version + 1 WHERE id = %s",
        (state, reason, started_ms, now_ms if state == "done" else 0, crawl),
    )
    return _with_its_period(db, get(db, crawl), now_ms)


def _with_its_period(db: Db, crawl: Crawl, now_ms: int) -> Crawl:
    """Return the crawl; if it is done, its period has ended, whatever the reason."""
    if crawl.ended:
        sql = "UPDATE periods SET ended_ms = %s WHERE crawl = %s AND ended_ms = 0"
        db.execute(sql, (now_ms, crawl.id))
    return crawl


def reopen(db: Db, crawl: int, version: int) -> Crawl:
    """See ``Store.reopen``."""
    known = get(db, crawl, _ALONE)
    if known.version < version:  # Redis has seen a later version, which this store has lost
        db.execute("UPDATE crawls SET version = %s WHERE id = %s", (version + 1, crawl))
    if known.finished:
        reopen_finished(db, [crawl])
    elif known.state == "active" and known.version == version:
        db.execute("UPDATE crawls SET version = version + 1 WHERE id = %s", (crawl,))
    return get(db, crawl)


def reopen_finished(db: Db, crawls: Iterable[int]) -> None:
    """Make finished crawls active; if two transactions share a lock on one, one of them begins
    again."""
    for crawl in crawls:
        db.execute(f"{_REOPEN} AND {replay_log.IS_FINISHED}", (crawl,))


def reopen_ended(db: Db, crawl: int) -> None:
    """Make a crawl active if it is done or being stopped: a person wants more of it."""
    db.execute(_REOPEN, (crawl,))


def _waits(db: Db, crawl: int, *, seeds_only: bool) -> bool:
    """Tell whether something of the crawl is still to come; its row must be locked."""
    if db.execute("SELECT 1 FROM seed_batches WHERE pending = 1 AND crawl = %s LIMIT 1", (crawl,)):
        return True
    if db.execute("SELECT 1 FROM debts LIMIT 1"):
        return True
    if seeds_only:
        return False
    if db.execute("SELECT 1 FROM rounds WHERE crawl = %s AND ended_ms = 0 LIMIT 1", (crawl,)):
        return True
    if calendar.is_due(db, crawl):
        return True
    return bool(
        db.execute(
            "SELECT 1 FROM overflow FORCE INDEX (overflow_waiting) "
            "WHERE queued = 0 AND crawl = %s LIMIT 1",
            (crawl,),
        )
    )


def mark_deleted(db: Db, crawl: int) -> None:
    """Make the crawl unknown and its name free; this waits for transactions that write for it."""
    db.execute(
        "UPDATE crawls SET deleted = 1, living = NULL WHERE id = %s", (common.bounded(crawl),)
    )


def purge_step(db: Db, crawl: int) -> int | None:
    """Delete some rows of a crawl marked as deleted; return how many, None if nothing is left."""
    crawl = common.bounded(crawl)
    if not db.execute("SELECT 1 FROM crawls WHERE id = %s AND deleted = 1 FOR UPDATE", (crawl,)):
        return None
    for table, count in PURGE_ROWS.items():
        if removed := db.execute(f"DELETE FROM {table} WHERE crawl = %s LIMIT {count}", (crawl,)):
            return removed
    for table in _LAST:
        db.execute(f"DELETE FROM {table} WHERE crawl = %s", (crawl,))
    db.execute("DELETE FROM crawls WHERE id = %s", (crawl,))
    return None


def add_seeds(db: Db, ids: Numbers, crawl: int, blob: bytes, force: bool) -> int:
    """Log a packed batch; see ``Store.add_seeds``. Raises UnknownCrawl."""
    known = get(db, crawl, _SHARED)
    batch = ids.take()
    sql = (
        b"INSERT INTO seed_batches (id, crawl, stamp, pending, forced, urls) "
        b"SELECT %d, %d, value, 1, %d, %b FROM clock"
    )
    raw(db, sql % (batch, crawl, force, literal(blob)))
    if known.ended or known.stopping:
        reopen_ended(db, crawl)
    return batch


def pending_rows(db: Db, limit: int, after: int) -> list[Row]:
    """Return rows of ``replay_log.SEEDS`` that are pending, oldest first; none of a deleted
    crawl."""
    db.execute(
        f"SELECT {replay_log.SEEDS} FROM seed_batches FORCE INDEX (seed_batches_pending) "
        "WHERE pending = 1 AND id > %s "
        "AND EXISTS (SELECT 1 FROM crawls WHERE crawls.id = seed_batches.crawl AND deleted = 0) "
        "ORDER BY id LIMIT %s",
        (after, limit),
    )
    return list(db.fetchall())


def seed_rows(db: Db, crawl: int, after: int) -> list[Row]:
    """Return rows of ``replay_log.SEEDS`` of a crawl's batches after ``after``, a few at a time."""
    db.execute(
        f"SELECT {replay_log.SEEDS} FROM seed_batches FORCE INDEX (seed_batches_by_crawl) "
        f"WHERE crawl = %s AND id > %s ORDER BY id LIMIT {replay_log.SEED_ROWS}",
        (crawl, after),
    )
    return list(db.fetchall())


def count_time(db: Db, crawl: int, now_ms: int, most_ms: int) -> int:
    """See ``Store.count_time``."""
    if not db.execute("SELECT 1 FROM crawls WHERE id = %s AND deleted = 0", (crawl,)):
        raise UnknownCrawl(f"no crawl {crawl}")
    db.execute(
        "INSERT INTO times (crawl, spent_ms, looked_ms) VALUES (%s, 0, 0) "
        "ON DUPLICATE KEY UPDATE crawl = VALUES(crawl)",
        (crawl,),
    )
    db.execute("SELECT spent_ms, looked_ms FROM times WHERE crawl = %s FOR UPDATE", (crawl,))
    ((spent_ms, looked_ms),) = db.fetchall()
    if 0 <= now_ms - looked_ms <= most_ms:
        spent_ms += now_ms - looked_ms
    db.execute(
        "UPDATE times SET spent_ms = %s, looked_ms = %s WHERE crawl = %s",
        (spent_ms, max(looked_ms, now_ms), crawl),
    )
    return int(spent_ms)


def dead_rows(
    db: Db,
    crawl: int,
    limit: int,
    after: int | None = None,
    lock: str = "",
    before: int = NEVER,
) -> list[Row]:
    """Return rows of ``rows.FINAL_READ`` of dead letters by fingerprint, beginning after one.

    ``before``: only those with an earlier stamp.
    """
    db.execute(
        f"SELECT {rows.FINAL_READ} FROM finals FORCE INDEX (finals_by_state) "
        "WHERE crawl = %s AND state = 'dead' AND fingerprint > %s AND stamp < %s "
        f"ORDER BY fingerprint LIMIT %s{lock}",
        (crawl, -(2**64) if after is None else after, before, limit),
    )
    return list(db.fetchall())


def requeue_dead(
    db: Db, codec: Codec, ids: Numbers, crawl: int, limit: int, before: int
) -> SeedBatch | None:
    """See ``Store.requeue_dead``. Raises UnknownCrawl."""
    get(db, crawl, _SHARED)
    found = dead_rows(db, crawl, limit, lock=_ALONE, before=before)
    if not found:
        return None
    urls = tuple(last.again for last in map(rows.final, found))
    batch = add_seeds(db, ids, crawl, codec.pack_links(urls), force=True)
    for some in chunks([row[1] for row in found]):
        sql = b"DELETE FROM finals WHERE crawl = %d AND fingerprint IN (%b)"
        raw(db, sql % (crawl, numbers(some)))
    fewer(db, crawl, "dead", len(found))
    db.execute("SELECT stamp FROM seed_batches WHERE id = %s", (batch,))
    ((stamp,),) = db.fetchall()
    return SeedBatch(id=batch, crawl=crawl, urls=urls, force=True, stamp=stamp)


def fewer(db: Db, crawl: int, state: str, count: int) -> None:
    """Subtract ``count`` final states of a crawl that were removed without a commit."""
    slot = replay_log.begin(db).connection % SLOTS
    changes = ", ".join(str(-count if name == state else 0) for name in SUMS.split(", "))
    db.execute(
        f"INSERT INTO sums (crawl, slot, {SUMS}) VALUES (%s, %s, {changes}) "
        f"ON DUPLICATE KEY UPDATE {state} = {state} + VALUES({state})",
        (crawl, slot),
    )


def counts(db: Db, crawl: int) -> dict[str, int]:
    """See ``Store.counts``."""
    names = SUMS.split(", ")
    totals = ", ".join(f"COALESCE(SUM({name}), 0)" for name in names)
    db.execute(f"SELECT {totals} FROM sums WHERE crawl = %s", (crawl,))
    (found,) = db.fetchall()
    db.execute(
        "SELECT COALESCE(SUM(attempts), 0), COUNT(DISTINCT host) FROM hosts WHERE crawl = %s",
        (crawl,),
    )
    ((attempts, hosts),) = db.fetchall()
    counted = {name: int(count) for name, count in zip(names, found, strict=True)}
    return {
        "pages": counted.pop("pages"), "bytes": counted.pop("bytes"), "attempts": int(attempts),
        "hosts": hosts, **counted,
    }  # fmt: skip


def slowest(db: Db, crawl: int, limit: int = 5) -> list[tuple[str, float, int]]:
    """See ``Store.slowest_hosts``."""
    db.execute(
        "SELECT host, SUM(elapsed_ms), SUM(answers) AS total FROM hosts WHERE crawl = %s "
        "GROUP BY host HAVING total > 0 "
        "ORDER BY SUM(elapsed_ms) / SUM(answers) DESC, host LIMIT %s",
        (crawl, limit),
    )
    return [
        (host.decode("utf-8", "replace"), int(elapsed) / (1000.0 * int(answers)), int(answers))
        for host, elapsed, answers in db.fetchall()
    ]
