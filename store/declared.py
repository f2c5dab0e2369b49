"""Columns for what a page says about itself: its canonical URL, its directives, its validators."""

from __future__ import annotations

from greencrawl.schema import wire
from greencrawl.schema.records import Directives, StoredPage, Validators


def canonical_column(page: StoredPage) -> str | None:
    """Return the column of a canonical URL: None if there is none, "" if it is the page's own
    URL."""
    if not page.canonical:
        return None
    return "" if page.canonical == page.url else _valid(page.canonical)


def canonical_of(column: str | None, url: str) -> str:
    """Return the canonical URL that :func:`canonical_column` wrote; "" if there is none."""
    return "" if column is None else column or url


def directives_column(said: Directives | None) -> str | None:
    """Return directives as JSON, None if there are none."""
    return None if said is None else wire.to_json(said).decode()


def directives_of(column: str | None) -> Directives | None:
    """Return the directives that :func:`directives_column` wrote, None if there are none."""
    return None if column is None else wire.from_json(column, Directives)


def validators_of(headers: str | bytes) -> Validators:
    """Read the validators from a column of headers."""
    found = wire.from_json(headers, dict[str, str])
    return Validators(found.get("etag", ""), found.get("last-modified", ""))


def _valid(text: str) -> str:
    """Return valid Unicode: a lone surrogate, which no URL has, becomes a question mark."""
    return text.encode(errors="replace").decode()
