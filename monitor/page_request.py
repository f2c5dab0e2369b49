"""The data of a page: one request as pages see it, and the rows of the tables of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from greencrawl.broker.service.service import Service
from greencrawl.monitor.access import Session
from greencrawl.monitor.figures import Figures
from greencrawl.monitor.shared import Shared
from greencrawl.monitor.words import Words

MOST_DIGITS = 15
"""A number in an address or a form has at most this many digits."""


def whole(text: str) -> int | None:
    """Return the number in a text of digits; None for any other text."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


class PageRequest(Struct, frozen=True, kw_only=True):
    """One request: the reader, the language, the address. ``path`` and ``query`` are decoded."""

    service: Service
    figures: Figures
    shared: Shared
    words: Words
    session: Session
    now_ms: int
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}

    def asked(self, name: str) -> str:
        """Return a parameter of the query without white space around it, "" if it was not given."""
        return self.query.get(name, "").strip()


class Form:
    """A form that a person sent: texts by the names of their fields."""

    def __init__(self, fields: Mapping[str, Sequence[str]]) -> None:
        self._fields = fields

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def text(self, name: str) -> str:
        """Return a field without white space around it; "" if it was not sent.

        If several boxes have this name, the text has a line for each box that was ticked.
        """
        return "\n".join(self._fields.get(name, ())).strip()

    def number(self, name: str) -> int | None:
        """Return a field of digits as a number; None if it is not one."""
        return whole(self.text(name))

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines of a field that are not blank."""
        return tuple(line.strip() for line in self.text(name).splitlines() if line.strip())


Data = dict[str, Any]


class View(Struct, frozen=True, kw_only=True):
    """A page.

    ``part`` returns the data for the template ``parts/<name>.html``, which is drawn again every two
    seconds; ``frame`` returns the data for the rest of the page, ``pages/<name>.html``. With
    ``nav`` the page is in the menu; with ``admin`` only administrators see it; with ``plots`` it
    has plots.

    ``early`` raises an error if the part cannot be made. If a view has this check, a new part does
    not delay the rest of the page: the browser gets the rest first, and loads its files meanwhile.
    """

    name: str
    path: str
    part: Callable[[PageRequest], Data] | None = None
    frame: Callable[[PageRequest], Data] | None = None
    early: Callable[[PageRequest], object] | None = None
    nav: bool = False
    admin: bool = False
    plots: bool = False


class Redirect(Struct, frozen=True):
    """The answer of an action: the page to show next, and the message there.

    The message has the key ``said.<said>``; ``n`` is the number in it.
    """

    path: str
    said: str = ""
    n: int | None = None

    @property
    def location(self) -> str:
        """Return the page's address."""
        more = {"said": self.said} if self.said else {}
        more |= {"n": str(self.n)} if self.n is not None else {}
        mark = "&" if "?" in self.path else "?"
        return f"{self.path}{mark}{urlencode(more)}" if more else self.path


class ActionPage(Struct, frozen=True):
    """The answer of an action that shows a page itself: ``pages/<template>.html`` with its data."""

    template: str
    data: Data
    status: int = 200


class Action(Struct, frozen=True, kw_only=True):
    """The action of a form. It is called for administrators only, with a form of our own."""

    path: str
    run: Callable[[PageRequest, Form], Redirect | ActionPage]


class Download(Struct, frozen=True, kw_only=True):
    """A file to download, never to show."""

    name: str
    chunks: Iterable[bytes]


class File(Struct, frozen=True, kw_only=True):
    """The address of a download."""

    path: str
    run: Callable[[PageRequest], Download]
