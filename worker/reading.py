"""Reading an answer: extraction, then the user's hooks, then the link checker.

No I/O and no shared state but that of the user's own module, so that the same function runs in a
worker's process and in the one where a suspect's page is read alone (``worker.alone``).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from schema.records import Admission, Fetched, Task
from worker.crawls import CrawlContext
from worker.extract import extract
from worker.hooks import HookError


class Reading(Struct, kw_only=True):
    """What a page says. ``problems`` are errors of the user's functions, for the journal."""

    title: str = ""
    text: str = ""
    language: str = ""
    encoding: str = ""
    fields: dict[str, Any] | None = None
    links: list[Admission] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read(context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
    """Read the HTML that came as ``fetched`` for ``task``; an error in a hook is a problem."""
    page = extract(
        fetched.body,
        task.url,
        fetched.content_type,
        agent=context.agent,
        robots_tag=fetched.headers.get("x-robots-tag", ""),
    )
    problems: list[str] = []
    fields, links = None, page.links
    try:
        fields = context.hooks.page_fields(page, fetched)
    except HookError as error:
        problems.append(str(error))
    try:
        links = context.hooks.chosen_links(page)
    except HookError as error:
        problems.append(str(error))
    return Reading(
        title=page.title,
        text=page.text,
        language=page.language,
        encoding=page.encoding,
        fields=fields,
        links=context.checker.check(page, links, task.depth),
        problems=problems,
    )
