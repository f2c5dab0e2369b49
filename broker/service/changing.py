"""Changes single options of an existing crawl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from greencrawl.broker.api.problems import HttpProblem, invalid
from greencrawl.broker.service import seeding
from greencrawl.broker.service.service import Service
from greencrawl.schema.net.scope import starts
from greencrawl.schema.records import Crawl, CrawlOptions


def change(
    service: Service,
    name: str,
    given: Mapping[str, Any],
    *,
    revision: int | None = None,
    by: str = "",
) -> Crawl:
    """Set the ``given`` options (None sets the default); return the crawl after that.

    It works by compare-and-set: concurrent changes of others stay. Raises HttpProblem (409) if the
    crawl was changed after ``revision``, HttpProblem (400) that names each wrong field, and
    UnknownCrawl.
    """
    while True:
        known = service.store.crawl(name)
        if revision not in (None, known.revision):
            raise HttpProblem(
                409, f"crawl {name} has revision {known.revision} by now, not {revision}"
            )
        options = _merged(known.options, given)
        if options == known.options:
            return known
        fresh = starts(options) != starts(known.options)
        crawl = seeding.put(service, name, options, seeded=fresh, revision=known.revision)
        if crawl.options == options:  # otherwise it was changed meanwhile
            seeding.tell_change(service, known, crawl, by)
            return service.store.crawl(crawl.id)


def _merged(options: CrawlOptions, given: Mapping[str, Any]) -> CrawlOptions:
    """Return the options after the ``given`` changes; None removes an option. Raises HttpProblem
    (400)."""
    unknown = [name for name in given if name not in CrawlOptions.__struct_fields__]
    if unknown:
        raise HttpProblem(
            400,
            f"{unknown[0][:100]}: unknown option",
            [(f"options.{name[:100]}", "unknown option") for name in unknown[:20]],
        )
    said = msgspec.to_builtins(options) | given
    try:
        return msgspec.convert(
            {name: value for name, value in said.items() if value is not None}, CrawlOptions
        )
    except msgspec.ValidationError as error:
        raise invalid(error) from error
