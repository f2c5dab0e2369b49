"""Seeds: requests, replies about each seed, and the batches that the store keeps."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from greencrawl.schema.records.crawl import LEVELS
from greencrawl.schema.records.fields import Url
from greencrawl.schema.records.lease import Admission


class Seed(Struct, frozen=True, forbid_unknown_fields=True):
    """A URL to queue. ``level`` 0 is served before 31; ``depth`` is the depth that it gets."""

    url: Url
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    level: Annotated[int, Meta(ge=0, lt=LEVELS)] = 0


class SeedRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Body of ``POST /v1/crawls/{c}/urls`` as JSON; as NDJSON each line is one of ``urls``.

    ``force`` queues URLs again that were already fetched or given up. ``if_changed`` does, too; the
    hosts of stored pages are asked only whether these have changed.
    """

    urls: Annotated[tuple[Url | Seed, ...], Meta(max_length=50_000)]
    force: bool = False
    if_changed: bool = False


class SeedItem(Struct, frozen=True, omit_defaults=True):
    """The result for a URL; ``reason`` says why it was rejected.

    ``again``: the crawl had fetched the URL or given it up, and queues it once more. ``duplicate``:
    the crawl knew it; if it was forced, its first fetch is still to come or under way.
    """

    url: str
    status: Literal["added", "again", "duplicate", "rejected", "pending"]
    reason: str = ""


class SeedReply(Struct, frozen=True):
    """Counts, and one item per URL in the order given.

    ``pending`` URLs are durable, and are queued when the Redis node of their host answers again.
    """

    added: int
    duplicate: int
    rejected: int
    items: tuple[SeedItem, ...]
    pending: int = 0
    again: int = 0


class SeedBatch(Struct, frozen=True, kw_only=True):
    """A stored batch of seeds; pending until all partitions admitted it, also those of nodes that
    are away."""

    id: int
    crawl: int
    urls: tuple[Admission, ...]
    force: bool = False
    stamp: int = 0
