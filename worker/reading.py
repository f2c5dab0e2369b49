"""Reading an answer: extraction, then the user's hooks, then the link checker; or a JSON source's
list, a sitemap or a style sheet, of which only the link checker is asked.

No I/O and no shared state but that of the user's own module, so that the same function runs in a
worker's process and in that where a suspect's page is read alone
(``greencrawl.worker.process.quarantine``).
"""

from __future__ import annotations

from time import thread_time
from typing import Any

from msgspec import Struct, field

from greencrawl.schema.net.action_texts import texts_of
from greencrawl.schema.net.scope import level_for
from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    CrawlOptions,
    Directives,
    FailureKind,
    Fetched,
    Link,
    Page,
    StoredPage,
    Task,
    TaskKind,
)
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.directives.withholding import judged
from greencrawl.worker.extract import (
    TooDear,
    add_links,
    canonical_of,
    is_style,
    is_text,
    of_headers,
    outline,
)
from greencrawl.worker.extract.links import Resolved
from greencrawl.worker.extract.listing import Listing, ListingError
from greencrawl.worker.extract.sources.css import needs_of
from greencrawl.worker.extract.sources.gathered import Gathered
from greencrawl.worker.hook_calls import made_of
from greencrawl.worker.link_checker import MAX_LINKS
from greencrawl.worker.process.steps import UNBOUNDED, Budget, Steps, finish
from greencrawl.worker.sitemaps.forms import form_of, is_named_so
from greencrawl.worker.sitemaps.listed import Listed, listed_steps

BASE_SECONDS = 0.02
SECONDS_PER_WIRE_BYTE = 1e-6
SECONDS_PER_BYTE = 0.25e-6
"""CPU that reading a page is granted: the first, and the lesser of the others times its bytes, as
they came and decoded. Honest pages take 0.03e-6 a byte."""

HUB_SECONDS = 0.25
"""CPU that a parse may take where all others wait for it."""
ALONE_SECONDS = 2.0
"""CPU that a parse may take where nobody does, or twice what is granted if that is more."""

SECONDS_PER_URL = 40e-6
"""CPU that each URL of a sitemap is granted beside that."""

MAX_NESTED = 3
"""Indexes that a sitemap may lie in. The protocol has one, and sites two."""

MAX_SHEETS = 3
"""Style sheets in a row that import one another, and the last of these is not read. Real ones are
one or two."""
MAX_NEEDED = 500
"""URLs that one style sheet needs, at most."""
MAX_IMPORTS = 20
"""Imports of one style sheet that are read; what else it needs is kept, and leads to nothing."""

_URLS_A_STEP = 500

_METERED_BYTES = 32 * 1024
"""A smaller page cannot take what is granted, attributes apart, which end its parse."""


class Reading(Struct, kw_only=True):
    """What a page says. ``items`` is as in :class:`StoredPage`; ``problems`` are errors of the
    user's functions, by function.

    ``skipped`` are links that are not followed since they log out or change something, and why.
    ``failure`` says why a page cannot be read: what it would have led to is not known.
    ``omitted`` counts its links beyond those that are followed, ``unneeded`` what a style sheet
    needs beyond what is kept, ``rewritten`` links that the crawl's ``normalise`` has changed.
    ``links_cut``: of its header Link some were left out.
    ``samples`` and ``canonical`` are the page's, see ``greencrawl.worker.traps``, and so are
    ``spans``; ``directives`` says, too, whether what was read is to be kept.
    ``cpu`` is what reading took of the CPU, the user's functions apart, in seconds; 0 where that is
    next to nothing. ``costly`` says how it went beyond what was granted, "" if it did not, and
    ``dense`` why it was read alone where it came as next to nothing.
    ``listed`` counts what a sitemap lists, and ``unread`` says what was not read of it.
    """

    title: str = ""
    text: str = ""
    spans: bytes = b""
    language: str = ""
    encoding: str = ""
    fields: dict[str, Any] | None = None
    items: bytes = b""
    links: list[Admission] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    omitted: int = 0
    unneeded: int = 0
    links_cut: bool = False
    rewritten: int = 0
    samples: bytes = b""
    canonical: str = ""
    directives: Directives | None = None
    cpu: float = 0.0
    costly: str = ""
    dense: str = ""
    listed: int = 0
    unread: str = ""

    def fill(self, row: StoredPage) -> None:
        """Put into ``row`` what was read; what headers said stays where the body says nothing."""
        row.title, row.text, row.spans = self.title, self.text, self.spans
        row.language = self.language
        row.encoding, row.fields, row.items = self.encoding, self.fields, self.items
        row.links = self.links
        row.canonical = self.canonical or row.canonical
        row.directives = self.directives or row.directives

    def notes(self, dear: str) -> dict[FailureKind, str]:
        """What else is to be known of a page that is stored.

        ``dear``: why undoing its encodings was charged, "" if it was not.
        """
        notes = {}
        if dear or self.costly:
            notes[FailureKind.COSTLY] = "; ".join(filter(None, (dear, self.costly)))
        if self.dense:
            notes[FailureKind.DENSE] = self.dense
        if left_out := self._left_out():
            notes[FailureKind.LINKS] = "; ".join(left_out)
        if self.unread:
            notes[FailureKind.SITEMAP] = self.unread
        return notes

    def _left_out(self) -> list[str]:
        said = []
        if self.omitted:
            followed = f"of a page {MAX_LINKS:,} are followed"
            said.append(f"{self.omitted:,} links were left out: {followed}")
        if self.unneeded:
            kept = f"of a style sheet {MAX_NEEDED:,} are kept"
            said.append(f"{self.unneeded:,} URLs were left out: {kept}")
        if self.links_cut:
            said.append("its header Link is too long: links at its end were left out")
        return said


