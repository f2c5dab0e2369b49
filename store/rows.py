"""Records ⇄ rows: what a column holds, on any database.

Text from bad pages may hold lone surrogates, which UTF-8 cannot encode. Here they become U+FFFD, so
that nothing after this point (SQL, JSON, a terminal) fails on them. NUL characters stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

import msgspec
import zstandard

from greencrawl.schema import wire
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Admission, Attempt, Check, Commit, Final, HookRun, StoredPage
from greencrawl.schema.records.lease import pack_level, unpack_level
from greencrawl.store import declared
from greencrawl.store.errors import Unstorable

Row = tuple[Any, ...]
T = TypeVar("T")

PAGE = (
    "crawl, fingerprint, fetched_ms, elapsed_ms, status, depth, body_bytes, truncated, content, "
    "url, final_url, language, encoding, title, canonical, directives, headers, fields, items, "
    "spans, links, text, body"
)
"""Columns of :meth:`Codec.page_rows`, in order; the stamp is known only in the transaction."""

PAGE_READ = (
    "id, crawl, fingerprint, fetched_ms, elapsed_ms, status, depth, body_bytes, truncated, "
    "content, url, final_url, language, encoding, title, canonical, directives, headers, fields, "
    "items, spans, links, text"
)
"""Columns of :meth:`Codec.page`; a column ``body`` may follow."""

_OF_PAGE = PAGE_READ.removesuffix("headers, fields, items, spans, links, text")
PAGE_ROW, PAGE_ITEMS = (f"{_OF_PAGE}'{{}}', NULL, {it}, NULL, x'', x''" for it in ("NULL", "items"))
"""The columns of :data:`PAGE_READ` for a list, without headers, fields, items, spans, links and
text; or the same with items."""

ATTEMPT = (
    "crawl, fingerprint, at_ms, code, errors, wait, elapsed_ms, host, kind, url, worker, detail"
)
FINAL = "crawl, fingerprint, state, kind, code, depth, level, at_ms, url, detail, shape"
FINAL_READ = f"id, {FINAL}"
SHAPE_CHARS = 300
"""The name of a shape has at most this many characters."""

LEAST, _MAX = -(2**63), 2**63 - 1
# bytes of input whose compressed copies exist at the same time
_COMPRESS_TOGETHER = 8 * 1024 * 1024


def is_page(status: int) -> bool:
    """Return whether a row of ``pages`` counts as a page, for sums and for ``max_pages``."""
    return 200 <= status <= 299


def clean(text: str) -> str:
    """Return ``text`` as valid Unicode: surrogate pairs joined, lone surrogates U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encoded(text: str) -> bytes:
    """Return :func:`clean` text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean(text).encode()


def _clean_tree(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean_tree(key): _clean_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean_tree(item) for item in value]
    return value


def json_text(value: Mapping[str, Any], url: str) -> str:
    """Return JSON text; NaN becomes null. Raises Unstorable for what JSON cannot express."""
    try:
        try:
            return wire.to_json(value).decode()
        except UnicodeEncodeError:
            return wire.to_json(_clean_tree(value)).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise Unstorable(url, f"no JSON: {error}") from error


def shape_name(shape: str) -> str:
    """Return the name of a shape as columns hold it, and as it is compared."""
    return clean(shape)[:SHAPE_CHARS]


def bounded(number: int) -> int:
    """Return ``number`` cut to what a 64-bit column can hold."""
    return number if LEAST <= number <= _MAX else min(max(number, LEAST), _MAX)


def hash_body(body: bytes) -> bytes:
    """Return the digest of a body, as in ``StoredPage``; b"" for no body."""
    return hashlib.sha256(body).digest()[:16] if body else b""


def plain_links(links: Sequence[Admission]) -> bytes:
    """Return the msgpack of a log of links, uncompressed; b"" for none."""
    if not links:
        return b""
    try:
        return wire.to_msgpack(links)
    except UnicodeEncodeError:
        return wire.to_msgpack(
            [msgspec.structs.replace(link, url=clean(link.url)) for link in links]
        )


LEVEL = 1
"""Level of zstd. For a page of documentation (14 KB, and 6 KB of text) it takes 39 µs of CPU and
leaves a quarter of the bytes. Level 3 takes 51 µs and leaves a thirtieth less."""


_PARAMETERS = zstandard.ZstdCompressionParameters.from_level(
    LEVEL, min_match=7, write_content_size=True
)
"""The level's parameters, but matches have at least 7 bytes. By default the least length is 5 to 7,
depending on the size; 7 takes a fourteenth less time, and the result is not larger."""

LINKS_LEVEL = -1
"""Level of zstd for links, which are a few hundred bytes. It takes 2 µs and leaves 300 bytes for 40
links. Level 1 takes 5 µs for its tables and leaves 260 bytes."""


class Codec:
    """Makes rows for one thread. Its zstd contexts are reused and must not be shared between
    threads."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(compression_params=_PARAMETERS)
        self._of_links = zstandard.ZstdCompressor(level=LINKS_LEVEL, write_content_size=True)
        decompressor = zstandard.ZstdDecompressor()
        self._decompress, self._stream = decompressor.decompress, decompressor.stream_reader

    def pack(self, data: bytes) -> bytes:
        """Compress with zstd; empty bytes stay empty."""
        return self._compressor.compress(data) if data else b""

    def unpack(self, data: bytes) -> bytes:
        """Undo :meth:`pack`. Raises zstandard.ZstdError on damage."""
        return self._decompress(data) if data else b""

    @staticmethod
    def _pack_all(compressor: zstandard.ZstdCompressor, plain: Sequence[bytes]) -> list[Any]:
        """Run :meth:`pack` on many texts, and give up the GIL only once; the results are buffers.
        While the hub is busy, a thread that gives up the GIL can wait 5 ms (the switch interval) to
        get it back, and a page would do so three times; see ``greencrawl.store.sqlite.commits``."""
        packed: list[Any] = [b""] * len(plain)
        chosen: list[int] = []
        total = 0
        for index, data in enumerate(plain):
            if data:
                chosen.append(index)
                total += len(data)
            if chosen and (total >= _COMPRESS_TOGETHER or index == len(plain) - 1):
                done = compressor.multi_compress_to_buffer([plain[i] for i in chosen])
                for position, target in enumerate(chosen):
                    packed[target] = done[position]
                chosen, total = [], 0
        return packed

    def page_rows(self, pages: Sequence[StoredPage], *, bodies: bool = True) -> list[Row]:
        """Return a row of :data:`PAGE` for each page, with an empty body unless ``bodies``. Raises
        Unstorable.

        If there is a body, the text is in one frame with it, and the row has the text's length.
        """
        plain: list[bytes] = []
        lengths: list[int] = []
        for page in pages:
            text, body = encoded(page.text), page.body if bodies else b""
            lengths.append(len(text) if body else 0)
            plain += (b"", text + body) if body else (text, b"")
        packed = self._pack_all(self._compressor, plain)
        links = self._pack_all(self._of_links, [plain_links(page.links) for page in pages])
        items = self._pack_all(self._compressor, [page.items for page in pages])
        return [
            (
                page.crawl, page.fingerprint, bounded(page.fetched_ms), bounded(page.elapsed_ms),
                bounded(page.status), bounded(page.depth), len(page.body), int(page.truncated),
                page.digest or hash_body(page.body), clean(page.url),
                None if page.final_url == page.url else clean(page.final_url),
                clean(page.language), clean(page.encoding), clean(page.title),
                declared.canonical_column(page), declared.directives_column(page.directives),
                json_text(page.headers, page.url) if page.headers else "{}",
                None if page.fields is None else json_text(page.fields, page.url),
                items[index] or None, page.spans or None,
                links[index], lengths[index] or packed[2 * index], packed[2 * index + 1],
            )
            for index, page in enumerate(pages)
        ]  # fmt: skip

    def page(self, row: Sequence[Any], frame: bytes | None = None, *, body: bool) -> StoredPage:
        """Return the page of a row of :data:`PAGE_READ`; ``frame`` has its body, if it is wanted.

        If the row has only the text's length, the frame also has the text. If the frame is lost or
        damaged, the page comes without it.
        """
        (
            _, crawl, fingerprint, fetched_ms, elapsed_ms, status, depth, body_bytes, truncated,
            content, url, final_url, language, encoding, title, canonical, directives, headers,
            fields, items, spans, links, text,
        ) = row  # fmt: skip
        plain = self._held(frame) if body and frame else b""
        if not isinstance(text, int):
            words = self.unpack(text)
        elif body:
            words = plain[:text]
        else:
            words = self._held(frame, text) if frame else b""
        plain = plain[-body_bytes:]
        return StoredPage(
            crawl=crawl, fingerprint=fingerprint, url=url,
            final_url=url if final_url is None else final_url, status=status,
            headers=wire.from_json(headers, dict[str, str]), fetched_ms=fetched_ms,
            elapsed_ms=elapsed_ms, depth=depth, body=plain, body_bytes=body_bytes,
            truncated=bool(truncated), title=title, text=words.decode(errors="replace"),
            language=language, encoding=encoding,
            fields=None if fields is None else wire.from_json(fields, dict[str, Any]),
            items=self.unpack(items) if items else b"", spans=spans or b"",
            canonical=declared.canonical_of(canonical, url),
            directives=declared.directives_of(directives),
            digest=content, links=self.links(links),
        )  # fmt: skip

    def _held(self, frame: bytes, first: int | None = None) -> bytes:
        """Return the content of a frame, or its ``first`` bytes; b"" if it is damaged before their
        end."""
        try:
            found = self.unpack(frame) if first is None else self._stream(frame).read(first)
        except zstandard.ZstdError:
            return b""
        return found if first in (None, len(found)) else b""

    def links(self, blob: bytes) -> list[Admission]:
        """Return the links of a blob."""
        return wire.from_msgpack(self.unpack(blob), list[Admission]) if blob else []

    def pack_links(self, links: Sequence[Admission]) -> bytes:
        """Return the blob of ``links``."""
        return self._of_links.compress(plain_links(links)) if links else b""

    def merge_links(self, old: bytes, new: bytes) -> bytes:
        """Return the union of two blobs by URL; the link of least depth stays.

        So a refetch takes nothing out of the replay log, and the order of commits does not matter.
        """
        if not new or old == new:
            return old
        if not old:
            return new
        union = {link.url: link for link in self.links(old)}
        for link in self.links(new):
            known = union.get(link.url)
            if known is None or _rank(link) < _rank(known):
                union[link.url] = link
        return self.pack_links(list(union.values()))


