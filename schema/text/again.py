"""When a stored page will be asked for again, as people are told."""

from __future__ import annotations

from collections.abc import Callable

from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.net.scope import starts
from greencrawl.schema.records import Crawl


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
