"""Pages that would exhaust the parser, reduced to what extraction reads.

libxml2 gives up at 256 open elements and drops what follows (unclosed ``<font>`` do that on honest
sites), and takes time quadratic in the attributes of one tag: a hundred thousand take minutes.
"""

from __future__ import annotations

import re

_BLOCK = 8192
_MAX_ATTRIBUTES = 2000
_ALWAYS_CHECKED_BYTES = 256 * 1024

# Linear: possessive, and a quote without partner is looked for in vain once only.
_MARKUP = re.compile(
    rb"<(?:(script|style)\b.*?(?:</\1\s*>|\Z)|!--.*?(?:-->|\Z)"
    rb"|(/?[a-z][^\s/>]*+)((?:[^>\"']++|\"[^\"]*+\"|'[^']*+'|[\"'])*+)>?)",
    re.DOTALL | re.IGNORECASE,
)
_ATTRIBUTE_START = re.compile(rb"(?<=[\s/\"'])[^\s/\"'>=]")
_READ = frozenset(
    b"html head title /title body base meta link area frame iframe /iframe img".split()
)
_INLINE = frozenset(b"b i u s em strong span font small big tt code sub sup q abbr cite".split())


def has_attribute_bomb(body: bytes) -> bool:
    """Whether one tag has thousands of attributes.

    Small pages are looked at closely only if 8 KiB in a row are free of "<" or of ">", which any
    other tag that large would have to hide by quoting both; that takes more bytes than it has.
    """
    if len(body) < _ALWAYS_CHECKED_BYTES and all(
        body.find(b">", start, start + _BLOCK) >= 0 and body.find(b"<", start, start + _BLOCK) >= 0
        for start in range(0, len(body) - _BLOCK, _BLOCK)
    ):
        return False
    return any(
        match[3] is not None and len(match[3]) > 2 * _MAX_ATTRIBUTES and _is_bomb(match[3])
        for match in _MARKUP.finditer(body)
    )


def _is_bomb(attributes: bytes) -> bool:
    return len(_ATTRIBUTE_START.findall(attributes)) > _MAX_ATTRIBUTES


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
