"""Plots of crawls, and alerts."""

from __future__ import annotations

from greencrawl.broker.api.messages import SamplesQuery
from greencrawl.broker.service import watching
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Alert, Sample
from greencrawl.schema.text.moments import since_ms


def list_samples(service: Service, crawl: str, query: SamplesQuery) -> list[Sample]:
    """Counters of a crawl, minute by minute, for plots.

    A minute has a point while the crawl is under way and a broker and all Redis nodes are there;
    where nothing changes only one in 15 minutes has one, and the last.
    If there are more minutes than ``points``, a point stands for several: all for the same number,
    and for as few as possible.
    """
    try:
        since = since_ms(query.since) if query.since else 0
    except ValueError as error:
        raise InvalidConfig([("since", str(error))]) from error
    found = service.store.crawl(crawl)
    return watching.points(service.store.samples(found.id, since, query.points))


def list_alerts(service: Service) -> list[Alert]:
    """The open alerts, the oldest first."""
    return watching.open_alerts(service)
