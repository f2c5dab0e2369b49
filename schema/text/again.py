"""When a stored page will be asked for again, and why a crawl is not, as people are told."""

from __future__ import annotations

from collections.abc import Callable

from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.net.scope import starts
from greencrawl.schema.records import Crawl, CrawlOptions

LIMITS = ("max_pages", "max_bytes", "max_seconds", "host_pages", "shape_pages")
"""Options that count what is fetched, whether for the first time or again."""


def again_text(crawl: Crawl, url: str, moment: Callable[[int], str]) -> str:
    """What a crawl's periods will do with a canonical ``url``; "" where it has none."""
    recrawl = crawl.options.recrawl
    if recrawl is None:
        return ""
    if url not in {queued_url(crawl.options, given) for _, given in starts(crawl.options)}:
        return "not asked for again: the crawl's periods begin with its seeds, and follow new links"
    if crawl.state == "resting":
        return f"asked for again at {moment(crawl.wakes_ms)}: every {recrawl.every}, as a seed"
    if crawl.state == "active":
        return f"asked for again in the next period: every {recrawl.every}, as a seed"
    return f"not asked for again while the crawl is {crawl.state}"


def not_anew_text(name: str, options: CrawlOptions) -> str:
    """Why all of a crawl cannot be asked for again; "" where it can."""
    limit = next((limit for limit in LIMITS if getattr(options, limit)), "")
    why = f"crawl {name} has {limit}, which counts what is fetched again, too"
    return f"{why}: leave it out, or name another crawl" if limit else ""