def granted(fetched: Fetched) -> float:
    """Seconds of CPU that reading an answer may take."""
    size = len(fetched.body)
    if size < _METERED_BYTES:
        return BASE_SECONDS
    sent = fetched.wire_bytes or size
    return BASE_SECONDS + min(SECONDS_PER_WIRE_BYTE * sent, SECONDS_PER_BYTE * size)


def heard(context: CrawlContext, fetched: Fetched, row: StoredPage) -> StoredPage:
    """``row`` of an answer, with what the answer's headers say of it."""
    row.directives = said_by(context, fetched)
    row.canonical = canonical_of(fetched.headers, row.url)
    return row


def said_by(context: CrawlContext, fetched: Fetched) -> Directives | None:
    """What an answer's headers say of its use, and whether it is to be kept; None: nothing."""
    said = of_headers(fetched.headers, fetched.robots_tags, context.agent, fetched.site)
    return judged(said, context.options, fetched)


def read(context: CrawlContext, task: Task, fetched: Fetched, *, alone: bool = False) -> Reading:
    """Read the HTML that came as ``fetched`` for ``task``; an error in a hook is a problem.

    What came for a page of a source's list is read as that says, whatever type it names. Raises
    TooDear where others would have to wait for long, unless it is read ``alone``.
    """
    listing = context.listing(task.url)
    if listing is not None:
        return _list(context, task, fetched, listing)
    if alone and is_sitemap(context, task, fetched):
        return finish(sitemap_steps(context, task, fetched))
    metered = len(fetched.body) >= _METERED_BYTES
    began = thread_time() if metered else 0.0
    try:
        reading = _read(context, task, fetched, alone=alone)
    except TooDear as error:
        spent = thread_time() - began if metered else error.spent
        if not alone:
            raise TooDear(spent) from None
        failure = f"its parse had not ended after {spent:.1f} s of CPU"
        return Reading(failure=failure, cpu=spent)
    # That of hooks was taken from it already.
    reading.cpu = reading.cpu + thread_time() - began if metered else 0.0
    return reading


def keeps_body(options: CrawlOptions, content_type: str) -> bool:
    """Whether a crawl keeps the body of an answer that is no page: of an archive with requisites
    all are kept, since an image may be met as a link first."""
    return options.bodies == "all" or options.requisites == "on" or is_text(content_type)


def _read(context: CrawlContext, task: Task, fetched: Fetched, *, alone: bool) -> Reading:
    if context.wanted.requisites and is_style(fetched.content_type):
        return _style(context, task, fetched)
    checker, hooks = context.checker, context.hooks
    roots: list[Any] | None = [] if hooks.wanted else None
    page, found = outline(
        fetched.body,
        task.url,
        fetched.content_type,
        agent=context.agent,
        said=of_headers(fetched.headers, fetched.robots_tags, context.agent, fetched.site),
        anchors=hooks.wanted,
        texts=checker.wants_texts,
        samples=context.options.traps == "on",
        spans=context.options.main_text == "on",
        main_seconds=granted(fetched),
        seconds=max(ALONE_SECONDS, 2 * granted(fetched)) if alone else HUB_SECONDS,
        brief=not alone,
        headers=fetched.headers,
        wanted=context.wanted,
        roots=roots,
    )
    directives = page.directives
    if directives is not None:
        directives = judged(directives, context.options, fetched)
    reading = Reading(
        title=page.title,
        text=page.text,
        spans=page.spans,
        language=page.language,
        encoding=page.encoding,
        samples=page.samples,
        canonical=page.canonical or canonical_of(fetched.headers, task.url),
        directives=directives,
        links_cut=fetched.links_cut,
    )
    if isinstance(found, Resolved):
        urls, rels = found.urls, found.rels
        if found.more:
            urls, rels = [*urls, *found.more], [*rels, *found.more.values()]
        texts = found.texts
        if checker.wants_texts and (found.said or found.forms):
            more = texts_of(found.said, found.forms)
            texts = more if texts is None else texts.joined(more)
        reading.links = checker.follow(page, urls, rels, task.depth, texts)
        if found.requisites:
            reading.links = checker.with_requisites(page, reading.links, found.requisites, task)
            reading.omitted = page.omitted_links
        reading.skipped, reading.rewritten = checker.take_skipped(), page.rewritten_links
        return reading
    # Hooks see links, and what many links take has to be counted.
    said: list[tuple[str, str]] | None = [] if checker.wants_texts else None
    add_links(page, found, said)
    texts = None if said is None else texts_of([*said, *found.said], found.forms)
    links = page.links
    if roots is not None:
        began = thread_time()
        content = directives is None or not directives.withheld
        root = roots[0] if roots else None
        made = made_of(hooks, page, root, fetched, content=content)
        reading.fields, reading.items, links, reading.problems = made
        reading.cpu -= thread_time() - began  # the user's functions are no fault of the page's
    reading.links = checker.check(page, links, task.depth, texts)
    if found.requisites:
        reading.links = checker.with_requisites(page, reading.links, found.requisites, task)
    reading.omitted, reading.rewritten = page.omitted_links, page.rewritten_links
    reading.skipped = checker.take_skipped()
    return reading


