"""``max_pages`` in the transaction of the commit, on SQLite: which pages would be too many.

Only pages with a status of 200 … 299 count. They are counted once, when a commit first meets the
limit, and from then on with each commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain

from greencrawl.store.rows import Row, is_page
from greencrawl.store.sqlite.tables.contents import FETCHED, STATUS

Key = tuple[int, int]
"""A crawl and a fingerprint."""

_NAMED = 400


def surplus(db: sqlite3.Connection, pages: Sequence[Row]) -> frozenset[Key]:
    """Return the pages that are not to be stored; the other pages are counted as stored."""
    refused: set[Key] = set()
    for crawl, most in _limits(db, sorted({row[0] for row in pages})):
        some = [row for row in pages if row[0] == crawl]
        known = dict(_known(db, crawl, [row[1] for row in some]))
        noted = _noted(db, crawl)
        count = _counted(db, crawl) if noted is None else noted
        for row in some:
            fetched_ms, was_page = known.get(row[1], (row[FETCHED], False))
            if row[FETCHED] < fetched_ms:
                continue  # an older version: the current one stays
            more = is_page(row[STATUS]) - was_page
            if more > 0 and count >= most:
                refused.add(row[:2])
                continue
            count += more
            known[row[1]] = (row[FETCHED], is_page(row[STATUS]))
        if count != noted:
            sql = "INSERT OR REPLACE INTO limits (crawl, pages) VALUES (?, ?)"
            db.execute(sql, (crawl, count))
    return frozenset(refused)


def _limits(db: sqlite3.Connection, crawls: Sequence[int]) -> list[tuple[int, int]]:
    """Return (crawl, limit) of the crawls that have a limit."""
    if not crawls:
        return []
    some = ", ".join("?" * len(crawls))
    sql = f"SELECT id, json_extract(options, '$.max_pages') FROM crawls WHERE id IN ({some})"
    return [(crawl, most) for crawl, most in db.execute(sql, crawls) if most]


def _known(
    db: sqlite3.Connection, crawl: int, fingerprints: Sequence[int]
) -> Iterator[tuple[int, tuple[int, bool]]]:
    """Yield fingerprint → when it was fetched, and whether it counts, of stored pages."""
    for start in range(0, len(fingerprints), _NAMED):
        some = fingerprints[start : start + _NAMED]
        found = db.execute(
            "SELECT fingerprint, fetched_ms, status FROM pages WHERE crawl = ? "
            f"AND fingerprint IN ({', '.join('?' * len(some))})",
            list(chain((crawl,), some)),
        )
        for number, fetched_ms, status in found:
            yield number, (fetched_ms, is_page(status))


def _noted(db: sqlite3.Connection, crawl: int) -> int | None:
    row = db.execute("SELECT pages FROM limits WHERE crawl = ?", (crawl,)).fetchone()
    return None if row is None else int(row[0])


def _counted(db: sqlite3.Connection, crawl: int) -> int:
    (found,) = db.execute(
        "SELECT COUNT(*) FROM pages INDEXED BY pages_by_crawl "
        "WHERE crawl = ? AND status BETWEEN 200 AND 299",
        (crawl,),
    ).fetchone()
    return int(found)
