"""Export of the records that a crawl's hook found on pages: one in each line or row.

A record has the members that the hook yielded. Two members of its page come before them: ``_url``
and ``_fetched``. If the hook's record has these names itself, its own values count.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from greencrawl.schema import wire
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import Final, PageFilter, StoredPage
from greencrawl.store.base import Detail, Store
from greencrawl.store.export.objects import defused, iso8601

MOST_COLUMNS = 500
"""A crawl's records may have this many member names if they are exported as a table."""


class TooManyColumns(GreencrawlError):
    """Raised if records have too many members for a table."""

    def __init__(self) -> None:
        super().__init__(
            f"the records have more than {MOST_COLUMNS} names: no table; use --format jsonl"
        )


def items_of(page: StoredPage) -> list[dict[str, Any]]:
    """Return the records of a page, with the two members of the page."""
    if not page.items:
        return []
    about = {"_url": page.url, "_fetched": iso8601(page.fetched_ms)}
    return [about | one for one in wire.from_json(page.items, list[dict[str, Any]])]


def columns_of(store: Store, crawl: int, pages: PageFilter) -> tuple[str, ...]:
    """Return the names of all members of a crawl's records, in the order in which they are met.

    This reads all ``pages``. Raises TooManyColumns, Unavailable.
    """
    names: dict[str, None] = {}
    for _, page in store.pages(crawl, pages, detail="items"):
        for item in items_of(page):
            names.update(dict.fromkeys(item))
        if len(names) > MOST_COLUMNS:
            raise TooManyColumns
    return tuple(names)


class _Items:
    """The parts that both formats share."""

    detail: Detail = "items"
    finals = False

    def lacks_body(self, page: StoredPage) -> bool:
        """Return False: records are stored apart from bodies."""
        return False

    def final(self, final: Final) -> bytes:
        """Return nothing: without a page there are no records."""
        return b""


class ItemsJsonl(_Items):
    """One JSON object a line."""

    def begin(self) -> bytes:
        """Return nothing: the format has no head."""
        return b""

    def page(self, page: StoredPage) -> bytes:
        """Return a line for each record."""
        return b"".join(wire.to_json(item) + b"\n" for item in items_of(page))


class ItemsCsv(_Items):
    """RFC 4180 in UTF-8, as :class:`greencrawl.store.export.formats.Csv` writes it.

    A text is written as it is, any other value as JSON. Null, or a missing member, is an empty
    cell.
    """

    def __init__(self, columns: Sequence[str], *, raw: bool = False) -> None:
        self._columns = columns
        self._raw = raw

    def begin(self) -> bytes:
        """Return the line of names."""
        return self._rows([[self._cell(name) for name in self._columns]])

    def page(self, page: StoredPage) -> bytes:
        """Return a row for each record."""
        return self._rows(
            [[self._cell(item.get(name)) for name in self._columns] for item in items_of(page)]
        )

    def _rows(self, rows: Sequence[Sequence[object]]) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerows(rows)
        return text.getvalue().encode()

    def _cell(self, value: Any) -> object:
        if value is None:
            return ""
        if not isinstance(value, str):  # a number below zero is no formula
            return wire.to_json(value).decode()
        return value if self._raw else defused(value)
