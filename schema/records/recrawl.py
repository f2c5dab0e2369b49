"""When a crawl begins again, its periods, and its rounds over what is stored."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from greencrawl.schema.records.lease import Admission, TaskKind

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


EVERY_DEPTH, NO_DEPTH = 2**31 - 1, -1
"""Of :attr:`Recrawl.deepest`."""


class Recrawl(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a crawl begins again: in periods, each from its seeds.

    ``every`` is the time from the beginning of one to that of the next: ``15s``, ``90m``, ``12h``,
    ``1d``, ``2w``. Pages up to ``depth`` that are known are asked for again in each, as far as they
    are in the *calendar*; 0: the seeds alone.
    """

    mode: Literal["period"] = "period"
    every: Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}[smhdw]$")]
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] | Literal["all"] = 0

    @property
    def every_ms(self) -> int:
        """The same in milliseconds."""
        return int(self.every[:-1]) * _UNIT_MS[self.every[-1]]

    @property
    def deepest(self) -> int:
        """The greatest depth of pages in the calendar; -1: it has none."""
        if self.depth == "all":
            return EVERY_DEPTH
        return self.depth or NO_DEPTH


def kept_recrawl(recrawl: Recrawl) -> dict[str, object]:
    """The option as a store keeps it: without ``depth`` where that says nothing."""
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
    """A crawl goes once more through what it has stored, from the first row to the last.

    ``read``: pages are looked through for links that its rules let be followed by now, without a
    request. ``fetch``: all is asked for again; each page stays until its new version is there.
    ``plan``: pages and what is gone get their places in the calendar; nothing is queued.
    ``why`` says it to people. ``least_depth``: pages of this depth or more. Only what was fetched
    before ``before_ms`` (epoch) belongs to it: ``total`` pages when it began, -1 where these are
    not counted. ``queued`` URLs have been queued, up to ``cursor``. ``ended_ms`` is 0 while it is
    under way.
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
    """What was found of a URL at a moment (epoch ms): ``page``, changed or not; ``gone``, or not to
    be asked for (``excluded``); or nothing that says whether it is there (``failed``).

    ``task`` is what it was asked for as.
    """

    crawl: int
    fingerprint: int
    at_ms: int
    found: Literal["page", "gone", "excluded", "failed"]
    url: str
    depth: int
    task: TaskKind = TaskKind.PAGE


class Due(NamedTuple):
    """A page that is due to be asked for again; ``after`` is its place among those that are.

    ``item`` is what is to be queued, at no level yet; None where its URL is not known any more.
    """

    fingerprint: int
    after: tuple[int, int, int]
    checked_ms: int
    item: Admission | None


class Planned(Struct, frozen=True):
    """When a page is asked for again: in the first period that begins at ``due_s`` (epoch) or
    later, never if it is ``retired``. ``queued``: it is on its way.

    ``misses``: so often in a row it was gone when it was asked for, at ``checked_ms`` last.
    """

    due_s: int
    queued: bool
    checked_ms: int
    misses: int
    retired: bool
