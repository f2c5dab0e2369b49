"""Queries to the loggers for the log lines of all processes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import InvalidConfig, UnknownCrawl
from greencrawl.schema.logs.records import LEVELS, LogsQuery, LogsReply, key_of
from greencrawl.schema.text.moments import since_ms

__all__ = ["LEVELS", "last_lines", "lines"]


def last_lines(service: Service, given: Mapping[str, str], limit: int) -> LogsReply:
    """Return the last lines for a query, by the names of :class:`LogsQuery`; "" leaves one out.

    Raises InvalidConfig and msgspec's ValidationError.
    """
    said = {name: value for name, value in given.items() if value}
    query = msgspec.convert({**said, "limit": limit, "newest": True}, LogsQuery, strict=False)
    return lines(service, query)


def lines(service: Service, query: LogsQuery) -> LogsReply:
    """Return the lines of all loggers that match a query. Raises InvalidConfig."""
    try:
        if query.after:
            key_of(query.after)
    except ValueError as error:
        raise InvalidConfig([("after", "is no cursor")]) from error
    crawl = query.crawl
    if crawl:
        with suppress(UnknownCrawl):  # the logs of a deleted crawl may be asked for
            crawl = f"{crawl},{service.store.crawl(crawl).id}"
    return service.loggers.logs(
        replace(
            query,
            since=_moment("since", query.since),
            until=_moment("until", query.until) if query.until else "",
            crawl=crawl,
        )
    )


def _moment(name: str, text: str) -> str:
    """Return a moment that means the same on machines whose clocks differ. Raises InvalidConfig."""
    try:
        at = datetime.fromtimestamp(since_ms(text) / 1000, UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidConfig([(name, str(error))]) from error
    return at.isoformat(timespec="milliseconds")
