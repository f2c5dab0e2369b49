"""Crawls that begin again: they rest when they are finished, and wake up for their next period.

This is part of the upkeep, under its duty. A period begins with a forced batch of seeds. The batch
is in the replay log in the same transaction as the row of the period. So a period has one batch,
whichever process dies at whatever time.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.log import logger
from greencrawl.schema.net.scope import starts
from greencrawl.schema.records import FINISHED, Admission, Crawl, Seed, TaskKind

log = logger("upkeep")

MAX_REDIRECTS = 10
"""A period follows at most this many redirects of a seed."""


def end(service: Service, crawl: Crawl, reason: str) -> Crawl:
    """Set a crawl done, or resting if it begins again, unless it changed since it was read.

    Returns the crawl after that. Raises Unavailable, DutyLost.
    """
    recrawl = crawl.options.recrawl
    if recrawl is not None and reason == FINISHED:
        return service.store.rest(crawl.id, recrawl.every_ms, version=crawl.version)
    return service.store.set_state(crawl.id, "done", reason, version=crawl.version)


def wake(service: Service, crawls: Iterable[Crawl]) -> float:
    """Begin the periods that are due; return the seconds until the next one is due.

    Raises Unavailable, DutyLost.
    """
    now, soonest = epoch_ms(), inf
    for crawl in crawls:
        if crawl.state != "resting":
            continue
        if not crawl.wakes(now):
            soonest = min(soonest, (crawl.wakes_ms - now) / 1000)
            continue
        if crawl.options.recrawl is None:  # it does not begin again any more
            changed = service.store.set_state(crawl.id, "done", FINISHED, version=crawl.version)
        else:
            urls = seeds(service, crawl)
            changed = service.store.begin_period(crawl.id, urls)
            log.info("period_started", crawl=crawl.name, seeds=len(urls))
        service.frontier.put_crawl(changed)
    return soonest


def seeds(service: Service, crawl: Crawl) -> list[Admission]:
    """Return the first URLs of a crawl's next period: its seeds, and the first pages of its
    sources.

    They are read again only if they have changed. The known targets of their redirects are added:
    unchanged redirects alone would not fetch these targets. URLs that are due by the crawl's
    calendar come only by the calendar.
    """
    verdicts = seeding.judge(crawl, [Seed(url) for _, url in starts(crawl.options)])
    wanted = {item.url: item for item in seeding.admissions(service, verdicts)}
    for item in tuple(wanted.values()):
        for _ in range(MAX_REDIRECTS):
            known = service.store.page(
                crawl.id, service.frontier.fingerprint(item.url), detail="text"
            )
            if known is None or not 300 <= known.status <= 399 or not known.links:
                break
            item = replace(item, url=known.links[0].url)
            wanted.setdefault(item.url, item)
    return [
        replace(item, kind=TaskKind.REFETCH)
        for item in wanted.values()
        if not _is_planned(service, crawl, item)
    ]


def _is_planned(service: Service, crawl: Crawl, item: Admission) -> bool:
    """Return whether the calendar has a URL asked for in the next period."""
    if crawl.options.recrawl is None or crawl.options.recrawl.deepest < 0:
        return False
    planned = service.store.planned(crawl.id, service.frontier.fingerprint(item.url))
    return planned is not None and not (planned.misses or planned.queued)
