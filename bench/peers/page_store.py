"""The store of the other crawlers at the level "text and storage": SQLite, like our store.

It has the same journal mode, the same durability (``synchronous = FULL``), and a commit for 64
pages. Body and text are compressed by zstd at the same level, but separately; our store has both in
one frame, which is some 40 µs cheaper. It writes one row a page; our store also journals the
attempt and finds out which version a page replaces.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence

import zstandard
from lxml import etree

BATCH = 64
LEVEL = 1
"""The level of zstd, as in ``greencrawl.store.rows``. An import of that module would make the
processes of the other crawlers larger."""

_TEXTS = etree.XPath(
    "//body//text()[not(parent::script or parent::style or parent::noscript)]", smart_strings=False
)


def text_of(root: etree._Element) -> str:
    """Return the visible text of a parsed page, in one line, from its tree, which is faster than
    Parsel."""
    return " ".join(" ".join(_TEXTS(root)).split())


class PageStore:
    """A store of pages: ``add()`` them; ``close()`` commits the rest."""

    def __init__(self, path: str) -> None:
        self._rows: list[tuple[str | int | bytes, ...]] = []
        self._compress = zstandard.ZstdCompressor(level=LEVEL).compress
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA wal_autocheckpoint = 4000")
        self._db.execute(
            "CREATE TABLE pages (url TEXT PRIMARY KEY, at_ms INTEGER, status INTEGER, headers TEXT,"
            " title TEXT, text BLOB, links TEXT, body BLOB)"
        )

    def add(
        self,
        url: str,
        status: int,
        headers: Mapping[str, str],
        title: str,
        text: str,
        links: Sequence[str],
        body: bytes,
    ) -> None:
        """Store a page with the next batch."""
        self._rows.append(
            (
                url,
                int(time.time() * 1000),
                status,
                json.dumps(dict(headers)),
                title,
                self._compress(text.encode()),
                json.dumps(links),
                self._compress(body),
            )
        )
        if len(self._rows) >= BATCH:
            self._commit()

    def close(self) -> None:
        """Commit the rest."""
        self._commit()
        self._db.close()

    def _commit(self) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._db.execute("COMMIT")
        self._rows.clear()
