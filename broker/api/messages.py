"""Records that only the broker's HTTP API and its clients exchange: problems, queries, lists.

Records that other folders share are in ``greencrawl.schema.records``.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

from greencrawl.schema.records import (
    CrawlName,
    Directives,
    Final,
    HookCount,
    HookFailure,
    MemberState,
    NodeName,
    NodeOptions,
    NodeRepair,
    OptionName,
    OrderChange,
    ParkedShape,
)
from greencrawl.schema.records.fields import Count, Url
from greencrawl.schema.text.moments import SINCE, STATUS

T = TypeVar("T")


class FieldError(Struct, frozen=True):
    """One bad field of a request: its path (``urls[3].depth``, ``line 7``) and what is wrong."""

    field: str
    detail: str


class Problem(Struct, frozen=True, omit_defaults=True):
    """Problem details (RFC 9457), media type ``application/problem+json``.

    ``type`` always is ``about:blank``: the HTTP status gives the kind of problem, ``detail`` says
    what happened here, and ``errors`` which fields to correct.
    """

    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str = ""
    errors: tuple[FieldError, ...] = ()
    type: str = "about:blank"


class DeadLetter(Struct, frozen=True):
    """A URL that was given up; ``id`` gives the order, and is the ``after`` of the next page."""

    id: str
    letter: Final


class DeadReply(Struct, frozen=True):
    """A page of dead letters in the order of their ids; ``next`` is "" on the last page."""

    items: tuple[DeadLetter, ...]
    next: str = ""


PageId = Annotated[str, Meta(pattern=r"^[0-9]{1,18}-[0-9a-f]{16}$", description="Id of a page")]


class ListedPage(Struct, frozen=True, kw_only=True):
    """A stored page as a list shows it. ``target`` is where a redirect leads, else "".

    ``canonical`` is the URL that the page names as its canonical one. ``directives`` says what the
    page says about its use, and which directive keeps its content from being stored.
    """

    id: str
    url: str
    status: int
    fetched_ms: int
    body_bytes: int
    title: str = ""
    target: str = ""
    canonical: str = ""
    directives: Directives | None = None


class PagesReply(Struct, frozen=True):
    """Pages in the order of storing. ``next`` is "" when there are no more.

    A request reads a bounded number of pages, so there may be few of them or none, with a ``next``;
    ``looked_at`` says how many were read, at least.
    """

    items: tuple[ListedPage, ...]
    next: str = ""
    looked_at: int = 0


class PageVersion(Struct, frozen=True, kw_only=True):
    """One fetch of a page. ``digest`` is half of the body's SHA-256 in hexadecimal.

    The ``first`` fetch that is known counts as ``changed``.
    """

    fetched_ms: int
    status: int
    changed: bool
    digest: str = ""
    body_bytes: int = 0
    first: bool = False


class PageReply(ListedPage, frozen=True, kw_only=True):
    """All that is stored of a page except its text and its body; the latest version comes first.

    ``fields`` are those that the crawl's hook made, ``items`` are records that it found; ``links``
    are those that were queued. ``main`` is its main text, "" if it has none, and null if none was
    determined at the fetch. ``gone_since_ms`` is when a later fetch found it gone (404, 410, 451),
    else 0.
    """

    crawl: str
    host: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    elapsed_ms: int = 0
    depth: int = 0
    truncated: bool = False
    language: str = ""
    encoding: str = ""
    fields: dict[str, Any] | None = None
    items: tuple[dict[str, Any], ...] = ()
    digest: str = ""
    text_chars: int = 0
    main: str | None = None
    links: tuple[str, ...] = ()
    gone_since_ms: int = 0
    versions: tuple[PageVersion, ...] = ()


class HookCounts(Struct, frozen=True):
    """Failures of a crawl's hook by function and message, the commonest first."""

    counts: tuple[HookCount, ...]


class HooksReply(Struct, frozen=True):
    """Pages on which a function of a crawl's hook failed; ``next`` is "" on the last page."""

    items: tuple[HookFailure, ...]
    next: str = ""


class RequeueRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/dead/requeue``: the crawl whose dead letters are tried again."""

    crawl: CrawlName


class ParkedReply(Struct, frozen=True):
    """Shapes by which URLs are parked, the commonest first; none is parked by ``released`` ones."""

    items: tuple[ParkedShape, ...]
    released: tuple[str, ...] = ()


class ReleaseParkedRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/parked/release``: releases ``shape``, or ``all`` shapes."""

    crawl: CrawlName
    shape: Annotated[str, Meta(max_length=300, description="The shape, as the list shows it")] = ""
    all: bool = False


class StopRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of the request to stop a crawl. ``now``: leased tasks are given back unfetched."""

    now: bool = False


class RepairRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/repair``. ``all``: everything, not only what Redis may have missed."""

    all: bool = False


class RepairReply(Struct, frozen=True):
    """How far each Redis node is refilled from the store."""

    nodes: tuple[NodeRepair, ...]


class Health(Struct, frozen=True):
    """Answer of ``/healthz`` and ``/readyz`` if the check succeeds.

    ``away`` are Redis nodes that do not answer, while others do.
    """

    status: Literal["ok"] = "ok"
    away: tuple[str, ...] = ()


