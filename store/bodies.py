"""Bodies outside SQL: what keeps them in files has these calls. SQL holds their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from greencrawl.schema.records import StoredPage

NO_BODY = sha256(b"").digest()[:16]
"""The digest (see :class:`greencrawl.schema.records.StoredPage`) of a body without a byte."""


def has_body(page: StoredPage) -> bool:
    """Whether a page that was read with its body has it: not where it was not kept."""
    return bool(page.body) or page.digest in (b"", NO_BODY)


class Place(NamedTuple):
    """Where a body is: bytes ``offset`` … ``offset + length`` of ``file`` hold its record."""

    file: str
    offset: int
    length: int


class Bodies(Protocol):
    """Files with bodies. Calls may block; a store makes them off the hub, one at a time."""

    def append(
        self, pages: Sequence[StoredPage], known: Mapping[tuple[int, bytes], Place]
    ) -> list[Place]:
        """Write a record for each page, durable when this returns; gives each one's place.

        ``known`` are the places that the store has for bodies, by (crawl, digest): they are not
        written again, only that they were met, and their places here are of no use to the store. So
        it is with a digest that came before in ``pages``. A page without its body (it was not kept,
        or is stored again without it) is not written; without a known place its own is an empty
        file name. Raises Unavailable (a full disk), after
        which the records may be there or not, and are written again.
        """

    def read(self, place: Place) -> bytes:
        """The body at ``place``. Raises BodyAway."""

    def close(self) -> None:
        """Finish the files. Idempotent."""
