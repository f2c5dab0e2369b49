"""The errors that a store raises besides :class:`greencrawl.schema.errors.Unavailable`."""

from __future__ import annotations

from greencrawl.schema.errors import GreencrawlError


class Unstorable(GreencrawlError, ValueError):
    """Raised when a record cannot be written in this form: trying again would not help.

    ``url`` names the record, so that the caller can leave it out and commit the others.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot be stored ({reason}): {url[:200]!r}")
        self.url = url
        self.reason = reason


class Damaged(GreencrawlError):
    """Raised when the database file is corrupt or not a database: a person must repair it."""


class BodyAway(GreencrawlError):
    """Raised when a page's body is in a file that is missing, cut off or not readable.

    ``file`` names it.
    """

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"the body cannot be read ({reason}): {file}")
        self.file = file


class Closed(GreencrawlError):
    """Raised when a store is used after ``close()`` or in a process that did not open it."""
