"""Main text of stored pages: as it was found at the fetch, or from their bodies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import click
from msgspec import structs

from greencrawl.broker.api.messages import PageReply
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import Final, StoredPage
from greencrawl.store.base import Detail, Store
from greencrawl.store.bodies import has_body
from greencrawl.store.export.formats import Format
from greencrawl.store.export.resumable import with_body
from greencrawl.worker.extract import is_html, is_plain
from greencrawl.worker.extract.main import NO_MAIN_TEXT, available
from greencrawl.worker.extract.main.library import extract

TEXTS = ("full", "main", "markdown")
"""The values of ``--text`` of an export; the first is the default."""


class Source(Protocol):
    """A source of pages."""

    def get(self, page_id: str) -> PageReply:
        """Return what is known of a page."""
        ...

    def text(self, page_id: str) -> str:
        """Return the page's whole text."""
        ...

    def body(self, page_id: str) -> bytes:
        """Return the page's body."""
        ...


def main_text(source: Source, page_id: str, markdown: bool) -> str:
    """Return the main text of a page, as it was found at the fetch, or from its body.

    If there is no main text, this is its whole text, and standard error says why: nothing was
    compiled, its body is neither HTML nor plain text, or nothing on it is main text.
    """
    known = source.get(page_id)
    found, why = None if markdown else known.main, ""
    if found is None:
        url = known.target or known.url
        page = extract(source.body(page_id), url, known.headers.get("content-type"))
        found = page.markdown if markdown else page.main
        why = "" if page.has_main else " without the part in C"
    if not found and (found := source.text(page_id)):
        click.echo(f"there is no main text{why}: this is all of its text", err=True)
    return found


class MainText:
    """A format that writes main text in place of the whole text.

    The text of other types stays. The main text is the one found at the fetch, if there is one;
    other pages get their body from ``with_body``.
    """

    def __init__(
        self, format_: Format, markdown: bool, with_body: Callable[[StoredPage], StoredPage]
    ) -> None:
        self._format, self._markdown, self._with_body = format_, markdown, with_body
        self.detail: Detail = "body" if markdown else format_.detail
        self.finals = format_.finals

    def begin(self) -> bytes:
        """Return the format's own head."""
        return self._format.begin()

    def page(self, page: StoredPage) -> bytes:
        """Return a page's record; its text is "" if nothing on it is main text, or its body is
        away."""
        told = self._told(page)
        if told is None:
            if not page.body and page.body_bytes:
                page.body = self._with_body(page).body
            told = self._read(page)
        return self._format.page(structs.replace(page, text=told))

    def lacks_body(self, page: StoredPage) -> bool:
        """Return whether the page lacks a body that is needed: by the format, or to find its main
        text."""
        return self._format.lacks_body(page) or (self._told(page) is None and not has_body(page))

    def final(self, final: Final) -> bytes:
        """Return the format's own record."""
        return self._format.final(final)

    def _told(self, page: StoredPage) -> str | None:
        return None if self._markdown else page.main

    def _read(self, page: StoredPage) -> str:
        kind = page.headers.get("content-type")
        if not page.body:
            return ""
        url, head = page.final_url or page.url, page.body[:1024]
        if not (is_html(kind, head) or is_plain(kind, url, head)):
            return page.text
        found = extract(page.body, url, kind)
        return found.markdown if self._markdown else found.main


def with_text(format_: Format, what: str, store: Store) -> Format:
    """Return a format that writes the wanted text, one of :data:`TEXTS`, of pages of ``store``.

    Raises GreencrawlError for main text if nothing was compiled.
    """
    if what == TEXTS[0]:
        return format_
    if not available():
        raise GreencrawlError(f"--text {what} is not written: {NO_MAIN_TEXT}")
    return MainText(format_, what == "markdown", partial(with_body, store))
