"""Pages that would exhaust the parser, reduced to what extraction reads.

libxml2 gives up at 256 open elements and drops what follows (unclosed ``<font>`` do that on honest
sites), and takes time quadratic in the attributes of one tag: 16,000 take a quarter of a second.
All else is linear. The cheap look here finds a tag that hides nothing. Where ``>`` in values hides
it, the parser itself is stopped (``pool.c``); where nothing was compiled, values are looked at.
"""

from __future__ import annotations

import re

from greencrawl.schema.errors import GreencrawlError

_BLOCK = 16_384
_SHORT_BLOCK = 4096
_MAX_ATTRIBUTES = 2000
_SURE_BYTES = 16_384
_LONG_BYTES = 1024 * 1024
_MANY_TAGS = 50_000
"""An element takes 1 to 3 µs."""

# As the HTML standard has it: a quote begins a value only behind "=". All is linear: possessive,
# and what has no end goes on to the end of the page.
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
_INLINE = frozenset(b"b i u s em strong span font small big tt code sub sup q abbr cite".split())


def has_attribute_bomb(body: bytes, block: int = _BLOCK) -> bool:
    """Whether one tag has thousands of attributes: looks only where ``block`` bytes hold no ">"."""
    start = 0
    while start + block < len(body):
        if body.find(b">", start, start + block) >= 0:
            start += block
            continue
        opening = max(body.rfind(b"<", 0, start + 1), 0)
        closing = body.find(b">", start + block)
        closing = closing if closing >= 0 else len(body)
        if (
            body.find(b">", opening, start) < 0  # else it is a long text
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
    """:func:`has_attribute_bomb`, and a look at every tag of a page with a ">" within a value."""
    return has_attribute_bomb(body, _SHORT_BLOCK) or (
        _END_IN_VALUE.search(body) is not None
        and any(_is_bomb(found[3] or b"") for found in _MARKUP.finditer(body))
    )


def is_doubtful(body: bytes) -> bool:
    """Whether a page may take long where nothing ends its parse: it is large, has very many tags,
    or one of thousands of attributes."""
    if len(body) <= _SURE_BYTES:
        return False
    return (
        len(body) > _LONG_BYTES
        or body.count(b"<") > _MANY_TAGS
        or has_attribute_bomb(body, _SHORT_BLOCK)
    )


class TooDear(GreencrawlError):
    """Raised where reading a page would hold up others: it is for a process of its own.

    ``spent`` seconds of CPU went into it.
    """

    def __init__(self, spent: float) -> None:
        super().__init__("not read to its end")
        self.spent = spent


def flatten(body: bytes) -> bytes:
    """The page without the elements that extraction does not read: nothing nests any more.

    Blocks leave a space; scripts, styles and comments go; a link is closed where the next begins;
    a bomb loses its attributes.
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

    return _MARKUP.sub(flat, body)
