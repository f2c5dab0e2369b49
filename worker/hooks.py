"""The user's own code: a module with plain synchronous functions, all optional.

::

    def on_page(page: Extracted, fetched: Fetched) -> dict | None: ...
    def items(page: Extracted) -> Iterable[dict]: ...
    def links(page: Extracted, links: list[Link]) -> list[Link]: ...
    def request(task: Task, headers: dict[str, str]) -> dict[str, str]: ...

``on_page`` returns your own fields (a dict that JSON can hold), which are stored and exported with
the page. ``items`` returns or yields any number of such dicts, up to :data:`MOST_ITEMS`: records
that are stored with the page and exported by themselves. ``on_page`` and ``items`` are not called
for pages whose content is not to be kept (``greencrawl.worker.directives``). ``links`` returns
those of the page's links to follow, perhaps with a ``score`` each; scope and the seen-check come
afterwards. ``request`` returns the headers to send. Credentials (``greencrawl.worker.auth``) are
added afterwards: ``request`` does not see them. All functions run between the network calls of one
page, one page at a time in a process. If a function never returns, its process is killed, and the
page counts a failure. The page is then tried once more in a process of its own
(``greencrawl.worker.process.quarantine``). That process imports the module again, so it lacks data
that functions keep in memory.

An error in a function, even an exit, is a :class:`HookError` here. The pipeline journals it with
the URL, counts it by its message, and goes on without the function. Functions get copies of their
arguments, so changes in them change nothing. Only the page's tree is shared; it exists until the
last function has returned (``greencrawl.worker.extract.main.library.Extracted``).
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import gevent
from msgspec.structs import replace

from greencrawl.schema import wire
from greencrawl.schema.errors import GreencrawlError, InvalidConfig
from greencrawl.schema.records import Fetched, Link, Task

if TYPE_CHECKING:
    from greencrawl.worker.extract.main.library import Extracted

MOST_ITEMS = 5000
"""A page has at most this many records."""
ITEM_BYTES = 64 * 1024
"""A record has at most this many bytes, as JSON."""
ITEMS_BYTES = 4 * 1024 * 1024
"""All records of a page have at most this many bytes, as JSON."""


class OnPage(Protocol):
    """Returns own fields of a page, or None. ``fetched`` is the answer with the page."""

    def __call__(self, page: Extracted, fetched: Fetched, /) -> dict[str, Any] | None: ...


class Items(Protocol):
    """Returns the records in a page."""

    def __call__(self, page: Extracted, /) -> Iterable[dict[str, Any]] | None: ...


class Links(Protocol):
    """Returns the links to follow: some of the found ``links``, or other links."""

    def __call__(self, page: Extracted, links: list[Link], /) -> list[Link]: ...


class Request(Protocol):
    """Returns the headers to send for ``task``. ``headers`` would be sent otherwise; they have no
    credentials."""

    def __call__(self, task: Task, headers: dict[str, str], /) -> dict[str, str]: ...


class HookError(GreencrawlError):
    """Raised when a user's function raises, or returns a wrong value.

    ``function`` names it; the message ends with ``what``, the exception's own.
    """

    def __init__(self, function: str, what: str) -> None:
        super().__init__(f"{function}: {what}"[:1000])
        self.function = function
        self.what = what


@dataclass(frozen=True)
class Hooks:
    """The functions of one module; None where it has none."""

    on_page: OnPage | None = None
    items: Items | None = None
    links: Links | None = None
    request: Request | None = None

    @property
    def any(self) -> bool:
        """Return whether there is a function."""
        return self.wanted or self.request is not None

    @property
    def wanted(self) -> bool:
        """Return whether a function reads pages."""
        return any((self.on_page, self.items, self.links))

    def page_fields(self, page: Extracted, fetched: Fetched) -> dict[str, Any] | None:
        """Call ``on_page``; None without such a function. Raises HookError."""
        if self.on_page is None:
            return None
        answer = replace(fetched, headers=dict(fetched.headers), request=dict(fetched.request))
        try:
            fields = self.on_page(_copy(page), answer)
            encoded = wire.to_json(fields)
        except RAISED as error:
            raise HookError("on_page", described(error)) from error
        if fields is None:
            return None
        if not isinstance(fields, dict):
            raise HookError("on_page", f"must return a dict or None, not {type(fields).__name__}")
        return wire.from_json(encoded, dict[str, Any])  # a copy as it is now: it is stored later

    def page_items(self, page: Extracted) -> bytes:
        """Call ``items``; return its records as a JSON array, b"" for none.

        Raises HookError, also if there are more records, or longer ones, than are kept: then no
        record is kept.
        """
        if self.items is None:
            return b""
        try:
            return packed(self.items(_copy(page)) or ())
        except RAISED as error:
            raise HookError("items", described(error)) from error

    def chosen_links(self, page: Extracted) -> list[Link]:
        """Call ``links``; return all links of the page without such a function. Raises
        HookError."""
        if self.links is None:
            return page.links
        given = _copy(page)
        try:
            chosen = list(self.links(given, list(given.links)))
        except RAISED as error:
            raise HookError("links", described(error)) from error
        if not all(map(_is_link, chosen)):
            raise HookError("links", "must return a list of Link, with a url that is a string")
        return chosen

    def request_headers(self, task: Task, headers: dict[str, str]) -> dict[str, str]:
        """Call ``request``; return ``headers`` without such a function. Raises HookError."""
        if self.request is None:
            return headers
        try:
            chosen = dict(self.request(task, dict(headers)))
        except RAISED as error:
            raise HookError("request", described(error)) from error
        for name, value in chosen.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise HookError("request", "must return a dict of strings")
            if any(c in name + value for c in "\r\n\0"):
                raise HookError("request", f"header {name!r} holds a line break")
        return chosen


def packed(items: Iterable[dict[str, Any]]) -> bytes:
    """Return records as a JSON array, b"" for none.

    Raises TypeError for a record that is no dict, ValueError if there are more, or longer ones,
    than are kept, and whatever ``items`` raises.
    """
    found: list[bytes] = []
    size = 0
    for item in items:
        encoded = wire.to_json(item)
        if not encoded.startswith(b"{"):
            raise TypeError(f"must yield dicts, not {type(item).__name__}")
        size += len(encoded)
        if len(encoded) > ITEM_BYTES:
            raise ValueError(f"a record of more than {ITEM_BYTES:,} bytes of JSON")
        if len(found) == MOST_ITEMS or size > ITEMS_BYTES:
            most = f"{MOST_ITEMS:,} records or {ITEMS_BYTES:,} bytes of JSON"
            raise ValueError(f"more than {most} on a page")
        found.append(encoded)
    return b"[%b]" % b",".join(found) if found else b""


RAISED = (Exception, SystemExit, KeyboardInterrupt, gevent.Timeout)
"""Exceptions that a user's function may raise; GreenletExit is the engine's, and passes."""


def _copy(page: Extracted) -> Extracted:
    copied = replace(page, links=[replace(link) for link in page.links])
    if tree := getattr(page, "__dict__", None):
        vars(copied).update(tree)
    return copied


def _is_link(link: object) -> bool:
    """Return whether ``link`` is a Link whose fields have the right types."""
    return (
        isinstance(link, Link)
        and isinstance(link.url, str)
        and isinstance(link.rel, str)
        and (link.score is None or isinstance(link.score, int | float))
    )


OF_PAGES = ("on_page", "items", "links")
"""Functions that need no request."""

_VARYING = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"<>]*|0x[0-9a-f]{4,}|[0-9]{4,}", re.IGNORECASE)


def stable(what: str, url: str) -> str:
    """Return the part of an error's text that is the same on other pages: no URLs, addresses, long
    numbers."""
    return _VARYING.sub("…", what[:2000].replace(url, "…"))


_PARAMETERS = {"on_page": 2, "items": 1, "links": 2, "request": 2}


def load(module: str) -> Hooks:
    """Import ``package.module`` and take its hook functions; "" gives none.

    It is found as Python finds modules, and in the current directory. Raises InvalidConfig, which
    names ``hook``, when the module cannot be imported, has none of the functions, or one of them is
    not callable with its arguments.
    """
    if not module:
        return Hooks()
    loaded = imported(module, "hook")
    found: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, count in _PARAMETERS.items():
        function = getattr(loaded, name, None)
        if function is None:
            continue
        problem = _problem(function, count, yields=name == "items")
        if problem:
            problems.append(("hook", f"{module}.{name} {problem}"))
        found[name] = function
    if not found:
        problems.append(("hook", f"{module} has none of {', '.join(_PARAMETERS)}"))
    if problems:
        raise InvalidConfig(problems)
    return Hooks(**found)


_FOLDERS = ("schema", "store", "broker", "worker", "cli")
"""Folders that hooks of earlier versions imported without ``greencrawl.``."""


def imported(module: str, field: str) -> ModuleType:
    """Import a module of the user's, also from the current directory, unless another has its name.

    Raises InvalidConfig, which names ``field``, when it cannot be imported.
    """
    if module.endswith(".py") or "/" in module:
        path = module.removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")
        there = Path(module if module.endswith(".py") else f"{module}.py").is_file()
        what = f"{module} is a file" if there else f"there is no file {module} here"
        what += f"; {field} takes a module's name"
        if not module.startswith(("/", "../")):
            what += f": {path}, in the folder that has {path.replace('.', '/')}.py"
        raise InvalidConfig([(field, what)])
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()  # it may have been put there since the last look
    try:
        return importlib.import_module(module)
    except RAISED as error:
        what = f"cannot import {module!r}: {described(error)}{_renamed(error)}"
        if isinstance(error, ModuleNotFoundError) and module.startswith(error.name or "\0"):
            what += f"; modules are looked for in {here} and among those that are installed"
        raise InvalidConfig([(field, what)]) from error


def _renamed(error: BaseException) -> str:
    """Return the message for a module that is missing, or changed, since ours have a new name."""
    missing = error.name or "" if isinstance(error, ImportError) else ""
    first = missing.partition(".")[0]
    return (
        f"; Greencrawl's `{first}` is called `greencrawl.{first}` now" if first in _FOLDERS else ""
    )


def _problem(function: object, count: int, *, yields: bool) -> str:
    """Say what is wrong with ``function`` as a hook of ``count`` arguments; "" if nothing."""
    if not callable(function):
        return "is not a function"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "must be a plain function, not a coroutine"
    if inspect.isgeneratorfunction(function) and not yields:
        return "must be a plain function, not a generator"
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return f"must take {count} arguments" if count > 1 else "must take one argument"
    return ""


def described(error: BaseException) -> str:
    """Return an error's type and message."""
    return f"{type(error).__name__}: {error}"
