"""When a crawl begins again: its periods, and its rounds over stored pages."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from greencrawl.schema.records.lease import Admission, TaskKind

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


EVERY_DEPTH, NO_DEPTH = 2**31 - 1, -1
"""Special values of :attr:`Recrawl.deepest`."""


class Recrawl(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a crawl begins again: in periods, each from its seeds.

    ``every`` is the time from the start of one period to that of the next: ``15s``, ``90m``,
    ``12h``, ``1d``, ``2w``. In each period, known pages up to ``depth`` that are in the *calendar*
    are asked for again; with 0, only the seeds.
    """

    mode: Literal["period"] = "period"
    every: Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}[smhdw]$")]
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] | Literal["all"] = 0

    @property
    def every_ms(self) -> int:
        """Return ``every`` in milliseconds."""
        return int(self.every[:-1]) * _UNIT_MS[self.every[-1]]

    @property
    def deepest(self) -> int:
        """Return the greatest depth of pages in the calendar; -1 if there is no calendar."""
        if self.depth == "all":
            return EVERY_DEPTH
        return self.depth or NO_DEPTH


def kept_recrawl(recrawl: Recrawl) -> dict[str, object]:
    """Return the option as a store keeps it: without ``depth`` where that is the default."""
    depth = {"depth": recrawl.depth} if recrawl.depth else {}
    return {"mode": recrawl.mode, "every": recrawl.every, **depth}


class Period(Struct, frozen=True):
    """A pass of a crawl from its seeds, by number, from 1. ``ended_ms`` is 0 while it is under
    way."""

    number: int
    started_ms: int
    ended_ms: int = 0


RoundKind = Literal["read", "fetch", "plan"]


class Round(Struct, frozen=True, kw_only=True):
    """A pass of a crawl over all that it has stored, from the first row to the last.

    ``read``: stored pages are read again for links that the crawl's rules now allow, without a
    request. ``fetch``: all pages are asked for again; each page stays until its new version is
    there. ``plan``: pages, and URLs that are gone, get their places in the calendar; nothing is
    queued. ``why`` gives the reason to people. ``least_depth``: only pages of this depth or more.
    Only what was fetched before ``before_ms`` (Unix time) belongs to the round: ``total`` pages
    when it began, -1 if these are not counted. ``queued`` URLs have been queued, up to ``cursor``.
    ``ended_ms`` is 0 while it is under way.
    """

    kind: RoundKind
    why: str = ""
    least_depth: int = 0
    started_ms: int
    before_ms: int
    ended_ms: int = 0
    total: int = -1
    queued: int = 0
    cursor: str = ""


class Observation(NamedTuple):
    """The state of a URL that was found at a time (Unix ms).

    ``found`` is ``page`` (changed or not), ``gone``, ``excluded`` (not to be asked for), or
    ``failed``, which does not say whether the URL is there. ``task`` is the kind of task that asked
    for it.
    """

    crawl: int
    fingerprint: int
    at_ms: int
    found: Literal["page", "gone", "excluded", "failed"]
    url: str
    depth: int
    task: TaskKind = TaskKind.PAGE


class Due(NamedTuple):
    """A page that is due to be asked for again; ``after`` is its position among due pages.

    ``item`` is the item to queue, still without a level; None if its URL is no longer known.
    """

    fingerprint: int
    after: tuple[int, int, int]
    checked_ms: int
    item: Admission | None


class Planned(Struct, frozen=True):
    """When a page is asked for again: in the first period that begins at ``due_s`` (Unix time) or
    after.

    A page that is ``retired`` is never asked for again. ``queued``: it is on its way. ``misses`` is
    how often in a row it was gone when it was asked for, at ``checked_ms`` last.
    """

    due_s: int
    queued: bool
    checked_ms: int
    misses: int
    retired: bool
