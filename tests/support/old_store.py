"""A SQLite store of version 0.1.0, and the statements of its processes, frozen.

Plain SQL on purpose: today's code must not make yesterday's rows. ``store_0.1.0.sql`` is a dump of
a store that version 0.1.0 made and wrote to.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from greencrawl.schema.records import Admission, FrontierIdentity
from tests.support.checkout import ROOT

FOLDER = ROOT / "schema" / "sql" / "sqlite"
DUMP = ROOT / "tests" / "store" / "sqlite" / "store_0.1.0.sql"
FIRST = 8
"""The last migration of version 0.1.0."""

IDENTITY = FrontierIdentity(
    id="f1", secret=2**64 - 1, partitions=64, suffixes="psl", canonicaliser=1, layout=1,
    nodes=("n0",), placement=(0,) * 64,
)  # fmt: skip
NEWS, GONE = 1, 2
"""The crawls of the dump; one is being deleted."""

COLUMNS = (
    "crawl, fingerprint, fetched_ms, elapsed_ms, status, depth, body_bytes, truncated, content, "
    "url, final_url, language, encoding, title, headers, fields, links, text, body"
)
PUT_PAGE = (
    f"INSERT INTO pages (stamp, {COLUMNS}) VALUES ((SELECT value FROM clock), "
    f"{', '.join('?' * 18)}, x'') ON CONFLICT (crawl, fingerprint) DO UPDATE SET "
    + ", ".join(
        f"{column} = excluded.{column}"
        for column in ("stamp", *COLUMNS.split(", "))
        if column not in ("crawl", "fingerprint", "links")
    )
    + ", links = merge_links(pages.links, excluded.links) "
    "WHERE excluded.fetched_ms >= pages.fetched_ms"
)
PUT_VERSION = (
    "INSERT INTO versions (crawl, fingerprint, fetched_ms, status, body_bytes, digest) "
    "SELECT crawl, fingerprint, fetched_ms, status, body_bytes, content "
    "FROM pages WHERE crawl = ? AND fingerprint = ?"
)
UNUSED = "SELECT content FROM bodies WHERE uses <= 0"
GET_PAGE = (
    "SELECT status, fetched_ms, pages.content, title, links, text, body_bytes, contents.body "
    "FROM pages LEFT JOIN bodies ON body_bytes > 0 AND length(pages.body) = 0 "
    "AND bodies.crawl = pages.crawl AND digest = pages.content "
    "LEFT JOIN contents ON contents.id = bodies.content "
    "WHERE pages.crawl = ? AND fingerprint = ?"
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


def create(path: Path, version: int = FIRST) -> None:
    """Create a store of version 0.1.0 with its content, and apply migrations up to ``version``."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(DUMP.read_text(encoding="utf-8"))
    for file in sorted(FOLDER.glob("*.sql")):
        number, name = file.stem.split("_", 1)
        if FIRST < int(number) <= version:
            db.executescript(file.read_text())
            checksum = hashlib.sha256(file.read_bytes()).hexdigest()
            db.execute("INSERT INTO migrations VALUES (?, ?, ?, 1)", (int(number), name, checksum))
    db.close()


def later_version(folder: Path) -> Path:
    """Make the migrations of a version after this one: one of each kind."""
    shutil.copytree(FOLDER, folder)
    (folder / "9001_pre_grades.sql").write_text("CREATE TABLE grades (grade INTEGER);\n")
    (folder / "9002_post_reasons.sql").write_text("ALTER TABLE blocks DROP COLUMN reason;\n")
    return folder


def schema_of(path: Path) -> list[tuple[str, ...]]:
    """Return the schema without comments and spaces, and the applied migrations."""
    db = sqlite3.connect(path)
    sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_master ORDER BY type, name"
    found = [(kind, name, re.sub(r"--[^\n]*|\s", "", text)) for kind, name, text in db.execute(sql)]
    found += db.execute("SELECT number, name, checksum FROM migrations ORDER BY 1").fetchall()
    db.close()
    return found


class OldProcess:
    """A process of version 0.1.0 that has the file open."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.create_function("merge_links", 2, merge_links, deterministic=True)
        self.db.execute("SELECT * FROM clock").fetchall()  # opening alone does not touch the file

    def close(self) -> None:
        self.db.close()

    def put_page(self, crawl: int, number: int, fetched_ms: int, body: bytes, *linked: str) -> None:
        """Store a page that replaces what is there, with a body that no page has."""
        blob = pack(msgspec.msgpack.encode([Admission(one) for one in linked])) if linked else b""
        digest = hashlib.sha256(body).digest()[:16]
        text = b"text %d" % fetched_ms
        page = (
            crawl, number, fetched_ms, 9, 200, 1, len(body), 0, digest, url(number), None, "en",
            "utf-8", f"title {fetched_ms}", '{"a":"b"}', None, blob, len(text),
        )  # fmt: skip
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute(PUT_VERSION, (crawl, number))
        frame = self.db.execute("INSERT INTO contents (body) VALUES (?)", (pack(text + body),))
        self.db.execute(
            "INSERT INTO bodies (crawl, digest, uses, content) VALUES (?, ?, 1, ?)",
            (crawl, digest, frame.lastrowid),
        )
        self.db.execute(
            "UPDATE bodies SET uses = uses - 1 WHERE (crawl, digest) = "
            "(SELECT crawl, content FROM pages WHERE crawl = ? AND fingerprint = ?)",
            (crawl, number),
        )
        self.db.execute(f"DELETE FROM contents WHERE id IN ({UNUSED})")
        self.db.execute("DELETE FROM bodies WHERE uses <= 0")
        self.db.execute(PUT_PAGE, page)
        self.db.execute("COMMIT")

    def page(self, crawl: int, number: int) -> dict[str, Any]:
        row = self.db.execute(GET_PAGE, (crawl, number)).fetchone()
        status, fetched_ms, digest, title, blob, text, size, frame = row
        held = unpack(frame)
        return {
            "status": status, "fetched_ms": fetched_ms, "digest": digest, "title": title,
            "links": links(blob), "body": held[-size:],
            "text": held[:text] if isinstance(text, int) else unpack(text),
        }  # fmt: skip
