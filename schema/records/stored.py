"""Rows that the store keeps of fetches: pages, their versions, attempts, final states, runs of
hooks."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from greencrawl.schema.records.lease import Admission, TaskKind
from greencrawl.schema.records.page import Directives
from greencrawl.schema.text.spans import main_of


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


FinalState = Literal["dead", "gone", "excluded", "parked"]


TRAP = "trap"
"""The kind of a parked URL."""


class Final(Struct, frozen=True, kw_only=True):
    """A URL's last word where no page was stored. ``dead`` ones can be requeued.

    ``parked`` ones are of a ``shape`` that brings nothing new, or of which enough were fetched: no
    request was made, and they can be released. ``task`` is what the URL was asked for.
    """

    crawl: int
    fingerprint: int
    url: str
    state: FinalState
    kind: str
    detail: str = ""
    shape: str = ""
    code: int = 0
    depth: int = 0
    level: int = 0
    at_ms: int = 0
    task: TaskKind = TaskKind.PAGE

    @property
    def again(self) -> Admission:
        """What is admitted when it is queued again."""
        return Admission(self.url, self.depth, self.level, kind=self.task)


class ParkedShape(Struct, frozen=True, kw_only=True):
    """The parked URLs of one shape: how many, since when, the latest reason, and one of them."""

    shape: str
    host: str
    reason: str
    count: int
    first_ms: int
    last_ms: int
    example: str


class StoredPage(Struct, kw_only=True):
    """A row of ``pages``. Bodies and texts are plain here; the store compresses them.

    ``digest`` tells bodies apart: the first 16 bytes of the SHA-256 of what was fetched, also where
    the body itself is not kept. ``links`` are those admitted: the replay log that recovery replays.
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
    items: bytes = b""
    """Records of the crawl's hook as JSON, an array of objects; b"" for none."""
    digest: bytes = b""
    links: list[Admission] = field(default_factory=list)
    canonical: str = ""
    """What it names as its canonical URL, "" if nothing."""
    directives: Directives | None = None
    """None where it says nothing of that kind."""
    request: dict[str, str] = field(default_factory=dict)
    """Header fields that were sent, without credentials: for the archive, not kept in SQL."""
    spans: bytes = b""
    """Where its main text stands in ``text`` (``greencrawl.schema.text.spans``); b"": not told."""
    task: TaskKind = TaskKind.PAGE
    """What it was asked for as; not kept with the page."""

    def __post_init__(self) -> None:
        self.body_bytes = self.body_bytes or len(self.body)

    @property
    def id(self) -> str:
        """Names the page in the API and on the command line: crawl, fingerprint in hexadecimal."""
        return f"{self.crawl}-{self.fingerprint & 0xFFFF_FFFF_FFFF_FFFF:016x}"

    @property
    def main(self) -> str | None:
        """Its main text as it was told when it was fetched, "" if it has none; None: not told."""
        return main_of(self.text, self.spans)


class Validators(Struct, frozen=True):
    """What a server said of a page when it was fetched: its header fields ETag and Last-Modified as
    they came, "" where there was none."""

    etag: str = ""
    modified: str = ""


class Check(Struct, frozen=True, kw_only=True):
    """A page that was asked for at ``at_ms`` (epoch), and had not changed since it was stored.

    ``url``, ``depth`` and ``task`` are what it was asked for as; no URL where nothing was asked.
    """

    crawl: int
    fingerprint: int
    at_ms: int
    url: str = ""
    depth: int = 0
    task: TaskKind = TaskKind.PAGE


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


HOOK_FUNCTIONS = ("on_page", "items", "links", "request")


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
    checks: list[Check] = field(default_factory=list)
