"""A crawl: its options, and its state."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from greencrawl.schema.records.auth import Auth, KernelRule, Source
from greencrawl.schema.records.fields import Count, CrawlName, Pattern, Seconds, Url
from greencrawl.schema.records.recrawl import Recrawl, kept_recrawl

Scope = Literal["host", "domain", "prefix", "any"]


Order = Literal["breadth", "depth", "best"]


NormaliseRule = Literal[
    "percent", "host-dot", "session-ids", "slashes", "index", "tracking", "empty", "query-order"
]
"""Rules of :mod:`greencrawl.schema.net.normalising`."""


CrawlState = Literal["active", "paused", "resting", "done"]


LEVELS = 32
"""Priority levels of a host's waiting queue; 0 is served first."""


RELEASED = 1_000
"""A crawl keeps at most this many shapes as released; to release more, release all."""


EVERY_SHAPE = "*"
"""In :attr:`Crawl.released`: nothing is parked any more."""


ADDRESS_RATE, ADDRESS_CONNECTIONS, DOMAIN_RATE = 10.0, 10, 20.0
"""Defaults outside GREENCRAWL_ALLOW_NETWORKS, if a crawl sets no values."""


class CrawlOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a crawl; TOML, the command line and the API use the same names."""

    seeds: Annotated[tuple[Url, ...], Meta(description="URLs to start from")] = ()
    scope: Annotated[
        Scope,
        Meta(
            description="Which links are followed: those to the seeds' hosts (host), to their "
            "registrable domains (domain), to URLs that begin with a seed (prefix), or all (any)"
        ),
    ] = "host"
    include: Annotated[
        tuple[Pattern, ...],
        Meta(
            description="Regular expressions; if there are any, a URL must match one of them "
            "(seeds are exempt)"
        ),
    ] = ()
    exclude: Annotated[
        tuple[Pattern, ...],
        Meta(description="Regular expressions; a URL that matches one is not fetched"),
    ] = ()
    normalise: Annotated[
        tuple[NormaliseRule, ...],
        Meta(
            description="Rules that rewrite links and seeds before they are queued, so that the "
            "different URLs of a page become one; docs/library.md lists the rules and "
            "their risks"
        ),
    ] = ()
    depth: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="At most this many links between a seed and a page, counted when its URL "
            "is first found; 0: seeds only",
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
            description="Stop after this many seconds of crawling, without stops and pauses; 0: "
            "no limit"
        ),
    ] = 0
    traps: Annotated[
        Literal["on", "off"],
        Meta(
            description="on: URLs of shapes that bring nothing new are parked; off: all are fetched"
        ),
    ] = "on"
    host_pages: Annotated[
        Count,
        Meta(description="At most this many fetches from one host; others are parked; 0: no limit"),
    ] = 0
    shape_pages: Annotated[
        Count,
        Meta(
            description="At most this many fetches of URLs of one shape at a host; further URLs "
            "are parked; 0: no limit"
        ),
    ] = 0
    max_body_bytes: Annotated[
        int,
        Meta(ge=1024, le=2**30, description="Cut off a page's decoded body after this many bytes"),
    ] = 10 * 1024 * 1024
    bodies: Annotated[
        Literal["text", "all"],
        Meta(
            description="Which bodies are kept: HTML, text, XML and JSON (text), or every type "
            "(all); with GREENCRAWL_BODIES=warc:… all are kept"
        ),
    ] = "text"
    main_text: Annotated[
        Literal["on", "off"],
        Meta(
            description="on: the main text of each page is found when the page is read, and "
            "stored; off: it is found when somebody asks for it"
        ),
    ] = "on"
    delay: Annotated[
        Seconds,
        Meta(
            description="Shortest pause in seconds between the end of one request to a host and "
            "the start of the next; a slow host gets a longer pause"
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
    address_rate: Annotated[
        Seconds | None,
        Meta(
            description="At most this many requests a second to one address (IPv4, or a /64 of "
            "IPv6), over all of its hosts and all workers; 0: no limit"
        ),
    ] = None
    address_connections: Annotated[
        Count | None,
        Meta(description="At most this many connections to an address by all workers; 0: no limit"),
    ] = None
    domain_rate: Annotated[
        Seconds | None,
        Meta(
            description="At most this many requests a second to one registrable domain, over all "
            "of its hosts and all workers; 0: no limit"
        ),
    ] = None
    tries: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Attempts at a URL before it becomes a dead letter; this limits the tries "
            "of all kinds of failure, except for a wait that the server asked for",
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
            description="User-Agent to send; its part before '/' is compared with robots.txt",
        ),
    ] = "greencrawl/0.1"
    contact: Annotated[
        str,
        Meta(
            max_length=256,
            pattern=r"^[\x20-\x7e]*$",
            description="Address or URL at which the operator of a site can reach you; it is "
            "added to User-Agent",
        ),
    ] = ""
    hook: Annotated[
        str,
        Meta(
            max_length=256,
            description="Python module with your functions (on_page, items, links, request)",
        ),
    ] = ""
    weight: Annotated[
        int, Meta(ge=1, le=1000, description="Share of the workers, relative to other crawls")
    ] = 1
    noindex: Annotated[
        Literal["drop", "keep"],
        Meta(
            description="Whether to keep the content of pages that say noindex or have expired. "
            "drop: do not keep their title, text, body and fields of a hook; keep: store them "
            "like other pages"
        ),
    ] = "drop"
    tdm: Annotated[
        Literal["record", "obey"],
        Meta(
            description="Whether to obey pages that reserve the rights of text and data mining "
            "(TDMRep), or say noai. record: only record this; obey: also keep no content of them, "
            "and request tdmrep.json from each origin"
        ),
    ] = "record"
    canonical: Annotated[
        Literal["record", "fold"],
        Meta(
            description="Whether to follow canonical URLs (rel=canonical). record: only record "
            "them; fold: also follow them, and keep no content if the page there has the same text"
        ),
    ] = "record"
    nofollow: Annotated[
        Literal["skip", "follow"],
        Meta(description="Whether to skip links with rel=nofollow, or to follow them like others"),
    ] = "skip"
    links: Annotated[
        tuple[Annotated[str, Meta(max_length=40)], ...],
        Meta(
            max_length=100,
            description="Further sources of links to read, besides the default ones; a '-' before "
            "a source turns it off; docs/discovery.md lists all sources",
        ),
    ] = ()
    requisites: Annotated[
        Literal["on", "off"],
        Meta(
            description="on: also fetch and keep the images, styles, scripts and fonts that pages "
            "need, from any host; off: pages only"
        ),
    ] = "off"
    follow_actions: Annotated[
        tuple[Pattern, ...],
        Meta(
            description="Regular expressions; a crawl with `auth` follows a link that seems to "
            "log out or to change something if its URL matches one of them"
        ),
    ] = ()
    sitemaps: Annotated[
        Literal["on", "off"],
        Meta(
            description="on: read the sitemaps that robots.txt names, or else /sitemap.xml; off: "
            "only sitemaps that are seeds"
        ),
    ] = "on"
    auth: Annotated[
        tuple[Auth, ...],
        Meta(description="How to log in, by origin; the first entry that names the origin counts"),
    ] = ()
    sources: Annotated[
        tuple[Source, ...], Meta(description="JSON APIs whose lists say what to fetch")
    ] = ()
    kernels: Annotated[
        tuple[KernelRule, ...],
        Meta(max_length=100, description="How URLs are fetched and read, by pattern"),
    ] = ()
    keep_versions: Annotated[
        Count,
        Meta(
            description="How many earlier versions of a page keep their bodies, the latest first; "
            "on MySQL all do"
        ),
    ] = 0
    recrawl: Annotated[
        Recrawl | None,
        Meta(description="When the crawl begins again, and which known pages it asks for then"),
    ] = None


_LATER = frozenset(
    {
        "auth", "sources", "address_rate", "address_connections", "domain_rate", "noindex", "tdm",
        "canonical", "nofollow", "follow_actions", "traps", "host_pages", "links", "shape_pages",
        "normalise", "requisites", "sitemaps", "recrawl", "main_text", "keep_versions", "kernels",
    }
)  # fmt: skip
"""Options that the first release does not know."""


def kept_options(options: CrawlOptions) -> bytes:
    """Write options as a store keeps them: JSON, without later options that are not set.

    "Later" are options that the first release did not have. Workers of an earlier version do not
    know these options. During an upgrade they go on with crawls that do not use them.
    """
    fields = msgspec.structs.asdict(options)
    for field in msgspec.structs.fields(options):
        if field.name in _LATER and fields[field.name] == field.default:
            del fields[field.name]
    if options.recrawl is not None:
        fields["recrawl"] = kept_recrawl(options.recrawl)
    # earlier workers do not accept null, and use a list of their own if there is none
    if options.auth:
        fields["auth"] = [_kept_entry(entry) for entry in options.auth]
    return msgspec.json.encode(fields)


def _kept_entry(entry: Auth) -> dict[str, object]:
    said: dict[str, object] = msgspec.to_builtins(entry)
    if entry.skip is None:
        del said["skip"]
    return said


class CreateCrawl(CrawlOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Body of ``POST /v1/crawls``: the options and a name. ``seeds`` are queued at once."""

    name: CrawlName


