"""A JSON source: which answers are pages of its list, what they name, and the next page.

An answer of a provider is as hostile as any page: its size and depth, and what is taken from it,
are bounded. An expression of a crawl's author may still take any time. So a list is read where the
user's own functions are called: with the page named in the crash record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote_plus

from msgspec import Struct, field

from greencrawl.schema.errors import GreencrawlError, InvalidUrl
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records.auth import Source
from greencrawl.schema.text.encodings import decode
from greencrawl.schema.text.expressions import Expression
from greencrawl.worker.extract.charset import sniff

MAX_BYTES = 8 * 1024 * 1024
"""One page of a list may have this many bytes; decoded it can take twenty times as much memory."""
MAX_ITEMS = 10_000
"""At most this many URLs are taken from one page, as many as links of a page."""
_VALUES = 100_000
"""At most this many values are searched for URLs, lists included."""
_CURSOR = 2048
"""A cursor has at most this many characters."""
_END = ("", "0")
_OVER = object()


class ListingError(GreencrawlError):
    """Raised for a page of a list that cannot be read: not JSON, or not as the source says."""


class Listed(Struct):
    """The entries of a page: canonical URLs, each once, in order; and the next page, if any."""

    items: list[str] = field(default_factory=list)
    next: str = ""


class Listing:
    """A compiled source. Raises ValueError and InvalidUrl for an invalid one."""

    def __init__(self, source: Source) -> None:
        self._url = canonicalise(source.url)
        self._place, _, query = self._url.partition("?")
        self._cursor = source.cursor
        self._rest = self._without_cursor(query)
        self._items = Expression(source.items)
        self._next = Expression(source.next) if source.next else None

    def holds(self, url: str) -> bool:
        """Return whether the canonical ``url`` is a page of this list.

        With a cursor it is the source's URL with any value of the cursor; without one, any URL with
        the same origin and path.
        """
        place, _, query = url.partition("?")
        if place != self._place:
            return False
        return not self._cursor or self._without_cursor(query) == self._rest

    def read(
        self, body: bytes, url: str, content_type: str | None = None, *, truncated: bool = False
    ) -> Listed:
        """Return what the answer to ``url`` lists. Raises ListingError."""
        data = _decoded(body, content_type, truncated=truncated)
        try:
            found = self._items.of(data)
            further = None if self._next is None else self._next.of(data)
        except ValueError as error:
            raise ListingError(f"source {self._place}: {error}") from None
        return Listed(self._urls(found, url), self._next_page(further, url))

    def _urls(self, found: Any, base: str) -> list[str]:
        texts, other = _texts(found)
        if other and not texts:
            raise ListingError(f"source {self._place}: items gives {other}, and no URL")
        urls: dict[str, None] = {}
        for text in texts:
            try:
                urls[canonicalise(text, base)] = None
            except InvalidUrl:
                continue
            if len(urls) >= MAX_ITEMS:
                break
        return list(urls)

    def _next_page(self, value: Any, url: str) -> str:
        """Return the next page's URL, "" at the end of the list."""
        if value is None or value is False:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ListingError(f"source {self._place}: next gives {_kind(value)}, and no cursor")
        text = str(value)
        if text in _END:
            return ""
        if len(text) > (_CURSOR if self._cursor else 4 * _CURSOR):
            raise ListingError(f"source {self._place}: a cursor of {len(text)} characters")
        try:
            target = self._at(text) if self._cursor else canonicalise(text, url)
        except (InvalidUrl, UnicodeEncodeError) as error:  # half a character is not valid
            raise ListingError(f"source {self._place}: no next page: {error.reason}") from None
        if not self.holds(target):
            where = target.partition("?")[0]
            raise ListingError(f"source {self._place}: the next page is elsewhere, at {where}")
        return "" if target == url else target

    def _at(self, value: str) -> str:
        """Return the source's URL with the cursor set to ``value``, in its place or at the end."""
        ours = f"{quote(self._cursor, safe='')}={quote(value, safe='')}"
        query = self._url.partition("?")[2]
        parts = [ours if self._is_cursor(part) else part for part in query.split("&") if part]
        if ours not in parts:
            parts.append(ours)
        return canonicalise(f"{self._place}?{'&'.join(parts)}")

    def _without_cursor(self, query: str) -> tuple[str, ...]:
        return tuple(part for part in query.split("&") if part and not self._is_cursor(part))

    def _is_cursor(self, part: str) -> bool:
        return bool(self._cursor) and unquote_plus(part.partition("=")[0]) == self._cursor


def listing_of(listings: Iterable[Listing], url: str) -> Listing | None:
    """Return the first list that holds ``url``."""
    return next((listing for listing in listings if listing.holds(url)), None)


def _decoded(body: bytes, content_type: str | None, *, truncated: bool) -> Any:
    if truncated or len(body) > MAX_BYTES:
        raise ListingError("a page of a list that is too long to be read: ask for fewer items")
    try:
        return json.loads(body)
    except UnicodeDecodeError:
        encoding, skipped = sniff(body, content_type)
        text = decode(body[skipped:], encoding)  # a broken character is no reason to stop
    except RecursionError:
        raise ListingError("a page of a list that is nested too deep") from None
    except ValueError as error:
        raise ListingError(f"a page of a list that is not JSON: {str(error)[:100]}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ListingError(f"a page of a list that is not JSON: {str(error)[:100]}") from None


def _texts(found: Any) -> tuple[list[str], str]:
    """Return the texts in nested lists, in order, and the kind of the first other value."""
    texts: list[str] = []
    other = ""
    walks = [iter([found])]
    for _ in range(_VALUES):
        if not walks or len(texts) > MAX_ITEMS:
            break
        value = next(walks[-1], _OVER)
        if value is _OVER:
            walks.pop()
        elif isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            walks.append(iter(value))
        elif value is not None:
            other = other or _kind(value)
    return texts, other


def _kind(value: Any) -> str:
    """Return a JSON value's kind, for a message."""
    names = {dict: "objects", list: "a list", bool: "true or false", float: "a number"}
    return names.get(type(value), "numbers")
