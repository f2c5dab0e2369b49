"""A sitemap's body in slices of text: gzip and its encoding undone, within limits."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator

from greencrawl.schema.text.encodings import standard_name
from greencrawl.worker.sitemaps.forms import GZIP

MAX_BYTES = 50 * 1024 * 1024
"""At most this many bytes of a sitemap, its gzip undone, are read, by sitemaps.org."""
SLICE_BYTES = 16 * 1024
"""Bytes at a time, between which others have their turn."""
MAX_MEMBERS = 64
"""A gzip file has at most this many members."""

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"),
    (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"),
)  # fmt: skip
_DECLARED = re.compile(rb"\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9._:-]{1,40})[\"']")
_CODECS = {"gbk": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949", "windows-874": "cp874"}
"""Names of encodings, and Python's codecs that accept more than the codec of that name."""


class Unpacked:
    """The text of ``body``, in slices. ``cut``: its end is missing.

    After the slices, ``fault`` says why there are no more of them, "" if the end was reached.
    ``bytes`` counts the bytes that were read, after gzip was undone.
    """

    def __init__(self, body: bytes, *, cut: bool = False) -> None:
        self._body = body
        self._cut = cut
        self.fault = ""
        self.bytes = 0

    def __iter__(self) -> Iterator[str]:
        decoder: codecs.IncrementalDecoder | None = None
        for data in self._bounded():
            if decoder is None:
                decoder = codecs.getincrementaldecoder(_codec(data))("replace")
            yield decoder.decode(data)
        if decoder is not None:
            yield decoder.decode(b"", True)

    def _bounded(self) -> Iterator[bytes]:
        for data in self._members() if self._body.startswith(GZIP) else self._plain():
            left = MAX_BYTES - self.bytes
            self.bytes += min(len(data), left)
            if data[:left]:
                yield data[:left]
            if len(data) > left:
                self.fault = f"it is cut after {MAX_BYTES:,} bytes"
                return
        if self._cut and not self.fault:
            self.fault = f"it is cut after {self.bytes:,} bytes"

    def _plain(self) -> Iterator[bytes]:
        for at in range(0, len(self._body), SLICE_BYTES):
            yield self._body[at : at + SLICE_BYTES]

    def _members(self) -> Iterator[bytes]:
        """Decompress the members: each call of zlib makes at most a slice, whatever it is given."""
        at = 0
        for _ in range(MAX_MEMBERS):
            member = zlib.decompressobj(wbits=31)
            data = b""
            while not member.eof:
                if not data:
                    data = self._body[at : at + SLICE_BYTES]
                    at += len(data)
                ended = not data  # zlib may still hold output
                try:
                    made = member.decompress(data, SLICE_BYTES)
                except zlib.error as error:
                    self.fault = f"its gzip is broken: {error}"
                    return
                if ended and not made and not member.eof:
                    self.fault = "" if self._cut else "its gzip ends too early"
                    return
                data = member.unconsumed_tail
                yield made
            at -= len(member.unused_data)
            if not self._body.startswith(GZIP, at):
                return  # what follows the last member is padding
        self.fault = f"its gzip has more than {MAX_MEMBERS} members"


def _codec(head: bytes) -> str:
    """Return Python's name of the encoding: by its mark, then by the XML declaration, else
    UTF-8."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    declared = _DECLARED.match(head)
    name = (standard_name(declared[1].decode()) if declared else None) or "utf-8"
    if name.startswith("utf-16"):  # it was read as ASCII just now
        return "utf-8"
    name = _CODECS.get(name, name)
    try:
        return codecs.lookup(name).name
    except LookupError:  # the standard has it, Python has not
        return "utf-8"
