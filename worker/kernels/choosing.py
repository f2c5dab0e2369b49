"""Which kernel fetches a URL, and which reads an answer: by the crawl's rules, or by content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import CrawlOptions, Failure, FailureKind, Fetched, Task
from greencrawl.schema.text.kernel_rules import KernelRules, own_kernels
from greencrawl.worker.extract import is_html, is_plain, is_style
from greencrawl.worker.kernels import Kernel
from greencrawl.worker.kernels.http import HTTP, read
from greencrawl.worker.kernels.json_list import JSON
from greencrawl.worker.kernels.own import OwnKernel
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.sitemap import FEED, SITEMAP, found_in, is_asked, is_no_sitemap

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext

_HEAD_BYTES = 1024


class Way(Struct, frozen=True, kw_only=True):
    """How an answer is read, and what it counts as.

    ``page``: the answer counts as a page of its site; ``html``: it counts as a page that shows what
    its site's pages are like. ``keeps``: its body is kept, whatever type it declares. ``reads``:
    the kernel is called at all. ``lists``: the sitemaps of its origin are not admitted with it.
    ``in_steps``: it is read in steps, from a body that may be packed, and longer than a page's.
    ``refused`` says why it cannot be read. ``fails`` is the kind of failure if it cannot be read.
    """

    kernel: Kernel
    page: bool = False
    html: bool = False
    keeps: bool = False
    reads: bool = True
    lists: bool = False
    in_steps: bool = False
    refused: str = ""
    fails: FailureKind = FailureKind.PARSE

    @property
    def name(self) -> str:
        """Return the kernel's name for the journal; "" for the default one."""
        return "" if self.kernel is HTTP else self.kernel.name

    def evidence(self, reading: Reading) -> Reading | None:
        """Return ``reading`` if it shows whether the page is a trap; None if its body has to show
        this."""
        return reading if self.html or (self.page and reading.samples) else None

    def failure(self, task: Task, reading: Reading, status: int) -> Failure | None:
        """Say why an answer brought no page, None if it did."""
        if not reading.failure:
            return None
        sort = FailureKind.SITEMAP if task.kind.is_sitemap else self.fails
        said = reading.failure
        if self.name not in ("", sort):  # otherwise the kind says it
            said = f"kernel {self.name}: {said}"
        return Failure(FailureKind.COSTLY if reading.costly else sort, said, status)


PAGE = Way(kernel=HTTP, page=True, html=True, keeps=True)
PLAIN = Way(kernel=HTTP, keeps=True)
STYLE = Way(kernel=HTTP)
NOTHING = Way(kernel=HTTP, reads=False)
LIST = Way(kernel=JSON, page=True, html=True, keeps=True, lists=True)
_NO_SITEMAP = Way(
    kernel=SITEMAP, reads=False, refused="neither a sitemap, nor a feed, nor a list of URLs"
)
_LISTS = {
    (kernel.name, html): Way(kernel=kernel, html=html, keeps=html, lists=True, in_steps=True)
    for kernel in (SITEMAP, FEED)
    for html in (False, True)
}


class Kernels:
    """The kernels that a crawl names. Raises InvalidConfig for one that cannot be imported."""

    def __init__(self, options: CrawlOptions) -> None:
        self._rules = KernelRules(options.kernels)
        ways = {"http": PAGE, **{name: _LISTS[name, False] for name in ("sitemap", "feed")}}
        own = {named: OwnKernel(named) for named in own_kernels(options)}
        for named, kernel in own.items():
            ways[named] = Way(kernel=kernel, page=True, keeps=True, fails=FailureKind.KERNEL)
        self._ways = [ways[rule.kernel] for rule in options.kernels]
        self.any = bool(self._ways)
        """True if there is a rule."""
        self.fetching = any(kernel.fetches for kernel in own.values())
        """True if one of the user's kernels fetches by itself."""
        known: list[Kernel] = [HTTP, JSON, SITEMAP, FEED, *own.values()]
        self.by_name: Mapping[str, Kernel] = {kernel.name: kernel for kernel in known}
        if len(self.by_name) < len(known):
            raise InvalidConfig([("kernels", "two classes have the same name")])

    def at(self, url: str) -> Way | None:
        """Return how the answer to the canonical ``url`` is read, by the first rule that matches
        it."""
        if not self.any:
            return None
        place = self._rules.place(url)
        return None if place is None else self._ways[place]

    def noted(self, url: str, failure: Failure) -> Failure:
        """Return ``failure`` of ``url``, with the name of the kernel whose rule matches it."""
        way = self.at(url)
        if way is None or not way.name or failure.detail.startswith("kernel "):
            return failure
        detail = f"kernel {way.name}{': ' if failure.detail else ''}{failure.detail}"
        return Failure(
            failure.kind, detail, failure.code, failure.retry_after, failure.requests,
            failure.unpacking, failure.ours,
        )  # fmt: skip


NO_KERNELS = Kernels(CrawlOptions())


def fetching(context: CrawlContext, task: Task) -> Kernel:
    """Return the kernel that asks for a task's URL."""
    if context.kernels.any and (way := context.kernels.at(task.url)) is not None:
        kernel = way.kernel
        return HTTP if isinstance(kernel, OwnKernel) and not kernel.fetches else kernel
    if is_asked(task):
        return SITEMAP
    return HTTP if not context.listings or context.listing(task.url) is None else JSON


def reading(context: CrawlContext, task: Task, fetched: Fetched) -> Way:
    """Return how an answer is read."""
    if context.kernels.any and fetched.status != 204:
        way = context.kernels.at(task.url)
        if way is not None:
            return way if way is not PAGE else _as_page(context, task, fetched)
    if context.listings and fetched.status != 204 and context.listing(task.url) is not None:
        return LIST
    html = is_html(fetched.content_type, fetched.body[:_HEAD_BYTES])
    lists = found_in(context, task, fetched, html=html)
    if lists is not None:
        return _LISTS[lists.name, html]
    if is_no_sitemap(context, task, html=html):
        return _NO_SITEMAP
    return PAGE if html else _as_page(context, task, fetched)


def _as_page(context: CrawlContext, task: Task, fetched: Fetched) -> Way:
    """Return how the default kernel reads an answer."""
    said, head = fetched.content_type, fetched.body[:_HEAD_BYTES]
    if is_html(said, head):
        return PAGE
    if task.kind.is_page and is_plain(said, task.url, head):
        return PLAIN
    return STYLE if context.options.requisites == "on" and is_style(said) else NOTHING


def read_in_quarantine(context: CrawlContext, name: str, task: Task, fetched: Fetched) -> Reading:
    """Let the kernel of that name read an answer, in a process where nothing else waits."""
    if name == HTTP.name:
        return read(context, task, fetched, in_quarantine=True)
    return context.kernels.by_name[name].read(context, task, fetched)
