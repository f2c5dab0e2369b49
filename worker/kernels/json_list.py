"""The kernel of JSON sources: listed URLs are a link away, the next page at the same depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greencrawl.schema.records import Admission, Fetched, Link, Page, Task
from greencrawl.worker.extract.listing import ListingError
from greencrawl.worker.kernels.http import Http
from greencrawl.worker.kernels.reading import Reading

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext


class JsonList(Http):
    """Reads pages of the crawl's ``sources``, whatever type they declare."""

    name = "json"

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        """Read a page of a list by the expressions of its source."""
        listing = context.listing(task.url)
        if listing is None:
            return Reading(failure="a page of none of the crawl's sources")
        try:
            listed = listing.read(
                fetched.body, task.url, fetched.content_type, truncated=fetched.truncated
            )
        except ListingError as error:
            return Reading(failure=str(error))
        page = Page(url=task.url, links=[Link(url) for url in listed.items])
        links = context.checker.check(page, page.links, task.depth)
        skipped = context.checker.take_skipped()
        if listed.next and context.rules.judge(task, listed.next) is None:
            links.insert(0, Admission(listed.next, task.depth, task.level))
        more = page.omitted_links, page.rewritten_links
        return Reading(links=links, skipped=skipped, omitted=more[0], rewritten=more[1])


JSON = JsonList()


def elsewhere(context: CrawlContext, url: str, target: str) -> str:
    """Say why the answer to ``url`` may not be at ``target``, both canonical; "" if it may.

    A list that has moved would not be read as a list.
    """
    if context.listing(url) is None or context.listing(target) is not None:
        return ""
    return f"the source is elsewhere, at {target}: name that one"
