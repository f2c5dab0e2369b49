"""The exceptions that Greencrawl raises; they have one root.

Failures of the outside world while fetching (a dead host, a 404) are values, not exceptions: see
``greencrawl.schema.records.Failure``. The errors here are for callers that asked for something
impossible, and for parts of our own system that are away.
"""

from __future__ import annotations

import errno

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""``errno`` of an OSError for a full disk, a used-up quota, or a file of the greatest size
allowed."""


class GreencrawlError(Exception):
    """Root of every exception of this project."""


class InvalidUrl(GreencrawlError, ValueError):
    """Raised when a string is not an absolute (or, with a base, resolvable) http(s) URL.

    ``url`` is the string, ``reason`` a short English phrase.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"not a URL to crawl ({reason}): {url[:200]!r}")
        self.url = url
        self.reason = reason


class InvalidConfig(GreencrawlError, ValueError):
    """Raised when settings or a crawl's options are wrong; the message names every bad field.

    ``problems`` holds one ``(field, what is wrong)`` pair for each bad field.
    """

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {what}" for field, what in problems))
        self.problems = problems


class Unavailable(GreencrawlError):
    """Raised when Redis, the store or every broker is away: wait with back-off and go on."""


class DutyLost(Unavailable):
    """Raised when a duty has passed to another broker: a write under it was refused."""


class FrontierMismatch(GreencrawlError):
    """Raised at start when the frontier was made with other nodes, partitions or rules."""


class UnknownCrawl(GreencrawlError, LookupError):
    """Raised when no crawl of that name or id exists (it may have been deleted)."""


class UnknownPage(GreencrawlError, LookupError):
    """Raised when nothing is stored under a page's id (its crawl may have been deleted)."""


class Refused(GreencrawlError):
    """Raised by the broker's client when the broker answered with a 4xx status.

    ``status`` is the HTTP status, ``problem`` the decoded RFC 9457 body.
    """

    def __init__(self, status: int, problem: dict[str, object]) -> None:
        super().__init__(f"{status} {problem.get('title', '')}: {problem.get('detail', '')}")
        self.status = status
        self.problem = problem
