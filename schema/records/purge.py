"""What is to be deleted of a crawl."""

from __future__ import annotations

from msgspec import Struct

from greencrawl.schema.records.host import NodeAway


class Purge(Struct, frozen=True, kw_only=True):
    """A deletion under way: of a crawl, or of what waits of one host in it.

    ``instance`` is the crawl's id: its name may belong to another by now. ``total`` counts stored
    rows, or tasks of the host, when it began (0: not counted yet); ``removed`` is how far it is.
    ``away`` are Redis nodes that it waits for: it goes on by itself when they are back.
    """

    id: int
    crawl: str
    instance: int
    host: str = ""
    asked_ms: int = 0
    total: int = 0
    removed: int = 0
    away: tuple[NodeAway, ...] = ()
