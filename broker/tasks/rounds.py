"""Rounds: what is stored of a crawl is queued once more, some of it at a time.

This is part of the upkeep, under its duty. A step reads the next rows of the store, and stores them
as a forced batch in the transaction that moves the round on. So each URL is in one batch, whichever
process dies at whatever time, and what waits in Redis stays bounded however much is stored. See
decision 44.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from greencrawl.broker.service.service import Service
from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.log import logger
from greencrawl.schema.net.scope import Rules, compile, level_for
from greencrawl.schema.records import (
    Admission,
    Crawl,
    Final,
    Observation,
    Round,
    StoredPage,
    TaskKind,
    Totals,
)

log = logger("upkeep")

BATCH = 1000
"""Rows that a step reads."""
OPEN = 2000
"""If a crawl has this many open tasks, no more are queued."""
TURN_SECONDS = 0.5
"""After this long a crawl's turn is over: other crawls wait for theirs."""

_PAGES, _FINALS = "p", "f"
"""The first character of a cursor: pages or final states."""


def go_on(service: Service, crawl: Crawl, sums: Totals) -> bool:
    """Queue more of the crawl's rounds if it has room; return whether one of them is under way.

    Raises Unavailable, DutyLost.
    """
    for known in service.store.rounds(crawl.id):
        if known.ended_ms:
            continue
        _take_turn(service, crawl, known, sums.open)
        return True
    return False


def _take_turn(service: Service, crawl: Crawl, known: Round, waiting: int) -> None:
    """Run steps until enough is queued, all rows are read, or the time is over: most of the rows
    may not belong to the round."""
    until = monotonic() + TURN_SECONDS
    while waiting < OPEN:
        moved = _step(service, crawl, known, quiet=not waiting)
        if moved is None or moved.ended_ms or monotonic() > until:
            return
        waiting += moved.queued - known.queued
        known = moved


def _step(service: Service, crawl: Crawl, known: Round, *, quiet: bool) -> Round | None:
    """Store the next batch; return the round after that, or None if it did not move.

    The round ends when no task of the crawl is open any more: then pages that were being fetched at
    its start have their rows.
    """
    urls, cursor = _next(service, crawl, known)
    end = cursor is None and (quiet or known.kind == "plan") and not urls
    if cursor is None and not (urls or end):
        return None
    place = known.cursor if cursor is None else cursor
    if not service.store.queue_round(crawl.id, known, place, urls, end=end):
        return None
    if end:
        log.info("round_ended", crawl=crawl.name, kind=known.kind, queued=known.queued)
    ended_ms = epoch_ms() if end else 0
    return replace(known, cursor=place, queued=known.queued + len(urls), ended_ms=ended_ms)


def _next(service: Service, crawl: Crawl, known: Round) -> tuple[list[Admission], str | None]:
    """Return (URLs, cursor after them); None: there are no more rows."""
    rules = compile(crawl)
    part, _, after = known.cursor.partition(":")
    if part in ("", _PAGES):
        steps = service.store.page_steps(crawl.id, detail="row", after=after, window=BATCH)
        step = next(steps, None)
        if step is not None and step.looked_at:
            some = list(islice(step.pages, BATCH + 1))
            cursor = step.cursor if len(some) <= BATCH else some[BATCH - 1][0]
            pages = [page for _, page in some[:BATCH] if _belongs(page, known)]
            if known.kind == "plan":
                service.store.add_calendar(crawl.id, [_seen(page) for page in pages])
                return [], f"{_PAGES}:{cursor}"
            return [_again(crawl, rules, page, known) for page in pages], f"{_PAGES}:{cursor}"
        if known.kind == "read":
            return [], None
        after = ""
    if known.kind == "plan":
        return [], _plan_finals(service, crawl, after)
    found = list(islice(_finals(service, crawl, after), BATCH))
    urls = [item for _, item, at_ms in found if item is not None and at_ms < known.before_ms]
    return urls, f"{_FINALS}:{found[-1][0]}" if found else None


def _plan_finals(service: Service, crawl: Crawl, after: str) -> str | None:
    """Give places in the calendar to URLs that are gone; return the cursor after them."""
    found = list(islice(service.store.finals(crawl.id, after=after), BATCH))
    service.store.add_calendar(
        crawl.id,
        [
            Observation(
                last.crawl, last.fingerprint, last.at_ms, "gone", last.url, last.depth, last.task
            )
            for _, last in found
            if last.state == "gone"
        ],
    )
    return f"{_FINALS}:{found[-1][0]}" if found else None


def _seen(page: StoredPage) -> Observation:
    return Observation(page.crawl, page.fingerprint, page.fetched_ms, "page", page.url, page.depth)


def _belongs(page: StoredPage, known: Round) -> bool:
    return page.fetched_ms < known.before_ms and page.depth >= known.least_depth


def _again(crawl: Crawl, rules: Rules, page: StoredPage, known: Round) -> Admission:
    """Return the task of a page. A page outside the scope was kept as another page's requisite."""
    level = level_for(crawl.options.order, page.depth, None, page.url)
    kind = TaskKind.REREAD
    if known.kind == "fetch":
        kind = TaskKind.PAGE
        if crawl.options.requisites == "on" and rules.excluded_by(page.url, max(page.depth, 1)):
            kind = TaskKind.REQUISITE
    return Admission(page.url, page.depth, level, kind=kind)


def _finals(
    service: Service, crawl: Crawl, after: str
) -> Iterator[tuple[str, Admission | None, int]]:
    """Yield (cursor, URL, when) of final states; no URL if it is parked, or has a page."""
    for cursor, last in service.store.finals(crawl.id, after=after):
        stays = last.state == "parked" or _has_page(service, crawl, last)
        yield cursor, None if stays else last.again, last.at_ms


def _has_page(service: Service, crawl: Crawl, last: Final) -> bool:
    return service.store.page(crawl.id, last.fingerprint, detail="row") is not None
