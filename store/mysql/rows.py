"""Records ⇄ rows of the MySQL tables; :mod:`greencrawl.store.rows` says what columns hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import gevent
from msgspec import Struct, field

from greencrawl.schema import wire
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Attempt, Check, Commit, Final, HookRun, StoredPage
from greencrawl.schema.records.lease import pack_level, unpack_level
from greencrawl.store import declared, rows
from greencrawl.store.errors import Unstorable
from greencrawl.store.rows import Codec, Row

CONTENTS = (
    "crawl, place, fingerprint, elapsed_ms, depth, truncated, url, final_url, language, encoding, "
    "title, canonical, directives, headers, fields, items, spans, links, text"
)
ATTEMPTS = "crawl, fingerprint, at_ms, code, errors, wait, elapsed_ms, kind, url, worker, detail"
FINALS = "crawl, fingerprint, stamp, state, kind, code, depth, level, at_ms, url, detail, shape"
FINAL_READ = rows.FINAL

ROW_READ = (
    "p.fingerprint, p.fetched_ms, p.status, p.digest, p.body_bytes, c.elapsed_ms, c.depth, "
    "c.truncated, c.url, c.final_url, c.language, c.encoding, c.title, c.canonical, c.directives"
)
"""Columns that :func:`page` reads, of ``pages p`` and ``contents c``; a detail adds more."""
ITEMS_READ = ROW_READ + ", c.items"
TEXT_READ = ITEMS_READ + ", c.headers, c.fields, c.spans, c.links, c.text"
BODY_READ = TEXT_READ + ", b.body, b.file, b.start, b.length"
PAGE_FROM = (
    "FROM pages p STRAIGHT_JOIN contents c ON c.crawl = p.crawl AND c.place = p.place "
    "AND c.fingerprint = p.fingerprint"
)
BODY_FROM = (
    f"{PAGE_FROM} LEFT JOIN digests d ON p.body_bytes > 0 AND d.crawl = p.crawl "
    "AND d.digest = p.digest "
    "LEFT JOIN bodies b ON b.crawl = d.crawl AND b.place = d.place AND b.digest = d.digest"
)
READS = {
    "row": f"SELECT {ROW_READ} {PAGE_FROM}",
    "items": f"SELECT {ITEMS_READ} {PAGE_FROM}",
    "text": f"SELECT {TEXT_READ} {PAGE_FROM}",
    "body": f"SELECT {BODY_READ} {BODY_FROM}",
}

DIGEST_BYTES = 16
# compressed without letting other greenlets run: it takes some milliseconds
_PACK_BYTES = 1024 * 1024
_ROW_BYTES = 300  # about the size of a wide row without its blobs and JSON


class Page(Struct):
    """A page on its way into the tables. ``links`` and ``text`` are packed, the body is not yet."""

    crawl: int
    fingerprint: int
    fetched_ms: int
    status: int
    digest: bytes
    host: int
    url: str
    plain: bytes
    """The body as fetched."""
    links: bytes
    wide: Row
    """Columns of :data:`CONTENTS` after ``fingerprint`` and before ``links``."""
    text: bytes
    packed: bytes | None = None

    @property
    def key(self) -> tuple[int, int]:
        """Return (crawl, fingerprint)."""
        return self.crawl, self.fingerprint

    @property
    def wide_bytes(self) -> int:
        """Return about how many bytes its wide row takes."""
        blobs = len(self.links) + len(self.text)
        return _ROW_BYTES + blobs + sum(len(one) for one in self.wide if type(one) in (str, bytes))


class Prepared(Struct):
    """A :class:`Commit` as rows, made before the transaction."""

    pages: list[Page]
    attempts: list[Row]
    """Rows of :data:`ATTEMPTS`."""
    hosts: list[bytes]
    """The host of each attempt."""
    finals: list[Final]
    hooks: list[HookRun]
    checks: list[Check]
    owes: frozenset[str] = frozenset()
    work: Commit = field(default_factory=Commit)
    """The commit that the rows are from."""


def host_hash(host: str) -> int:
    """Return a 32-bit hash of a host's name."""
    return crc32(host.encode("utf-8", "replace"))


def host_key(url: str) -> bytes:
    """Return the host of a URL as a column holds it; b"" if the URL is not canonical."""
    try:
        return host_of(url).encode()[:512]
    except (ValueError, IndexError):
        return b""


def prepare(codec: Codec, work: Commit) -> Prepared:
    """Encode ``work``, letting other greenlets run. Raises Unstorable naming the record."""
    records: list[StoredPage | Attempt | Final] = [*work.pages, *work.attempts, *work.finals]
    for record in records:
        if rows.bounded(record.fingerprint) != record.fingerprint:
            raise Unstorable(record.url, "a fingerprint is a signed 64-bit integer")
    pages, done = [], 0
    for one in work.pages:
        pages.append(_page(codec, one))
        done += len(one.text) + 1000
        if done > _PACK_BYTES:
            gevent.sleep(0)
            done = 0
    attempts = [_attempt(one) for one in work.attempts]
    hosts = [host_key(row[8]) for row in attempts]
    return Prepared(pages, attempts, hosts, work.finals, work.hooks, work.checks, work.owes, work)


