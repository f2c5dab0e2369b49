"""The elements of a page that name its author and its date, found in one bounded walk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from lxml import etree

from greencrawl.worker.extract.text import text_of

LONGEST = 1000
"""At most this many characters of a value are kept."""
MOST_SEARCHED = 20_000
"""At most this many elements of a page are searched."""
MOST_TEXT = 400_000
"""At most this many characters of a page are read for values; each piece of text counts
:data:`PIECE` more."""
PIECE = 20

_MOST_FOUND = 20
_MOST_HOLDERS = 100
"""At most this many elements are checked for paragraphs."""
_NAMED = re.compile("author-name|author__name|byline-name")
_BYLINE = re.compile("byline|author")
_DATED = re.compile("publish|date|posted|byline|meta|time")


class Texts:
    """Reads texts of elements, together at most :data:`MOST_TEXT`: elements may be nested."""

    def __init__(self) -> None:
        self._left = MOST_TEXT

    def of(self, element: etree._Element) -> str:
        """Return the start of an element's text; "" once too much was read."""
        for text in element.itertext():
            self._left -= len(text) + PIECE
            if self._left < 0:
                return ""
        return text_of(element)[:LONGEST]


class _Found(NamedTuple):
    """Elements by their mark, each list in the order of the page."""

    author_names: list[etree._Element]
    authors: list[etree._Element]
    author_links: list[etree._Element]
    named: list[etree._Element]
    bylines: list[etree._Element]
    published: list[etree._Element]
    dated: list[etree._Element]


class Marked:
    """The elements of a page that are marked as its author's name or its date."""

    def __init__(self, root: etree._Element) -> None:
        self._root = root

    def bylines(self) -> Iterator[etree._Element]:
        """Yield elements that may name the author, the likeliest first."""
        found = self._found
        for some in (found.author_names, found.authors, found.author_links, found.named):
            yield from islice(some, _MOST_FOUND)
        yield from _without_paragraphs(found.bylines)

    def dated(self) -> Iterator[etree._Element]:
        """Yield elements that may name the date, the likeliest first."""
        yield from islice(self._found.published, _MOST_FOUND)
        yield from _without_paragraphs(self._found.dated)

    @cached_property
    def _found(self) -> _Found:
        found = _Found([], [], [], [], [], [], [])
        for element in islice(self._root.iter("*"), MOST_SEARCHED):
            said = dict(element.items())
            if said:
                _sort(found, element, said)
        return found


def _sort(found: _Found, element: etree._Element, said: dict[Any, Any]) -> None:
    prop = said.get("itemprop")
    if (
        prop == "name"
        and len(found.author_names) < _MOST_FOUND
        and any(one.get("itemprop") == "author" for one in element.iterancestors())
    ):
        found.author_names.append(element)
    if prop == "author" or said.get("rel") == "author":
        found.authors.append(element)
    if element.tag == "a" and ("/author/" in (href := said.get("href", "")) or "/authors/" in href):
        found.author_links.append(element)
    if prop == "datePublished" or said.get("property") == "datePublished":
        found.published.append(element)
    names = said.get("class")
    if names:
        if _NAMED.search(names):
            found.named.append(element)
        if _DATED.search(names):
            found.dated.append(element)
    if (names and _BYLINE.search(names)) or said.get("id") == "author":
        found.bylines.append(element)


def _without_paragraphs(some: list[etree._Element]) -> Iterator[etree._Element]:
    held = (one for one in some[:_MOST_HOLDERS] if one.find(".//p") is None)
    yield from islice(held, _MOST_FOUND)
