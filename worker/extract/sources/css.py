"""The files that a style sheet needs: ``url()``, ``@import``, ``image-set()``.

This follows https://www.w3.org/TR/css-syntax-3/ as far as needed: comments and strings hold no
URLs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import NamedTuple

from greencrawl.schema.text.encodings import decode, standard_name
from greencrawl.worker.extract.charset import declared

MOST_BYTES = 1024 * 1024
"""At most this many bytes of a style sheet are read."""
MOST_TOKENS = 100_000
"""At most this many comments, strings and URLs of a style sheet are read."""

_QUOTED = r"\"(?>(?:[^\"\\\n]++|\\.)*)\"?|'(?>(?:[^'\\\n]++|\\.)*)'?"
_UNQUOTED = r"(?>(?:[^\"'()\s\\]++|\\[0-9a-f]{1,6}+\s?|\\.)+)"
_URL = rf"(?<![\w-])url\(\s*+({_QUOTED}|{_UNQUOTED})"
_PARENTHESES = rf"\((?>(?:[^()\"']++|{_QUOTED})*)\)"
_COMMENT = r"/\*.*?(?:\*/|\Z)"
_TOKEN = (
    rf"{_COMMENT}|{_URL}|@import(?>(?:\s++|{_COMMENT})*)(?:({_QUOTED})|{_URL})"
    rf"|@namespace(?>(?:\s++|{_COMMENT}|(?!url\()[\w-]++)*)"
    rf"(?:url\(\s*+(?:{_QUOTED}|{_UNQUOTED})|{_QUOTED})"
    rf"|image-set\(((?>(?:[^()\"']++|{_QUOTED}|{_PARENTHESES})*))|(?:{_QUOTED})"
)
_OF_A_SET = re.compile(rf"type\([^)]*+\)|{_URL}|({_QUOTED})", re.IGNORECASE | re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{1,6})[\t\n\f\r ]?|(\n)|(.))", re.DOTALL)
_CHARSET = re.compile(rb"@charset \"([^\"]{1,40})\";")


@cache
def _token() -> re.Pattern[str]:
    """Compile the pattern at its first use: it takes 20 ms, and few processes read style sheets."""
    return re.compile(_TOKEN, re.IGNORECASE | re.DOTALL)


class Need(NamedTuple):
    """A reference of a style sheet, and whether it imports a style sheet."""

    reference: str
    imported: bool


def urls_in(sheet: str) -> Iterator[str]:
    """Yield the references of a style sheet, or of an attribute ``style``, in order."""
    return (need.reference for need in needs_in(sheet))


def needs_in(sheet: str) -> Iterator[Need]:
    """Yield the references of a style sheet with their kinds."""
    for found in islice(_token().finditer(sheet), MOST_TOKENS):
        url, quoted, unquoted, images = found.groups()
        imported = quoted or unquoted
        if url is not None or imported is not None:
            yield Need(_plain(url or imported), imported is not None)
        elif images is not None:
            for one in _OF_A_SET.finditer(images):
                if (text := one[1] or one[2]) is not None:
                    yield Need(_plain(text), False)


def needs_of(body: bytes, content_type: str | None) -> Iterator[Need]:
    """Yield the references of a style sheet as it was sent, as far as it is read.

    Its encoding is given by a byte order mark, the header or ``@charset``, in this order; otherwise
    it is UTF-8.
    """
    name, skipped = declared(body, content_type)
    if name is None and (said := _CHARSET.match(body)) is not None:
        name = standard_name(said[1].decode("ascii", "replace"))
    return needs_in(decode(body[skipped : skipped + MOST_BYTES], name or "utf-8"))


def _plain(text: str) -> str:
    """Return a URL without its quotes and escapes."""
    if text[0] in "\"'":
        text = text[1:].removesuffix(text[0])
    return _ESCAPE.sub(_character, text).strip() if "\\" in text else text.strip()


def _character(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return escape[3] or ""  # an escaped line break joins two lines
    number = int(escape[1], 16)
    return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
