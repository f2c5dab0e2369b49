"""Runs a crawl's hook again on pages on which it failed, from what is stored.

A page's body is extracted again. ``on_page``, ``items`` and ``links`` get the same page as at the
time of the fetch. Their results are stored with the page: fields, records, and links that were not
among those followed before. New links are first stored as a batch of seeds. So if any process dies
in between, a link is at worst stored twice. No broker need run: the next broker queues the batch. A
page whose hook has succeeded is not read again; a page on which it fails again stays as it is. Each
page is read in a process of its own (``greencrawl.worker.process.quarantine``), with a time limit.

``fetched`` has what the store kept of the answer: no cookies, no address of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from greencrawl.schema.records import (
    Admission,
    Commit,
    Crawl,
    HookRun,
    StoredPage,
    Task,
)
from greencrawl.store.base import Store
from greencrawl.store.errors import BodyAway
from greencrawl.worker.crawls import context_of
from greencrawl.worker.delivery.recent import Recent
from greencrawl.worker.hooks import OF_PAGES, stable
from greencrawl.worker.process.quarantine import DiedInQuarantine, Quarantine, RaisedInQuarantine
from greencrawl.worker.refetch import as_fetched

BATCH_PAGES = 50
BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of pages that are written in one transaction, unless a single one has more."""


class Count(Struct):
    """The progress in pages, and the number of stored ``links`` that were new to their pages.

    ``unread``: pages whose body is not kept, or whose file cannot be read.
    """

    mended: int = 0
    failed: int = 0
    unread: int = 0
    links: int = 0

    @property
    def pages(self) -> int:
        """Return how many pages were read."""
        return self.mended + self.failed + self.unread


class HookRerun:
    """One run over a crawl. ``unread`` gets the URL of each page that has no body."""

    def __init__(
        self, store: Store, crawl: Crawl, reader: Quarantine, unread: Callable[[str], object]
    ) -> None:
        self._store = store
        self._context = context_of(crawl)
        self._reader = reader
        self._unread = unread
        self._recent = Recent()
        self.count = Count()

    def run(self, going: Callable[[Count], bool]) -> None:
        """Go through the pages; ``going`` says after each whether to go on.

        If it ends early, all results so far are stored. Raises NoProcess, and what stores raise.
        """
        work, links, size = Commit(), list[Admission](), 0
        for number in self._numbers():
            page = self._page(number)
            if page is not None:
                links += self._read(page, number, work)
                size += len(page.body) + len(page.text) + len(page.items)
            if len(work.hooks) >= BATCH_PAGES or size >= BATCH_BYTES:
                self._write(work, links)
                work, links, size = Commit(), [], 0
            if not going(self.count):
                break
        self._write(work, links)

    def _numbers(self) -> Iterator[int]:
        crawl, after = self._context.crawl.id, None
        while found := self._store.hook_pages(crawl, OF_PAGES, after=after):
            yield from found
            after = found[-1]

    def _page(self, number: int) -> StoredPage | None:
        """Return a page with its body, or None if there is none to read."""
        crawl = self._context.crawl.id
        try:
            page = self._store.page(crawl, number)
        except BodyAway:
            page = self._store.page(crawl, number, detail="row")
        if page is not None and page.body:
            return page
        self.count.unread += 1
        if page is not None:
            self._unread(page.url)
        return None

    def _read(self, page: StoredPage, number: int, work: Commit) -> list[Admission]:
        """Run the hook on one page and add the results to ``work``; return links to log."""
        fetched = as_fetched(page)
        before, known = (page.fields, page.items), {link.url for link in page.links}
        page.links = []  # the replay log keeps links that were stored before
        try:
            reading = self._reader.read(self._context, Task(0, page.url, page.depth), fetched)
            problems = reading.problems
        except (DiedInQuarantine, RaisedInQuarantine) as error:
            hooks = self._context.hooks
            function = next(name for name in OF_PAGES if getattr(hooks, name))
            problems, reading = {function: str(error)}, None
        if reading is not None and "on_page" not in problems:
            page.fields = reading.fields
        if reading is not None and "items" not in problems:
            page.items = reading.items
        if reading is not None and "links" not in problems:
            page.links = [link for link in reading.links if link.url not in known]
        if page.links or (page.fields, page.items) != before:
            work.pages.append(page)
        work.hooks.append(
            HookRun(
                crawl=page.crawl,
                fingerprint=number,
                url=page.url,
                at_ms=page.fetched_ms,
                failures={name: stable(what, page.url) for name, what in problems.items()},
                functions=OF_PAGES,
            )
        )
        if problems:
            self.count.failed += 1
        else:
            self.count.mended += 1
        return page.links

    def _write(self, work: Commit, links: Sequence[Admission]) -> None:
        if fresh := self._recent.fresh(links):
            self._store.add_seeds(self._context.crawl.id, fresh)
            self._recent.add(fresh)
            self.count.links += len(fresh)
        if work.hooks:
            self._store.commit(work)
