"""The kernels of sitemaps and of feeds. Both are read in steps, since they may be long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from greencrawl.schema.net.scope import level_for
from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    Failure,
    Fetched,
    Page,
    Task,
    TaskKind,
)
from greencrawl.worker.kernels.http import BASE_SECONDS, SECONDS_PER_WIRE_BYTE, Http
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.process.steps import UNBOUNDED, Budget, Steps, finish
from greencrawl.worker.sitemaps.forms import Form, form_of, is_named_so
from greencrawl.worker.sitemaps.listed import Listed, listed_steps
from greencrawl.worker.sitemaps.unpacking import MAX_BYTES

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext
    from greencrawl.worker.kernels.visit import TaskVisit

SECONDS_PER_URL = 40e-6
"""CPU seconds that each URL of a sitemap is granted, besides the grant of any page."""

MAX_NESTED = 3
"""A sitemap has at most this many indexes above it. The protocol allows one, and some sites have
two."""

_URLS_A_STEP = 500


class Sitemap(Http):
    """Reads lists of URLs that are no pages; their bodies may be larger than a page's."""

    name = "sitemap"

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> Fetched | Failure:
        """Send one GET; the answer may be as long as a sitemap, and come packed."""
        visit.allow(MAX_BYTES)
        return visit.get(task.url, headers)

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        """Read the sitemap at once, for callers where nothing else waits."""
        return finish(self.steps(context, task, fetched))

    def steps(
        self, context: CrawlContext, task: Task, fetched: Fetched, budget: Budget = UNBOUNDED
    ) -> Steps[Reading]:
        """Read the sitemap, with turns for others: see :func:`sitemap_steps`."""
        reading = yield from sitemap_steps(context, task, fetched, budget)
        return self.without(task, reading.failure) if reading.failure else reading

    def without(self, task: Task, why: str) -> Reading:
        """Return a reading without content; it is still a page if it was asked for as one."""
        return Reading(unread=why) if task.kind.is_page else Reading(failure=why)

    def granted(self, fetched: Fetched, reading: Reading) -> float:
        """Return the CPU seconds that reading may take: by its bytes, and by its URLs."""
        sent = SECONDS_PER_WIRE_BYTE * (fetched.wire_bytes or len(fetched.body))
        return BASE_SECONDS + sent + SECONDS_PER_URL * reading.listed


class Feed(Sitemap):
    """Reads RSS, Atom and RDF."""

    name = "feed"


SITEMAP, FEED = Sitemap(), Feed()
_KERNELS: dict[Form, Sitemap | None] = {
    "sitemap": SITEMAP, "text": SITEMAP, "feed": FEED, "": None,
}  # fmt: skip


def is_asked(task: Task) -> bool:
    """Return whether a task asks for a sitemap, or is a seed with the name of one."""
    if task.depth and task.kind is TaskKind.PAGE:  # nearly all tasks
        return False
    return task.kind.is_sitemap or (task.is_seed and is_named_so(task.url))


def found_in(
    context: CrawlContext, task: Task, fetched: Fetched, *, html: bool = False
) -> Sitemap | None:
    """Return the kernel of an answer that lists URLs.

    An answer to a sitemap task lists URLs if it is a sitemap; any page does if it has the root of a
    sitemap or of a feed. A plain list of URLs is a sitemap if it is a seed and its name says so.
    ``html``: the answer says that it is HTML; this is believed unless the page is a seed.
    """
    asked = task.kind is not TaskKind.PAGE and task.kind.is_sitemap
    if task.kind is TaskKind.REQUISITE:
        return None
    if not (asked or task.is_seed) and (html or context.options.sitemaps == "off"):
        return None
    form = form_of(fetched.body)
    if form == "text" and not (asked or (task.is_seed and is_named_so(task.url))):
        return None
    return _KERNELS[form]


def is_no_sitemap(context: CrawlContext, task: Task, *, html: bool) -> bool:
    """Return whether the answer to a sitemap task is neither a sitemap nor a page of the crawl."""
    if task.kind is TaskKind.PAGE or not task.kind.is_sitemap:
        return False
    return not html or context.rules.excluded_by(task.url, task.depth) is not None


def sitemap_steps(
    context: CrawlContext, task: Task, fetched: Fetched, budget: Budget = UNBOUNDED
) -> Steps[Reading]:
    """Read a sitemap. Its URLs are at its own depth; if it is a page, they are a link away.

    The sitemaps that an index lists are at that depth, too; their tasks note one more index above
    them. After the ``budget`` is used nothing more is read; URLs that were read before count.
    """
    listed = yield from listed_steps(fetched.body, task.url, budget, cut=fetched.truncated)
    if listed.failure:
        return Reading(failure=listed.failure)
    depth = task.depth if task.kind.is_sitemap else task.depth + 1
    reading = Reading(unread=listed.note, listed=len(listed.urls) + len(listed.sitemaps))
    yield from _sitemaps_steps(context, task, depth, listed, reading)
    checker = context.checker
    for at in range(0, len(listed.urls), _URLS_A_STEP):
        page = Page(url=task.url, base=task.url)
        reading.links += checker.follow(page, listed.urls[at : at + _URLS_A_STEP], (), depth - 1)
        reading.skipped |= checker.take_skipped()
        reading.rewritten += page.rewritten_links
        yield
    return reading


def _sitemaps_steps(
    context: CrawlContext, task: Task, depth: int, listed: Listed, reading: Reading
) -> Steps[None]:
    """Add the sitemaps of an index that may be fetched, in turn with the pages of their level."""
    nested = task.redirects // INDEX_STEP if task.kind.is_sitemap else 0
    if listed.sitemaps and nested >= MAX_NESTED:
        more = f"{len(listed.sitemaps):,} sitemaps in more than {MAX_NESTED} indexes are not read"
        reading.unread = "; ".join(filter(None, (reading.unread, more)))
        return
    level = level_for(context.options.order, depth, 1.0, "")
    index = Task(0, task.url, depth, kind=TaskKind.SITEMAP)
    for number, url in enumerate(listed.sitemaps):
        if url != task.url and context.rules.judge(index, url) is None:
            within = (nested + 1) * INDEX_STEP
            reading.links.append(Admission(url, depth, level, within, TaskKind.SITEMAP))
        if not number % _URLS_A_STEP:
            yield
