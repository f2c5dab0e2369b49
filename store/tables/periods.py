"""Periods and rounds of crawls; each function runs in a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.net.scope import deeper_calendar, widened
from greencrawl.schema.records import FINISHED, Crawl, CrawlOptions, Period, Round, RoundKind
from greencrawl.store.base import COUNT_PAGES, LATE_MS, PERIODS, WHY
from greencrawl.store.rows import Row
from greencrawl.store.tables import crawls, plans
from greencrawl.store.tables.sql import FOR_UPDATE, Db, change, first, found, is_sqlite


def rest(db: Db, crawl: int, every_ms: int, version: int, now_ms: int) -> Crawl:
    """See ``Store.rest``."""
    changed = crawls.set_state(db, crawl, "done", FINISHED, version, now_ms)
    if not changed.finished or changed.version == version:
        return changed
    last, started_ms = _last_period(db, crawl)
    if not last:  # the crawl had no periods before
        started_ms = changed.started_ms
        sql = "INSERT INTO periods (crawl, number, started_ms, ended_ms) VALUES (?, 1, ?, ?)"
        change(db, sql, (crawl, started_ms, now_ms))
    # A start in the future comes from a clock that was set back since.
    wakes_ms = max(now_ms, min(started_ms, now_ms) + every_ms)
    change(db, "UPDATE crawls SET wakes_ms = ? WHERE id = ?", (wakes_ms, crawl))
    return crawls.get(db, crawl)


def begin_period(db: Db, crawl: int, blob: bytes, now_ms: int) -> Crawl:
    """See ``Store.begin_period``; ``blob`` is the packed batch."""
    known = crawls.get(db, crawl, FOR_UPDATE)
    if not known.wakes(now_ms):
        return known
    last, before_ms = _last_period(db, crawl)
    begin = "INSERT INTO periods (crawl, number, started_ms) VALUES (?, ?, ?)"
    started_ms = now_ms if now_ms > before_ms else before_ms + 1000  # the clock was set back
    change(db, begin, (crawl, last + 1, started_ms))
    change(db, "DELETE FROM periods WHERE crawl = ? AND number <= ?", (crawl, last + 1 - PERIODS))
    crawls.add_seeds(db, crawl, blob, force=True)
    return crawls.get(db, crawl)


def _last_period(db: Db, crawl: int) -> tuple[int, int]:
    """Return the number of the last period and when it began; 0 if there was none."""
    sql = "SELECT number, started_ms FROM periods WHERE crawl = ? ORDER BY number DESC LIMIT 1"
    return first(db, sql, (crawl,)) or (0, 0)


def periods(db: Db, crawl: int, limit: int = 100) -> list[Period]:
    """See ``Store.periods``."""
    sql = "SELECT number, started_ms, ended_ms FROM periods WHERE crawl = ?"
    return [
        Period(*row) for row in found(db, f"{sql} ORDER BY number DESC LIMIT ?", (crawl, limit))
    ]


_ROUND = "kind, why, least_depth, started_ms, before_ms, ended_ms, total, queued, place"


def put_crawl(
    db: Db,
    name: str,
    options: CrawlOptions,
    roots: Sequence[str],
    now_ms: int,
    revision: int = 0,
) -> Crawl:
    """See ``Store.put_crawl``."""
    try:
        known = crawls.get(db, name, FOR_UPDATE)
    except UnknownCrawl:
        if revision:
            raise
        return crawls.put(db, name, options, roots, now_ms)
    if revision not in (0, known.revision):
        return known
    changed = crawls.put(db, name, options, roots, now_ms)
    if not _has_begun(db, known.id):
        return changed
    if why := deeper_calendar(known.options, options):
        plans.free_crawl(db, known.id)
        _begin(db, known, "plan", why, 0, now_ms)
    more = widened(known, changed)
    if more is None:
        return crawls.get(db, name)
    depth, why = more
    before = _round(db, known.id, "read")
    if before is not None and not before.ended_ms:
        depth, why = min(depth, before.least_depth), f"{before.why}, {why}"
    _begin(db, known, "read", why, depth, now_ms)
    crawls.reopen_finished(db, [known.id])
    return crawls.get(db, name)


def begin_round(db: Db, crawl: int, why: str, now_ms: int) -> Round:
    """See ``Store.begin_round``."""
    known = crawls.get(db, crawl, FOR_UPDATE)
    under_way = _round(db, crawl, "fetch")
    if under_way is None or under_way.ended_ms:
        _begin(db, known, "fetch", why, 0, now_ms)
    crawls.reopen_ended(db, crawl)
    (known_now,) = [one for one in rounds(db, crawl) if one.kind == "fetch"]
    return known_now


def _begin(db: Db, crawl: Crawl, kind: RoundKind, why: str, depth: int, now_ms: int) -> None:
    # Pages in flight while rules change may still be read by the old ones.
    before_ms = now_ms if kind == "fetch" or crawl.ended else now_ms + LATE_MS
    change(
        db,
        "REPLACE INTO rounds (crawl, kind, why, least_depth, started_ms, before_ms) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (crawl.id, kind, why[:WHY], depth, now_ms, before_ms),
    )


def _has_begun(db: Db, crawl: int) -> bool:
    """Return whether the crawl was ever given a URL: its first pages may be under way, by older
    rules."""
    return any(
        first(db, f"SELECT 1 FROM {table} WHERE crawl = ? LIMIT 1", (crawl,))
        for table in ("pages", "finals", "seed_batches")
    )


def rounds(db: Db, crawl: int) -> list[Round]:
    """See ``Store.rounds``."""
    sql = f"SELECT {_ROUND} FROM rounds WHERE crawl = ? ORDER BY kind"
    return list(map(_read, found(db, sql, (crawl,))))


def _round(db: Db, crawl: int, kind: RoundKind) -> Round | None:
    return next((one for one in rounds(db, crawl) if one.kind == kind), None)


def _read(row: Row) -> Round:
    kind, why, depth, started_ms, before_ms, ended_ms, total, queued, place = row
    return Round(
        kind=kind, why=why, least_depth=depth, started_ms=started_ms, before_ms=before_ms,
        ended_ms=ended_ms, total=total, queued=queued, cursor=place,
    )  # fmt: skip


def count_round(db: Db, crawl: int, known: Round) -> int:
    """See ``Store.count_round``."""
    some = "SELECT COUNT(*) FROM (SELECT 1 FROM pages WHERE crawl = ? LIMIT ?) some"
    ((pages,),) = found(db, some, (crawl, COUNT_PAGES + 1))
    if pages > COUNT_PAGES:
        return -1
    sql, depth = "SELECT COUNT(*) FROM pages p", "p.depth"
    if known.least_depth and not is_sqlite(db):  # on MySQL the depth is in the wide rows
        beside = "c.crawl = p.crawl AND c.place = p.place AND c.fingerprint = p.fingerprint"
        sql, depth = f"{sql} JOIN contents c ON {beside}", "c.depth"
    sql, values = f"{sql} WHERE p.crawl = ? AND p.fetched_ms < ?", [crawl, known.started_ms]
    if known.least_depth:
        sql, values = f"{sql} AND {depth} >= ?", [*values, known.least_depth]
    ((count,),) = found(db, sql, values)
    return count or -1


def note_total(db: Db, crawl: int, known: Round, total: int) -> None:
    """Record how many pages there are."""
    sql = "UPDATE rounds SET total = ? WHERE crawl = ? AND kind = ? AND started_ms = ?"
    change(db, sql, (total, crawl, known.kind, known.started_ms))


def queue_round(
    db: Db,
    crawl: int,
    known: Round,
    cursor: str,
    urls: tuple[int, bytes],
    *,
    end: bool,
    now_ms: int,
) -> bool:
    """See ``Store.queue_round``; ``urls`` is the number of URLs, and the packed batch."""
    if crawls.get(db, crawl, FOR_UPDATE).state != "active":  # a stop is not undone
        return False
    count, blob = urls
    moved = change(
        db,
        "UPDATE rounds SET place = ?, queued = queued + ?, ended_ms = ? "
        "WHERE crawl = ? AND kind = ? AND started_ms = ? AND place = ? AND ended_ms = 0",
        (cursor, count, now_ms if end else 0, crawl, known.kind, known.started_ms, known.cursor),
    )
    if moved and count:
        crawls.add_seeds(db, crawl, blob, force=True)
    return bool(moved)