class Answer(Struct, Generic[T], frozen=True):
    """The result of a handler whose status depends on what it did."""

    status: int
    value: T


class Text(Struct, frozen=True):
    """The result of a handler whose answer is not a record: bytes with their media type."""

    media_type: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


# --- queries: parameters after the question mark ------------------------------------------------


class SeedQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a seeding request. JSON bodies may have these fields; NDJSON and text cannot."""

    force: Annotated[
        bool, Meta(description="Queue URLs again that were already fetched or given up")
    ] = False
    if_changed: Annotated[
        bool, Meta(description="The same, but read pages again only if they have changed")
    ] = False


class UrlQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the request that explains a URL."""

    url: Annotated[Url, Meta(description="Any spelling of the URL")]
    crawl: Annotated[CrawlName, Meta(description="One crawl; left out: all")] | None = None


Cursor = Annotated[
    str, Meta(max_length=80, pattern=r"^[A-Za-z0-9.-]*$", description="`next` of the last answer")
]


class DeadQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the list of dead letters."""

    crawl: CrawlName
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many dead letters")] = 100
    after: Cursor = ""


class ParkedQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the list of shapes that URLs are parked by."""

    crawl: CrawlName
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many shapes")] = 100


class HooksQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the list of pages on which a function of a crawl's hook failed."""

    crawl: CrawlName
    function: Annotated[str, Meta(max_length=64, description="on_page, links or request")]
    message: Annotated[str, Meta(max_length=1000, description="The message, as the counts show it")]
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many pages")] = 100
    after: Cursor = ""


class PagesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the list of pages."""

    crawl: CrawlName
    host: Annotated[str, Meta(max_length=300, description="Only pages of this host")] = ""
    status: Annotated[str, Meta(max_length=20, description=f"Only pages with {STATUS}")] = ""
    since: Annotated[
        str, Meta(max_length=60, description=f"Only pages fetched at that moment or later: {SINCE}")
    ] = ""
    grep: Annotated[
        str,
        Meta(
            max_length=1024,
            description="Only pages whose URL, title or text this regular expression (RE2) matches",
        ),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many pages")] = 100
    after: Cursor = ""


class ChangesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the list of changes."""

    since: Annotated[str, Meta(min_length=1, max_length=60, description=f"Since when: {SINCE}")]
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many changes")] = 100
    after: Cursor = ""


class Change(Struct, frozen=True, kw_only=True):
    """A page that is new, changed or gone since a moment.

    ``at_ms`` (Unix time) is when it was first stored, last fetched, or first found gone.
    """

    change: Literal["new", "changed", "gone"]
    at_ms: int
    id: str
    url: str
    title: str = ""


class ChangesReply(Struct, frozen=True):
    """Some changes, from ``looked_at`` rows; ``next`` names what follows, "" if nothing does."""

    items: tuple[Change, ...]
    next: str = ""
    looked_at: int = 0


class BodyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a page's body."""

    at: Annotated[
        int,
        Meta(ge=0, description="`fetched_ms` of the version to return; 0: the current one"),
    ] = 0


class SamplesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the points of a plot."""

    since: Annotated[
        str,
        Meta(max_length=60, description=f"Only points from this time on: {SINCE}; default: all"),
    ] = ""
    points: Annotated[int, Meta(ge=2, le=5000, description="At most this many points")] = 1000


class StatsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the counters."""

    crawl: Annotated[CrawlName, Meta(description="One crawl; left out: all")] | None = None


By = Annotated[str, Meta(max_length=100, description="The person who asks for it, for the log")]


class CrawlChange(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``PATCH /v1/crawls/{crawl}``: options by name; null stands for the default.

    With a ``revision`` nothing changes unless the crawl's is still that one.
    """

    options: dict[str, Any]
    revision: Count | None = None
    by: By = ""


class OrderRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``PATCH /v1/orders``: new orders of a node, or ``*`` for all, and those taken back.

    With a ``revision`` nothing changes unless that is still the revision of the node's orders (0:
    it has none). ``forget``, which stands alone: the node is gone for good.
    """

    member: NodeName
    options: NodeOptions = NodeOptions()
    unset: Annotated[tuple[OptionName, ...], Meta(max_length=20)] = ()
    revision: Count | None = None
    by: By = ""
    forget: bool = False


class MembersQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the list of members."""

    node: Annotated[str, Meta(max_length=100, description="Only members of this node")] = ""
    gone: Annotated[bool, Meta(description="Also members that have left or are lost")] = False


class MembersReply(Struct, frozen=True):
    """Members by id."""

    members: tuple[MemberState, ...]


class OrdersLogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of the list of orders."""

    member: Annotated[str, Meta(max_length=100, description="Only orders of this node")] = ""
    crawl: Annotated[str, Meta(max_length=64, description="Only changes of this crawl")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many entries")] = 100
    before: Annotated[
        Count, Meta(description="`next` of the last answer; default: begin with the latest entry")
    ] = 2**53


class OrdersLogReply(Struct, frozen=True):
    """Orders and changes, the latest first; ``next`` is 0 if there are no more."""

    items: tuple[OrderChange, ...]
    next: int = 0
