"""Finds a user's own kernel, as hooks are found; calls it, and checks its results.

Any exception that it raises becomes a failure of the page. So does a value of the wrong type, or
more than is kept. Its links are judged by the crawl's rules like all others.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from greencrawl.schema import wire
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Admission, Failure, FailureKind, Fetched, Link, Page, Task
from greencrawl.schema.records.auth import BUILT_IN_KERNELS
from greencrawl.worker.hooks import RAISED, described, imported, packed
from greencrawl.worker.kernels import Kernel
from greencrawl.worker.kernels.http import said_by
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.link_checker import MAX_LINKS
from greencrawl.worker.traps.novelty import samples_of

if TYPE_CHECKING:
    from greencrawl.worker.crawls import CrawlContext
    from greencrawl.worker.kernels.visit import TaskVisit

MOST_FURTHER = 100
"""One page of a list may name this many further pages."""
MOST_BYTES = 32 * 1024 * 1024
"""The reading of one page has at most this many bytes, its links included."""
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
_DETAIL = 1000


class _Said(Struct):
    """The fields that a user's kernel may return, with the required types."""

    title: str = ""
    text: str = ""
    language: str = ""
    canonical: str = ""
    failure: str = ""
    found: list[Link | str] = field(default_factory=list)
    further: list[str] = field(default_factory=list)


_ENCODER = msgspec.msgpack.Encoder()
_SAID = msgspec.msgpack.Decoder(_Said)
_FAILURE = msgspec.msgpack.Decoder(Failure)
_FETCHED = msgspec.msgpack.Decoder(Fetched)


class OwnKernel:
    """A user's kernel. Raises InvalidConfig, which names ``field``, if ``named`` is not
    ``module:Class``.

    ``fetches``: the kernel fetches by itself; otherwise one GET is sent.
    """

    def __init__(self, named: str, field: str = "kernels") -> None:
        module, _, kind = named.partition(":")
        made = getattr(imported(module, field), kind, None)
        problem = f"{module} has no class {kind}"
        if isinstance(made, type):
            try:
                self._kernel: Any = made()
                problem = _problem(self._kernel)
            except RAISED as error:
                problem = f"{named} cannot be made: {described(error)}"
        if problem:
            raise InvalidConfig([(field, problem)])
        self.named = named
        self.name: str = self._kernel.name
        self.fetches = getattr(made, "fetch", None) is not Kernel.fetch

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> Fetched | Failure:
        """Fetch by the user's kernel. Raises what ended the visit, even if the kernel caught it."""
        try:
            answer = _answer(self._kernel.fetch(visit, task, dict(headers)), visit, task)
        except RAISED as error:
            answer = self._failure(f"fetch: {described(error)}")
        if visit.over is not None:
            raise visit.over
        return answer

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        """Read by the user's kernel, and judge the links."""
        given = replace(fetched, headers=dict(fetched.headers), request=dict(fetched.request))
        try:
            return _checked(self, context, task, fetched, self._kernel.read(context, task, given))
        except RAISED as error:
            return Reading(failure=f"read: {described(error)}"[:_DETAIL])

    def _failure(self, what: str) -> Failure:
        return Failure(FailureKind.KERNEL, what[:_DETAIL], requests=0)


def _problem(kernel: Any) -> str:
    """Say what is wrong with a user's kernel, "" if nothing is."""
    kind = f"{type(kernel).__module__}.{type(kernel).__qualname__}"
    name = getattr(kernel, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in BUILT_IN_KERNELS:
        ours = ", ".join(BUILT_IN_KERNELS)
        return f"{kind}.name must be 1 to 32 of a-z 0-9 _ . - and none of {ours}"
    for method in ("fetch", "read"):
        function = getattr(kernel, method, None)
        if not callable(function):
            return f"{kind} has no {method}: make it of greencrawl.worker.kernels.Kernel"
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            return f"{kind}.{method} must be a plain method"
        try:
            inspect.signature(function).bind(0, 1, 2)
        except (TypeError, ValueError):
            return f"{kind}.{method} must take three arguments"
    return ""


def _answer(answer: Any, visit: TaskVisit, task: Task) -> Fetched | Failure:
    """Check what a user's ``fetch`` has returned. Raises TypeError and ValueError."""
    if isinstance(answer, Failure):
        return _FAILURE.decode(_ENCODER.encode(answer))
    if not isinstance(answer, Fetched):
        raise TypeError(f"must return Fetched or Failure, not {type(answer).__name__}")
    made = _FETCHED.decode(_ENCODER.encode(answer))
    if not 100 <= made.status <= 599:
        raise ValueError(f"a status of {made.status}")
    made.url, made.packed, made.site = task.url, 0, None
    made.headers = {name.lower(): value for name, value in made.headers.items()}
    made.fetched_ms = made.fetched_ms if made.fetched_ms > 0 else epoch_ms()
    made.cut(visit.max_body_bytes)
    return made


def _checked(
    kernel: OwnKernel, context: CrawlContext, task: Task, fetched: Fetched, made: Any
) -> Reading:
    """Return what a user's ``read`` has returned, as it is stored. Raises TypeError and
    ValueError."""
    if not isinstance(made, Reading):
        raise TypeError(f"must return a Reading, not {type(made).__name__}")
    for name in ("found", "further", "records"):
        if not isinstance(getattr(made, name), list | tuple):
            raise TypeError(f"{name} must be a list")
    found = list(made.found[:MAX_LINKS])
    told = _Said(
        made.title, made.text, made.language, made.canonical, made.failure,
        found, list(made.further[:MOST_FURTHER]),
    )  # fmt: skip
    encoded = _ENCODER.encode(told)
    if len(encoded) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES:,} bytes of text and links")
    said = _SAID.decode(encoded)
    if said.failure:
        return Reading(failure=said.failure[:_DETAIL])
    reading = Reading(title=said.title, text=said.text, language=said.language)
    if said.canonical:
        reading.canonical = canonicalise(said.canonical, task.url)
    if made.fields is not None:
        reading.fields = wire.from_json(wire.to_json(made.fields), dict[str, Any])
    reading.items = packed(made.records)
    if said.text and context.options.traps == "on":
        reading.samples = samples_of(said.text, task.url)
    _follow(kernel, context, task, fetched, said, reading)
    reading.omitted += len(made.found) - len(found)
    return reading


def _follow(
    kernel: OwnKernel,
    context: CrawlContext,
    task: Task,
    fetched: Fetched,
    said: _Said,
    reading: Reading,
) -> None:
    """Judge by the crawl's rules the URLs that were found.

    Further pages are those that the same kernel reads and the rules allow; any other is a link.
    """
    links = [Link(one) if isinstance(one, str) else one for one in said.found]
    further = []
    for one in said.further:
        try:
            url = canonicalise(one, task.url)
        except InvalidUrl:
            continue
        way = context.kernels.at(url)
        if way is None or way.kernel is not kernel:
            links.append(Link(url))
        elif url != task.url and context.rules.judge(task, url) is None:
            further.append(Admission(url, task.depth, task.level))
    directives = said_by(context, fetched)
    follow = directives is None or "nofollow" not in directives.robots
    page = Page(url=task.url, base=task.url, follow=follow or context.options.nofollow == "follow")
    reading.links = further + context.checker.check(page, links, task.depth)
    reading.skipped = context.checker.take_skipped()
    reading.omitted, reading.rewritten = page.omitted_links, page.rewritten_links
