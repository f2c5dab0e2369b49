"""Pages that would exhaust the parser, reduced to what extraction reads.

libxml2 gives up at 256 open elements and drops what follows (unclosed ``<font>`` do that on honest
sites), and takes time quadratic in the attributes of one tag: a hundred thousand take minutes. Who
hides such a tag from the cheap look here meets the supervisor, which kills a process that stalls.
"""

from __future__ import annotations

import re

_BLOCK = 16_384
_MAX_ATTRIBUTES = 2000

# Linear: possessive, and a quote without partner is looked for in vain once only.
_MARKUP = re.compile(
    rb"<(?:(script|style)\b.*?(?:</\1\s*>|\Z)|!--.*?(?:-->|\Z)"
    rb"|(/?[a-z][^\s/>]*+)((?:[^>\"']++|\"[^\"]*+\"|'[^']*+'|[\"'])*+)>?)",
    re.DOTALL | re.IGNORECASE,
)
_TAG_NAME = re.compile(rb"<(?!script\b|style\b)[a-z]", re.IGNORECASE)
_ATTRIBUTE_START = re.compile(rb"(?<=[\s/\"'])[^\s/\"'>=]")
_QUOTED = re.compile(rb"\"[^\"]*+\"|'[^']*+'")
_READ = frozenset(
    b"html head title /title body base meta link area frame iframe /iframe img".split()
)
_INLINE = frozenset(b"b i u s em strong span font small big tt code sub sup q abbr cite".split())


def has_attribute_bomb(body: bytes) -> bool:
    """Whether one tag has thousands of attributes: looks only where 16 KiB hold no ">"."""
    start = 0
    while start + _BLOCK < len(body):
        if body.find(b">", start, start + _BLOCK) >= 0:
            start += _BLOCK
            continue
        opening = max(body.rfind(b"<", 0, start + 1), 0)
        closing = body.find(b">", start + _BLOCK)
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
    names = _QUOTED.sub(b"''", attributes)  # a drawing's path is one value with many numbers
    return len(_ATTRIBUTE_START.findall(names)) > _MAX_ATTRIBUTES


def hides_attribute_bomb(body: bytes) -> bool:
    """:func:`has_attribute_bomb` by a look at every tag: 70 ms a megabyte, and nothing escapes."""
    return any(
        len(found[3] or b"") > 2 * _MAX_ATTRIBUTES and _is_bomb(found[3])
        for found in _MARKUP.finditer(body)
    )


def flatten(body: bytes) -> bytes:
    """The page without the elements that extraction does not read: nothing nests any more.

    Blocks leave a space; scripts, styles and comments go; a link is closed where the next begins;
    a bomb loses its attributes.
    """

    def flat(match: re.Match[bytes]) -> bytes:
        if match[2] is None:
            return b" "
        name, attributes = match[2].lower(), match[3]
        if len(attributes) > 2 * _MAX_ATTRIBUTES and _is_bomb(attributes):
            attributes = b""
        if name in (b"a", b"/a"):
            return b"</a>" + (b"<a" + attributes + b">" if name == b"a" else b"")
        if name in _READ:
            return b"<" + name + attributes + b">"
        return b"" if name.removeprefix(b"/") in _INLINE else b" "

    return _MARKUP.sub(flat, body)
