"""Columns of what a page says of itself: its canonical URL, directives on its use, validators."""

from __future__ import annotations

from greencrawl.schema import wire
from greencrawl.schema.records import Directives, StoredPage, Validators


def canonical_column(page: StoredPage) -> str | None:
    """None where a page names no canonical URL, "" where it names its own."""
    if not page.canonical:
        return None
    return "" if page.canonical == page.url else _valid(page.canonical)


def canonical_of(column: str | None, url: str) -> str:
    """What :func:`canonical_column` made a column of."""
    return "" if column is None else column or url


def directives_column(said: Directives | None) -> str | None:
    """Their JSON, None where there are none."""
    return None if said is None else wire.to_json(said).decode()


def directives_of(column: str | None) -> Directives | None:
    """What :func:`directives_column` made a column of."""
    return None if column is None else wire.from_json(column, Directives)


def validators_of(headers: str | bytes) -> Validators:
    """What a column of headers has of them."""
    found = wire.from_json(headers, dict[str, str])
    return Validators(found.get("etag", ""), found.get("last-modified", ""))


def _valid(text: str) -> str:
    """Valid Unicode: a lone surrogate, which no URL has, is a question mark."""
    return text.encode(errors="replace").decode()
