"""Undoes content-encodings under a limit: a compression bomb costs what the limit allows and no
more.

The codings are gzip (RFC 1952), deflate (RFC 1950 as the standard says, bare RFC 1951 as some
servers send), br (RFC 7932) and zstd (RFC 8878, windows up to 8 MiB as RFC 9659 bounds them). A
body that is declared as gzip but begins as text was never encoded: it is taken as it is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from time import thread_time
from typing import NamedTuple

import brotli
import zstandard

MAX_STACKED = 2
MAX_MEMBERS = 16
"""A gzip body has at most this many members: a million empty ones would cost seconds and yield
nothing."""

_GZIP_MAGIC = b"\x1f\x8b"
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES = 1024
ZSTD_WINDOW = 8 * 1024 * 1024
ZSTD_SLICE = 128
"""Bytes fed to zstd at a time.

A block of 4 bytes may stand for 128 KiB, so the output of one slice stays within 4 MiB.
"""


class Decoded(NamedTuple):
    """``body`` is at most the limit; ``error`` says why the rest was not decoded, or is empty.

    ``cpu`` is the CPU time in seconds. If ``body`` is gzipped, ``packed`` is the length of the
    content.
    """

    body: bytes
    truncated: bool = False
    error: str = ""
    cpu: float = 0.0
    packed: int = 0


def codings_of(header: str) -> list[str]:
    """Return the known codings of a Content-Encoding header, in the order they were applied.

    Unknown names are ignored, as browsers do: servers write ``utf-8`` or ``none`` there.
    """
    names = (name.strip().lower().removeprefix("x-") for name in header.split(","))
    return [name for name in names if name in _DECODERS]


def decode(data: bytes, header: str, cap: int, *, complete: bool = True) -> Decoded:
    """Undo the codings of ``header`` and keep at most ``cap`` bytes.

    ``complete=False`` says that ``data`` was cut off: then a stream without an end is no error, and
    the result is marked as truncated. Between stacked codings at most ``cap`` plus an eighth plus
    64 KiB are kept: no coding adds as much to data that it cannot compress.
    """
    if not header:
        return Decoded(data[:cap], not complete or len(data) > cap)
    began = thread_time()
    decoded = _decode(data, header, cap, complete)
    return decoded._replace(cpu=thread_time() - began)


def _decode(data: bytes, header: str, cap: int, complete: bool) -> Decoded:
    codings = codings_of(header)
    if len(codings) > MAX_STACKED:
        return Decoded(b"", error=f"{len(codings)} stacked content-encodings")
    cut = not complete
    for left, coding in reversed(list(enumerate(codings))):
        if not data:
            break  # an empty body is the same in every coding
        if coding == "gzip" and is_text(data):
            continue
        limit = encoded_cap(cap) if left else cap
        data, ended, error = _DECODERS[coding](data, limit + 1)
        if len(data) > limit:
            data, cut = data[:limit], True
        elif error or not (ended or cut):
            return Decoded(data[:cap], cut, f"{coding}: {error or 'ends too early'}")
    return Decoded(data[:cap], cut or len(data) > cap)


def is_text(data: bytes | bytearray) -> bool:
    """Return whether a body that is declared as gzip begins as text."""
    return _BINARY.search(data, 0, _TEXT_BYTES) is None


def encoded_cap(cap: int) -> int:
    """Return how many bytes of an encoded body can be of use at all."""
    return cap + cap // 8 + 64 * 1024


_Step = tuple[bytes, bool, str]
"""(output, whether the stream reached its end, the error)."""


def _gunzip(data: bytes, limit: int) -> _Step:
    out = b""
    for _ in range(MAX_MEMBERS):
        member = zlib.decompressobj(wbits=31)
        try:
            out += member.decompress(data, limit - len(out))
        except zlib.error as error:
            return out, False, str(error)
        data = member.unused_data
        if not member.eof or len(out) >= limit:
            return out, member.eof, ""
        if not data.startswith(_GZIP_MAGIC):
            return out, True, ""  # what follows the last member is padding
    return out, False, f"more than {MAX_MEMBERS} members"


def _inflate(data: bytes, limit: int) -> _Step:
    # RFC 1950: low four bits 8, and the first two bytes a multiple of 31.
    wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
    stream = zlib.decompressobj(wbits=15 if wrapped else -15)
    try:
        return stream.decompress(data, limit), stream.eof, ""
    except zlib.error as error:
        return b"", False, str(error)


def _unbrotli(data: bytes, limit: int) -> _Step:
    stream = brotli.Decompressor()
    try:
        out = stream.process(data, output_buffer_limit=limit)
    except brotli.error as error:
        return b"", False, str(error)
    return out[:limit], stream.is_finished(), ""


def _unzstd(data: bytes, limit: int) -> _Step:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    stream = decompressor.decompressobj(write_size=64 * 1024)
    out = bytearray()
    try:
        for start in range(0, len(data), ZSTD_SLICE):
            out += stream.decompress(data[start : start + ZSTD_SLICE])
            if stream.eof or len(out) >= limit:
                break
    except zstandard.ZstdError as error:
        return bytes(memoryview(out)[:limit]), False, str(error)
    return bytes(memoryview(out)[:limit]), stream.eof, ""


_DECODERS: dict[str, Callable[[bytes, int], _Step]] = {
    "gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
