"""Which kernel is for which URLs of a crawl, as a person writes it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from greencrawl.schema.records.fields import Pattern

BUILT_IN = ("http", "json", "sitemap", "feed")
"""Names of kernels that are chosen by content; any but ``json``, which needs a source, may be
named for URLs as well."""


class KernelRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """URLs that are fetched and read by one kernel.

    ``match`` is a whole canonical URL in which ``*`` stands for any characters; of several that
    match the first counts. ``kernel`` is ``http``, ``sitemap`` or ``feed``, or ``module:Class``.
    """

    match: Pattern
    kernel: Annotated[str, Meta(min_length=1, max_length=128)]
