"""Style sheets, if requisites of pages are fetched as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greencrawl.schema.records import INDEX_STEP, Fetched, Page, Task, TaskKind
from greencrawl.worker.extract.sources.css import needs_of
from greencrawl.worker.extract.sources.gathered import Gathered
from greencrawl.worker.kernels.reading import MAX_NEEDED, Reading

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext

MAX_SHEETS = 3
"""If this many style sheets in a row import one another, the last is not read.

Real sites have one or two in a row.
"""
MAX_IMPORTS = 20
"""At most this many imports of one style sheet are read; its other files are fetched, but nothing
that these refer to."""


def read_style(context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
    """Read a style sheet: pages that use it also need the files that it needs."""
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
