"""The result of a fetch: an answer, or a failure of some kind; a page and its links."""

from __future__ import annotations

import zlib
from enum import StrEnum
from typing import Literal, Self
from urllib.parse import quote

from msgspec import Struct, field


class FailureKind(StrEnum):
    """Every way a fetch can fail: its name, and its label for people.

    ``greencrawl.worker.retry.TABLE`` says what each means exactly, and what follows.
    """

    label: str

    def __new__(cls, name: str, label: str = "") -> Self:
        """Make a member that is a str, with a label."""
        member = str.__new__(cls, name)
        member._value_, member.label = name, label
        return member

    GONE = "gone", "gone (404, 410)"
    FORBIDDEN = "forbidden", "forbidden (401, 403)"
    CLIENT_ERROR = "client_error", "other 4xx"
    REQUEST_TIMEOUT = "request_timeout", "the server's time-out (408)"
    RATE_LIMITED = "rate_limited", "too many requests (429)"
    UNAVAILABLE = "unavailable", "unavailable (503)"
    SERVER_ERROR = "server_error", "server error (5xx)"
    BAD_STATUS = "bad_status", "unexpected status"
    DNS_MISSING = "dns_missing", "host name does not exist"
    DNS_FAILED = "dns_failed", "DNS does not answer"
    ADDRESS_FORBIDDEN = "address_forbidden", "address not allowed"
    REFUSED = "refused", "connection refused"
    UNREACHABLE = "unreachable", "unreachable"
    CONNECT_TIMEOUT = "connect_timeout", "no connection in time"
    TIMEOUT = "timeout", "too slow"
    RESET = "reset", "connection lost"
    TLS = "tls", "TLS failed"
    PROTOCOL = "protocol", "not HTTP"
    DECODE = "decode", "content cannot be decoded"
    REDIRECT = "redirect", "redirect without a usable target"
    ROBOTS = "robots", "forbidden by robots.txt"
    ROBOTS_UNREACHABLE = "robots_unreachable", "robots.txt does not answer"
    PROCESS_DEATH = "process_death", "the page killed its process"
    STALLED = "stalled", "the page hung its process"
    COSTLY = "costly", "too much CPU to read"
    DENSE = "dense", "unpacks to far more than its size"
    HOOK = "hook", "the hook failed"
    KERNEL = "kernel", "its kernel failed"
    PARSE = "parse", "could not be parsed"
    LINKS = "links", "too many links"
    SITEMAP = "sitemap", "the sitemap could not be read"
    LOGIN = "login", "the login failed"
    LOGGED_OUT = "logged_out", "the site asked for a new login"
    BODY_AWAY = "body_away", "the file of its body is missing"


class Failure(Struct, frozen=True):
    """A fetch that brought no page. ``code`` is the HTTP status or 0; ``retry_after`` seconds."""

    kind: FailureKind
    detail: str = ""
    code: int = 0
    retry_after: float | None = None
    requests: int = 1
    """Requests that left for the host before this failed (0: none did)."""
    unpacking: float = 0.0
    """Seconds of CPU for undoing content-encodings before this failed."""
    ours: bool = False
    """True if the operator has to repair this: the host is not the cause, and is not given up."""


_ASCII = "".join(map(chr, range(0x80)))


class Directives(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The directives of a page, and their consequences.

    ``robots`` are the words of robots meta elements and X-Robots-Tag headers that are for us, such
    as ``noindex``; ``all`` and words for other agents are left out. ``unavailable_after_ms`` is the
    earliest moment (Unix time) after which the page is not to be shown. ``tdm`` tells whether
    rights of text and data mining are reserved (TDMRep), "" if nothing says so; ``tdm_policy`` is
    where one can get the rights. ``withheld`` is the directive because of which title, text, body
    and fields are not kept, "" if they are kept. It is ``noindex``, ``unavailable_after``,
    ``tdm_reservation``, ``noai`` or ``noimageai``; or ``copy``, if the canonical page that this
    page names has such a directive.
    """

    robots: tuple[str, ...] = ()
    unavailable_after_ms: int | None = None
    tdm: Literal["", "reserved", "open"] = ""
    tdm_policy: str = ""
    withheld: str = ""


WITHHELD = frozenset(
    {"noindex", "unavailable_after", "tdm_reservation", "noai", "noimageai", "copy"}
)
"""Reasons to withhold the content of a page; the outcome is counted by this kind."""


class Fetched(Struct):
    """An HTTP answer. ``body`` is after content-encoding, cut at ``max_body_bytes``.

    ``headers`` have lower-case names; repeated ones are joined by ", ". ``elapsed_ms`` runs from
    the first byte sent to the last byte read; ``wire_bytes`` is the body as transferred.
    ``request`` are the header fields that were sent, without those that can hold credentials.
    ``unpacking`` is the CPU time, in seconds, for undoing content-encodings.
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
    unpacking: float = 0.0
    robots_tags: tuple[str, ...] = ()
    """Values of the X-Robots-Tag headers, one by one, if there are several."""
    links_cut: bool = False
    """True if links in its header Link were left out, since there were too many."""
    site: Directives | None = None
    """The reservation in its site's tdmrep.json, if that was read."""
    sampled: bool = True
    """True if samples of its text are wanted, in a crawl that looks for traps."""

    packed: int = 0
    """The length of the unpacked body if ``body`` is gzip; 0 if ``body`` is the body itself."""

    def unpack(self, most: int) -> None:
        """Undo the compression of the body, and keep at most ``most`` bytes of it."""
        if self.packed:
            self.body = zlib.decompressobj(wbits=31).decompress(self.body, most + 1)
            self.packed = 0
        self.cut(most)

    def cut(self, most: int) -> None:
        """Keep at most ``most`` bytes of the body."""
        if len(self.body) > most:
            self.body, self.truncated = self.body[:most], True

    @property
    def content_type(self) -> str:
        """Return the Content-Type header as it came, "" without one."""
        return self.headers.get("content-type", "")

    @property
    def location(self) -> str:
        """Return where a redirect points, "" if nowhere; bytes beyond ASCII are percent-encoded.

        Headers are read as Latin-1, so each character beyond ASCII is a byte in an unknown
        encoding. Browsers send such bytes back as they came.
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
    """The result of reading one HTML document; ``links`` are all that were found.

    Hooks may read it. ``language`` is a BCP 47 tag or ""; ``canonical`` is the canonical URL that
    the page names; ``index`` and ``follow`` are as meta robots and X-Robots-Tag say; ``directives``
    has all that these say, or None.
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
    omitted_links: int = 0
    rewritten_links: int = 0
    samples: bytes = b""
    """Hashes of pieces of its text, by which workers find out what is new on a host."""
    spans: bytes = b""
    """Where its main text stands in ``text`` (``greencrawl.schema.text.spans``); b"": not known."""
    directives: Directives | None = None
