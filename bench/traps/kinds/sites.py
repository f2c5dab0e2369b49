"""The interface of a generated site: it answers a request, and says for each answer what it was
worth.

``content`` has a key: a crawl that fetched one URL with this content has found it. ``index`` leads
to content (lists, start pages), ``side`` is neither (a profile, a help page): fetching each once is
fair. A ``trap`` is never worth a request. Content, index or side that was already fetched is not
worth another request under another URL; ``dress`` names what that URL adds (``sid``, ``sort`` …).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from bench.traps.kinds.text import Prose
from tests.support.site_server import Answer, Request

Worth = Literal["content", "index", "side", "trap"]
HTML = "text/html; charset=utf-8"
Query = dict[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and its worth. ``key`` is unique to a site and the same under all its URLs."""

    worth: Worth
    kind: str
    key: str = ""
    body: str = ""
    dress: str = ""
    status: int = 200
    mime: str = HTML
    location: str = ""


@dataclass(frozen=True, slots=True)
class JudgedRequest:
    """One request with its judgement: ``wasted`` names why it was worth nothing, "" if it was worth
    something."""

    target: str
    status: int
    kind: str
    wasted: str


class Site:
    """A site: ``content`` has the keys that must be found; ``start`` is the first path."""

    name = "site"
    start = "/"
    robots = ""

    def __init__(self, seed: object, *, chinese: bool = False) -> None:
        self.prose = Prose((self.name, seed), chinese)
        self.content: set[str] = set()
        self.requests = 0

    def reply(self, path: str, query: Query) -> Reply:
        """Return the answer to a GET of ``path`` (not decoded) with ``query`` (decoded)."""
        raise NotImplementedError

    def target(self, target: str) -> Reply:
        """Return the answer to a GET of a request's target."""
        self.requests += 1
        parts = urlsplit(target)
        return self.reply(parts.path or "/", dict(parse_qsl(parts.query, keep_blank_values=True)))


class Log:
    """The log of a site that :class:`tests.support.site_server.SiteServer` serves."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.asked: list[JudgedRequest] = []
        self.found: set[str] = set()
        self._seen: set[str] = set()

    def __call__(self, request: Request) -> Answer:
        if request.target == "/robots.txt":
            status = 200 if self.site.robots else 404
            return Answer(status, self.site.robots.encode(), {"Content-Type": "text/plain"})
        reply = self.site.target(request.target)
        self._judge(request.target, reply)
        headers = {"Content-Type": reply.mime}
        if reply.location:
            headers["Location"] = reply.location
        return Answer(reply.status, reply.body.encode(), headers)

    def _judge(self, target: str, reply: Reply) -> None:
        wasted = ""
        if reply.worth == "trap":
            wasted = reply.kind
        elif reply.key in self._seen:
            wasted = reply.dress or f"{reply.kind} again"
        else:
            self._seen.add(reply.key)
            if reply.key in self.site.content:
                self.found.add(reply.key)
        self.asked.append(JudgedRequest(target, reply.status, reply.kind, wasted))

    @property
    def missing(self) -> list[str]:
        """Return the keys of content that nobody asked for."""
        return sorted(self.site.content - self.found)

    @property
    def wasted(self) -> Counter[str]:
        """Return the worthless requests, by kind."""
        return Counter(one.wasted for one in self.asked if one.wasted)

    def useful(self) -> Counter[str]:
        """Return the requests that were worth something, by kind."""
        return Counter(one.kind for one in self.asked if not one.wasted)


@dataclass(slots=True)
class Layout:
    """The text around the content of each page of a site: its name, its menu and its footer."""

    title: str
    menu: list[tuple[str, str]] = field(default_factory=list)
    footer: str = ""
    lang: str = "en"

    def page(self, title: str, main: str, aside: str = "", head: str = "") -> str:
        """Return a whole document; ``main``, ``aside`` and ``head`` are HTML."""
        menu = items(self.menu)
        side = f'<aside class="sidebar">\n{aside}\n</aside>\n' if aside else ""
        return (
            f'<!doctype html>\n<html lang="{self.lang}"><head><meta charset="utf-8">'
            f"<title>{escape(title)} – {escape(self.title)}</title>{head}"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="stylesheet" href="/static/style.css"></head>\n<body>\n'
            f'<header><a class="logo" href="/">{escape(self.title)}</a><nav>{menu}</nav></header>\n'
            f"<main>\n<h1>{escape(title)}</h1>\n{main}\n</main>\n{side}"
            f"<footer>{self.footer}</footer>\n</body></html>\n"
        )


def link(href: str, text: str) -> str:
    """Return an ``a`` element."""
    return f'<a href="{escape(href)}">{escape(text)}</a>'


def items(links: Iterable[tuple[str, str]]) -> str:
    """Return a list of links."""
    return "<ul>" + "".join(f"<li>{link(href, text)}</li>" for href, text in links) + "</ul>"


def pager(links: Iterable[tuple[str, str]]) -> str:
    """Return the line of links to other pages of a list."""
    return '<p class="pagination">' + " ".join(link(href, text) for href, text in links) + "</p>"


def missing() -> Reply:
    """Return an honest 404: a link of ours never leads to one."""
    return Reply("trap", "missing", body="<title>Not found</title>", status=404)


def number(text: str, default: int = -1) -> int:
    """Return a number in a URL, ``default`` for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else default
