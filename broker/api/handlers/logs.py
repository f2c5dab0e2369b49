"""What all processes said, as the loggers have it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from greencrawl.broker.logs.records import LogsQuery, LogsReply, key_of
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import InvalidConfig, UnknownCrawl
from greencrawl.schema.text.moments import since_ms


def list_logs(service: Service, query: LogsQuery) -> LogsReply:
    """Lines that processes logged, from all loggers by time, each once.

    Ask again with `next` as `after` until that is "", though it may come with few lines or none.
    `silent` names loggers that did not answer: what they have is missing.
    """
    try:
        if query.after:
            key_of(query.after)
    except ValueError as error:
        raise InvalidConfig([("after", "is no cursor")]) from error
    crawl = query.crawl
    if crawl:
        with suppress(UnknownCrawl):  # what was said of one that is deleted may be asked for
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
    """A moment that means the same on machines whose clocks differ. Raises InvalidConfig."""
    try:
        at = datetime.fromtimestamp(since_ms(text) / 1000, UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidConfig([(name, str(error))]) from error
    return at.isoformat(timespec="milliseconds")
