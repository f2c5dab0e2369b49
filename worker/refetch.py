"""Stored pages again: asked for with the condition that they have changed, or read as they are.

A task of kind refetch asks only for a changed page (RFC 9110, section 13.1). The server gets the
validators that it sent with the page: entity tag, time of the last change. An answer of 304 has no
body to read: the page stays. A task that reads a stored page again sends no request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TypeGuard

from msgspec.structs import replace

from greencrawl.schema.records import (
    Admission,
    Check,
    Failure,
    FailureKind,
    Fetched,
    Session,
    StoredPage,
    Task,
    TaskKind,
    Validators,
)
from greencrawl.store.errors import BodyAway
from greencrawl.worker import retry
from greencrawl.worker.crawls import CrawlContext, RootStore
from greencrawl.worker.delivery.results import Result, Results
from greencrawl.worker.kernels import choosing
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.link_checker import redirected
from greencrawl.worker.process.guarded import Guarded
from greencrawl.worker.session.backoff import until_available
from greencrawl.worker.session.fetcher import Visit

_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]{0,256}"')
"""An entity tag; some servers send an invalid one, or one as long as a cookie."""
_DATE_CHARS = 40

_REFETCH = frozenset({TaskKind.REFETCH})
_KNOWN = _REFETCH | {TaskKind.SITEMAP, TaskKind.REQUISITE}

NONE: Mapping[int, dict[str, str]] = {}


def conditions(
    store: RootStore, fingerprint: Callable[[str], int], context: CrawlContext, session: Session
) -> Mapping[int, dict[str, str]]:
    """Return task number → header fields that ask only for a changed page; most tasks have none.

    The validators are read once a session, and only if a task is or may be a refetch: sitemaps and
    requisites keep their own kinds when they are asked for again. This waits while the store is
    away. No such fields are sent for a crawl that logs in, has a hook, or has a kernel that fetches
    by itself: an answer may depend on the login, hooks and kernels must see whole pages, and such a
    kernel makes its own requests.
    """
    if context.hooks.any or context.options.auth or context.kernels.fetching:
        return NONE
    recrawl = context.options.recrawl
    kinds = _KNOWN if recrawl is not None and recrawl.deepest >= 0 else _REFETCH
    tasks = {fingerprint(task.url): task.number for task in session.tasks if task.kind in kinds}
    if not tasks:
        return NONE
    found = until_available(lambda: store.validators(session.crawl, list(tasks)), "store")
    fields = {tasks[number]: fields_of(known) for number, known in found.items()}
    return {number: some for number, some in fields.items() if some}


def is_stored(
    store: RootStore, fingerprint: Callable[[str], int], visit: Visit, task: Task
) -> bool:
    """Return whether a task's URL has a page, so that the task asks for it again.

    All tasks of the session are looked up together, once. It waits while the store is away.
    """
    session = visit.held.session
    if visit.stored is None:
        tasks = {fingerprint(one.url): one.number for one in session.tasks}
        crawl, wanted = session.crawl, list(tasks)
        found = until_available(lambda: store.with_page(crawl, wanted), "store")
        visit.stored = frozenset(tasks[number] for number in found)
    return task.number in visit.stored


def with_conditions(
    sent: Mapping[int, dict[str, str]], task: Task, headers: dict[str, str]
) -> dict[str, str]:
    """Return ``headers``, with those that ask only for a changed page."""
    more = sent.get(task.number) if sent else None
    return {**headers, **more} if more else headers


def is_unchanged(
    answer: Fetched | Failure, task: Task, sent: Mapping[int, dict[str, str]]
) -> TypeGuard[Fetched]:
    """Return whether the server says that a page, asked for in this way, has not changed."""
    return isinstance(answer, Fetched) and answer.status == 304 and task.number in sent


def fields_of(known: Validators) -> dict[str, str]:
    """Return the header fields that ask for a page only if it has changed.

    There are none if nothing that the server sent with the page can be used.
    """
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


def reread(
    store: RootStore, results: Results, guarded: Guarded, visit: Visit, task: Task
) -> Result:
    """Read a stored page again for links that the crawl's rules now allow.

    They are stored with the page, whose text and fields stay as they are. A page without such
    links, or without a body, is noted as checked, so that in the replay log its task is settled. A
    page whose body cannot be read from here fails, and is tried again.
    """
    result = results.settled(visit.held, task)
    number = results.number_of(task.url)
    try:
        page = until_available(lambda: store.page(visit.context.crawl.id, number), "store")
    except BodyAway as error:
        failure = Failure(FailureKind.BODY_AWAY, f"its body is away: {error.file}", requests=0)
        decision = retry.decide(failure, task.errors, visit.context.options.tries)
        return results.failed(visit.held, visit.context.crawl.id, task, failure, decision)
    if page is None:
        return result
    plain = replace(task, kind=TaskKind.PAGE)
    links, problems = _links(guarded, visit, plain, page)
    known = {link.url for link in page.links}
    page.links = [link for link in links if link.url not in known]
    if visit.context.hooks.any and problems:
        results.note_hooks(page.crawl, plain, result, problems, page.fetched_ms)
    if not page.links:
        return _checked(result, visit, number, page.fetched_ms)
    result.page = page
    return result


def _checked(result: Result, visit: Visit, number: int, at_ms: int) -> Result:
    result.check = Check(crawl=visit.context.crawl.id, fingerprint=number, at_ms=at_ms)
    return result


def _links(
    guarded: Guarded, visit: Visit, task: Task, page: StoredPage
) -> tuple[list[Admission], dict[str, str]]:
    """Return the links of a page by the present rules, and the errors of the user's functions."""
    if 300 <= page.status <= 399:
        target = page.final_url
        leads = target not in ("", page.url) and not guarded.excluded_by(visit, task, target)
        return [redirected(task, target)] if leads else [], {}
    if not page.body or guarded.excluded_by(visit, task, task.url):
        return [], {}
    fetched = as_fetched(page)
    way = choosing.reading(visit.context, task, fetched)
    reading = guarded.read(visit, task, fetched, way.kernel) if way.reads else Reading()
    failed = reading.failure or "links" in reading.problems
    return [] if failed else reading.links, reading.problems


def as_fetched(page: StoredPage) -> Fetched:
    """Return what the store kept of an answer: no cookies, no address of the server."""
    return Fetched(
        url=page.url,
        status=page.status,
        headers=page.headers,
        body=page.body,
        fetched_ms=page.fetched_ms,
        elapsed_ms=page.elapsed_ms,
        wire_bytes=page.body_bytes,
        truncated=page.truncated,
        request=page.request,
        sampled=False,
    )
