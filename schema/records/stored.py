"""Rows that the store keeps: pages, their versions, attempts, final states, runs of hooks."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from greencrawl.schema.records.lease import Admission, TaskKind
from greencrawl.schema.records.page import Directives
from greencrawl.schema.text.spans import main_of


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of a URL: its code and errors, and ``wait`` seconds if there will be another try."""

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
    """A URL's final state, where no page was stored. ``dead`` ones can be requeued.

    ``parked`` URLs are of a ``shape`` that brings nothing new, or of which enough were fetched: no
    request was made, and they can be released. ``task`` is the kind of its task.
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
        """Return the admission that queues it again."""
        return Admission(self.url, self.depth, self.level, kind=self.task)


class ParkedShape(Struct, frozen=True, kw_only=True):
    """The parked URLs of one shape: their number, since when, the latest reason, and an example."""

    shape: str
    host: str
    reason: str
    count: int
    first_ms: int
    last_ms: int
    example: str


class StoredPage(Struct, kw_only=True):
    """A row of ``pages``. Bodies and texts are plain here; the store compresses them.

    ``digest`` tells bodies apart: it is the first 16 bytes of the SHA-256 of the fetched body, even
    if the body itself is not kept. ``links`` are the links that were admitted: a part of the replay
    log, which recovery replays.
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
    """The body's length, even if the body itself is not read."""
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
    """The canonical URL that the page names, "" if none."""
    directives: Directives | None = None
    """None if the page has no directives."""
    request: dict[str, str] = field(default_factory=dict)
    """Header fields that were sent, without credentials: for the archive, not kept in SQL."""
    spans: bytes = b""
    """Where its main text stands in ``text`` (``greencrawl.schema.text.spans``); b"": not known."""
    task: TaskKind = TaskKind.PAGE
    """The kind of task that asked for it; not kept with the page."""

    def __post_init__(self) -> None:
        self.body_bytes = self.body_bytes or len(self.body)

    @property
    def id(self) -> str:
        """Return the page's name in the API and in commands: crawl, fingerprint in hexadecimal."""
        return f"{self.crawl}-{self.fingerprint & 0xFFFF_FFFF_FFFF_FFFF:016x}"

    @property
    def main(self) -> str | None:
        """Return the main text found at the fetch, "" if the page has none, None if not known."""
        return main_of(self.text, self.spans)


class Validators(Struct, frozen=True):
    """The header fields ETag and Last-Modified of a page as they came, "" where there was none."""

    etag: str = ""
    modified: str = ""


class Check(Struct, frozen=True, kw_only=True):
    """A page that was asked for at ``at_ms`` (Unix time), and had not changed since it was stored.

    ``url``, ``depth`` and ``task`` are those of the task that asked; there is no URL if nothing was
    asked.
    """

    crawl: int
    fingerprint: int
    at_ms: int
    url: str = ""
    depth: int = 0
    task: TaskKind = TaskKind.PAGE


class Version(Struct, frozen=True, kw_only=True):
    """One fetch of a page, past or present: its time, its status, and whether the page had changed.

    ``digest`` is as in :class:`StoredPage`. The first version that is known of a page counts as
    changed, and is marked as ``first``.
    """

    fetched_ms: int
    status: int
    changed: bool
    digest: bytes = b""
    body_bytes: int = 0
    first: bool = False


class PageFilter(Struct, frozen=True, kw_only=True):
    """Selects pages of a crawl: by host ("" for all), by a range of statuses, by time.

    Both ends of the range count. The pages were fetched at ``since_ms`` (Unix time) or later.
    """

    host: str = ""
    status: tuple[int, int] = (0, 999)
    since_ms: int = 0


class HookCount(Struct, frozen=True):
    """On how many pages a function of the crawl's hook failed with the same ``message``."""

    function: str
    message: str
    pages: int


class HookFailure(Struct, frozen=True, kw_only=True):
    """A page on which a function of the crawl's hook failed.

    ``message`` is the part that is the same on all pages; the journal has the whole message.
    ``at_ms`` is when the page was fetched.
    """

    url: str
    function: str
    message: str
    at_ms: int = 0


HOOK_FUNCTIONS = ("on_page", "items", "links", "request")


class HookRun(Struct, frozen=True, kw_only=True):
    """The result of ``functions`` of a crawl's hook on a page: those that failed, and the message.

    It replaces what is known of these functions on that page, unless the page was fetched after
    ``at_ms``.
    """

    crawl: int
    fingerprint: int
    url: str
    at_ms: int
    failures: dict[str, str] = field(default_factory=dict)
    functions: tuple[str, ...] = HOOK_FUNCTIONS


class Commit(Struct):
    """The rows that one transaction of a worker writes: all of them or none.

    ``owes`` are nodes that are away, so that links of these pages cannot be sent to them now.
    """

    pages: list[StoredPage] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    hooks: list[HookRun] = field(default_factory=list)
    owes: frozenset[str] = frozenset()
    checks: list[Check] = field(default_factory=list)
