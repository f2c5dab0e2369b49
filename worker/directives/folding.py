"""Copies: pages that name another URL as their canonical one, and have the same text.

The canonical URL that a page names is a hint, and often wrong: whole sites name their home page,
lists name their first page. So the text of a page is left out only if this crawl stores the text of
its canonical URL, and that text has at least nineteen twentieths of the page's words. The order of
words does not matter: a list in another order is a copy, too. A page that itself names another URL
never counts as an original; so chains and loops lose no text. All other text is kept, for example
if the canonical URL is not fetched yet, is gone, is out of scope, or has content that is not to be
kept. The canonical URL is admitted like a link, at the depth of the page that names it. Pages could
name other pages without end, so a canonical URL counts as a redirect: after :data:`MAX_REDIRECTS`
redirects in a row, no further URL is admitted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec.structs import replace

from greencrawl.schema.net.normalising import queued_url
from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    Directives,
    StoredPage,
    Task,
    TaskKind,
)
from greencrawl.worker.crawls import RootStore
from greencrawl.worker.link_checker import MAX_REDIRECTS
from greencrawl.worker.session.backoff import until_available
from greencrawl.worker.session.fetcher import Visit

NEW_SHARE = 20
"""The original may lack at most one of this many letters of a copy."""
MOST_CHARS = 128 * 1024
"""Longer texts must be equal: counting the words of two takes some 20 ms."""
WAIT_SECONDS = 2.0
"""How long a copy waits for an original that is on its way to the store."""
_LOOK_SECONDS = 0.05
_RECENT = 10_000
_LONG = 20
"""Longer words are compared by pairs of letters: some languages have no spaces."""


class Folding:
    """Finds copies, for one process. ``fingerprint`` returns the fingerprint of a canonical URL."""

    def __init__(self, store: RootStore, fingerprint: Callable[[str], int]) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._recent: OrderedDict[tuple[int, int], None] = OrderedDict()
        """Pages of this process that may still be on their way to the store."""

    def fold(
        self, visit: Visit, task: Task, page: StoredPage, excluded: Callable[[str], str | None]
    ) -> None:
        """Note in a page that was read whether it is a copy; admit its canonical URL.

        ``excluded`` says why the crawl's rules exclude a link. Raises VisitOver.
        """
        self._recent[page.crawl, page.fingerprint] = None
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        if page.canonical in ("", page.url):
            return
        target = queued_url(visit.context.options, page.canonical)
        number = self._fingerprint(target)
        if number == page.fingerprint or excluded(target) is not None:
            return
        said = page.directives or Directives()
        redirects = task.redirects % INDEX_STEP
        if "nofollow" not in said.robots and redirects < MAX_REDIRECTS:
            others = [link for link in page.links if link.url != target]
            kind = TaskKind.CANONICAL
            page.links = [Admission(target, task.depth, task.level, redirects + 1, kind), *others]
        if said.withheld:
            return
        original = self._stored(visit, page.crawl, number)
        if original is not None and self._stands_for(original, page):
            page.directives = replace(said, withheld="copy")

    def _stored(self, visit: Visit, crawl: int, number: int) -> StoredPage | None:
        """Return a page with its text; wait for it if this process is about to store it.

        Raises VisitOver.
        """
        left = WAIT_SECONDS
        while True:
            page = until_available(lambda: self._store.page(crawl, number, detail="text"), "store")
            if page is not None or left <= 0 or (crawl, number) not in self._recent:
                return page
            visit.rest(_LOOK_SECONDS)
            left -= _LOOK_SECONDS

    def _stands_for(self, original: StoredPage, page: StoredPage) -> bool:
        if original.status // 100 != 2 or (original.directives and original.directives.withheld):
            return False
        if original.canonical and self._fingerprint(original.canonical) != original.fingerprint:
            return False
        return original.digest == page.digest or says_the_same(page.text, original.text)


def says_the_same(copy: str, original: str) -> bool:
    """Return whether an original has nearly all words of a copy, each as often; False if the copy
    has no words."""
    if copy == original:
        return bool(copy)
    if max(len(copy), len(original)) > MOST_CHARS:
        return False
    said = Counter(_pieces(copy))
    new = said - Counter(_pieces(original))
    return NEW_SHARE * _size(new) <= _size(said) > 0


def _pieces(text: str) -> Iterator[str]:
    for word in text.split():
        if len(word) <= _LONG:
            yield word
        else:
            yield from map("".join, pairwise(word))


def _size(pieces: Counter[str]) -> int:
    return sum([len(piece) * count for piece, count in pieces.items()])
