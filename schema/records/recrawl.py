"""When a crawl begins again, its periods, and its rounds over what is stored."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class Recrawl(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a crawl begins again: in periods, each from its seeds.

    ``every`` is the time from the beginning of one to that of the next: ``15s``, ``90m``, ``12h``,
    ``1d``, ``2w``.
    """

    mode: Literal["period"] = "period"
    every: Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}[smhdw]$")]

    @property
    def every_ms(self) -> int:
        """The same in milliseconds."""
        return int(self.every[:-1]) * _UNIT_MS[self.every[-1]]


class Period(Struct, frozen=True):
    """A pass of a crawl from its seeds, by number, from 1. ``ended_ms`` is 0 while it is under
    way."""

    number: int
    started_ms: int
    ended_ms: int = 0


RoundKind = Literal["read", "fetch"]


class Round(Struct, frozen=True, kw_only=True):
    """A crawl goes once more through what it has stored, from the first row to the last.

    ``read``: pages are looked through for links that its rules let be followed by now, without a
    request. ``fetch``: all is asked for again; each page stays until its new version is there.
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
