"""What a store raises besides :class:`schema.errors.Unavailable`."""

from __future__ import annotations

from schema.errors import GreencrawlError


class Unstorable(GreencrawlError, ValueError):
    """Raised when a record cannot be written as it is: trying again would not help.

    ``url`` names the record, so that the caller can leave it out and commit the others.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot be stored ({reason}): {url[:200]!r}")
        self.url = url
        self.reason = reason


class Damaged(GreencrawlError):
    """Raised when the database file is no database or is corrupt: a person must act."""


class Closed(GreencrawlError):
    """Raised when a store is used after ``close()`` or in a process that did not open it."""
