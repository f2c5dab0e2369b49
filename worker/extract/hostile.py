"""Pages that would exhaust the parser, reduced to what extraction reads.

libxml2 gives up at 256 open elements and drops what follows (unclosed ``<font>`` elements cause
that on honest sites), and at a text of ten million bytes. It also takes time quadratic in the
attributes of one tag: 16,000 take a quarter of a second. All else is linear. The cheap check here
finds a tag without ``>`` in its values. If ``>`` in values hides the tag's end, the parser itself
is stopped (``bounds.c``); if nothing was compiled, all values are checked.

libxml2 also does not know that ``style``, ``title`` and similar elements are plain elements within
SVG and MathML, and end with these. If such an element is not closed, libxml2 takes the rest of the
page for its text.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from greencrawl.schema.errors import GreencrawlError

if TYPE_CHECKING:  # the command imports this module, and parses nothing
    from lxml import etree

_BLOCK = 16_384
_SHORT_BLOCK = 4096
_MAX_ATTRIBUTES = 2000
_SURE_BYTES = 16_384
_LONG_BYTES = 1024 * 1024
_MANY_TAGS = 50_000
"""An element takes 1 to 3 µs."""

# As in the HTML standard: a quote begins a value only after "=". All patterns are linear: they are
# possessive, and a value without an end goes on to the end of the page.
_ATTRIBUTE = (
    rb"[^\s/>][^\s/>=]*+"
    rb"(?>(?:\s*+=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\s>\"'][^\s>]*+|(?=>)))?)"
)
_MARKUP = re.compile(
    rb"<(?:(script|style)\b.*?(?:</\1\s*>|\Z)|!--.*?(?:-->|\Z)"
    rb"|(/?[a-z][^\s/>]*+)((?>(?:[\s/]++|" + _ATTRIBUTE + rb")*))>?)",
    re.DOTALL | re.IGNORECASE,
)
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_END_IN_VALUE = re.compile(rb"=\s*+(?:\"[^\">]*+>|'[^'>]*+>)")
_TAG_NAME = re.compile(rb"<(?!script\b|style\b)[a-z]", re.IGNORECASE)
_READ = frozenset(
    b"html head title /title body base meta link area frame iframe /iframe img".split()
)
RAW = ("script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes")
"""Elements whose content libxml2 takes for text, wherever they are."""
FOREIGN = ("svg", "math")
_FOREIGN_MARKUP = re.compile(
    rb"<!--.*?(?:-->|\Z)|<(/?)("
    + b"|".join(name.encode() for name in (*FOREIGN, *RAW))
    + rb")(?=[\s/>])[^<>]{0,2000}?(/?)>",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(rb"<[a-z/!]", re.IGNORECASE)
_LONG_PAGE = 9_000_000
"""From this length on, texts must be split.

