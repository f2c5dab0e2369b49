"""Stored content for people: lists of pages, one page, its text and its body.

The command uses the same functions on a store when no broker runs. A list is read through the
store's streams, which hold up no query and no commit; a native thread searches patterns.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import gevent
from gevent.lock import BoundedSemaphore

from greencrawl.broker.api.messages import ListedPage, PageReply, PageVersion
from greencrawl.schema.errors import UnknownPage
from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Attempt, Final, PageFilter, StoredPage
from greencrawl.schema.text.patterns import Pattern
from greencrawl.schema.wire import from_json
from greencrawl.store.base import STEP_ROWS, Detail, Step, Store

LOOKED_AT = 100_000
"""Pages that a list reads before it answers, whatever it found."""
SEARCHED = 5000
"""Pages in which a pattern is searched before an answer."""
LOOK_SECONDS = 5.0
"""A request reads for at most this many seconds before it answers, unless a step takes longer."""
BATCH = 64
BATCH_CHARS = 256 * 1024
"""Pages that are searched together: this many, or this many characters of text."""
UNCHANGED = 304
"""The status by which a server says that a page has not changed."""
VERSIONS = 100
"""How many versions a page's history has, the latest ones."""


_ID = re.compile(r"([0-9]{1,18})-([0-9a-f]{16})")


class PageList(NamedTuple):
    """The result of a look: pages, the cursor to go on from ("": complete), how many were read.

    If the look ended within a step, ``looked_at`` counts only what the filter selected in that
    step.
    """

    pages: list[StoredPage]
    next: str
    looked_at: int


