"""Whether a SQLite store counts right which pages, and versions that are kept, have which body."""

from __future__ import annotations

import sqlite3

from greencrawl.store.sqlite.store import SqliteStore


def check_uses(store: SqliteStore, crawl: int) -> None:
    """Each body is there as long as pages, or versions that are kept, have it, counted right;
    nothing else is."""

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
