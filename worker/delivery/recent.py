"""Recently admitted links, by crawl, so that a site's menu is not sent with each of its pages.

The frontier is not asked about these links, so it must know them for certain. A node that was
reopened, as its higher epoch shows, may have forgotten them, and the store that refills it may have
lost them, too. Then this process forgets all recent links, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.crawl_cache import CrawlCache
from greencrawl.schema.records import Admission, TaskKind

SIZE = 20_000
"""URLs of a crawl in each of two generations: some 8 MB in all."""
MOST_URLS = 80_000
"""URLs of all crawls together; many crawls have fewer each."""
CRAWLS = 40
IDLE_SECONDS = 300.0
"""A crawl that brought no page for this long is over, or waits: its URLs are forgotten."""
_LONG = 500
"""A remembered URL has at most this many characters: a trap's long URLs would take hundreds of
MB."""


_WORTH = {
    TaskKind.SITEMAP: 3, TaskKind.SITEMAP_GUESS: 2, TaskKind.PAGE: 1, TaskKind.CANONICAL: 1,
}  # fmt: skip


def _worth(link: Admission) -> int:
    """Rank the kinds of a link's task by what they find: a sitemap that is fetched as a page or as
    an image brings few links or none."""
    return _WORTH.get(link.kind, 0)


class Recent:
    """URLs of one crawl in two generations: when the younger is full, the older is forgotten."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self._young: set[str] = set()
        self._old: set[str] = set()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def fresh(self, links: Iterable[Admission]) -> list[Admission]:
        """Return the links that are not known, each URL once."""
        young, old = self._young, self._old
        fresh = [link for link in links if link.url not in young and link.url not in old]
        if any(link.kind for link in fresh):  # of a URL's kinds, keep the one that finds most
            fresh.sort(key=_worth)
        return list({link.url: link for link in fresh}.values())

    def add(self, links: Iterable[Admission]) -> None:
        """Remember links that were admitted, except those with a very long URL."""
        self._young.update(link.url for link in links if len(link.url) <= _LONG)
        if len(self._young) > self.size:
            self._old, self._young = self._young, set()

    def fit(self, size: int) -> None:
        """Keep about ``size`` URLs in a generation from now on; a larger one is forgotten."""
        self.size = size
        self._old = self._old if len(self._old) <= size else set()
        self._young = self._young if len(self._young) <= size else set()


class Recents:
    """The recent links of all crawls of a process."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._crawls: CrawlCache[int, Recent] = CrawlCache(CRAWLS, IDLE_SECONDS, clock)
        self._sharing = 0
        self._epochs: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many crawls have recent links."""
        return len(self._crawls)

    def urls(self) -> int:
        """Return how many URLs are kept."""
        return sum(map(len, self._crawls.values()))

    def of(self, crawl: int, epochs: Mapping[str, int]) -> Recent:
        """Return the links of a crawl that are valid under the nodes' ``epochs`` (of a stamp)."""
        for node, epoch in epochs.items():
            if epoch != self._epochs.setdefault(node, epoch):  # lower: an older copy of the store
                self._epochs[node] = epoch
                self._crawls.clear()
        recent = self._crawls.get(crawl)
        if recent is None:
            recent = self._crawls[crawl] = Recent(min(SIZE, MOST_URLS // CRAWLS))
        if len(self._crawls) != self._sharing:
            self._sharing = len(self._crawls)
            for one in self._crawls.values():
                one.fit(min(SIZE, MOST_URLS // self._sharing))
        return recent

    def forget(self, crawl: int) -> None:
        """Forget a crawl that was deleted."""
        self._crawls.drop(crawl)
