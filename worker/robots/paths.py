"""Paths of URLs and of rules in the one spelling that they are compared in (RFC 9309, 2.2.2)."""

from __future__ import annotations

import re

ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_OCTETS = re.compile(rb"%[0-9A-Fa-f]{2}|[^\x21-\x7e]|[*$]")
# A URL whose path and query, if it is ASCII, are normal as they stand, as nearly all are.
_NORMAL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*(/[^#%*$]*)")
# A rule's path that is.
_PLAIN = re.compile(rb"[/*][!-#&-~]*\$?")
_STARS = re.compile(rb"\*+")
_NO_URL = 100_000
"""A rule's path of more octets matches no URL of up to 24,576: four of them, ``*%41``, stand for at
least one of the URL. A canonical URL has 8,192 at most, each three of them where it is encoded."""


def _normalise(path: bytes, *, pattern: bool) -> str:
    """Give two spellings of one path one form, RFC 9309 section 2.2.2, one unit after the other.

    Octets that are printable ASCII stand for themselves, all others are percent-encoded; ``%``,
    ``#``, ``*``, ``$``, and in the path ``/`` and ``?``, stay as they were written, since encoded
    they mean something else. In a pattern a bare ``*`` and a final ``$`` keep their power.
    """
    query = path.find(b"?")
    query = len(path) if query < 0 else query

    def unit(match: re.Match[bytes]) -> bytes:
        text = match[0]
        if text in (b"*", b"$"):
            special = pattern and (text == b"*" or match.end() == len(path))
            return text if special else b"%%%02X" % text[0]
        if len(text) == 1:
            return b"%%%02X" % text[0]
        octet = int(text[1:], 16)
        kept = b"%#*$" if match.start() > query else b"%#*$/?"
        return bytes((octet,)) if 0x21 <= octet <= 0x7E and octet not in kept else text.upper()

    return _OCTETS.sub(unit, path).decode("ascii")


def target_of(url: str) -> str:
    """Path and query of a URL, normalised for comparison."""
    normal = _NORMAL.fullmatch(url)
    if normal and url.isascii():
        return normal[1]
    raw = url.encode("utf-8", "replace").partition(b"#")[0]
    absolute = ABSOLUTE.match(raw)
    if absolute:
        raw = raw[absolute.end() :]
    if not raw.startswith(b"/"):
        raw = b"/" + raw
    if b"%" not in raw and b"*" not in raw and b"$" not in raw and url.isascii():
        return raw.decode("ascii")
    return _normalise(raw, pattern=False)


def pattern_of(value: bytes) -> str | None:
    """The path of a rule, normalised for comparison; no two of its ``*`` follow each other.

    None if it is too long to match any URL.
    """
    if b"**" in value:
        value = _STARS.sub(b"*", value)
    if len(value) > _NO_URL:
        return None
    if _PLAIN.fullmatch(value):
        return value.decode("ascii")
    absolute = ABSOLUTE.match(value)
    if absolute:
        value = value[absolute.end() :]
    if not value.startswith((b"/", b"*")):
        value = b"/" + value
    return _normalise(value, pattern=True)
