"""JSON-LD of a page: the content of its scripts of that type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from lxml import etree

MOST_JSON = 1024 * 1024
"""At most this many characters of a page's JSON-LD are read."""
MOST_OBJECTS = 10_000
"""At most this many objects of a page are read, nested ones too."""


def blocks(root: etree._Element) -> Iterator[Any]:
    """Yield the value of each script in order; invalid JSON is skipped."""
    left = MOST_JSON
    for script in root.iter("script"):
        if "ld+json" not in (script.get("type") or "") or not script.text:
            continue
        left -= len(script.text)
        if left < 0:
            return
        try:
            yield msgspec.json.decode(script.text.strip().encode())
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            continue


def outer(values: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the objects that are not nested: the values themselves, and the objects of a list one
    by one."""
    each = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [one for one in each if isinstance(one, dict)]


def comments(values: Iterable[Any]) -> str:
    """Return the texts of all comments, with an empty line between two; "" if the page is a
    forum's."""
    each = list(objects(values))
    types = [types_of(one) for one in each]
    if any(kind in said for said in types for kind in _FORUMS):
        return ""
    texts = [one.get("text") for one, said in zip(each, types, strict=True) if "Comment" in said]
    return "\n\n".join(text.strip() for text in texts if isinstance(text, str) and text.strip())


def types_of(one: dict[str, Any]) -> str:
    """Return the names of an object's types in one text; values that are no text are left out."""
    said = one.get("@type")
    some = said[:_MOST_TYPES] if isinstance(said, list) else [said]
    return " ".join(name[:_TYPE_CHARS] for name in some if isinstance(name, str))


_MOST_TYPES, _TYPE_CHARS = 10, 100
_FORUMS = ("DiscussionForum", "QAPage", "Question")


def objects(values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield all objects; the outer ones of each value first."""
    count = 0
    for value in values:
        waiting = [value]
        for one in waiting:  # the list grows meanwhile
            count += 1
            if count > MOST_OBJECTS:
                return
            if isinstance(one, dict):
                yield one
                waiting.extend(inner for inner in one.values() if isinstance(inner, dict | list))
            elif isinstance(one, list):
                waiting.extend(inner for inner in one if isinstance(inner, dict | list))
