"""The statements of earlier versions' processes on a SQLite store, frozen.

Plain SQL on purpose: today's code must not make yesterday's rows.
"""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from greencrawl.schema import wire
from greencrawl.schema.records import Admission, CrawlOptions, FrontierIdentity
from tests.support.checkout import ROOT

FOLDER = ROOT / "schema" / "sql" / "sqlite"

IDENTITY = FrontierIdentity(
    id="f1", secret=2**64 - 1, partitions=64, suffixes="psl", canonicaliser=1, layout=1,
    nodes=("n0",), placement=(0,) * 64,
)  # fmt: skip

COLUMNS = (
    "crawl, fingerprint, fetched_ms, elapsed_ms, status, depth, body_bytes, truncated, content, "
    "url, final_url, language, encoding, title, headers, fields, links, text, body"
)

PUT_PAGE = (
    f"INSERT INTO pages (stamp, {COLUMNS}) VALUES ((SELECT value FROM clock), "
    f"{', '.join('?' * 19)}) ON CONFLICT (crawl, fingerprint) DO UPDATE SET "
    + ", ".join(
        f"{column} = excluded.{column}"
        for column in ("stamp", *COLUMNS.split(", "))
        if column not in ("crawl", "fingerprint", "links")
    )
    + ", links = merge_links(pages.links, excluded.links) "
    "WHERE excluded.fetched_ms >= pages.fetched_ms"
)
PUT_ATTEMPT = (
    "INSERT INTO attempts (crawl, fingerprint, at_ms, code, errors, wait, elapsed_ms, host, kind, "
    "url, worker, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (crawl, fingerprint, at_ms) DO NOTHING"
)
PUT_FINAL = (
    "INSERT INTO finals (stamp, crawl, fingerprint, state, kind, code, depth, level, at_ms, url, "
    "detail) VALUES ((SELECT value FROM clock), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (crawl, fingerprint) DO UPDATE SET stamp = excluded.stamp, "
    "state = excluded.state, at_ms = excluded.at_ms WHERE excluded.at_ms >= finals.at_ms"
)
GET_PAGE = (
    "SELECT status, fetched_ms, content, title, links, text, body FROM pages "
    "WHERE crawl = ? AND fingerprint = ?"
)


def url(number: int, host: str = "example.org") -> str:
    return f"http://{host}/{number}"


def pack(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(data) if data else b""


def unpack(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data) if data else b""


def links(blob: bytes) -> set[str]:
    if not blob:
        return set()
    return {link.url for link in msgspec.msgpack.decode(unpack(blob), type=list[Admission])}


def merge_links(old: bytes, new: bytes) -> bytes:
    union = sorted(links(old) | links(new))
    return pack(msgspec.msgpack.encode([Admission(one) for one in union])) if union else b""


def old_hash(body: bytes) -> int:
    """Return a number of 63 bits, like the other hash that rows had for their bodies."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "big", signed=True) >> 1


def create(path: Path, version: int) -> None:
    """Create an empty database as the version with ``version`` migrations left it."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(
        "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, "
        "checksum TEXT NOT NULL, applied_ms INTEGER NOT NULL)"
    )
    for file in sorted(FOLDER.glob("*.sql"))[:version]:
        db.executescript(file.read_text())
        checksum = hashlib.sha256(file.read_bytes()).hexdigest()
        number, name = file.stem.split("_", 1)
        db.execute("INSERT INTO migrations VALUES (?, ?, ?, 1)", (int(number), name, checksum))
    db.close()


class OldProcess:
    """A process of an earlier version that has the file open."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.create_function("merge_links", 2, merge_links, deterministic=True)
        self.db.execute("SELECT * FROM clock").fetchall()  # opening alone does not touch the file

    def close(self) -> None:
        self.db.close()

    def put_crawl(self, name: str, *, deleted: bool = False) -> int:
        found = self.db.execute(
            "INSERT INTO crawls (name, state, options, roots, created_ms, started_ms, deleted) "
            "VALUES (?, 'active', ?, '[\"example.org\"]', 5, 5, ?)",
            (name, wire.to_json(CrawlOptions()).decode(), deleted),
        )
        return int(found.lastrowid or 0)

    def put_page(
        self, crawl: int, number: int, fetched_ms: int, body: bytes, *linked: str, **more: Any
    ) -> None:
        blob = pack(msgspec.msgpack.encode([Admission(one) for one in linked])) if linked else b""
        self.db.execute(
            PUT_PAGE,
            (
                crawl, number, fetched_ms, 9, more.get("status", 200), 1, len(body), 0,
                more.get("content", old_hash(body)), url(number), None, "en", "utf-8",
                f"title {fetched_ms}", '{"a":"b"}', None, blob, pack(b"text %d" % fetched_ms),
                pack(body),
            ),
        )  # fmt: skip

    def page(self, crawl: int, number: int) -> dict[str, Any]:
        row = self.db.execute(GET_PAGE, (crawl, number)).fetchone()
        status, fetched_ms, content, title, blob, text, body = row
        return {
            "status": status, "fetched_ms": fetched_ms, "content": int(content), "title": title,
            "links": links(blob), "text": unpack(text), "body": unpack(body),
        }  # fmt: skip

    def put_attempt(self, crawl: int, number: int, at_ms: int) -> None:
        values = (crawl, number, at_ms, 200, 0, None, 9, "example.org", "ok", url(number), "w", "")
        self.db.execute(PUT_ATTEMPT, values)

    def put_final(self, crawl: int, number: int, at_ms: int) -> None:
        values = (crawl, number, "dead", "timeout", 0, 1, 2, at_ms, url(number), "gave up")
        self.db.execute(PUT_FINAL, values)
