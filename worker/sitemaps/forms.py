"""The form of a body, by its start: a sitemap or feed in XML, a list of URLs, or neither."""

from __future__ import annotations

import re
import zlib
from typing import Literal

from greencrawl.schema.net.urls import task_path

Form = Literal["sitemap", "feed", "text", ""]

GZIP = b"\x1f\x8b"
HEAD_BYTES = 4096
"""Bytes of a body, its gzip undone, that are checked."""

_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_ROOT = re.compile(rb"<(?![?!])(?:[\w.-]+:)?([\w.-]+)")
_ROOTS: dict[bytes, Form] = {
    b"urlset": "sitemap", b"sitemapindex": "sitemap", b"rss": "feed", b"feed": "feed",
    b"rdf": "feed",
}  # fmt: skip
_SCHEMES = (b"http://", b"https://")
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_NAMED = re.compile(r"(?:sitemap[^/]*|[^/]+\.(?:xml|rss|atom|rdf|txt))(?:\.gz)?/?", re.IGNORECASE)


def form_of(body: bytes) -> Form:
    """Return the form of ``body``: XML by its root, or a list of URLs."""
    head = _head(body)
    for mark in _MARKS:
        head = head.removeprefix(mark)
    head = head.replace(b"\0", b"").lstrip()
    if head.startswith(b"<"):
        root = _ROOT.search(_COMMENT.sub(b"", head))
        return "" if root is None else _ROOTS.get(root[1].lower(), "")
    return "text" if _is_list(head) else ""


def _is_list(head: bytes) -> bool:
    """Return whether the first line that is not empty is a URL and nothing else."""
    for line in head.splitlines():
        line = line.strip()
        if line and not line.startswith(b"#"):
            return line.lower().startswith(_SCHEMES) and len(line.split(None, 1)) == 1
    return False


def is_named_so(url: str) -> bool:
    """Return whether the name of a canonical URL is that of a sitemap or feed."""
    path = task_path(url)[1:].partition("?")[0]
    return _NAMED.fullmatch(path.rstrip("/").rpartition("/")[2]) is not None


def _head(body: bytes) -> bytes:
    if not body.startswith(GZIP):
        return body[:HEAD_BYTES]
    try:
        return zlib.decompressobj(wbits=31).decompress(body[: 2 * HEAD_BYTES], HEAD_BYTES)
    except zlib.error:
        return b""
