"""Checks whether a SQLite store counts correctly which pages and kept versions have which body."""

from __future__ import annotations

import sqlite3

from greencrawl.store.sqlite.store import SqliteStore


def check_uses(store: SqliteStore, crawl: int) -> None:
    """Check that each body exists exactly as long as pages or kept versions have it, with the right
    count."""

    def counted(db: sqlite3.Connection) -> tuple[dict[bytes, int], dict[bytes, int], int]:
        pages = (
            "SELECT digest, COUNT(*) FROM ("
            "SELECT content AS digest FROM pages WHERE crawl = :crawl AND body_bytes > 0 "
            "UNION ALL SELECT digest FROM versions WHERE crawl = :crawl AND kept) GROUP BY 1"
        )
        uses = "SELECT digest, uses FROM bodies WHERE crawl = :crawl"
        (kept,) = db.execute("SELECT COUNT(*) FROM contents").fetchone()
        named = {"crawl": crawl}
        return dict(db.execute(pages, named)), dict(db.execute(uses, named)), kept

    pages, uses, kept = store._questions.run(counted)
    assert uses == pages
    assert kept == len(pages)
