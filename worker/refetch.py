"""Asking for a page that is stored only whether it has changed (RFC 9110, section 13.1).

Its task says that it is a refetch; what the server said of the page then – entity tag, time of the
last change – goes back to it. An answer of 304 is read as little as it has a body: the page stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TypeGuard

from greencrawl.schema.records import Failure, Fetched, Session, Task, TaskKind, Validators
from greencrawl.worker.crawls import CrawlContext, RootStore
from greencrawl.worker.session.backoff import until_available

_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]{0,256}"')
"""An entity tag; some servers send what is none, or is as long as a cookie."""
_DATE_CHARS = 40

NONE: Mapping[int, dict[str, str]] = {}


def conditions(
    store: RootStore, fingerprint: Callable[[str], int], context: CrawlContext, session: Session
) -> Mapping[int, dict[str, str]]:
    """Number of a task → header fields that ask only for what has changed; none for most.

    Read once a session, and only if some task of it is a refetch; waits while the store is away.
    None are sent for a crawl that logs in or has a hook: an answer is then not the same for all, or
    the request not ours, and the hook is to see what is fetched.
    """
    if context.hooks.any or context.options.auth:
        return NONE
    tasks = {
        fingerprint(task.url): task.number
        for task in session.tasks if task.kind is TaskKind.REFETCH
    }  # fmt: skip
    if not tasks:
        return NONE
    found = until_available(lambda: store.validators(session.crawl, list(tasks)), "store")
    fields = {tasks[number]: fields_of(known) for number, known in found.items()}
    return {number: some for number, some in fields.items() if some}


def asking(
    asked: Mapping[int, dict[str, str]], task: Task, headers: dict[str, str]
) -> dict[str, str]:
    """``headers``, with those that ask only for what has changed."""
    more = asked.get(task.number) if asked else None
    return {**headers, **more} if more else headers


def is_unchanged(
    answer: Fetched | Failure, task: Task, asked: Mapping[int, dict[str, str]]
) -> TypeGuard[Fetched]:
    """Whether the server says that a page, asked for so, has not changed."""
    return isinstance(answer, Fetched) and answer.status == 304 and task.number in asked


def fields_of(known: Validators) -> dict[str, str]:
    """The header fields by which a page is asked for if it has changed; none where nothing that
    the server said of it can be sent."""
    fields = {}
    if _TAG.fullmatch(known.etag):
        fields["if-none-match"] = known.etag
    if known.modified and len(known.modified) <= _DATE_CHARS and _is_date(known.modified):
        fields["if-modified-since"] = known.modified
    return fields


def _is_date(text: str) -> bool:
    try:
        return bool(parsedate_to_datetime(text)) and text.isascii()
    except (ValueError, OverflowError):
        return False
