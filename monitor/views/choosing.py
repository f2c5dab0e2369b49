"""The crawl of a page whose address does not name one."""

from __future__ import annotations

from greencrawl.monitor.page_request import PageRequest
from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.records import Crawl


def chosen(request: PageRequest) -> Crawl | None:
    """Return the crawl that was asked for, or the newest. None if there is none.

    Raises UnknownCrawl for an unknown name.
    """
    crawls, name = request.figures.crawls(), request.asked("crawl")
    if not name:
        return crawls[-1] if crawls else None
    found = next((crawl for crawl in crawls if crawl.name == name), None)
    if found is None:
        raise UnknownCrawl(f"no crawl is called {name[:64]!r}")
    return found
