"""Rows of the store for the frontier: its identity, duties, clocks, and what nodes are owed."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from greencrawl.schema.records.lease import Admission
from greencrawl.schema.records.stats import UrlState


class Overflow(Struct, frozen=True):
    """A URL beyond the memory budget, which waits in SQL. ``id`` rises in order of arrival."""

    fingerprint: int
    partition: int
    item: Admission
    id: int = 0


class Debt(Struct, frozen=True):
    """The debt of a node that was away: all rows that are stamped ``since`` or later.

    ``serial`` changes if more is added while these rows are replayed.
    """

    since: int
    serial: int


class Stamp(Struct, frozen=True):
    """The data of the replay log that a transaction read: the value of its clock, and node → epoch.

    ``refused`` are URLs, as (crawl, fingerprint), that a commit left out: pages beyond
    ``max_pages``, and parked URLs of a released shape. ``retired`` are URLs that are gone, and are
    not asked for again until a new link leads to them.
    """

    clock: int
    epochs: dict[str, int]
    refused: frozenset[tuple[int, int]] = frozenset()
    retired: frozenset[tuple[int, int]] = frozenset()


class Duty(Struct, frozen=True):
    """A task that one broker at a time may do, and its epoch: each holder has another epoch."""

    name: str
    epoch: int


class Mark(Struct, frozen=True):
    """A settled URL, sent to a Redis node that is refilled: Stored, Dead, Parked, or Otherwise."""

    crawl: int
    url: str
    kind: Literal["S", "D", "P", "O"]
    bytes: int = 0


class NodeRepair(Struct, frozen=True, kw_only=True):
    """How far a Redis node is refilled from the replay log.

    ``done`` and ``total`` count rows of the log: pages twice (as marks and for their links), final
    states and batches of seeds. ``detail`` says why it waits.
    """

    node: str
    phase: Literal["none", "elsewhere", "emptying", "marks", "seeds", "links", "blocks", "done"]
    everything: bool = False
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    detail: str = ""


class FrontierIdentity(Struct, frozen=True, kw_only=True):
    """The identity of a frontier, fixed at its creation; a process with other rules does not start.

    ``canonicaliser`` is the version of the rules by which its fingerprints are made; a frontier
    keeps its own, see :data:`greencrawl.schema.net.urls.CANONICALISER`.
    ``placement[p]`` is the index into ``nodes`` (node ids) of partition ``p``.
    """

    id: str
    secret: int
    partitions: int
    suffixes: str
    canonicaliser: int
    layout: int
    nodes: tuple[str, ...]
    placement: tuple[int, ...]


msgspec.structs.fields(UrlState)  # resolve the forward reference now, not at the first request
