"""Records that processes exchange: on the wire, in Redis, in the store, and with users' hooks.

Times called ``*_ms`` are milliseconds (epoch where they name a moment); fields of the HTTP API
called ``ttl``, ``wait`` and ``delay`` are seconds, as a person would type them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, field

from schema.auth import Auth, Source
from schema.fields import Pattern, Url

Scope = Literal["host", "domain", "prefix", "any"]
Order = Literal["breadth", "depth", "best"]
CrawlState = Literal["active", "paused", "done"]

CRAWL_NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
TOKEN = r"^[0-9a-f]{16}$"
SESSION_ID = r"^[0-9]{1,5}/.{1,300}$"
WORKER_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
KIND = r"^[a-z_]+$"
"""Patterns; what a person is told of them stands in ``broker.problems``."""

CrawlName = Annotated[str, Meta(pattern=CRAWL_NAME, description="Name of a crawl")]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Token = Annotated[str, Meta(pattern=TOKEN, description="Fencing token of a session")]
SessionId = Annotated[str, Meta(pattern=SESSION_ID, description="partition/host")]
WorkerId = Annotated[str, Meta(pattern=WORKER_ID)]

LEVELS = 32
"""Priority levels of a host's waiting queue; 0 is served first."""


ROBOTS_ASKED = 64
"""From here on ``redirects`` of a task says that it is no page: it asks, for another host that
redirects its robots.txt there, what stands at this URL; the rest counts the redirects so far."""

ERRAND = 128
"""``redirects`` of a task that is no page, but says that requests for this host wait to be sent by
whoever holds it: those of a login that leads over several hosts (``worker.auth.errands``)."""

SUSPECT_DELIVERIES = 3
"""A task that was handed out so often without an outcome is a suspect: its page is read alone."""


# --- a crawl ---------------------------------------------------------------------------------


class CrawlOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a person may say about a crawl: the same names in TOML, options and the API."""

    seeds: Annotated[tuple[Url, ...], Meta(description="URLs to start from")] = ()
    scope: Annotated[
        Scope,
        Meta(
            description="Which links are followed: to the seeds' hosts (host), to their "
            "registrable domains, to what starts like a seed (prefix), or any"
        ),
    ] = "host"
    include: Annotated[
        tuple[Pattern, ...],
        Meta(
            description="Regular expressions; if any are given, a URL must match one "
            "(seeds are exempt)"
        ),
    ] = ()
    exclude: Annotated[
        tuple[Pattern, ...],
        Meta(description="Regular expressions; a URL that matches one is not fetched"),
    ] = ()
    depth: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Links followed from a seed at most, by first discovery; 0: seeds only",
        ),
    ] = 50
    max_pages: Annotated[
        Count, Meta(description="Stop after this many stored pages; 0: no limit")
    ] = 0
    max_bytes: Annotated[
        Count, Meta(description="Stop after this many downloaded body bytes; 0: no limit")
    ] = 0
    max_seconds: Annotated[
        Count,
        Meta(
            description="Stop after so many seconds of crawling, stops and pauses apart; "
            "0: no limit"
        ),
    ] = 0
    max_body_bytes: Annotated[
        int,
        Meta(ge=1024, le=2**30, description="Cut off a page's decoded body after this many bytes"),
    ] = 10 * 1024 * 1024
    bodies: Annotated[
        Literal["text", "all"],
        Meta(
            description="Whose bodies are kept: of pages, text, XML and JSON (text), or of every "
            "type (all); with GREENCRAWL_BODIES=warc:… all are"
        ),
    ] = "text"
    delay: Annotated[
        Seconds,
        Meta(
            description="Least pause in seconds between the end of one request to a host and "
            "the start of the next; a slow host gets a longer one"
        ),
    ] = 1.0
    slots: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Parallel connections to one host; more than one needs delay = 0",
        ),
    ] = 1
    tries: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Tries of a URL before it becomes a dead letter; "
            "an upper bound on the rows of the retry table, but for a told wait",
        ),
    ] = 5
    order: Annotated[
        Order,
        Meta(
            description="breadth: nearest to a seed first; depth: farthest first; "
            "best: highest score first"
        ),
    ] = "breadth"
    user_agent: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=256,
            pattern=r"^[!#$%&'*+\-.^_`|~0-9A-Za-z]+(/[^\r\n]*)?$",
            description="User-Agent sent; the part before '/' is matched against robots.txt",
        ),
    ] = "greencrawl/0.1"
    contact: Annotated[
        str,
        Meta(
            max_length=256,
            pattern=r"^[\x20-\x7e]*$",
            description="Address or URL that tells a site's operator whom to ask; "
            "added to User-Agent",
        ),
    ] = ""
    hook: Annotated[
        str,
        Meta(
            max_length=256,
            description="Python module with your functions (on_page, links, request)",
        ),
    ] = ""
    weight: Annotated[
        int, Meta(ge=1, le=1000, description="Share of the workers against other crawls")
    ] = 1
    auth: Annotated[
        tuple[Auth, ...],
        Meta(description="How to log in, by origin; the first entry that names it counts"),
    ] = ()
    sources: Annotated[
        tuple[Source, ...], Meta(description="JSON APIs that list what to fetch")
    ] = ()


def kept_options(options: CrawlOptions) -> bytes:
    """Options as a store keeps them: JSON without what is later than the first release and empty.

    Workers of an earlier version, which know no such field, then go on with crawls that do not use
    it while an upgrade is under way.
    """
    fields = msgspec.structs.asdict(options)
    for name in ("auth", "sources"):
        if not fields[name]:
            del fields[name]
    return msgspec.json.encode(fields)


class CreateCrawl(CrawlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Body of ``POST /v1/crawls``: the options and a name. ``seeds`` are queued at once."""

    name: CrawlName


