"""Records of pages, made and read by our code and by warcio, at one level of deflate.

warcio has no option for the level, which is 9. There are two ways to use it with another level. In
the first, a subclass of its writer has another compressor. In the second, ``pinned``, warcio writes
without compression, and the record is compressed by our code. ``pinned`` would be the replacement
of our records: it keeps the lengths in the gzip header, the one call of zlib, and the heads of HTTP
as they were read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

from warcio.archiveiterator import ArchiveIterator
from warcio.recordbuilder import RecordBuilder
from warcio.statusandheaders import StatusAndHeaders
from warcio.utils import Digester
from warcio.warcwriter import GzippingWrapper, WARCWriter

from greencrawl.schema.net.request import header_lines, request_head
from greencrawl.schema.records import StoredPage
from greencrawl.store.warc import records as ours
from greencrawl.store.warc.records import Origin, Record

ASKED = {"user-agent": "greencrawl-bench/1.0", "accept": "text/html"}
LINES = header_lines(ASKED)
"""The head lines are made once: our module, too, makes them once for each set of headers."""
VERSION = "1.1"
_builder = RecordBuilder(warc_version=VERSION)

Write = Callable[[IO[bytes], StoredPage, Origin | None], None]
"""Writes the records of a page: a revisit if the origin is given, otherwise a response, and a
request."""
Read = Callable[[Path, int, int], bytes]
"""Returns the body of the record at (file, offset, length)."""


class Way(NamedTuple):
    """A way to write records and to read them."""

    level: int
    write: Write
    read: Read


# -- ours


def write_ours(file: IO[bytes], page: StoredPage, origin: Origin | None) -> None:
    """Write as ``greencrawl.store.warc.files`` does."""
    answer = ours.revisit(page, origin) if origin else ours.response(page)
    asked = ours.asked(page, answer, ASKED)
    file.write(ours.member(answer) + ours.member(asked))


def read_ours(path: Path, offset: int, length: int) -> bytes:
    """Read as ``greencrawl.store.warc.files`` does."""
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        return ours.body_of(ours.plain(file.read(length), 2**30))


# -- warcio


class Head(StatusAndHeaders):
    """The head of a message as bytes: warcio would encode what is not ASCII."""

    def __init__(self, head: bytes) -> None:
        super().__init__("-", [])  # a head without a first line counts as missing
        self._head = head

    def to_ascii_bytes(self, header_filter: object = None) -> bytes:
        """Return the head."""
        return self._head


class Parts(list[bytes]):
    """A file that keeps the very pieces that are written into it, without a copy."""

    write = list.append

    def flush(self) -> None:
        """Do nothing."""


def made(page: StoredPage, origin: Origin | None, head: StatusAndHeaders) -> Any:
    """Return warcio's record of an answer with this head."""
    url, date = ours.uri(page.url), ours.date(page.fetched_ms)
    if origin is None:
        return _builder.create_warc_record(
            url,
            "response",
            payload=BytesIO(page.body),
            length=len(page.body),
            http_headers=head,
            warc_headers_dict={"WARC-Date": date},
        )
    digest = Digester("sha1")
    digest.update(page.body)
    return _builder.create_revisit_record(
        url,
        str(digest),
        origin.uri,
        origin.date,
        http_headers=head,
        warc_headers_dict={"WARC-Date": date, "WARC-Refers-To": origin.id},
    )


def asked(page: StoredPage, answer: str, head: StatusAndHeaders) -> Any:
    """Return warcio's record of the request for the record with the id ``answer``."""
    fields = {"WARC-Date": ours.date(page.fetched_ms), "WARC-Concurrent-To": answer}
    return _builder.create_warc_record(
        ours.uri(page.url), "request", http_headers=head, warc_headers_dict=fields
    )


def response(page: StoredPage) -> Record:
    """Return the record of an answer, made by warcio with the head that ours would have."""
    return _record(made(page, None, Head(ours.http_head(page, len(page.body)))))


def revisit(page: StoredPage, origin: Origin) -> Record:
    """Return the record of an answer whose body is in ``origin``, as :func:`response` does."""
    return _record(made(page, origin, Head(ours.http_head(page, len(page.body)))))


def request(page: StoredPage, answer: Record, headers: Mapping[str, str] = ASKED) -> Record:
    """Return the record of the request for ``answer``; its headers are always the same."""
    authority, slash, path = page.url.partition("://")[2].partition("/")
    head = Head(request_head((slash + path).encode(), authority.encode(), LINES))
    return _record(asked(page, answer.id, head))


def _record(made_of: Any) -> Record:
    parts = Parts()
    WARCWriter(parts, gzip=False, warc_version=VERSION).write_record(made_of)
    return Record(made_of.rec_headers.get_header("WARC-Record-ID"), tuple(parts))


def write_pinned(file: IO[bytes], page: StoredPage, origin: Origin | None) -> None:
    """Let warcio make the records, and compress them as ours."""
    answer = revisit(page, origin) if origin else response(page)
    file.write(ours.member(answer) + ours.member(request(page, answer)))


def read_pinned(path: Path, offset: int, length: int) -> bytes:
    """Inflate with our code, and let warcio read the record and check its digests."""
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        plain = ours.plain(file.read(length), 2**30)
    return _body(BytesIO(plain), check_digests="raise")


class LevelWriter(WARCWriter):
    """warcio's writer, at level 4 instead of 9."""

    def _write_warc_record(self, out: IO[bytes], record: Any) -> None:
        compressed = GzippingWrapper(out)
        compressed.compressor = zlib.compressobj(ours.LEVEL, zlib.DEFLATED, 31)
        super()._write_warc_record(compressed, record)


def _documented(file: IO[bytes], page: StoredPage, origin: Origin | None, writer: Any) -> None:
    """Write as warcio's documentation says: with names and values of headers."""
    head = StatusAndHeaders(f"{page.status} OK", list(page.headers.items()), protocol="HTTP/1.1")
    answer = made(page, origin, head)
    target = page.url.partition("://")[2].partition("/")[2]
    line = f"GET /{target} HTTP/1.1"
    number = answer.rec_headers.get_header("WARC-Record-ID")
    writer.write_record(answer)
    request_line = StatusAndHeaders(line, list(ASKED.items()), is_http_request=True)
    writer.write_record(asked(page, number, request_line))


def write_level(file: IO[bytes], page: StoredPage, origin: Origin | None) -> None:
    """Write with :class:`LevelWriter`."""
    _documented(file, page, origin, LevelWriter(file, gzip=False, warc_version=VERSION))


def write_nine(file: IO[bytes], page: StoredPage, origin: Origin | None) -> None:
    """Write with warcio's writer as it is."""
    _documented(file, page, origin, WARCWriter(file, warc_version=VERSION))


def read_documented(path: Path, offset: int, length: int) -> bytes:
    """Read as warcio's documentation says, from the offset on."""
    with path.open("rb") as file:
        file.seek(offset)
        return _body(file)


def _body(file: IO[bytes], **options: str) -> bytes:
    body: bytes = next(iter(ArchiveIterator(file, **options))).content_stream().read()
    return body


WAYS = {
    "ours": Way(ours.LEVEL, write_ours, read_ours),
    "warcio, as ours would keep it": Way(ours.LEVEL, write_pinned, read_pinned),
    "warcio, with another compressor": Way(ours.LEVEL, write_level, read_documented),
    "warcio, as it is": Way(9, write_nine, read_documented),
}