def _style(context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
    """Read a style sheet: what it needs, the pages need that it is for."""
    within = task.redirects // INDEX_STEP if task.kind == TaskKind.REQUISITE else 0
    if within >= MAX_SHEETS:
        return Reading()
    imported, other = Gathered("utf-8"), Gathered("utf-8")
    needs = list(needs_of(fetched.body, fetched.content_type))
    imported.add_requisites((one.reference for one in needs if one.imported), task.url)
    other.add_requisites((one.reference for one in needs if not one.imported), task.url)
    page, checker = Page(url=task.url), context.checker
    sheets = list(imported.requisites)[:MAX_IMPORTS]
    needed = [url for url in (imported.requisites | other.requisites) if url not in sheets]
    links = checker.with_requisites(page, [], sheets, task, (within + 1) * INDEX_STEP)
    room = MAX_NEEDED - len(sheets)
    more = max(len(needed) - room, 0)
    links = checker.with_requisites(page, links, needed[:room], task, MAX_SHEETS * INDEX_STEP)
    return Reading(links=links, skipped=checker.take_skipped(), unneeded=more)


def _list(context: CrawlContext, task: Task, fetched: Fetched, listing: Listing) -> Reading:
    """Read a page of a list: its items are a link away, its next page is at its own depth."""
    try:
        listed = listing.read(
            fetched.body, task.url, fetched.content_type, truncated=fetched.truncated
        )
    except ListingError as error:
        return Reading(failure=str(error))
    page = Page(url=task.url, links=[Link(url) for url in listed.items])
    links = context.checker.check(page, page.links, task.depth)
    skipped = context.checker.take_skipped()
    if listed.next and context.rules.judge(task, listed.next) is None:
        links.insert(0, Admission(listed.next, task.depth, task.level))
    more = page.omitted_links, page.rewritten_links
    return Reading(links=links, skipped=skipped, omitted=more[0], rewritten=more[1])


def is_sitemap(context: CrawlContext, task: Task, fetched: Fetched, *, html: bool = False) -> bool:
    """Whether an answer is read as a sitemap: what is asked for as one if it is one, and any page
    that has the root of one. A plain list of URLs is one if it is a seed and its name says so.

    ``html``: it says that it is, which is believed of pages that are no seeds.
    """
    asked = task.kind is not TaskKind.PAGE and task.kind.is_sitemap
    if task.kind is TaskKind.REQUISITE:
        return False
    if not (asked or task.is_seed) and (html or context.options.sitemaps == "off"):
        return False
    form = form_of(fetched.body)
    listed = asked or (task.is_seed and is_named_so(task.url))
    return form == "xml" or (form == "text" and listed)


def is_no_sitemap(context: CrawlContext, task: Task, *, html: bool) -> bool:
    """Whether what was asked for as a sitemap, and is none, is not a page of the crawl either."""
    if task.kind is TaskKind.PAGE or not task.kind.is_sitemap:
        return False
    return not html or context.rules.excluded_by(task.url, task.depth) is not None


def granted_sitemap(fetched: Fetched, reading: Reading) -> float:
    """Seconds of CPU that reading a sitemap may take: by what came, and by what it lists."""
    sent = SECONDS_PER_WIRE_BYTE * (fetched.wire_bytes or len(fetched.body))
    return BASE_SECONDS + sent + SECONDS_PER_URL * reading.listed


def sitemap_steps(
    context: CrawlContext, task: Task, fetched: Fetched, budget: Budget = UNBOUNDED
) -> Steps[Reading]:
    """Read a sitemap. What it lists is at its own depth, or a link away from a page.

    Sitemaps of an index stay at that depth as well, and lie in one index more. Once the ``budget``
    is over nothing more is read; what was read before counts.
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
    """Add those of an index that may be asked for, in their turn among the pages of their level."""
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