FINISHED = "finished"
"""The reason of a crawl that ended because nothing was left to do."""


STOPPED = "stopped"
"""The reason of a crawl that a person ended."""


STOPPING, STOPPING_NOW = "stopping", "stopping_now"
"""Reasons of a paused crawl that is done when none of its tasks is leased.

With ``stopping_now`` leased tasks go back unfetched.
"""


class Crawl(Struct, frozen=True, kw_only=True):
    """A crawl as the store keeps it.

    ``id`` also is the crawl's instance: a crawl that was purged and created again has another id.
    Scope is measured from ``roots``: hosts, domains or prefixes, as in
    ``greencrawl.schema.net.scope``. ``released`` are shapes (a thousand at most, ``*`` for all)
    that a person released: their URLs are never parked again. ``revision`` rises with every change
    of options, roots or released shapes, ``version`` with every change at all. An action on a crawl
    counts only while its version is the one that its sender has read.
    """

    id: int
    name: str
    state: CrawlState
    options: CrawlOptions
    roots: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    revision: int = 1
    version: int = 1
    created_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    wakes_ms: int = 0
    """When the next period begins, if the crawl rests."""
    reason: str = ""
    """Why the crawl is done: ``finished``, ``stopped``, or the limit that was reached.

    A crawl that is paused until it is done has ``stopping`` or ``stopping_now``.
    """

    @property
    def finished(self) -> bool:
        """Return whether the crawl is done because nothing was left to do.

        Such a crawl may rest; new URLs make it active.
        """
        return self.ended and self.reason == FINISHED

    @property
    def ended(self) -> bool:
        """Return whether the crawl is done, or rests until its next period."""
        return self.state in ("done", "resting")

    def wakes(self, now_ms: int) -> bool:
        """Return whether the crawl's next period is due.

        A period that is further away than ``every`` is due, too: the clock went back.
        """
        every_ms = self.options.recrawl.every_ms if self.options.recrawl else 0
        return self.state == "resting" and not 0 < self.wakes_ms - now_ms <= every_ms

    @property
    def stopping(self) -> bool:
        """Return whether the crawl ends when none of its tasks is leased, unless it is resumed or
        seeded."""
        return self.state == "paused" and self.reason in (STOPPING, STOPPING_NOW)
