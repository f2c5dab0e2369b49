"""Names of people and of pages, without the text around them."""

from __future__ import annotations

import re
from collections.abc import Collection

_JOINTS = re.compile(r"\s+[|–—·•»:-]+\s+|\s*[|»]\s*|\s*::\s*")
_SIGNS = re.compile(r"[\W_]+")
_BY = re.compile(
    r"^(?:(?:written|posted|published|created|words|story|text|reviewed|edited|by|von|par|por|di|"
    r"author|autor|autorin|auteur|autore|door|av|fra|the author)\b[\s:]*)+",
    re.IGNORECASE,
)
_BEHIND = re.compile(
    r"\s*(?:[|•·–—©*]|,?\s+(?:on|am|le|el|il|published|updated|posted|last)\b|\s-\s"
    r"|\d{1,2}[./ ]|\d{4}|\().*$",
    re.IGNORECASE | re.DOTALL,
)
_DAY = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s*\d*$", re.IGNORECASE
)
LONGEST_AUTHOR = 100
MOST_WORDS = 12
_NOBODY = {
    "admin", "author", "authors", "administrator", "editor", "guest", "user", "anonymous", "about",
    "undefined", "null", "name", "staff", "the", "this",
}  # fmt: skip


def fold(text: str) -> str:
    """Return lower-case letters and digits, parts joined by one space."""
    return _SIGNS.sub(" ", text.lower()).strip()


def parts_of(title: str) -> list[str]:
    """Split a title at characters that join its parts."""
    return [part.strip() for part in _JOINTS.split(title) if part.strip()]


def longest_part(title: str, sites: Collection[str] = ()) -> str:
    """Return a title without the name of its site, one of ``sites`` (folded).

    It is the longest of the parts that signs join, or the whole title if that would leave less than
    a third.
    """
    parts = parts_of(title)
    parts = [part for part in parts if fold(part) not in sites] or parts
    if len(parts) < 2:
        return parts[0] if parts else title.strip()
    longest = max(parts, key=len)
    return longest if 3 * len(longest) >= len(title) else title.strip()


def author_of(said: str) -> str:
    """Return the name in a byline, "" if it is no name: an address, a text, a placeholder."""
    name = _BY.sub("", said.strip())
    name = _BEHIND.sub("", name).strip(" ,;:.-–—|")
    if not name or len(name) > LONGEST_AUTHOR or len(name.split()) > MOST_WORDS:
        return ""
    if "://" in name or "@" in name or "www." in name or fold(name) in _NOBODY:
        return ""
    if _DAY.match(name):
        return ""
    return name