FINISHED = "finished"
"""The reason of a crawl that ended because nothing was left to do."""


class Crawl(Struct, frozen=True, kw_only=True):
    """A crawl as the store keeps it.

    ``id`` also is the crawl's instance: a purged and re-created crawl has another. ``roots`` are
    what its scope is measured from: hosts, domains or prefixes, as ``schema.scope`` writes them.
    ``revision`` rises with every change of options or roots, ``version`` with every change at all:
    what somebody does with a crawl counts only while its version is the one that he has read.
    """

    id: int
    name: str
    state: CrawlState
    options: CrawlOptions
    roots: tuple[str, ...] = ()
    revision: int = 1
    version: int = 1
    created_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    reason: str = ""
    """Why it is done: ``finished``, or the limit that was reached (``max_pages`` …)."""

    @property
    def finished(self) -> bool:
        """Done because nothing was left to do: whatever comes to it makes it active again."""
        return self.state == "done" and self.reason == FINISHED


# --- frontier --------------------------------------------------------------------------------


class Admission(Struct, frozen=True, array_like=True, gc=False):
    """A URL on its way into the frontier; also what a page's log of links holds, in this order."""

    url: str
    depth: int = 0
    level: int = 0
    redirects: int = 0


class Overflow(Struct, frozen=True):
    """A URL beyond the memory budget, which waits in SQL. ``id`` is in order of arrival."""

    fingerprint: int
    partition: int
    item: Admission
    id: int = 0


class Task(Struct, frozen=True, gc=False):
    """A leased URL. ``number`` names it within its session; it is never used twice there."""

    number: int
    url: str
    depth: int = 0
    level: int = 0
    redirects: int = 0
    errors: int = 0
    deliveries: int = 1

    @property
    def suspect(self) -> bool:
        """Whether it may be what killed or hung the processes that had it."""
        return self.deliveries > SUSPECT_DELIVERIES


class Session(Struct, frozen=True, kw_only=True):
    """A lease on one host. ``delay`` in seconds is in force when it opens.

    ``floor`` seconds is the least it may come down to within the session: robots, an operator's
    setting, and the largest of the crawls that have tasks there.
    ``failures`` counts the sessions in a row in which the host as a whole failed.
    ``ttl`` seconds run from when the worker *sent* its request plus ``waited`` of the reply.
    ``robots_known`` is false when nobody has read this host's robots within a day.
    """

    session: SessionId
    token: Token
    crawl: int
    revision: int
    host: str
    ttl: float
    delay: float
    floor: float
    robots_known: bool
    failures: int = 0
    tasks: tuple[Task, ...]


