"""Large bodies, such as sitemaps, that are later read in slices.

Their content-encoding is undone a piece at a time, and each piece is gzipped at once. So memory
never holds the whole of a decoded body.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from time import thread_time

import brotli
import zstandard

from greencrawl.worker.http.codings import (
    MAX_MEMBERS,
    ZSTD_SLICE,
    ZSTD_WINDOW,
    Decoded,
    codings_of,
    decode,
    is_text,
)

SMALL_BYTES = 1024 * 1024
"""A body of at most this size is kept as it is."""
MAX_CAME_BYTES = 16 * 1024 * 1024
"""At most this many bytes of an encoded body, or of a gzip file, are received; decoded they may be
ten times as many."""

GZIP_MAGIC = b"\x1f\x8b"
_SLICE = 64 * 1024
_STEP = 256 * 1024

_Take = Callable[[bytes], bool]
"""Takes a piece; returns False if no more is wanted."""
_Step = tuple[bool, str]
"""(whether the stream reached its end, the error)."""


class _Packer:
    """Gzips pieces as they come, up to ``cap`` bytes. ``gzipped``: they are gzip already."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._packer = zlib.compressobj(1, wbits=31)
        self._out: list[bytes] = []
        self.size = 0
        self.cpu = 0.0
        self.gzipped = self.cut = False

    def take(self, piece: bytes) -> bool:
        if not self.size and piece.startswith(GZIP_MAGIC):
            self.gzipped = True
            return False
        if self.size + len(piece) > self._cap:
            piece, self.cut = piece[: self._cap - self.size], True
        self.size += len(piece)
        began = thread_time()
        self._out.append(self._packer.compress(piece))
        self.cpu += thread_time() - began
        return not self.cut

    def body(self) -> bytes:
        return b"".join([*self._out, self._packer.flush()]) if self.size else b""


def packed(data: bytes | bytearray, header: str, cap: int, *, complete: bool = True) -> Decoded:
    """Decode like :func:`decode`, but return the body gzipped, and set ``packed``.

    A body with several codings, or an encoded gzip file, is decoded as usual, up to
    :data:`MAX_CAME_BYTES`.
    """
    codings = codings_of(header)
    coding = codings[0] if codings else ""
    if coding == "gzip" and is_text(data):
        coding = ""
    began, packer = thread_time(), _Packer(cap)
    ended, error = (True, "")
    if data and len(codings) < 2:
        ended, error = _STREAMS[coding](data, packer.take)
    if packer.gzipped or len(codings) > 1:
        return decode(bytes(data), header, min(cap, MAX_CAME_BYTES), complete=complete)
    cut = packer.cut or not complete
    if not (error or ended or cut):
        error = "ends too early"
    cpu = thread_time() - began - packer.cpu if coding else 0.0
    said = f"{coding}: {error}" if error and not packer.cut else ""
    return Decoded(packer.body(), cut, said, cpu, packer.size)


def _plain(data: bytes | bytearray, take: _Take) -> _Step:
    for at in range(0, len(data), _STEP):
        if not take(bytes(data[at : at + _STEP])):
            return False, ""
    return True, ""


def _gunzip(data: bytes | bytearray, take: _Take) -> _Step:
    at = 0
    for _ in range(MAX_MEMBERS):
        at, ended, error = _inflate_from(data, at, 31, take)
        if error or not ended or not data.startswith(GZIP_MAGIC, at):
            return ended, error  # what follows the last member is padding
    return False, f"more than {MAX_MEMBERS} members"


def _inflate(data: bytes | bytearray, take: _Take) -> _Step:
    # RFC 1950: low four bits 8, and the first two bytes a multiple of 31.
    wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
    _, ended, error = _inflate_from(data, 0, 15 if wrapped else -15, take)
    return ended, error


def _inflate_from(
    data: bytes | bytearray, at: int, wbits: int, take: _Take
) -> tuple[int, bool, str]:
    """Undo one stream that begins ``at``; also return where it ends."""
    stream, rest = zlib.decompressobj(wbits=wbits), b""
    while not stream.eof:
        if not rest:
            rest = bytes(data[at : at + _SLICE])
            at += len(rest)
        ended = not rest  # zlib may still hold output
        try:
            piece = stream.decompress(rest, _STEP)
        except zlib.error as error:
            return at, False, str(error)
        if (piece and not take(piece)) or (ended and not piece):
            break
        rest = stream.unconsumed_tail
    return at - len(stream.unused_data), stream.eof, ""


def _unbrotli(data: bytes | bytearray, take: _Take) -> _Step:
    stream, at = brotli.Decompressor(), 0
    try:
        while not stream.is_finished():
            given = bytes(data[at : at + _SLICE]) if stream.can_accept_more_data() else b""
            at += len(given)
            piece = stream.process(given, output_buffer_limit=_STEP)
            if piece and not take(piece):
                break
            if not (piece or given):
                break
    except brotli.error as error:
        return False, str(error)
    return stream.is_finished(), ""


def _unzstd(data: bytes | bytearray, take: _Take) -> _Step:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    stream = decompressor.decompressobj(write_size=_SLICE)
    try:
        for at in range(0, len(data), ZSTD_SLICE):
            piece = stream.decompress(bytes(data[at : at + ZSTD_SLICE]))
            if (piece and not take(piece)) or stream.eof:
                break
    except zstandard.ZstdError as error:
        return False, str(error)
    return stream.eof, ""


_STREAMS: dict[str, Callable[[bytes | bytearray, _Take], _Step]] = {
    "": _plain,
    "gzip": _gunzip,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
