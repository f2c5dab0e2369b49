"""Paths of URLs and of rules in the spelling in which they are compared (RFC 9309, 2.2.2)."""

from __future__ import annotations

import re

ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
# Octets that are written differently: those that URLs have encoded only, "*" and "$" in a URL, and
# encoded octets that are unreserved or in lower case.
_ODD = re.compile(
    rb"[^!#-;=?-Z\[\]_a-z~]|[*$]"
    rb"|%(?:[46][1-9A-Fa-f]|[57][0-9Aa]|3[0-9]|2[DdEe]|5[Ff]|7[Ee]|[0-9A-Fa-f][a-f]|[a-f][0-9A-F])"
)
# A URL whose path and query are normal if they are ASCII, as nearly all are.
_NORMAL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*(/[!&-)+-;=?-Z\[\]_a-z~]*)")
# A rule's path that is normal.
_PLAIN = re.compile(rb"[/*][!&-;=?-Z\[\]_a-z~]*\$?")
_STARS = re.compile(rb"\*+")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_NO_URL = 100_000
"""A rule's path of more octets matches no URL, because URLs have at most 24,576.

Four octets of a rule, such as ``*%41``, match at least one octet of the URL. A canonical URL has at
most 8,192 characters, each up to three octets when encoded.
"""


_HEX = b"0123456789abcdefABCDEF"
_URL = {
    **{bytes((octet,)): b"%%%02X" % octet for octet in range(256)},
    **{
        encoded: bytes((octet,)) if octet in _UNRESERVED else encoded.upper()
        for encoded in (b"%%%c%c" % (high, low) for high in _HEX for low in _HEX)
        for octet in (int(encoded[1:], 16),)
    },
}
"""How unusual octets in a URL are written."""
_PATTERN = {**_URL, b"*": b"*"}
"""How unusual octets are written in a rule, where a bare ``*`` keeps its meaning."""


def _spelt(path: bytes, odd: dict[bytes, bytes]) -> str:
    """Return a path in the one form that all its spellings have (RFC 3986, section 6.2.2).

    Unreserved octets stand for themselves, and octets that no URL may have are percent-encoded. All
    other octets stay as they were written, because their encoding means something else: ``%2B`` is
    not ``+``. Only ``*`` and ``$`` equal their encodings, except a bare ``*`` and a final ``$`` of
    a rule (RFC 9309 section 2.2.3).
    """
    return _ODD.sub(lambda found: odd[found[0]], path).decode("ascii")


def target_of(url: str) -> str:
    """Return path and query of a URL, normalised for comparison."""
    normal = _NORMAL.fullmatch(url)
    if normal:
        return normal[1]
    raw = url.encode("utf-8", "surrogatepass").partition(b"#")[0]
    absolute = ABSOLUTE.match(raw)
    if absolute:
        raw = raw[absolute.end() :]
    if not raw.startswith(b"/"):
        raw = b"/" + raw
    return _spelt(raw, _URL)


def pattern_of(value: bytes) -> str | None:
    """Return the path of a rule, normalised for comparison, without two ``*`` in a row.

    None if the path is too long to match any URL, or names a host without a path.
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
        if not value.strip(b"/*$"):
            return None
    if not value.startswith((b"/", b"*")):
        value = b"/" + value
    ends = value.endswith(b"$")
    return _spelt(value[:-1] if ends else value, _PATTERN) + "$" * ends
