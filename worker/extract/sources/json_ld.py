"""URLs in blocks of JSON-LD."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

MOST_CHARACTERS = 1024 * 1024
"""At most this many characters of all blocks of a page are read."""
_NAMES = frozenset(
    {"@id", "url", "sameAs", "item", "mainEntityOfPage", "relatedLink", "significantLink"}
)
"""Properties of schema.org and JSON-LD whose value is the URL of a page."""
_BEGIN = ("https://", "http://", "/")


def urls_in(blocks: Iterable[str]) -> Iterator[str]:
    """Yield the URLs of pages in ``blocks``; invalid JSON has none."""
    left = MOST_CHARACTERS
    for block in blocks:
        left -= len(block)
        if left < 0:
            return
        try:
            value = msgspec.json.decode(block)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            continue
        yield from _of(value)


def _of(value: Any) -> Iterator[str]:
    """Yield URLs in their order, without recursion: blocks may be nested deeply."""
    open_: list[tuple[str, Any]] = [("", value)]
    while open_:
        name, one = open_.pop()
        if isinstance(one, dict):
            open_.extend(reversed(one.items()))
        elif isinstance(one, list):
            open_.extend((name, item) for item in reversed(one))
        elif isinstance(one, str) and name in _NAMES and one.startswith(_BEGIN):
            yield one
