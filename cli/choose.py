"""Choose a crawl for a command that was given no name."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import Crawl


def one(crawls: Sequence[Crawl], name: str | None) -> Crawl:
    """Return the crawl of that name; without a name, return the only crawl.

    Raises :class:`GreencrawlError` that lists the names when the choice is not clear.
    """
    names = ", ".join(crawl.name for crawl in crawls) or "none"
    found = [crawl for crawl in crawls if name in (None, crawl.name)]
    if len(found) == 1:
        return found[0]
    if name is not None:
        raise GreencrawlError(f"no crawl is named {name!r}; there are: {names}")
    if not crawls:
        raise GreencrawlError("there is no crawl yet; start one with `greencrawl crawl URL`")
    raise GreencrawlError(f"name one of the crawls: {names}")
