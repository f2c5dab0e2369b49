"""Whether a SQLite store counts right which pages have which body."""

from __future__ import annotations

import sqlite3

from greencrawl.store.sqlite.store import SqliteStore


def check_uses(store: SqliteStore, crawl: int) -> None:
    """Each body is there as long as pages have it, counted right; nothing else is."""

    def counted(db: sqlite3.Connection) -> tuple[dict[bytes, int], dict[bytes, int], int]:
        pages = "SELECT content, COUNT(*) FROM pages WHERE body_bytes > 0 AND crawl = ? GROUP BY 1"
        uses = "SELECT digest, uses FROM bodies WHERE crawl = ?"
        (kept,) = db.execute("SELECT COUNT(*) FROM contents").fetchone()
        return dict(db.execute(pages, (crawl,))), dict(db.execute(uses, (crawl,))), kept

    pages, uses, kept = store._questions.run(counted)
    assert uses == pages
    assert kept == len(pages)
