"""A host in the frontier, reports about it, and a Redis node that is away."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from greencrawl.schema.records.fields import Count, Seconds

TRAPS_BYTES = 4096
"""The limit of bytes for a crawl's record of a host's shapes, as workers pack it."""


class PutOff(StrEnum):
    """Why a session ended through no fault of its host: its tasks went back uncharged."""

    SHARE = "share"  # its address or domain has reached its share of requests
    LOOK_UP = "look_up"  # too many slow DNS look-ups are under way
    MEMORY = "memory"  # there was no memory for its answer
    SLOW = "slow"  # too many slow hosts are being fetched from
    LOGIN = "login"  # its login cannot be made or kept now
    ROBOTS = "robots"  # its robots.txt is redirected to a host that cannot be asked now


class HostReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a session learnt of its host; all optional. ``delay`` and ``latency`` are in seconds.

    ``delay`` is the adaptive delay to use next, 0 where the host needs none above the floor.
    ``robots_delay`` is robots.txt's crawl-delay. ``robots`` says that robots were read (or found
    absent) in this session. ``block`` asks for a block of that many seconds; 0 with ``failed``
    means the host's own back-off, which doubles each time. ``block`` without ``failed`` is a block
    through no fault of the host; ``put_off`` names the reason (:class:`PutOff`). ``why`` says more
    than ``failed`` to a person who asks why the host is not fetched from. ``traps`` replaces what
    the crawl knew of the host's shapes; b"" leaves that as it is.
    """

    delay: Seconds = 0.0
    latency: Seconds = 0.0
    robots_delay: Seconds = 0.0
    robots: bool = False
    failed: Annotated[str, Meta(max_length=40, pattern=r"^[a-z_]*$")] = ""
    block: Annotated[float, Meta(ge=0, le=7 * 86_400)] = 0.0
    requests: Count = 0
    why: Annotated[str, Meta(max_length=300)] = ""
    traps: Annotated[bytes, Meta(max_length=TRAPS_BYTES)] = b""
    put_off: Annotated[str, Meta(max_length=40, pattern=r"^[a-z_]*$")] = ""


class HostState(Struct, frozen=True, kw_only=True):
    """A host as the frontier knows it; ``*_in`` are seconds from now, 0 when past.

    ``waiting`` is its backlog over all crawls. ``delay`` is the host's own delay: by an operator,
    by robots.txt, or by how the host answers.
    """

    host: str
    partition: int
    delay: float = 0.0
    kept_delay: float = 0.0
    """The delay in force, if one host is asked for; it includes the delays of crawls that fetch or
    wait there."""
    sessions: int = 0
    waiting: int = 0
    next_in: float = 0.0
    blocked_in: float = 0.0
    block_level: int = 0
    latency: float = 0.0
    failures: int = 0
    robots_known: bool = False
    why: str = ""
    """Why its last session failed, while it is blocked."""


class HostPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``PATCH /v1/hosts/{host}``: the least delay in seconds; seconds to block from now."""

    delay: Seconds | None = None
    block: Annotated[float, Meta(ge=0, le=7 * 86_400)] | None = None


class NodeAway(Struct, frozen=True):
    """A Redis node that does not answer, since when (Unix ms), and how it failed.

    ``since_ms`` is 0 for a node that answers but must not be used: ``why`` says what to do.
    """

    node: str
    since_ms: int
    why: str


class NodeFull(Struct, frozen=True):
    """A Redis node at or near its memory limit (``maxmemory``), and the bytes that it uses.

    It takes no seeds; new URLs wait in the store.
    """

    node: str
    used_bytes: int
    limit_bytes: int


class Purge(Struct, frozen=True, kw_only=True):
    """A deletion under way: of a crawl, or of the waiting tasks of one host in it.

    ``instance`` is the crawl's id: another crawl may have its name by now. ``total`` counts stored
    rows, or tasks of the host, at its start (0: not counted yet); ``removed`` is how many are
    deleted. ``away`` are Redis nodes that it waits for: it goes on by itself when they are back.
    """

    id: int
    crawl: str
    instance: int
    host: str = ""
    asked_ms: int = 0
    total: int = 0
    removed: int = 0
    away: tuple[NodeAway, ...] = ()
