"""Calls the user's functions for pages, with the tree that the page was read from."""

from __future__ import annotations

from typing import Any, NamedTuple

from greencrawl.schema.records import Fetched, Link, Page
from greencrawl.worker.hooks import HookError, Hooks


class HookResults(NamedTuple):
    """The results of the functions for a page.

    Own fields; records as JSON (an array, b"" for none); links to follow. ``problems``: by
    function, what it raised.
    """

    fields: dict[str, Any] | None
    items: bytes
    links: list[Link]
    problems: dict[str, str]


def call_hooks(
    hooks: Hooks, page: Page, root: Any, fetched: Fetched, *, content: bool
) -> HookResults:
    """Call ``on_page``, ``items`` and ``links``.

    ``root`` is the root of the page's tree, None if it has none; ``content``: whether the page's
    content may be kept; otherwise only ``links`` is called.
    """
    from greencrawl.worker.extract.main.library import readable  # only for crawls with a hook

    fields, items, links, problems = None, b"", page.links, dict[str, str]()
    with readable(page, root) as seen:
        try:
            fields = hooks.page_fields(seen, fetched) if content else None
        except HookError as error:
            problems[error.function] = error.what
        try:
            items = hooks.page_items(seen) if content else b""
        except HookError as error:
            problems[error.function] = error.what
        try:
            links = hooks.chosen_links(seen)
        except HookError as error:
            problems[error.function] = error.what
    return HookResults(fields, items, links, problems)
