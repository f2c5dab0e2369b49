"""Members: the processes that work together, the report of each, and its orders.

A *node* is what an operator starts: a worker with its processes, a broker, a logger. Each of its
processes is a *member*. Orders go to a node, or to all (:data:`ALL`), and hold until they are taken
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from greencrawl.schema.records.fields import Count, WorkerId

MemberKind = Literal["worker", "broker", "logger"]

ALL = "*"
"""Stands for all nodes in orders."""
FORGOTTEN = "forgotten"
"""The log of orders has this in place of options if a node was forgotten."""
NODE = r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]{0,99})$"
NodeName = Annotated[str, Meta(pattern=NODE, description="Name of a node, or * for all")]

LogLevel = Literal["debug", "info", "warning", "error"]

BEAT_SECONDS = 45.0
"""A member is silent if it has sent nothing for this long."""
FAILURES = 60
"""A member reports at most this many kinds of failures."""


class NodeOptions(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Orders that an operator may give a node while it works. None means: not ordered."""

    processes: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(description="Number of processes of a worker"),
    ] = None
    greenlets: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(description="Hosts from which one process of a worker fetches at once"),
    ] = None
    requests_per_second: Annotated[
        Annotated[float, Meta(ge=0, le=100_000)] | None,
        Meta(
            description="At most this many requests a second of all processes of a worker "
            "together; 0: no limit",
        ),
    ] = None
    paused: Annotated[
        bool | None,
        Meta(description="Lease no more hosts; tasks that are leased are still finished"),
    ] = None
    drain: Annotated[
        bool | None,
        Meta(
            description="Lease no more hosts, finish the requests under way, and give the other "
            "leased tasks back"
        ),
    ] = None
    log_level: Annotated[LogLevel | None, Meta(description="Lowest level that is logged")] = None

    def over(self, under: NodeOptions) -> NodeOptions:
        """Return both orders together; where both order an option, this one counts."""
        ordered = {name: value for name, value in asdict(self).items() if value is not None}
        return NodeOptions(**{**asdict(under), **ordered})

    def without(self, names: tuple[OptionName, ...]) -> NodeOptions:
        """Return the orders without these options."""
        return NodeOptions(**{k: v for k, v in asdict(self).items() if k not in names})


OptionName = Literal[
    "processes", "greenlets", "requests_per_second", "paused", "drain", "log_level"
]
"""The fields of :class:`NodeOptions`."""
FOLLOWED: Mapping[MemberKind, tuple[OptionName, ...]] = {
    "worker": get_args(OptionName), "broker": ("log_level",), "logger": ("log_level",),
}  # fmt: skip
"""The options that a node of a kind follows; orders of other options would have no effect."""

OptionSource = Literal["default", "environment", "order"]


Short = Annotated[str, Meta(max_length=40)]


class InForce(Struct, frozen=True):
    """An option that a member follows, and who ordered it."""

    value: int | float | bool | Short | None
    source: OptionSource


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The report of a member; counters run since its process began. Units are seconds and bytes.

    ``machine`` is the host name. ``greenlets`` is how many are allowed, ``sessions`` how many are
    under way. ``held`` counts leased tasks, with those whose results are still on their way; these
    results take ``backlog_bytes``. ``requests_per_second`` and ``pages_per_second`` are since its
    last report. ``failures`` are by kind. ``log_queued`` and ``log_dropped`` are lines for a
    logger.
    """

    pid: Count = 0
    machine: Annotated[str, Meta(max_length=255)] = ""
    began_ms: Count = 0
    cpu_seconds: Annotated[float, Meta(ge=0)] = 0.0
    rss_bytes: Count = 0
    greenlets: Count = 0
    sessions: Count = 0
    held: Count = 0
    requests: Count = 0
    pages: Count = 0
    bytes: Count = 0
    requests_per_second: Annotated[float, Meta(ge=0)] = 0.0
    pages_per_second: Annotated[float, Meta(ge=0)] = 0.0
    backlog_bytes: Count = 0
    failures: Annotated[dict[Short, Count], Meta(max_length=FAILURES)] = field(default_factory=dict)
    options: Annotated[dict[Short, InForce], Meta(max_length=20)] = field(default_factory=dict)
    """The options that it follows now, of :class:`NodeOptions`."""
    disk_used: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """The used share of the fullest disk that it writes to."""
    log_queued: Count = 0
    log_dropped: Count = 0


class MemberRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of ``POST /v1/members``: I am here, and follow the orders of ``revision`` (0: none).

    The broker answers after up to ``wait`` seconds, at once if there are other orders.
    ``incarnation`` tells the lives of a member apart; a later life has a higher number. ``crawls``:
    report changes of crawls from this revision on; 0: report none. ``leaving`` is its last report,
    and ``why`` gives the reason.
    """

    id: WorkerId
    node: WorkerId
    kind: MemberKind
    incarnation: Count
    version: Annotated[str, Meta(max_length=40)] = ""
    address: Annotated[str, Meta(max_length=255)] = ""
    facts: Facts = Facts()
    revision: Count = 0
    crawls: Count = 0
    wait: Annotated[float, Meta(ge=0, le=20)] = 0.0
    leaving: bool = False
    why: Annotated[str, Meta(max_length=300)] = ""


class MemberReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The orders in force for a member, of ``revision``.

    ``crawls``: id of a crawl → revision of orders at which its options were changed. ``next`` is
    what to send as ``crawls`` the next time. ``log_to`` are addresses of loggers; try the first one
    first. ``superseded``: a later life of this member is known.
    """

    revision: int = 0
    options: NodeOptions = NodeOptions()
    crawls: dict[int, int] = field(default_factory=dict)
    next: int = 0
    log_to: tuple[str, ...] = ()
    superseded: bool = False


class Member(Struct, frozen=True, kw_only=True):
    """A member as the store keeps it: written when it joins, leaves, or is lost.

    ``left_ms`` is 0 while it is there; ``why`` says how it ended: ``stopped``, ``lost`` …
    """

    id: str
    node: str
    kind: MemberKind
    incarnation: int
    version: str = ""
    address: str = ""
    joined_ms: int = 0
    left_ms: int = 0
    why: str = ""
    facts: Facts = Facts()


MemberStatus = Literal["here", "silent", "left", "lost"]


class MemberState(Member, frozen=True, kw_only=True):
    """A member as people see it: ``facts`` is its latest report.

    ``heard_ms`` (Unix time) is when the report came; 0 if that is too long ago.
    """

    status: MemberStatus
    heard_ms: int = 0


class NodeOrders(Struct, frozen=True, kw_only=True):
    """The orders of a node (or ``*``, all); ``revision`` rises with each order to any node."""

    member: str
    revision: int = 0
    options: NodeOptions = NodeOptions()
    by_whom: str = ""
    at_ms: int = 0


class Orders(Struct, frozen=True):
    """All orders, up to ``revision``; ``crawls`` is id → revision of its last change."""

    revision: int = 0
    nodes: tuple[NodeOrders, ...] = ()
    crawls: dict[int, int] = field(default_factory=dict)


class OrderChange(Struct, frozen=True, kw_only=True):
    """Who ordered what, and when. ``revision`` is the number of this change.

    ``member`` is a node or ``*``, or "" if options of ``crawl`` were changed. A null in ``changed``
    means that the order was taken back, :data:`FORGOTTEN` that the node was forgotten.
    """

    revision: int
    member: str = ""
    crawl: str = ""
    changed: dict[str, Any]
    by_whom: str = ""
    at_ms: int = 0