def _rank(link: Admission) -> tuple[int, int, int]:
    return link.depth, link.redirects, link.level


def host(url: str) -> str:
    """Return the host of a URL; "" if the URL is not canonical."""
    try:
        return host_of(url)
    except (ValueError, IndexError):  # not canonical: the journal still keeps it
        return ""


def by_crawl(found: Iterable[tuple[int, T]]) -> Iterable[tuple[int, list[T]]]:
    """Yield (crawl, its items) from (crawl, item) pairs."""
    grouped: dict[int, list[T]] = {}
    for crawl, item in found:
        grouped.setdefault(crawl, []).append(item)
    return grouped.items()


FEW = 16
"""How many pages' links are unpacked together: a page may have thousands."""


def few(found: Sequence[T]) -> Iterable[Sequence[T]]:
    """Yield ``found`` in parts of :data:`FEW`."""
    return (found[start : start + FEW] for start in range(0, len(found), FEW))


def attempt_row(attempt: Attempt) -> Row:
    """Return a row of :data:`ATTEMPT`."""
    url = clean(attempt.url)
    return (
        attempt.crawl, attempt.fingerprint, bounded(attempt.at_ms), bounded(attempt.code),
        bounded(attempt.errors), attempt.wait, bounded(attempt.elapsed_ms), host(url),
        clean(attempt.kind), url, clean(attempt.worker), clean(attempt.detail),
    )  # fmt: skip


