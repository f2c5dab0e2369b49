"""Main text of a page that is stored, read from its body."""

from __future__ import annotations

from typing import Protocol

import click

from greencrawl.broker.api.messages import PageReply
from greencrawl.worker.extract.main.library import extract


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
