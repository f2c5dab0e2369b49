"""Records about log lines that processes, loggers and brokers exchange."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from msgspec import Meta, Struct
from msgspec.structs import asdict

from greencrawl.schema.records.fields import CRAWL_NAME, WorkerId
from greencrawl.schema.text.moments import SINCE

LEVELS = ("debug", "info", "warning", "error", "critical")
"""From the lowest to the highest."""

MOST_LINE_BYTES = 32 * 1024
"""A longer line is shortened by its process, and refused by a logger."""

POST_BYTES = 512 * 1024
"""A post has lines of at most this many bytes; one post is sent a second."""

Level = Literal["debug", "info", "warning", "error", "critical"]
Sequence = Annotated[int, Meta(ge=0, le=2**62)]
Cursor = Annotated[
    str,
    Meta(max_length=200, pattern=r"^[A-Za-z0-9._-]*$", description="`next` of the previous answer"),
]


class PostQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query of ``POST /v1/logs`` at a logger: whose lines these are, numbered from ``first`` on.

    ``after``: the sender still holds lines that it believes this logger has taken, up to this one.
    With ``flush`` the answer comes when all lines of this member are on disk.
    """

    member: WorkerId
    incarnation: Sequence
    first: Annotated[int, Meta(ge=1, le=2**62)]
    after: Sequence = 0
    flush: bool = False


class PostReply(Struct, frozen=True, kw_only=True):
    """The numbers of the last line that a logger has taken in a member's life, and of the last line
    on disk.

    If ``taken`` is below what was sent, the lines in between must be sent again.
    """

    taken: int
    kept: int


class LogLine(Struct, frozen=True, kw_only=True):
    """A log line.

    ``member``, ``incarnation`` and ``sequence`` identify it; ``said`` are its fields.
    """

    at_ms: int
    member: str
    incarnation: int
    sequence: int
    level: Level
    event: str
    said: dict[str, Any]

    @property
    def key(self) -> tuple[int, str, int, int]:
        """Return the key by which lines are ordered."""
        return self.at_ms, self.member, self.incarnation, self.sequence


class LogsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The query of the list of log lines."""

    since: Annotated[
        str, Meta(max_length=60, description=f"Only lines of that moment or later: {SINCE}")
    ] = "15m"
    until: Annotated[
        str, Meta(max_length=60, description="Only lines before that moment; written as in `since`")
    ] = ""
    node: Annotated[
        str,
        Meta(
            max_length=100,
            pattern=r"^[A-Za-z0-9._-]*$",
            description="Only lines of this member, or of this node's processes",
        ),
    ] = ""
    level: Annotated[Level, Meta(description="Lowest level")] = "debug"
    crawl: Annotated[
        str,
        Meta(
            max_length=100,
            pattern=rf"{CRAWL_NAME[:-1]}(,[0-9]+)?$|^$",
            description="Only lines whose field `crawl` has this value",
        ),
    ] = ""
    url: Annotated[str, Meta(max_length=2000, description="Only lines that contain this text")] = ""
    limit: Annotated[
        int, Meta(ge=1, le=1000, description="At most this many lines in an answer")
    ] = 200
    newest: Annotated[
        bool, Meta(description="The last lines, not the first; `next` leads to earlier ones")
    ] = False
    after: Cursor = ""


class LoggerSilent(Struct, frozen=True):
    """A logger that did not answer, and why: its lines are missing."""

    logger: str
    why: str


class LogsReply(Struct, frozen=True, kw_only=True):
    """Log lines in order of time, each line once.

    ``next`` is the cursor of what follows, "" if nothing does. An answer with a ``next`` may have
    few lines, or none. ``loggers`` have answered, ``silent`` have not.
    """

    items: tuple[LogLine, ...] = ()
    next: str = ""
    loggers: tuple[str, ...] = ()
    silent: tuple[LoggerSilent, ...] = ()


def parameters(query: LogsQuery) -> str:
    """Return a query as it stands in a URL, with its question mark."""
    given = {name: value for name, value in asdict(query).items() if value not in ("", False)}
    return "?" + urlencode({**given, **({"newest": "true"} if query.newest else {})})


def cursor(key: tuple[int, str, int, int]) -> str:
    """Return a line's key as the text of :data:`Cursor`."""
    at_ms, member, incarnation, sequence = key
    return f"{at_ms}-{incarnation}-{sequence}-{member}"


def key_of(text: str) -> tuple[int, str, int, int]:
    """Return the key of a cursor. Raises ValueError."""
    at_ms, incarnation, sequence, member = text.split("-", 3)
    return int(at_ms), member, int(incarnation), int(sequence)
