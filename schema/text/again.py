"""Texts for people: when a stored page is asked for again, and why a crawl is not."""

from __future__ import annotations

from collections.abc import Callable

from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.net.scope import starts
from greencrawl.schema.records import Crawl, CrawlOptions, Planned

LIMITS = ("max_pages", "max_bytes", "max_seconds", "host_pages", "shape_pages")
"""Options that count all fetches, first ones and later ones."""


def again_text(
    crawl: Crawl, url: str, moment: Callable[[int], str], planned: Planned | None = None
) -> str:
    """Say what a crawl's periods will do with a canonical ``url``; "" if the crawl has no periods.

    ``planned`` is its place in the crawl's calendar, if it has one.
    """
    recrawl = crawl.options.recrawl
    if recrawl is None:
        return ""
    if url in {queued_url(crawl.options, given) for _, given in starts(crawl.options)}:
        why = f"every {recrawl.every}, as a seed"
    elif recrawl.deepest < 0:
        return "not asked for again: the crawl's periods begin with its seeds, and follow new links"
    elif planned is None:
        return f"not asked for again: it has no place in the calendar (depth {recrawl.depth})"
    elif planned.retired:
        return f"not asked for again unless it is linked anew: {_gone(planned)}"
    else:
        why = f"every {recrawl.every}, as pages up to depth {recrawl.depth} are"
        if recrawl.depth == "all":
            why = f"every {recrawl.every}, as all pages are"
        if planned.misses:
            due = max(planned.due_s * 1000, crawl.wakes_ms)
            return f"asked for again in the first period from {moment(due)} on: {_gone(planned)}"
    if crawl.state == "resting":
        return f"asked for again at {moment(crawl.wakes_ms)}: {why}"
    if crawl.state == "active":
        return f"asked for again in the next period: {why}"
    return f"not asked for again while the crawl is {crawl.state}"


def _gone(planned: Planned) -> str:
    times = "once" if planned.misses == 1 else f"{planned.misses} times in a row"
    return f"it was gone {times}"


def not_anew_text(name: str, options: CrawlOptions) -> str:
    """Return why all pages of a crawl cannot be fetched again, and what to do; "" if they can."""
    why = limited_text(name, options)
    return f"{why}: leave it out, or name another crawl" if why else ""


def limited_text(name: str, options: CrawlOptions) -> str:
    """Return which limit of a crawl counts pages that are fetched again; "" if it has none."""
    limit = next((limit for limit in LIMITS if getattr(options, limit)), "")
    return f"crawl {name} has {limit}, which counts what is fetched again, too" if limit else ""
