"""The sitemaps of an origin: those that its robots.txt names, or the usual place.

Sitemaps are queued as links in the row of the first page of the origin that this process reads. So
they are in the replay log, whichever process dies. If the row is refused, because the crawl has
reached a limit, the sitemaps come with the page again when it is read again. Each other process
does the same once; the frontier takes each URL once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.scope import level_for
from greencrawl.schema.net.urls import SITEMAP_PLACE, canonicalise, host_of, origin_of, site_of
from greencrawl.schema.records import Admission, Crawl, Task, TaskKind

MAX_NAMED = 1000
"""At most this many sitemaps of one robots.txt count."""
MAX_ELSEWHERE = 20
"""At most this many of them are at other sites: a host must not make us send requests to any number
of others."""
_ORIGINS = 20_000
"""Origins that a process remembers: some 6 MB."""


class Origins:
    """Origins whose sitemaps one process has queued, by crawl."""

    def __init__(self) -> None:
        self._queued_by: OrderedDict[tuple[int, str], int] = OrderedDict()
        """For each crawl and origin: a hash of the URL of the page with which its sitemaps were
        queued."""

    def links(
        self, crawl: Crawl, task: Task, named: Callable[[str], Sequence[str] | None]
    ) -> list[Admission]:
        """Return the sitemaps of a stored page's origin, one link deeper than the page; none if
        they were queued before.

        ``named`` returns the sitemaps that the robots.txt of a URL's origin names, as written; None
        if they are not known now. A crawl with scope any takes only the sitemaps of its seeds'
        origins. Otherwise every linked host of the web would add all its URLs.
        """
        options = crawl.options
        if options.sitemaps == "off" or task.depth >= options.depth:
            return []
        if options.scope == "any" and not task.is_seed:
            return []
        origin = origin_of(task.url)
        page = hash(task.url)
        if self._queued_by.get((crawl.id, origin), page) != page:
            return []
        if (lines := named(task.url)) is None:
            return []
        self._queued_by[crawl.id, origin] = page
        if len(self._queued_by) > _ORIGINS:
            self._queued_by.popitem(last=False)
        urls = _named(origin, lines)
        depth = task.depth + 1
        level = level_for(options.order, depth, 1.0, "")
        if not urls:
            place = origin + SITEMAP_PLACE
            return [Admission(place, depth, level, kind=TaskKind.SITEMAP_GUESS)]
        sooner = max(level - 1, 0)
        return [Admission(url, depth, sooner, kind=TaskKind.SITEMAP) for url in urls]


def _named(origin: str, lines: Sequence[str]) -> list[str]:
    """Return the canonical URLs in lines of a robots.txt that count, each once."""
    site, elsewhere = site_of(host_of(origin + "/")), 0
    urls: dict[str, None] = {}
    for line in lines[:MAX_NAMED]:
        try:
            url = canonicalise(line, f"{origin}/robots.txt")
        except InvalidUrl:
            continue
        if url not in urls and site_of(host_of(url)) != site:
            elsewhere += 1
            if elsewhere > MAX_ELSEWHERE:
                continue
        urls[url] = None
    return list(urls)
