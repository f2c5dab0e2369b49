"""Pages as records of WARC 1.1 (ISO 28500:2017), each a gzip member of its own, and back.

The body of a page is what is left after Transfer-Encoding and Content-Encoding were undone, and the
header of its record says so. The header fields for these, and a Content-Length that is no longer
true, are renamed to ``X-Archive-Orig-…``; Content-Length is the stored length. Fields were joined
by name when they were read, and fields that hold secrets were never stored.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from base64 import b32encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha1
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net.request import header_lines, request_head
from greencrawl.schema.records import StoredPage
from greencrawl.store.bodies import has_body
from greencrawl.store.export.objects import iso8601

REVISIT = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
SPECIFICATION = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
SOFTWARE = "Greencrawl"
LEVEL = 4
"""Level of deflate: on HTML it takes two thirds of the time of level 6, for 3 % more bytes."""

# A gzip header with one subfield, as in the drafts of WARC: "sl" and the lengths of the member and
# of its record. So a program can walk through a file without inflating it.
_MEMBER = struct.Struct("<4s I B B H 2s H I I")
_START = b"\x1f\x8b\x08\x04"
_PLAIN_HEADER = 10  # bytes of the header that zlib writes
_ONE_CALL_BYTES = 1024 * 1024

_UNDONE = frozenset({"content-encoding", "transfer-encoding"})
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NO_TOKEN = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
_BREAKS = str.maketrans("\r\n\0", "   ")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F))
_END = b"\r\n\r\n"


class Origin(NamedTuple):
    """The record that holds a body: a revisit refers to it."""

    id: str
    uri: str
    date: str


class Record(NamedTuple):
    """A record before compression: its parts in their order, its id."""

    id: str
    parts: tuple[bytes, ...]


class Damage(ValueError):
    """Raised for bytes that are not a whole record."""


# -- writing


def origin_of(record: Record, page: StoredPage) -> Origin:
    """Return what a later revisit says about this response."""
    return Origin(record.id, uri(page.url), date(page.fetched_ms))


def warcinfo(name: str, fields: Mapping[str, str]) -> Record:
    """Return the first record of the file ``name``: what wrote it, and how."""
    described = {
        "software": SOFTWARE,
        "format": "WARC File Format 1.1",
        "conformsTo": SPECIFICATION,
        "robots": "obey",
        **fields,
    }
    block = "".join(f"{key}: {_line(value)}\r\n" for key, value in described.items()).encode()
    head = [
        ("WARC-Date", date(epoch_ms())),
        *([("WARC-Filename", name)] if name else []),
        ("WARC-Block-Digest", _digest(block)),
        ("Content-Type", "application/warc-fields"),
    ]
    return _record("warcinfo", head, block)


def response(page: StoredPage) -> Record:
    """Return the record of an answer, with its body as it is stored."""
    body = page.body
    head = http_head(page, len(body))
    whole = sha1(head)
    whole.update(body)
    return _record(
        "response",
        [
            ("WARC-Date", date(page.fetched_ms)),
            ("WARC-Target-URI", uri(page.url)),
            ("WARC-Payload-Digest", _digest(body)),
            ("WARC-Block-Digest", _shown(whole.digest())),
            *_truncated(page),
            ("Content-Type", "application/http;msgtype=response"),
        ],
        head,
        body,
    )


def revisit(page: StoredPage, origin: Origin) -> Record:
    """Return the record of an answer without its body, which is the same as the one in
    ``origin``."""
    head = http_head(page, len(page.body))
    return _record(
        "revisit",
        [
            ("WARC-Date", date(page.fetched_ms)),
            ("WARC-Target-URI", uri(page.url)),
            ("WARC-Profile", REVISIT),
            ("WARC-Refers-To", origin.id),
            ("WARC-Refers-To-Target-URI", origin.uri),
            ("WARC-Refers-To-Date", origin.date),
            ("WARC-Payload-Digest", _digest(page.body)),
            ("WARC-Block-Digest", _digest(head)),
            ("Content-Type", "application/http;msgtype=response"),
        ],
        head,
    )


def asked(page: StoredPage, answer: Record, headers: Mapping[str, str]) -> Record:
    """Return the record of the request for ``answer``, with ``headers`` that hold no
    credentials."""
    url = uri(page.url)
    _, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    block = request_head((slash + path or "/").encode(), authority.encode(), _lines(headers))
    return _record(
        "request",
        [
            ("WARC-Date", date(page.fetched_ms)),
            ("WARC-Target-URI", url),
            ("WARC-Concurrent-To", answer.id),
            ("WARC-Block-Digest", _digest(block)),
            ("Content-Type", "application/http;msgtype=request"),
        ],
        block,
    )


def _record(kind: str, fields: Sequence[tuple[str, str]], *block: bytes) -> Record:
    number = _new_id()
    text = "".join([f"{name}: {value}\r\n" for name, value in fields])
    length = sum(map(len, block))
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {number}\r\n{text}"
        f"Content-Length: {length}\r\n\r\n"
    )
    return Record(number, (head.encode(), *block, _END))


def _new_id() -> str:
    """Return a random UUID. Many UUIDs are drawn together, because asking the system gives up the
    GIL."""
    try:
        drawn = _drawn.pop()
    except IndexError:
        many = os.urandom(16 * 128)
        _drawn.extend(many[at : at + 16] for at in range(16, len(many), 16))
        drawn = many[:16]
    return f"<urn:uuid:{UUID(bytes=drawn, version=4)}>"


_drawn: list[bytes] = []
os.register_at_fork(after_in_child=_drawn.clear)


def http_head(page: StoredPage, length: int) -> bytes:
    """Return status line and header of an answer whose body now has ``length`` bytes."""
    made = [_status_line(page.status)]
    for name, value in page.headers.items():
        shown = _field_name(name)
        if shown == "Content-Length" and value.strip() == str(length):
            continue
        if name.lower() in _UNDONE or shown == "Content-Length":
            shown = f"X-Archive-Orig-{shown}"
        made.append(f"{shown}: {_line(value)}\r\n")
    if 300 <= page.status < 400 and page.final_url and "location" not in page.headers:
        made.append(f"Location: {uri(page.final_url)}\r\n")  # the stored URL had a password in it
    made.append(f"Content-Length: {length}\r\n\r\n")
    return b"".join([_bytes(line) for line in made])


@lru_cache(maxsize=1024)
def _status_line(status: int) -> str:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status:03d} {phrase}\r\n"


@lru_cache(maxsize=4096)
def _field_name(name: str) -> str:
    if _TOKEN.fullmatch(name):
        return "-".join(part.capitalize() for part in name.split("-"))
    return f"X-Archive-Orig-{_NO_TOKEN.sub('-', name) or 'Empty'}"


def _line(value: str) -> str:
    return value.translate(_BREAKS)


def _bytes(line: str) -> bytes:
    try:
        return line.encode("latin-1")  # as it was read
    except UnicodeEncodeError:
        return line.encode("utf-8", "replace")


@lru_cache(maxsize=256)
def _cached_lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    try:
        return header_lines(dict(headers))
    except ValueError:  # the crawl's options have changed: no request could have had these
        return header_lines({})


def _lines(headers: Mapping[str, str]) -> bytes:
    return _cached_lines(tuple(headers.items()))


def _truncated(page: StoredPage) -> list[tuple[str, str]]:
    if not has_body(page):
        return [("WARC-Truncated", "unspecified")]
    if not page.truncated:
        return []
    # A 2xx whose body was lost on the way is not stored as a page: this one was cut at the limit.
    return [("WARC-Truncated", "length" if 200 <= page.status < 300 else "unspecified")]


def _digest(data: bytes) -> str:
    return _shown(sha1(data).digest())


def _shown(digest: bytes) -> str:
    return f"sha1:{b32encode(digest).decode()}"


def date(moment_ms: int) -> str:
    """Return UTC with milliseconds; the start of 1970 for a year beyond 9999."""
    return iso8601(moment_ms) or "1970-01-01T00:00:00.000Z"


def uri(url: str) -> str:
    """Return a URL as a field's value: ASCII, no blanks, no credentials."""
    if not url.isascii() or not url.isprintable() or " " in url:
        url = quote(url.encode("utf-8", "replace"), safe=_SAFE)
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"
    return url