def attempt(row: Row) -> Attempt:
    """Return the attempt of a row of :data:`ATTEMPT`."""
    crawl, fingerprint, at_ms, code, errors, wait, elapsed_ms, _, kind, url, worker, detail = row
    return Attempt(
        crawl=crawl, fingerprint=fingerprint, url=url, code=code, kind=kind, errors=errors,
        wait=wait, detail=detail, at_ms=at_ms, elapsed_ms=elapsed_ms, worker=worker,
    )  # fmt: skip


def final_row(final: Final) -> Row:
    """Return a row of :data:`FINAL`."""
    return (
        final.crawl, final.fingerprint, final.state, clean(final.kind), bounded(final.code),
        bounded(final.depth), pack_level(final.level, final.task), bounded(final.at_ms),
        clean(final.url), clean(final.detail), shape_name(final.shape),
    )  # fmt: skip


def final(row: Row) -> Final:
    """Return the final state of a row of :data:`FINAL_READ`."""
    _, crawl, fingerprint, state, kind, code, depth, number, at_ms, url, detail, shape = row
    level, task = unpack_level(number)
    return Final(
        crawl=crawl, fingerprint=fingerprint, url=url, state=cast(Any, state), kind=kind,
        detail=detail, shape=shape, code=code, depth=depth, level=level, at_ms=at_ms, task=task,
    )  # fmt: skip


def mark_kind(word: int | str) -> Literal["S", "D", "P", "O"]:
    """Return how a page of this status, or a final state of this name, counts."""
    if isinstance(word, int):
        return "S" if is_page(word) else "O"
    return "D" if word == "dead" else "P" if word == "parked" else "O"


class Prepared(msgspec.Struct):
    """The rows of a :class:`Commit`, ``work``, made before the write lock is taken."""

    pages: list[Row]
    attempts: list[Row]
    finals: list[Row]
    hooks: list[HookRun] = msgspec.field(default_factory=list)
    checks: list[Check] = msgspec.field(default_factory=list)
    work: Commit = msgspec.field(default_factory=Commit)


def prepare(codec: Codec, work: Commit, *, bodies: bool = True) -> Prepared:
    """Encode and compress ``work``; see :meth:`Codec.page_rows`.

    Raises Unstorable that names the record at fault.
    """
    records: list[StoredPage | Attempt | Final] = [*work.pages, *work.attempts, *work.finals]
    for record in records:
        if not LEAST <= record.fingerprint <= _MAX:
            raise Unstorable(record.url, "a fingerprint is a signed 64-bit integer")
    return Prepared(
        pages=codec.page_rows(work.pages, bodies=bodies),
        attempts=[attempt_row(item) for item in work.attempts],
        finals=[final_row(item) for item in work.finals],
        hooks=work.hooks, checks=work.checks, work=work,
    )  # fmt: skip