class Refusal(Struct, frozen=True, forbid_unknown_fields=True):
    """A crawl of which a worker takes no session: it cannot import its ``hook``."""

    crawl: Count
    hook: Annotated[str, Meta(max_length=256)]
    reason: Annotated[str, Meta(max_length=300)]


class HookRefusal(Struct, frozen=True):
    """``worker``, on the machine ``host``, cannot import a crawl's hook and takes no session."""

    worker: str
    host: str
    hook: str
    reason: str


class LeaseRequest(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Body of ``POST /v1/lease``. ``sequence`` rises by one with each call of an incarnation.

    ``refuses`` are crawls of which the worker takes nothing now; ``host`` names its machine then.
    """

    worker: WorkerId
    incarnation: Count
    sequence: Count
    max_sessions: Annotated[int, Meta(ge=1, le=1000)] = 32
    tasks_per_session: Annotated[int, Meta(ge=1, le=256)] = 32
    ttl: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    wait: Annotated[float, Meta(ge=0, le=60)] = 20.0
    refuses: Annotated[tuple[Refusal, ...], Meta(max_length=100)] = ()
    host: Annotated[str, Meta(max_length=255)] = ""


class LeaseReply(Struct, frozen=True):
    """``waited`` seconds passed at the broker before the sessions were opened.

    ``lost``: a Redis node gave no answer, and may have opened more: reconcile.
    ``superseded``: see :class:`ReconcileReply`.
    """

    sessions: tuple[Session, ...] = ()
    waited: float = 0.0
    lost: bool = False
    superseded: int = 0


class ReconcileRequest(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """ "Up to (incarnation, sequence) I hold these": all else of this worker is released.

    Leases with a lower or equal sequence that are still on their way will open nothing. ``idle``
    are sessions of older incarnations of which it is known that no request was under way when the
    process died: only the others' hosts have to rest until one would have ended. ``dead_for`` is
    how long ago that was, as far as it is known: they have rested for so long already. ``leaving``
    is the last word of a process: its name is free for an earlier one that waits.
    """

    worker: WorkerId
    incarnation: Count
    sequence: Count
    holding: Annotated[tuple[Token, ...], Meta(max_length=10_000)] = ()
    idle: Annotated[tuple[Token, ...], Meta(max_length=10_000)] = ()
    dead_for: Seconds = 0.0
    leaving: bool = False


class ReconcileReply(Struct, frozen=True):
    """How many sessions were released, and how many tasks went back to the queues.

    ``away`` names the Redis nodes that did not answer: reconcile again until there are none.
    ``superseded`` is 0, or a later incarnation of this worker that has reconciled: another process
    goes by the same name, and this one opens and releases nothing.
    """

    sessions: int
    tasks: int
    away: tuple[str, ...] = ()
    superseded: int = 0


class Done(Struct, frozen=True, tag="done", forbid_unknown_fields=True):
    """The URL is settled. ``stored`` if a page (2xx with a body) was kept; ``bytes`` downloaded.

    ``kind`` is ``ok`` or the failure kind under which a final state was recorded (``gone`` …).
    """

    stored: bool = False
    bytes: Count = 0
    kind: Annotated[str, Meta(max_length=40, pattern=KIND)] = "ok"


class Retry(Struct, frozen=True, tag="retry", forbid_unknown_fields=True):
    """Try again, not before ``wait`` seconds from now. ``charge`` adds one to the URL's errors."""

    wait: Seconds
    kind: Annotated[str, Meta(max_length=40, pattern=KIND)]
    charge: bool = True


class Dead(Struct, frozen=True, tag="dead", forbid_unknown_fields=True):
    """No further try: a dead letter, already committed to the store by the worker."""

    kind: Annotated[str, Meta(max_length=40, pattern=KIND)]


Outcome = Done | Retry | Dead


class FinishItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``task`` is the task's number within the session."""

    session: SessionId
    token: Token
    task: Count
    outcome: Outcome


class HostReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What a session learnt of its host; all optional. ``delay`` and ``latency`` in seconds.

    ``delay`` is the adaptive delay to use next, 0 where the host needs none above the floor;
    ``robots_delay`` robots.txt's crawl-delay;
    ``robots`` says that robots were read (or found absent) in this session; ``block`` asks for a
    block of that many seconds (0 with ``failed``: the host's own back-off, doubling a block).
    ``block`` without ``failed``: by no fault of the host's it is to rest so long.
    ``why`` says more than ``failed`` to a person who asks why the host is not fetched from.
    """

    delay: Seconds = 0.0
    latency: Seconds = 0.0
    robots_delay: Seconds = 0.0
    robots: bool = False
    failed: Annotated[str, Meta(max_length=40, pattern=r"^[a-z_]*$")] = ""
    block: Annotated[float, Meta(ge=0, le=7 * 86_400)] = 0.0
    requests: Count = 0
    why: Annotated[str, Meta(max_length=300)] = ""


class CloseItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """End a session's fetching and free its host. Tasks not yet finished stay under the token.

    ``release`` names tasks that were not fetched; they go back to the queue uncharged.
    """

    session: SessionId
    token: Token
    report: HostReport = HostReport()
    release: Annotated[tuple[Count, ...], Meta(max_length=256)] = ()


class ExtendItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    session: SessionId
    token: Token


class ReleaseItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Hand back unfetched tasks uncharged (graceful stop); an empty ``tasks`` means all left."""

    session: SessionId
    token: Token
    tasks: Annotated[tuple[Count, ...], Meta(max_length=256)] = ()


class FinishRequest(Struct, frozen=True, forbid_unknown_fields=True):
    items: Annotated[tuple[FinishItem, ...], Meta(max_length=5000)]


class CloseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    items: Annotated[tuple[CloseItem, ...], Meta(max_length=5000)]


class ExtendRequest(Struct, frozen=True, forbid_unknown_fields=True):
    items: Annotated[tuple[ExtendItem, ...], Meta(max_length=5000)]
    ttl: Annotated[float, Meta(ge=1, le=3600)] = 60.0


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    items: Annotated[tuple[ReleaseItem, ...], Meta(max_length=5000)]


ItemStatus = Literal["ok", "stale", "gone", "stop", "away"]
"""stale: the token or task is not current (409); gone: the crawl was deleted; stop: end soon;
away: the Redis node of its host does not answer, nothing is known: send it again later."""


class ItemsReply(Struct, frozen=True):
    """One status per item of a batch, in its order."""

    results: tuple[ItemStatus, ...]


class Seed(Struct, frozen=True, forbid_unknown_fields=True):
    """A URL to queue. ``level`` 0 is served before 31; ``depth`` counts from it."""

    url: Url
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    level: Annotated[int, Meta(ge=0, lt=LEVELS)] = 0


class SeedRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/crawls/{c}/urls`` as JSON; as NDJSON each line is one of ``urls``.

    ``force`` queues URLs again that were already seen.
    """

    urls: Annotated[tuple[Url | Seed, ...], Meta(max_length=50_000)]
    force: bool = False


class SeedItem(Struct, frozen=True, omit_defaults=True):
    url: str
    status: Literal["added", "duplicate", "rejected", "pending"]
    reason: str = ""


class SeedReply(Struct, frozen=True):
    """Counts, and one item per URL in the order given.

    ``pending`` are durable, and are queued when the Redis node of their host answers again.
    """

    added: int
    duplicate: int
    rejected: int
    items: tuple[SeedItem, ...]
    pending: int = 0


class Totals(Struct, frozen=True, kw_only=True):
    """Counters of one crawl over all partitions, from one undisturbed scan.

    ``failures`` counts outcomes by kind; ``later`` are retries not yet due; ``overflow`` waits in
    SQL, beyond the memory budget; ``hosts`` are those that have tasks waiting.
    """

    admitted: int = 0
    waiting: int = 0
    leased: int = 0
    later: int = 0
    overflow: int = 0
    finished: int = 0
    stored: int = 0
    dead: int = 0
    retries: int = 0
    bytes: int = 0
    hosts: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """Tasks still to do."""
        return self.waiting + self.leased + self.later + self.overflow


class CrawlStats(Totals, frozen=True, kw_only=True):
    """Counters of one crawl, and how it stands. What is still to do is ``waiting +
    leased + later + overflow``.

    ``hooks`` counts failures of its hook; ``refused`` are workers that cannot import it, and
    ``stuck`` says that no worker is known which takes the crawl.
    """

    crawl: str
    state: CrawlState
    reason: str = ""
    hooks: tuple[HookCount, ...] = ()
    refused: tuple[HookRefusal, ...] = ()
    stuck: bool = False


class HostState(Struct, frozen=True, kw_only=True):
    """A host as the frontier knows it; ``*_in`` are seconds from now, 0 when past.

    ``waiting`` is its backlog over all crawls.
    """

    host: str
    partition: int
    delay: float = 0.0
    sessions: int = 0
    waiting: int = 0
    next_in: float = 0.0
    blocked_in: float = 0.0
    block_level: int = 0
    latency: float = 0.0
    failures: int = 0
    robots_known: bool = False
    why: str = ""
    """What its last session failed by, while it is blocked."""


class HostPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``PATCH /v1/hosts/{host}``: seconds of least delay; seconds to block from now."""

    delay: Seconds | None = None
    block: Annotated[float, Meta(ge=0, le=7 * 86_400)] | None = None


class NodeAway(Struct, frozen=True):
    """A Redis node that does not answer, since when (milliseconds since 1970), and how it failed.

    ``since_ms`` is 0 for one that answers, but is not to be asked: ``why`` says what to do.
    """

    node: str
    since_ms: int
    why: str


class Purge(Struct, frozen=True, kw_only=True):
    """A deletion under way: of a crawl, or of what waits of one host in it.

    ``instance`` is the crawl's id: its name may belong to another by now. ``total`` counts stored
    rows, or tasks of the host, when it began (0: not counted yet); ``removed`` is how far it is.
    ``away`` are Redis nodes that it waits for: it goes on by itself when they are back.
    """

    id: int
    crawl: str
    instance: int
    host: str = ""
    asked_ms: int = 0
    total: int = 0
    removed: int = 0
    away: tuple[NodeAway, ...] = ()


class Stats(Struct, frozen=True):
    """``slowest`` holds hosts of recent sessions, the longest latency first.

    ``rest_hosts`` were being fetched from when a worker's process died, and rest for
    ``rest_seconds`` at most, until no request of it can be under way any more. ``away`` are Redis
    nodes that do not answer: what they hold is not counted.

    ``workers`` counts the worker processes that were heard of within a minute, None if that is not
    known; ``claimed_twice`` are names of workers under which an earlier process waits for a later
    one to leave.
    """

    crawls: tuple[CrawlStats, ...]
    slowest: tuple[HostState, ...] = ()
    rest_hosts: int = 0
    rest_seconds: float = 0.0
    away: tuple[NodeAway, ...] = ()
    workers: int | None = None
    claimed_twice: tuple[str, ...] = ()


class UrlState(Struct, frozen=True, kw_only=True):
    """Answer to "where is this URL, and why is it not fetched yet?", for one crawl."""

    crawl: str
    url: str
    host: str = ""
    state: Literal[
        "fetched",
        "dead",
        "gone",
        "excluded",
        "waiting",
        "leased",
        "later",
        "overflow",
        "away",
        "seen",
        "unseen",
        "invalid",
    ] = "unseen"
    why: str = ""
    """One sentence for a person, naming the rule, line, wait or worker."""
    page: str = ""
    """The id of what is stored of it, for ``/v1/pages/{id}``."""
    attempts: tuple[Attempt, ...] = ()
    versions: tuple[Version, ...] = ()
    """Its fetches, the latest first, if there was more than one."""


# --- fetching --------------------------------------------------------------------------------


class FailureKind(StrEnum):
    """Every way a fetch can fail; what follows from each stands in ``worker.retry.TABLE``."""

    GONE = "gone"  # 404, 410, 451 …: final
    FORBIDDEN = "forbidden"  # 401, 403, 407
    CLIENT_ERROR = "client_error"  # other 4xx
    REQUEST_TIMEOUT = "request_timeout"  # 408, 425
    RATE_LIMITED = "rate_limited"  # 429
    UNAVAILABLE = "unavailable"  # 503
    SERVER_ERROR = "server_error"  # other 5xx
    BAD_STATUS = "bad_status"  # 1xx as final, 6xx …
    DNS_MISSING = "dns_missing"  # the name does not exist
    DNS_FAILED = "dns_failed"  # the resolver did not answer
    ADDRESS_FORBIDDEN = "address_forbidden"  # private, loopback, link-local …
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    TIMEOUT = "timeout"  # the whole request took too long
    RESET = "reset"  # connection lost before the end of the answer
    TLS = "tls"
    PROTOCOL = "protocol"  # not HTTP, or headers beyond the cap
    DECODE = "decode"  # content-encoding that does not decode
    REDIRECT = "redirect"  # too many, to itself, or to no URL
    ROBOTS = "robots"  # disallowed by robots.txt: final, no request made
    ROBOTS_UNREACHABLE = "robots_unreachable"
    PROCESS_DEATH = "process_death"  # the page killed the process that parsed it
    STALLED = "stalled"  # the page hung the process that parsed it
    HOOK = "hook"  # the user's own function raised
    PARSE = "parse"  # extraction raised
    LOGIN = "login"  # the login was refused, or could not be made
    LOGGED_OUT = "logged_out"  # the page asks for a login in spite of one just made


class Failure(Struct, frozen=True):
    """A fetch that brought no page. ``code`` is the HTTP status or 0; ``retry_after`` seconds."""

    kind: FailureKind
    detail: str = ""
    code: int = 0
    retry_after: float | None = None
    requests: int = 1
    """Requests that left for the host before this failed (0: none did)."""


_ASCII = "".join(map(chr, range(0x80)))


class Fetched(Struct):
    """An HTTP answer. ``body`` is after content-encoding, cut at ``max_body_bytes``.

    ``headers`` have lower-case names; repeated ones are joined by ", ". ``elapsed_ms`` runs from
    the first byte sent to the last byte read; ``wire_bytes`` is the body as transferred.
    ``request`` are header fields that were sent, those that can hold credentials left out.
    """

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    fetched_ms: int = 0
    elapsed_ms: int = 0
    wire_bytes: int = 0
    truncated: bool = False
    address: str = ""
    request: dict[str, str] = field(default_factory=dict)
    cookies: tuple[str, ...] = ()
    """Values of the Set-Cookie headers, one by one."""

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def location(self) -> str:
        """Where a redirect points, "" without one; bytes beyond ASCII percent-encoded.

        Headers are read as Latin-1, so each character beyond ASCII is a byte of an encoding that
        nobody named: browsers send such bytes back as they came.
        """
        found = self.headers.get("location", "").strip()
        return found if found.isascii() else quote(found, safe=_ASCII, encoding="latin-1")


class Link(Struct):
    """A link as found in a page: absolute canonical URL, its text, its ``rel`` tokens.

    ``score`` (0 … 1, higher first) orders best-first crawls; None leaves it to the default.
    """

    url: str
    anchor: str = ""
    rel: str = ""
    score: float | None = None


class Page(Struct):
    """What extraction made of one HTML document. Hooks may read it; ``links`` is all it found.

    ``language`` is a BCP 47 tag or ""; ``canonical`` the page's own idea of its URL; ``index`` and
    ``follow`` follow meta robots and X-Robots-Tag.
    """

    url: str
    title: str = ""
    text: str = ""
    language: str = ""
    links: list[Link] = field(default_factory=list)
    canonical: str | None = None
    base: str = ""
    encoding: str = "utf-8"
    index: bool = True
    follow: bool = True
    invalid_links: int = 0


# --- store -----------------------------------------------------------------------------------


class Attempt(Struct, frozen=True, kw_only=True):
    """One try: source A's triple (url, code, errors), or with ``wait`` seconds its quadruple."""

    crawl: int
    fingerprint: int
    url: str
    code: int
    kind: str
    errors: int
    wait: float | None = None
    detail: str = ""
    at_ms: int = 0
    elapsed_ms: int = 0
    worker: str = ""


class Final(Struct, frozen=True, kw_only=True):
    """A URL's last word where no page was stored. ``dead`` ones can be requeued."""

    crawl: int
    fingerprint: int
    url: str
    state: Literal["dead", "gone", "excluded"]
    kind: str
    detail: str = ""
    code: int = 0
    depth: int = 0
    level: int = 0
    at_ms: int = 0


class StoredPage(Struct, kw_only=True):
    """A row of ``pages``. Bodies and texts are plain here; the store compresses them.

    ``digest`` tells bodies apart: the first 16 bytes of the SHA-256 of what was fetched, also where
    the body itself is not kept. ``links`` are those admitted: the log that recovery replays.
    """

    crawl: int
    fingerprint: int
    url: str
    final_url: str = ""
    """Where a redirect points; otherwise equal to ``url``."""
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    fetched_ms: int = 0
    elapsed_ms: int = 0
    depth: int = 0
    body: bytes = b""
    body_bytes: int = 0
    """The body's length, also where it is not read along."""
    truncated: bool = False
    title: str = ""
    text: str = ""
    language: str = ""
    encoding: str = ""
    fields: dict[str, Any] | None = None
    digest: bytes = b""
    links: list[Admission] = field(default_factory=list)
    request: dict[str, str] = field(default_factory=dict)
    """Header fields that were sent, without credentials: for the archive, not kept in SQL."""

    def __post_init__(self) -> None:
        self.body_bytes = self.body_bytes or len(self.body)

    @property
    def id(self) -> str:
        """Names the page in the API and on the command line: crawl, fingerprint in hexadecimal."""
        return f"{self.crawl}-{self.fingerprint & 0xFFFF_FFFF_FFFF_FFFF:016x}"


class Version(Struct, frozen=True, kw_only=True):
    """One fetch of a page, past or present: when, with what status, and whether it had changed.

    ``digest`` is as in :class:`StoredPage`; the first version of a page is a changed one.
    """

    fetched_ms: int
    status: int
    changed: bool
    digest: bytes = b""
    body_bytes: int = 0


class PageFilter(Struct, frozen=True, kw_only=True):
    """Which pages of a crawl are wanted: of a host ("" of all), of a range of statuses (both ends
    count), fetched at ``since_ms`` (epoch) or later."""

    host: str = ""
    status: tuple[int, int] = (0, 999)
    since_ms: int = 0


class HookCount(Struct, frozen=True):
    """Pages on which a function of the crawl's hook failed with the same ``message``."""

    function: str
    message: str
    pages: int


class HookFailure(Struct, frozen=True, kw_only=True):
    """A page on which a function of the crawl's hook failed.

    ``message`` is what does not change from page to page; the journal has all of it. ``at_ms`` is
    when the page was fetched.
    """

    url: str
    function: str
    message: str
    at_ms: int = 0


HOOK_FUNCTIONS = ("on_page", "links", "request")


class HookRun(Struct, frozen=True, kw_only=True):
    """What came of ``functions`` of a crawl's hook on a page: those that failed, and the message.

    It takes the place of what is known of them on that page, unless the page was fetched after
    ``at_ms``.
    """

    crawl: int
    fingerprint: int
    url: str
    at_ms: int
    failures: dict[str, str] = field(default_factory=dict)
    functions: tuple[str, ...] = HOOK_FUNCTIONS


class Commit(Struct):
    """What one transaction of a worker writes: all of it or nothing.

    ``owes`` are nodes that are away and cannot be told of links of these pages now.
    """

    pages: list[StoredPage] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    hooks: list[HookRun] = field(default_factory=list)
    owes: frozenset[str] = frozenset()


class Debt(Struct, frozen=True):
    """What a node that was away is owed: all that is stamped ``since`` or later.

    ``serial`` changes with what is added while it is replayed.
    """

    since: int
    serial: int


class SeedBatch(Struct, frozen=True, kw_only=True):
    """A logged batch of seeds; pending until every partition admitted it, on nodes away as well."""

    id: int
    crawl: int
    urls: tuple[Admission, ...]
    force: bool = False
    stamp: int = 0


class Stamp(Struct, frozen=True):
    """What a transaction read of the log: the value of its clock, and node → epoch.

    ``refused`` are pages, as (crawl, fingerprint), that a commit did not store: ``max_pages`` are.
    """

    clock: int
    epochs: dict[str, int]
    refused: frozenset[tuple[int, int]] = frozenset()


class Duty(Struct, frozen=True):
    """What one broker at a time may do, and the epoch under which it does: each holder has one."""

    name: str
    epoch: int


class Mark(Struct, frozen=True):
    """A settled URL, for a Redis that is told of the past: Stored, Dead, or settled Otherwise."""

    crawl: int
    url: str
    kind: Literal["S", "D", "O"]
    bytes: int = 0


class NodeRepair(Struct, frozen=True, kw_only=True):
    """How far a Redis node is refilled from the store's log.

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
    """Fixed when a frontier is created; a process with other rules refuses to start.

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
