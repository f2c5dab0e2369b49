"""The kernel of ordinary pages: HTML, plain text, and style sheets where requisites are wanted.

It extracts, then calls the user's hooks, then the link checker. It does no I/O and shares no state,
except that of the user's own module. So the same function runs in a worker's process and in the
process that reads a suspect's page alone (``greencrawl.worker.process.quarantine``).
"""

from __future__ import annotations

from collections.abc import Mapping
from time import thread_time
from typing import TYPE_CHECKING, Any

from greencrawl.schema.net.action_texts import texts_of
from greencrawl.schema.records import CrawlOptions, Directives, Failure, Fetched, StoredPage, Task
from greencrawl.worker.directives.withholding import judged
from greencrawl.worker.extract import (
    TooExpensive,
    add_links,
    canonical_of,
    is_style,
    is_text,
    of_headers,
    outline,
)
from greencrawl.worker.extract.links import Resolved
from greencrawl.worker.hook_calls import call_hooks
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.style import read_style

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext
    from greencrawl.worker.kernels.visit import TaskVisit

BASE_SECONDS = 0.02
SECONDS_PER_WIRE_BYTE = 1e-6
SECONDS_PER_BYTE = 0.25e-6
"""Reading a page is granted these CPU seconds: a fixed time, and the smaller of two products. One
product is the received bytes times their rate; the other is the decoded bytes times theirs. Honest
pages take 0.03e-6 a byte."""

HUB_SECONDS = 0.25
"""A parse may take this many CPU seconds if all other sessions wait for it."""
QUARANTINE_SECONDS = 2.0
"""A parse for which no session waits may take this many CPU seconds, or twice the grant if that is
more."""

_METERED_BYTES = 32 * 1024
"""A smaller page cannot exceed its grant, except by very many attributes, which end its parse."""


def granted(fetched: Fetched) -> float:
    """Return the CPU seconds that reading an answer may take."""
    size = len(fetched.body)
    if size < _METERED_BYTES:
        return BASE_SECONDS
    sent = fetched.wire_bytes or size
    return BASE_SECONDS + min(SECONDS_PER_WIRE_BYTE * sent, SECONDS_PER_BYTE * size)


def heard(context: CrawlContext, fetched: Fetched, row: StoredPage) -> StoredPage:
    """Return ``row`` of an answer with the directives of the answer's headers."""
    row.directives = said_by(context, fetched)
    row.canonical = canonical_of(fetched.headers, row.url)
    return row


def said_by(context: CrawlContext, fetched: Fetched) -> Directives | None:
    """Return the directives of an answer's headers about its use and storage; None if there are
    none."""
    said = of_headers(fetched.headers, fetched.robots_tags, context.agent, fetched.site)
    return judged(said, context.options, fetched)


def read(
    context: CrawlContext, task: Task, fetched: Fetched, *, in_quarantine: bool = False
) -> Reading:
    """Read the HTML that came as ``fetched`` for ``task``; an error in a hook is a problem.

    Raises TooExpensive if others would have to wait for long, unless it is read ``in_quarantine``.
    """
    metered = len(fetched.body) >= _METERED_BYTES
    began = thread_time() if metered else 0.0
    try:
        reading = _read(context, task, fetched, in_quarantine=in_quarantine)
    except TooExpensive as error:
        spent = thread_time() - began if metered else error.spent
        if not in_quarantine:
            raise TooExpensive(spent) from None
        failure = f"its parse had not ended after {spent:.1f} s of CPU"
        return Reading(failure=failure, cpu=spent)
    # The time of hooks was subtracted from it already.
    reading.cpu = reading.cpu + thread_time() - began if metered else 0.0
    return reading


def keeps_body(options: CrawlOptions, content_type: str) -> bool:
    """Return whether a crawl keeps the body of an answer that is no page.

    A crawl of requisites keeps all bodies, since it may find an image first as a link.
    """
    return options.bodies == "all" or options.requisites == "on" or is_text(content_type)


def _read(context: CrawlContext, task: Task, fetched: Fetched, *, in_quarantine: bool) -> Reading:
    if context.wanted.requisites and is_style(fetched.content_type):
        return read_style(context, task, fetched)
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
        samples=fetched.sampled and context.options.traps == "on",
        spans=context.options.main_text == "on",
        main_seconds=granted(fetched),
        seconds=max(QUARANTINE_SECONDS, 2 * granted(fetched)) if in_quarantine else HUB_SECONDS,
        brief=not in_quarantine,
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
    # Hooks see links, and the time that many links take has to be counted.
    said: list[tuple[str, str]] | None = [] if checker.wants_texts else None
    add_links(page, found, said)
    texts = None if said is None else texts_of([*said, *found.said], found.forms)
    links = page.links
    if roots is not None:
        began = thread_time()
        content = directives is None or not directives.withheld
        root = roots[0] if roots else None
        made = call_hooks(hooks, page, root, fetched, content=content)
        reading.fields, reading.items, links, reading.problems = made
        reading.cpu -= thread_time() - began  # the user's functions do not count against the page
    reading.links = checker.check(page, links, task.depth, texts)
    if found.requisites:
        reading.links = checker.with_requisites(page, reading.links, found.requisites, task)
    reading.omitted, reading.rewritten = page.omitted_links, page.rewritten_links
    reading.skipped = checker.take_skipped()
    return reading


class Http:
    """The default kernel: one GET; it reads most answers."""

    name = "http"

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> Fetched | Failure:
        """See ``Kernel.fetch``."""
        return visit.get(task.url, headers)

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        """See :func:`read`."""
        return read(context, task, fetched)


HTTP = Http()