libxml2 gives up ten million bytes after the last tag that it has finished; it checks that every few
tags.
"""
_LONGEST_TEXT = 8192
_NEAR = 1024
_LONGEST_SIGN = 4
"""Bytes of the longest character in UTF-8."""
_INLINE = frozenset(b"b i u s em strong span font small big tt code sub sup q abbr cite".split())


def has_attribute_bomb(body: bytes, block: int = _BLOCK) -> bool:
    """Return whether one tag has thousands of attributes; only ``block`` bytes without ">" are
    checked."""
    start = 0
    while start + block < len(body):
        if body.find(b">", start, start + block) >= 0:
            start += block
            continue
        opening = max(body.rfind(b"<", 0, start + 1), 0)
        closing = body.find(b">", start + block)
        closing = closing if closing >= 0 else len(body)
        if (
            body.find(b">", opening, start) < 0  # otherwise it is a long text
            and _TAG_NAME.match(body, opening)
            # A comparison in a script looks like a tag.
            and body.rfind(b"<script", 0, opening) <= body.rfind(b"</script", 0, opening)
            and _is_bomb(body[opening:closing])
        ):
            return True
        start = closing
    return False


def _is_bomb(attributes: bytes) -> bool:
    if len(attributes) <= 2 * _MAX_ATTRIBUTES:
        return False
    return len(_ATTRIBUTES.findall(attributes)) > _MAX_ATTRIBUTES


def hides_attribute_bomb(body: bytes) -> bool:
    """Run :func:`has_attribute_bomb`, and also check every tag of a page with a ">" in a value."""
    return has_attribute_bomb(body, _SHORT_BLOCK) or (
        _END_IN_VALUE.search(body) is not None
        and any(_is_bomb(found[3] or b"") for found in _MARKUP.finditer(body))
    )


def is_doubtful(body: bytes) -> bool:
    """Return whether a page may take long if its parse cannot be stopped.

    It is large, has very many tags, or a tag with thousands of attributes.
    """
    if len(body) <= _SURE_BYTES:
        return False
    return (
        len(body) > _LONG_BYTES
        or body.count(b"<") > _MANY_TAGS
        or has_attribute_bomb(body, _SHORT_BLOCK)
    )


class TooExpensive(GreencrawlError):
    """Raised if reading a page would delay others: it needs a process of its own.

    ``spent`` seconds of CPU went into it.
    """

    def __init__(self, spent: float) -> None:
        super().__init__("not read to its end")
        self.spent = spent


def swallows(root: etree._Element) -> bool:
    """Return whether a tree ends in an element of SVG or MathML that has the rest of the page as
    its text.

    libxml2 reads on to the end tag of the element, which is missing; browsers stop at the end tag
    of the SVG.
    """
    last = root
    with suppress(IndexError):
        while True:
            last = last[-1]
    if last.tag not in RAW or next(last.iterancestors(*FOREIGN), None) is None:
        return False
    text = (last.text or "").lower()
    return any(f"</{name}" in text for name in FOREIGN)


def close_raw(body: bytes) -> bytes:
    """Return the page with end tags for unclosed ``style`` and similar elements where their SVG or
    MathML ends."""
    pieces: list[bytes] = []
    at = depth = 0
    raw, within = b"", False
    for found in _FOREIGN_MARKUP.finditer(body):
        closes, name = found[1] == b"/", (found[2] or b"").lower()
        foreign = name in (b"svg", b"math")
        if raw and closes and name == raw:
            raw = b""
        elif raw and within and closes and foreign:
            pieces += [body[at : found.start()], b"</", raw, b">"]
            at, raw = found.start(), b""
        if raw or not name:
            continue
        if foreign:
            depth = max(depth - 1, 0) if closes else depth + (found[3] != b"/")
        elif not closes and found[3] != b"/":
            raw, within = name, depth > 0
    return b"".join([*pieces, body[at:]])


def flatten(body: bytes) -> bytes:
    """Return the page without the elements that extraction does not read: nothing is nested then.

    Blocks leave a space; scripts, styles and comments are removed. A link is closed where the next
    begins. A tag with thousands of attributes loses them. A text that is too long is split.
    """

    def flat(match: re.Match[bytes]) -> bytes:
        if match[2] is None:
            return b" "
        name, attributes = match[2].lower(), match[3]
        if _is_bomb(attributes):
            attributes = b""
        if name in (b"a", b"/a"):
            return b"</a>" + (b"<a" + attributes + b">" if name == b"a" else b"")
        if name in _READ:
            return b"<" + name + attributes + b">"
        return b"" if name.removeprefix(b"/") in _INLINE else b" "

    return _parted(_MARKUP.sub(flat, body))


def _parted(body: bytes) -> bytes:
    """Split texts that are too long by a tag that shows nothing: after a space, or else between
    characters."""
    if len(body) <= _LONG_PAGE:
        return body
    pieces: list[bytes] = []
    at = 0
    ends = (found.start() for found in _TAG.finditer(body))
    for end in (*ends, len(body)):
        while end - at > _LONGEST_TEXT:
            most = at + _LONGEST_TEXT
            cut = body.rfind(b" ", most - _NEAR, most) + 1 or most
            cut -= next(
                (back for back in range(_LONGEST_SIGN) if body[cut - back] & 0xC0 != 0x80), 0
            )
            pieces += [body[at:cut], b"<b></b>"]
            at = cut
        pieces.append(body[at:end])
        at = end
    return b"".join(pieces)
