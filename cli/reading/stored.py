"""Main text of pages that are stored, read from their bodies."""

from __future__ import annotations

from typing import Protocol

import click
from msgspec import structs

from greencrawl.broker.api.messages import PageReply
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import Final, StoredPage
from greencrawl.store.base import Detail
from greencrawl.store.export.formats import Format
from greencrawl.worker.extract import is_html
from greencrawl.worker.extract.main import available
from greencrawl.worker.extract.main.library import extract

TEXTS = ("full", "main", "markdown")
"""What ``--text`` of an export may say; the first is the default."""


class Source(Protocol):
    """Where pages are."""

    def get(self, page_id: str) -> PageReply:
        """What is known of a page."""
        ...

    def text(self, page_id: str) -> str:
        """All of its text."""
        ...

    def body(self, page_id: str) -> bytes:
        """Its body."""
        ...


def main_text(source: Source, page_id: str, markdown: bool) -> str:
    """Main text of a page; all of its text, which is said on the standard error, where there is no
    main text: nothing was compiled, its body is none of HTML, or nothing on it is main text."""
    known = source.get(page_id)
    url = known.target or known.url
    page = extract(source.body(page_id), url, known.headers.get("content-type"))
    if found := page.markdown if markdown else page.main:
        return found
    if all_of_it := source.text(page_id):
        why = "" if page.has_main else " without the part in C"
        click.echo(f"there is no main text{why}: this is all of its text", err=True)
    return all_of_it


class MainText:
    """A format whose pages have main text in place of all text: of HTML, other text stays."""

    detail: Detail = "body"

    def __init__(self, format_: Format, markdown: bool) -> None:
        self._format, self._markdown = format_, markdown
        self.finals = format_.finals

    def begin(self) -> bytes:
        """As the format has it."""
        return self._format.begin()

    def page(self, page: StoredPage) -> bytes:
        """A page's record; its text is "" where nothing on it is main text, or its body is away."""
        kind = page.headers.get("content-type")
        if not page.body:
            return self._format.page(structs.replace(page, text=""))
        if not is_html(kind, page.body[:1024]):
            return self._format.page(page)
        found = extract(page.body, page.final_url or page.url, kind)
        text = found.markdown if self._markdown else found.main
        return self._format.page(structs.replace(page, text=text))

    def final(self, final: Final) -> bytes:
        """As the format has it."""
        return self._format.final(final)


def with_text(format_: Format, what: str) -> Format:
    """A format that writes the text that is wanted, one of :data:`TEXTS`. Raises GreencrawlError
    for main text where nothing was compiled."""
    if what == TEXTS[0]:
        return format_
    if not available():
        raise GreencrawlError(
            "--text main needs the part in C: python -m greencrawl.worker.extract.compile"
        )
    return MainText(format_, what == "markdown")
