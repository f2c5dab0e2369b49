"""Sites for tests: a folder of files, a generated graph of pages, a page in GBK."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.site_server import Answer, Request, Site
from tests.support.walk import Response

HTML = {"Content-Type": "text/html; charset=utf-8"}


def folder_site(folder: Path) -> Site:
    """Return a site of the files below ``folder``; anything else is 404.

    No index pages: link to files.
    """
    root = folder.resolve()

    def site(request: Request) -> Answer:
        path = (root / unquote(urlsplit(request.target).path).lstrip("/")).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            return Answer(404, b"<title>Not found</title>")
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return Answer(body=path.read_bytes(), headers={"Content-Type": kind})

    return site


def html(title: str, links: list[str], filler: int = 0) -> bytes:
    """Return a page with one paragraph a link, padded by about ``filler`` bytes of text."""
    body = "".join(f'<p>See <a href="{link}">{link}</a>.</p>' for link in links)
    padding = "<p>" + "word " * (filler // 5) + "</p>" if filler else ""
    return f"<!doctype html><title>{title}</title><body>{body}{padding}".encode()


def graph_site(pages: int, *, slow_every: int = 0, slow: float = 0.3, filler: int = 500) -> Site:
    """Return a site whose hosts each have ``/p/0`` … as a binary tree with cross links, computed
    from the URL alone.

    Every seventh page is also linked through a redirect, every fifth has a dead link; ``/private``
    is linked and forbidden by robots.txt; every ``slow_every``-th page answers after ``slow``
    seconds.
    """

    def site(request: Request) -> Answer:
        kind, _, number = request.target.strip("/").partition("/")
        if request.target == "/robots.txt":
            body = b"User-agent: *\nDisallow: /private/\n"
            return Answer(body=body, headers={"Content-Type": "text/plain"})
        if kind == "r" and number.isdigit() and int(number) < pages:
            return Answer(302, headers={"Location": f"/p/{number}"})
        if kind == "private":
            return Answer(body=b"not for crawlers")
        if kind != "p" or not number.isdigit() or int(number) >= pages:
            return Answer(404, b"<title>Not found</title>")
        i = int(number)
        wait = slow if slow_every and i % slow_every == slow_every - 1 else 0.0
        return Answer(body=html(f"Page {i}", _graph_links(i, pages), filler), wait=wait)

    return site


def _graph_links(i: int, pages: int) -> list[str]:
    links = [f"/p/{j}" for j in (2 * i + 1, 2 * i + 2, (i * 7 + 3) % pages) if j < pages]
    if i % 7 == 0:
        links.append(f"/r/{(i + 3) % pages}")
    if i % 5 == 0:
        links.append(f"/missing/{i}")
    if i % 6 == 0:
        links.append(f"/private/{i}")
    return links


def direct(site: Site) -> Callable[[str], Response]:
    """Return a fetch for :func:`tests.support.walk.walk` that calls ``site`` without a network."""

    def fetch(url: str) -> Response:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        answer = site(Request(parts.hostname or "", target, {}))
        return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.body

    return fetch


GBK_LINKS = {
    "/search?q=中文": "/search?q=%D6%D0%CE%C4",
    "/search?词=新闻&page=2": "/search?%B4%CA=%D0%C2%CE%C5&page=2",
    "/路径/页?名=值": "/%E8%B7%AF%E5%BE%84/%E9%A1%B5?%C3%FB=%D6%B5",
    "/search?q=%D6%D0&r=国": "/search?q=%D6%D0&r=%B9%FA",
    "/search?q=😀": "/search?q=%26%23128512%3B",
    "/search?q=a b": "/search?q=a%20b",
}
"""Reference in a GBK page → target of the request that a browser sends.

From the URL standard: the query is percent-encoded after encoding in the document's encoding
(https://url.spec.whatwg.org/#query-state), the path always as UTF-8; what the encoding lacks
becomes a decimal character reference, whose ``&``, ``#`` and ``;`` are percent-encoded too
(https://url.spec.whatwg.org/#string-percent-encode-after-encoding). GBK: 中 D6D0, 文 CEC4, 词 B4CA,
新 D0C2, 闻 CEC5, 名 C3FB, 值 D6B5, 国 B9FA. 😀 is outside GBK for an encoder, though gb18030 has it
(https://encoding.spec.whatwg.org/#gb18030-encoder, "is GBK").
"""


def gbk_site(declared: str = "gbk") -> Site:
    """``/`` in GBK with :data:`GBK_LINKS`, its encoding declared in a meta element; 200 for all.

    The emoji is written as a character reference: the page's own bytes cannot hold it.
    """
    text = f'<!doctype html><meta charset="{declared}"><title>中文页</title>'
    text += "".join(f'<a href="{link.replace("&", "&amp;")}">链接</a>' for link in GBK_LINKS)
    page = text.encode("gbk", "xmlcharrefreplace")

    def site(request: Request) -> Answer:
        if request.target == "/":
            return Answer(body=page, headers={"Content-Type": "text/html"})
        if request.target == "/robots.txt":
            return Answer(404)
        return Answer(body=html("A result", []), headers=HTML)

    return site