def _page(codec: Codec, page: StoredPage) -> Page:
    digest = page.digest or rows.hash_body(page.body)
    if len(digest) > DIGEST_BYTES:
        raise Unstorable(page.url, f"a digest of {len(digest)} bytes")
    url = rows.clean(page.url)
    return Page(
        crawl=page.crawl,
        fingerprint=page.fingerprint,
        fetched_ms=rows.bounded(page.fetched_ms),
        status=min(max(page.status, 0), 32_767),
        digest=digest,
        host=crc32(host_key(url)),
        url=url,
        plain=page.body,
        links=codec.pack_links(page.links),
        wide=(
            rows.bounded(page.elapsed_ms), rows.bounded(page.depth), page.truncated, url,
            None if page.final_url == page.url else rows.clean(page.final_url),
            rows.clean(page.language), rows.clean(page.encoding), rows.clean(page.title),
            declared.canonical_column(page), declared.directives_column(page.directives),
            rows.json_text(page.headers, page.url) if page.headers else "{}",
            None if page.fields is None else rows.json_text(page.fields, page.url),
            codec.pack(page.items) or None, page.spans or None,
        ),
        text=codec.pack(rows.clean(page.text).encode()),
    )  # fmt: skip


def pack_bodies(codec: Codec, pages: Sequence[Page]) -> None:
    """Compress bodies that are not yet compressed, letting other greenlets run."""
    done = 0
    for page in pages:
        if page.packed is None:
            page.packed = codec.pack(page.plain)
            done += len(page.plain)
        if done > _PACK_BYTES:
            gevent.sleep(0)
            done = 0


def _attempt(attempt: Attempt) -> Row:
    return (
        attempt.crawl, attempt.fingerprint, rows.bounded(attempt.at_ms),
        rows.bounded(attempt.code), rows.bounded(attempt.errors), attempt.wait,
        rows.bounded(attempt.elapsed_ms), rows.clean(attempt.kind), rows.clean(attempt.url),
        rows.clean(attempt.worker), rows.clean(attempt.detail),
    )  # fmt: skip


def attempt(row: Row) -> Attempt:
    """Return the attempt of a row of :data:`ATTEMPTS`."""
    crawl, fingerprint, at_ms, code, errors, wait, elapsed_ms, kind, url, worker, detail = row
    return Attempt(
        crawl=crawl, fingerprint=fingerprint, url=url, code=code, kind=kind, errors=errors,
        wait=wait, detail=detail, at_ms=at_ms, elapsed_ms=elapsed_ms, worker=worker,
    )  # fmt: skip


def final_row(final: Final, stamp: int) -> Row:
    """Return a row of :data:`FINALS`."""
    return (
        final.crawl, final.fingerprint, stamp, final.state, rows.clean(final.kind),
        rows.bounded(final.code), rows.bounded(final.depth), pack_level(final.level, final.task),
        rows.bounded(final.at_ms), rows.clean(final.url), rows.clean(final.detail),
        rows.shape_name(final.shape),
    )  # fmt: skip


def final(row: Row) -> Final:
    """Return the final state of a row of :data:`FINAL_READ`."""
    crawl, fingerprint, state, kind, code, depth, number, at_ms, url, detail, shape = row
    word: Any = state.decode()
    level, task = unpack_level(number)
    return Final(
        crawl=crawl, fingerprint=fingerprint, url=url, state=word, kind=kind, detail=detail,
        shape=shape.decode(), code=code, depth=depth, level=level, at_ms=at_ms, task=task,
    )  # fmt: skip


def page(codec: Codec, crawl: int, row: Row) -> tuple[StoredPage, Row]:
    """Return the page of a row of one of :data:`READS`, without its body; and where the body is."""
    (
        fingerprint, fetched_ms, status, digest, body_bytes, elapsed_ms, depth, truncated, url,
        final_url, language, encoding, title, canonical, directives, *more,
    ) = row  # fmt: skip
    made = StoredPage(
        crawl=crawl, fingerprint=fingerprint, url=url,
        final_url=url if final_url is None else final_url, status=status, fetched_ms=fetched_ms,
        elapsed_ms=elapsed_ms, depth=depth, truncated=bool(truncated), title=title,
        language=language, encoding=encoding, digest=digest, body_bytes=body_bytes,
        canonical=declared.canonical_of(canonical, url),
        directives=declared.directives_of(directives),
    )  # fmt: skip
    if not more:
        return made, ()
    items, *more = more
    made.items = codec.unpack(items) if items else b""
    if not more:
        return made, ()
    headers, fields, spans, links, text, *body = more
    made.headers = wire.from_json(headers, dict[str, str])
    made.fields = None if fields is None else wire.from_json(fields, dict[str, Any])
    made.spans, made.links = spans or b"", codec.links(links)
    made.text = codec.unpack(text).decode()
    return made, tuple(body) if body_bytes else ()