class Reader:
    """Reads lists of a store. One search runs at a time; others wait for their turn."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = BoundedSemaphore(1)

    def look(
        self,
        crawl: int,
        wanted: PageFilter,
        pattern: Pattern | None = None,
        *,
        limit: int = 100,
        after: str = "",
        newest: bool = False,
    ) -> PageList:
        """Return up to ``limit`` pages whose URL, title or text ``pattern`` matches.

        They are in the order of storing, or with ``newest`` in the opposite one. The look ends
        sooner, perhaps without a page, at a limit of pages or of time. Raises ValueError for an
        invalid cursor.
        """
        if pattern is None:
            return self._list(self._steps(crawl, wanted, "row", after, newest), limit)
        with self._turn:
            return self._search(self._steps(crawl, wanted, "text", after, newest), pattern, limit)

    def _list(self, steps: Iterator[Step], limit: int) -> PageList:
        until = time.monotonic() + LOOK_SECONDS
        found: list[tuple[str, StoredPage]] = []
        seen, following = 0, ""
        for step in steps:
            more = list(islice(step.pages, limit + 1 - len(found)))
            found += more
            if len(found) > limit:  # one page too many shows that there are more
                seen += len(more) - 1
                following = found[limit - 1][0]
                break
            seen += step.looked_at
            if seen >= LOOKED_AT or time.monotonic() > until:
                following = step.cursor
                break
        return PageList([page for _, page in found[:limit]], following, seen)

    def _search(self, steps: Iterator[Step], pattern: Pattern, limit: int) -> PageList:
        until = time.monotonic() + LOOK_SECONDS
        found: list[StoredPage] = []
        seen, searched = 0, 0
        for step in steps:
            before = searched
            for some in _batches(step.pages):
                matches = gevent.get_hub().threadpool.apply(_matching, (pattern, some))
                for (cursor, page), matching in zip(some, matches, strict=True):
                    searched += 1
                    if matching:
                        found.append(page)
                        if len(found) == limit:
                            return PageList(found, cursor, seen + searched - before)
                if searched >= SEARCHED or time.monotonic() > until:
                    return PageList(found, some[-1][0], seen + searched - before)
            seen += step.looked_at
            if seen >= LOOKED_AT or time.monotonic() > until:
                return PageList(found, step.cursor, seen)
        return PageList(found, "", seen)

    def _steps(
        self, crawl: int, wanted: PageFilter, detail: Detail, after: str, newest: bool
    ) -> Iterator[Step]:
        window = min(STEP_ROWS, LOOKED_AT)
        return self._store.page_steps(
            crawl, wanted, detail=detail, after=after, window=window, newest=newest
        )


def _batches(
    stream: Iterator[tuple[str, StoredPage]],
) -> Iterator[list[tuple[str, StoredPage]]]:
    some: list[tuple[str, StoredPage]] = []
    chars = 0
    for cursor, page in stream:
        some.append((cursor, page))
        chars += len(page.text)
        if len(some) == BATCH or chars >= BATCH_CHARS:
            yield some
            some, chars = [], 0
            gevent.sleep(0)  # unpacking runs in this thread; let others have their turn
    if some:
        yield some


def _matching(pattern: Pattern, some: list[tuple[str, StoredPage]]) -> list[bool]:
    """Tell which pages match; runs in a native thread."""
    return [any(map(pattern.found_in, (page.url, page.title, page.text))) for _, page in some]


def listed(page: StoredPage) -> ListedPage:
    """Return a page as lists show it."""
    return ListedPage(**_shown(page))


def reply(store: Store, page_id: str) -> PageReply:
    """Return all of a page except text and body. Raises UnknownPage."""
    page = stored(store, page_id, body=False)
    versions = store.history(page.crawl, page.fingerprint, VERSIONS)
    final = store.final(page.crawl, page.fingerprint)
    tries = store.attempts(page.crawl, page.fingerprint) if final is not None else ()
    return PageReply(
        **_shown(page),
        crawl=store.crawl(page.crawl).name,
        host=host_of(page.url),
        headers=page.headers,
        elapsed_ms=page.elapsed_ms,
        depth=page.depth,
        truncated=page.truncated,
        language=page.language,
        encoding=page.encoding,
        fields=page.fields,
        items=from_json(page.items or b"[]", tuple[dict[str, Any], ...]),
        digest=page.digest.hex(),
        text_chars=len(page.text),
        main=page.main,
        links=tuple(link.url for link in page.links),
        gone_since_ms=gone_since_ms(page, final, tries),
        versions=tuple(
            PageVersion(
                fetched_ms=one.fetched_ms,
                status=one.status,
                changed=one.changed,
                digest=one.digest.hex(),
                body_bytes=one.body_bytes,
                first=one.first,
            )
            for one in versions
        ),
    )


def gone_since_ms(page: StoredPage, final: Final | None, tries: Iterable[Attempt]) -> int:
    """Return since when a stored page is gone, as far as its attempts go back; 0: it is not gone.

    ``tries`` are the attempts, the latest first.
    """
    if final is None or final.state != "gone" or final.at_ms <= page.fetched_ms:
        return 0
    since = final.at_ms
    for one in tries:
        if one.at_ms <= page.fetched_ms or one.code == UNCHANGED:
            break
        if one.kind == "gone":
            since = min(since, one.at_ms)
    return since


def stored(store: Store, page_id: str, *, body: bool) -> StoredPage:
    """Return the page of an id, with its body or without.

    Raises UnknownPage, UnknownCrawl, BodyAway.
    """
    crawl, fingerprint = _key(page_id)
    store.crawl(crawl)  # a crawl that is being deleted is unknown, though it still has rows
    page = store.page(crawl, fingerprint, detail="body" if body else "text")
    if page is None:
        raise UnknownPage(f"no page has the id {page_id}")
    return page


def body_at(store: Store, page_id: str, at_ms: int) -> bytes:
    """Return the body of a page as it was fetched at ``at_ms`` (Unix time), or of the present
    version (0).

    Raises UnknownPage, also if that body is not kept, UnknownCrawl and BodyAway.
    """
    if not at_ms:
        return stored(store, page_id, body=True).body
    page = stored(store, page_id, body=False)
    if page.fetched_ms == at_ms:
        return stored(store, page_id, body=True).body
    versions = store.history(page.crawl, page.fingerprint, VERSIONS)
    version = next((one for one in versions if one.fetched_ms == at_ms), None)
    if version is None:
        raise UnknownPage(f"page {page_id} has no version of {at_ms}")
    if not version.body_bytes:
        return b""  # no store keeps an empty body
    found = store.body(page.crawl, version.digest, version.body_bytes)
    if found is None:
        raise UnknownPage(
            f"the body of that version of page {page_id} is not kept: see keep_versions of a crawl"
        )
    return found


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of a page's id."""
    return _ID.fullmatch(text) is not None


def _key(page_id: str) -> tuple[int, int]:
    """Return (crawl, fingerprint) of a page's id. Raises UnknownPage."""
    found = _ID.fullmatch(page_id)
    if found is None:
        raise UnknownPage(f"{page_id[:60]!r} is no page's id")
    return int(found[1]), int.from_bytes(bytes.fromhex(found[2]), signed=True)


def _shown(page: StoredPage) -> dict[str, Any]:
    return {
        "id": page.id,
        "url": page.url,
        "status": page.status,
        "fetched_ms": page.fetched_ms,
        "body_bytes": page.body_bytes,
        "title": page.title,
        "canonical": page.canonical,
        "directives": page.directives,
        "target": "" if page.final_url in ("", page.url) else page.final_url,
    }
