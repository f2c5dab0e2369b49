"""The changes in a crawl since a moment: pages that are new, changed or gone.

They are read from the histories of pages, as far back as retention leaves these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

from greencrawl.broker.api.messages import Change, ChangesReply
from greencrawl.broker.service.pages import LOOK_SECONDS, LOOKED_AT, gone_since_ms
from greencrawl.schema.records import Final, PageFilter, StoredPage
from greencrawl.store.base import STEP_ROWS, Store

HISTORY = 1000
"""How many fetches of a page are read, the latest ones."""
_PAGES, _FINALS = "p", "f"


def look(store: Store, crawl: int, since_ms: int, limit: int, after: str) -> ChangesReply:
    """Return up to ``limit`` changes since then (Unix time), pages first, then what is gone.

    It ends sooner, perhaps with none, at a limit of rows or of time. Raises ValueError for an
    invalid cursor.
    """
    until = time.monotonic() + LOOK_SECONDS
    found: list[Change] = []
    seen = 0
    for cursor, change in _walk(store, crawl, since_ms, after):
        seen += 1
        found += [change] if change is not None else []
        if len(found) == limit or seen >= LOOKED_AT or time.monotonic() > until:
            return ChangesReply(tuple(found), cursor, seen)
    return ChangesReply(tuple(found), "", seen)


def _walk(
    store: Store, crawl: int, since_ms: int, after: str
) -> Iterator[tuple[str, Change | None]]:
    """Yield (cursor, change or none) of each row that is read."""
    part, _, place = after.partition(".")
    if part not in ("", _PAGES, _FINALS):
        raise ValueError(f"no cursor: {after[:40]!r}")
    if part != _FINALS:
        wanted = PageFilter(since_ms=since_ms)
        for step in store.page_steps(crawl, wanted, detail="row", after=place, window=STEP_ROWS):
            for cursor, page in step.pages:
                yield f"{_PAGES}.{cursor}", _of_page(store, page, since_ms)
            yield f"{_PAGES}.{step.cursor}", None
        place = ""
    for cursor, final in store.finals(crawl, since_ms, after=place):
        yield f"{_FINALS}.{cursor}", _of_final(store, final, since_ms)


def _of_page(store: Store, page: StoredPage, since_ms: int) -> Change | None:
    versions = store.history(page.crawl, page.fingerprint, HISTORY)
    before = next((one for one in versions if one.fetched_ms < since_ms), None)
    if before is None:
        return _change(page, "new", versions[-1].fetched_ms if versions else page.fetched_ms)
    latest = versions[0]
    if (latest.digest, latest.status) == (before.digest, before.status):
        return None
    return _change(page, "changed", latest.fetched_ms)


def _of_final(store: Store, final: Final, since_ms: int) -> Change | None:
    """Return the change of a page that is gone since then, and was there before."""
    if final.state != "gone":
        return None
    page = store.page(final.crawl, final.fingerprint, detail="row")
    if page is None:
        return None
    tries = store.attempts(final.crawl, final.fingerprint)
    gone_ms = gone_since_ms(page, final, tries)
    return _change(page, "gone", gone_ms) if gone_ms >= since_ms else None


def _change(page: StoredPage, what: Literal["new", "changed", "gone"], at_ms: int) -> Change:
    return Change(change=what, at_ms=at_ms, id=page.id, url=page.url, title=page.title)
