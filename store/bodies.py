"""The interface for bodies outside SQL, in files; SQL holds their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

from greencrawl.schema.records import StoredPage

NO_BODY = sha256(b"").digest()[:16]
"""The digest (see :class:`greencrawl.schema.records.StoredPage`) of an empty body."""


def has_body(page: StoredPage) -> bool:
    """Return whether a page that was read with its body has the body: it may not have been kept."""
    return bool(page.body) or page.digest in (b"", NO_BODY)


class Place(NamedTuple):
    """Where a body is: bytes ``offset`` … ``offset + length`` of ``file`` hold its record."""

    file: str
    offset: int
    length: int


class Bodies(Protocol):
    """Files with bodies. Calls may block; a store makes them on another thread, one at a time."""

    def append(
        self, pages: Sequence[StoredPage], known: Mapping[tuple[int, bytes], Place]
    ) -> list[Place]:
        """Write a record for each page, durable on return; return the place of each.

        ``known`` are the places that the store has for bodies, by (crawl, digest). Such a body is
        not written again: the record only says that it was fetched again, and the store ignores the
        place of this record. The same holds for a digest that came before in ``pages``. A page
        whose body was not kept, or that is stored again without its body, gets no record; its
        place, unless known, has an empty file name. Raises Unavailable (a full disk). After that
        the records may be there or not; the store writes them again.
        """

    def read(self, place: Place) -> bytes:
        """Return the body at ``place``. Raises BodyAway."""

    def close(self) -> None:
        """Finish the files. Idempotent."""