def member(record: Record) -> bytes:
    """Return the record as a gzip member."""
    parts = record.parts
    size = sum(map(len, parts))
    if size <= _ONE_CALL_BYTES:  # one call: each one gives up the GIL and has to get it back
        packed = zlib.compress(b"".join(parts), LEVEL, 31)
    else:
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        packed = b"".join([*map(compressor.compress, parts), compressor.flush()])
    length = _MEMBER.size + len(packed) - _PLAIN_HEADER
    head = _MEMBER.pack(_START, 0, 0, 255, 12, b"sl", 8, length, size)
    return b"".join((head, memoryview(packed)[_PLAIN_HEADER:]))


# -- reading


HEAD_BYTES = _MEMBER.size


def length_of(head: bytes) -> int:
    """Return the bytes of the member that begins with ``head`` (:data:`HEAD_BYTES`). Raises
    Damage."""
    if len(head) == _MEMBER.size:
        start, _, _, _, extra, name, size, length, _ = _MEMBER.unpack(head)
        if (start, extra, name, size) == (_START, 12, b"sl", 8) and length > _MEMBER.size:
            return int(length)
    raise Damage("no record begins here")


def plain(packed: bytes, most: int) -> bytes:
    """Return the one record in ``packed``, of ``most`` bytes at most. Raises Damage."""
    inflater = zlib.decompressobj(31)
    try:
        data = inflater.decompress(packed, most)
    except zlib.error as error:
        raise Damage(f"damaged: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise Damage("not one whole record")
    return data


def verify(packed: bytes) -> None:
    """Inflate a member and discard the result. Raises Damage if it is not whole."""
    inflater = zlib.decompressobj(31)
    try:
        while not inflater.eof:
            if not inflater.decompress(packed, _ONE_CALL_BYTES) and not inflater.unconsumed_tail:
                break
            packed = inflater.unconsumed_tail
    except zlib.error as error:
        raise Damage(f"damaged: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise Damage("not one whole record")


def beginning(packed: bytes) -> dict[str, str]:
    """Return the fields of a record of which only the first bytes are given. Raises Damage."""
    try:
        data = zlib.decompressobj(31).decompress(packed, 64 * 1024)
    except zlib.error as error:
        raise Damage(f"damaged: {error}") from error
    return _fields(data)[0]


def body_of(data: bytes) -> bytes:
    """Return the body in an uncompressed response. Raises Damage."""
    fields, start = _fields(data)
    if fields.get("warc-type") != "response":
        raise Damage(f"a {fields.get('warc-type')} has no body")
    try:
        end = start + int(fields["content-length"])
    except (KeyError, ValueError):
        raise Damage("no length") from None
    first = data.find(_END, start, end)
    if first < 0 or data[end:] != _END:
        raise Damage("its length is wrong")
    return data[first + len(_END) : end]


def _fields(data: bytes) -> tuple[dict[str, str], int]:
    end = data.find(_END)
    if end < 0 or not data.startswith(b"WARC/1."):
        raise Damage("no WARC record")
    _, *rows = data[:end].decode("utf-8", "replace").split("\r\n")
    pairs = (row.partition(":") for row in rows)
    return {name.lower(): value.strip() for name, _, value in pairs}, end + len(_END)
