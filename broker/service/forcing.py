"""Tells which forced URLs are fetched once more; URLs that wait for their first fetch are not."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.broker.service.service import Service
from greencrawl.schema.net.urls import SITEMAP_PLACE, task_path
from greencrawl.schema.records import Admission, Crawl

_WITHOUT_ROWS = (SITEMAP_PLACE, "/robots.txt")
"""A URL with such a path may have neither a page nor a final state although it was fetched."""


def by_end(
    service: Service, crawl: Crawl, items: Sequence[Admission]
) -> tuple[list[Admission], list[Admission]]:
    """Return URLs to be queued even if they are known, and those that no task has fetched so far.

    URLs of the second list have neither a page nor a final state: if such a URL is known, its first
    task has not ended, and fetches it. In a finished crawl no task is left. Raises Unavailable.
    """
    if crawl.finished:
        return list(items), []
    number_of = service.frontier.fingerprint
    ended = service.store.stamps(crawl.id, [number_of(item.url) for item in items])
    forced: list[Admission] = []
    first: list[Admission] = []
    for item in items:
        known = number_of(item.url) in ended or task_path(item.url)[1:] in _WITHOUT_ROWS
        (forced if known else first).append(item)
    return forced, first
