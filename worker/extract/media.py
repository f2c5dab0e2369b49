"""Decides whether a body is a page to parse."""

from __future__ import annotations

import re
from functools import lru_cache

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
PLAIN = "text/plain"
_PLAIN_TYPES = frozenset({PLAIN, "text/markdown", "text/x-markdown"})
_PLAIN_NAME = re.compile(r"^[^?#]*\.(?:txt|text|md|markdown)(?:[?#]|$)", re.IGNORECASE)

# The start of a page without a type, after
# https://mimesniff.spec.whatwg.org/#identifying-a-resource-with-an-unknown-mime-type
_MARKUP = re.compile(
    rb"<(?:!--|!doctype\s+html|\?xml\s|(?:a|area|b|base|body|br|div|font|form|frameset|h[1-6]|head"
    rb"|html|i|iframe|img|link|main|meta|p|script|span|style|table|title|ul)[\s/>])",
    re.IGNORECASE,
)
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_BINARY_SIGNS = re.compile(_BINARY.pattern.decode("ascii"))
_PRINTED = (b"%PDF-", b"%!PS-")
_XML_ROOT = re.compile(rb"<([A-Za-z][\w.:-]*)")


_SHORT = 80
"""A cached Content-Type has at most this many characters: those of real servers are few and
shorter."""


def media_type(content_type: str | None) -> str:
    """Return the type that a Content-Type header names, the last one of several; "" for none."""
    if not content_type:
        return ""
    return (_known if len(content_type) <= _SHORT else _named)(content_type)


def _named(content_type: str) -> str:
    if "," in content_type:
        for one in reversed(content_type.split(",")):
            if "/" in one.partition(";")[0]:
                content_type = one
                break
    return content_type.partition(";")[0].strip().lower()


_known = lru_cache(maxsize=256)(_named)


def is_html(content_type: str | None, body_head: bytes) -> bool:
    """Return whether a body is (X)HTML: by its declared type, or without one by its start.

    ``body_head`` is its start, some hundred bytes. Other XML (feeds, sitemaps) is not.
    """
    declared = media_type(content_type)
    if declared:
        return declared in _HTML_TYPES
    if body_head.startswith((b"\xff\xfe", b"\xfe\xff")):
        body_head = body_head[2:].replace(b"\x00", b"")
    elif body_head.startswith((b"<\x00", b"\x00<")):  # without a byte order mark
        body_head = body_head.replace(b"\x00", b"")
    head = body_head[:1024].removeprefix(b"\xef\xbb\xbf").lstrip()
    found = None if head.startswith(_PRINTED) else _MARKUP.search(head)
    if found is None or (_BINARY.search(head, 0, found.start()) is not None):
        return False
    if found.start() == 0 and head.startswith(b"<?xml"):
        root = _XML_ROOT.search(head)
        return root is not None and root[1].lower() == b"html"
    return True


def is_plain(content_type: str | None, url: str, body_head: bytes) -> bool:
    """Return whether a body is plain text, Markdown included.

    This depends on its declared type, or without one on the end of its URL, unless it is HTML.
    """
    declared = media_type(content_type)
    if declared:
        return declared in _PLAIN_TYPES
    return _PLAIN_NAME.match(url) is not None and not is_html(None, body_head)


def is_binary(text: str) -> bool:
    """Return whether a text has control characters that no text has."""
    return _BINARY_SIGNS.search(text) is not None


def is_text(content_type: str | None) -> bool:
    """Return whether a body is kept, though not parsed: text, XML and JSON; not images or
    archives."""
    kind = media_type(content_type)
    return kind.startswith("text/") or kind.endswith(("/xml", "+xml", "/json", "+json"))


def is_style(content_type: str | None) -> bool:
    """Return whether a body is a style sheet."""
    return media_type(content_type) == "text/css"
