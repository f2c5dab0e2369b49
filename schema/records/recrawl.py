"""When a crawl begins again, and its passes."""

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
