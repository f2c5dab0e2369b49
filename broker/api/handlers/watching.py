"""Plots of crawls, and alerts."""

from __future__ import annotations

from greencrawl.broker.api.messages import SamplesQuery
from greencrawl.broker.service import watching
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import Alert, Sample
from greencrawl.schema.text.moments import since_ms


def list_samples(service: Service, crawl: str, query: SamplesQuery) -> list[Sample]:
    """Get counters of a crawl, minute by minute, for plots.

    A minute has a point while the crawl is under way, a broker runs and all Redis nodes answer; so
    has the first minute after its end. The first point stands for all that came before it. If
    nothing changes, only one minute in 15 has a point, and the last one. If there are more minutes
    than ``points``, each point stands for the same number of minutes, as few as possible.
    """
    try:
        since = since_ms(query.since) if query.since else 0
    except ValueError as error:
        raise InvalidConfig([("since", str(error))]) from error
    found = service.store.crawl(crawl)
    return watching.points(found, service.store.samples(found.id, since, query.points), since)


def list_alerts(service: Service) -> list[Alert]:
    """List the open alerts, the oldest first."""
    return watching.open_alerts(service)
