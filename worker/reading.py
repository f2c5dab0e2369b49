"""Reading an answer: extraction, then the user's hooks, then the link checker; or a JSON source's
list, of which only the link checker is asked.

No I/O and no shared state but that of the user's own module, so that the same function runs in a
worker's process and in that where a suspect's page is read alone
(``greencrawl.worker.process.quarantine``).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from greencrawl.schema.records import Admission, Fetched, Link, Page, Task
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.extract import add_links, outline
from greencrawl.worker.extract.links import Resolved
from greencrawl.worker.extract.listing import Listing, ListingError
from greencrawl.worker.hooks import HookError


class Reading(Struct, kw_only=True):
    """What a page says. ``problems`` are errors of the user's functions, by function.

    ``failure`` says why a page of a list cannot be read: what it would have led to is not known.
    """

    title: str = ""
    text: str = ""
    language: str = ""
    encoding: str = ""
    fields: dict[str, Any] | None = None
    links: list[Admission] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    failure: str = ""


def read(context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
    """Read the HTML that came as ``fetched`` for ``task``; an error in a hook is a problem.

    What came for a page of a source's list is read as that says, whatever type it names.
    """
    listing = context.listing(task.url)
    if listing is not None:
        return _list(context, task, fetched, listing)
    page, found = outline(
        fetched.body,
        task.url,
        fetched.content_type,
        agent=context.agent,
        robots_tag=fetched.headers.get("x-robots-tag", ""),
        anchors=context.hooks.wanted,
    )
    reading = Reading(
        title=page.title, text=page.text, language=page.language, encoding=page.encoding
    )
    checker, hooks = context.checker, context.hooks
    if isinstance(found, Resolved):
        reading.links = checker.follow(page, found.urls, found.rels, task.depth)
        return reading
    # Hooks see links, and what many links take has to be counted.
    add_links(page, found)
    links = page.links
    try:
        reading.fields = hooks.page_fields(page, fetched)
    except HookError as error:
        reading.problems[error.function] = error.what
    try:
        links = hooks.chosen_links(page)
    except HookError as error:
        reading.problems[error.function] = error.what
    reading.links = checker.check(page, links, task.depth)
    return reading


def _list(context: CrawlContext, task: Task, fetched: Fetched, listing: Listing) -> Reading:
    """Read a page of a list: its items are a link away, its next page is at its own depth."""
    try:
        listed = listing.read(fetched.body, task.url, truncated=fetched.truncated)
    except ListingError as error:
        return Reading(failure=str(error))
    page = Page(url=task.url, links=[Link(url) for url in listed.items])
    links = context.checker.check(page, page.links, task.depth)
    if listed.next and context.rules.judge(task, listed.next) is None:
        links.insert(0, Admission(listed.next, task.depth, task.level))
    return Reading(links=links)
