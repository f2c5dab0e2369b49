"""Crawls that begin again: they rest when they are finished, and wake up for their next period.

It is upkeep's work, under its duty. A period begins with a forced batch of seeds. The batch is in
the replay log in the same transaction as the row of the period, so it is one batch, whichever
process dies at whatever time.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.log import logger
from greencrawl.schema.records import FINISHED, Crawl

log = logger("upkeep")


def end(service: Service, crawl: Crawl, reason: str) -> Crawl:
    """Set a crawl done, unless it changed since it was read: resting, if it begins again.

    Returns it as it is then. Raises Unavailable, DutyLost.
    """
    recrawl = crawl.options.recrawl
    if recrawl is not None and reason == FINISHED:
        return service.store.rest(crawl.id, recrawl.every_ms, version=crawl.version)
    return service.store.set_state(crawl.id, "done", reason, version=crawl.version)


def wake(service: Service, crawls: Iterable[Crawl]) -> float:
    """Begin the periods that are due; returns the seconds until the next one is.

    Raises Unavailable, DutyLost.
    """
    now, soonest = epoch_ms(), inf
    for crawl in crawls:
        if crawl.state != "resting":
            continue
        if not crawl.wakes(now):
            soonest = min(soonest, (crawl.wakes_ms - now) / 1000)
            continue
        if crawl.options.recrawl is None:  # it is not to begin again any more
            changed = service.store.set_state(crawl.id, "done", FINISHED, version=crawl.version)
        else:
            urls = seeding.period_seeds(service, crawl)
            changed = service.store.begin_period(crawl.id, urls)
            log.info("period_begins", crawl=crawl.name, seeds=len(urls))
        service.frontier.put_crawl(changed)
    return soonest
