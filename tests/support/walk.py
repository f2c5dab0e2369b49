"""An independent walk of a site: it finds what a correct crawl must find.

It shares no code with the crawler: ``html.parser`` reads the pages, ``urllib.parse`` resolves
links, ``urllib.robotparser`` judges robots.txt. It follows ``a[href]``, ``area[href]``,
``frame[src]``, ``iframe[src]``, ``link`` with rel next or prev, and a meta refresh, as
``greencrawl.worker.extract`` says; ``rel=nofollow`` and meta robots are not obeyed here, so sites
under test do without them.
"""

from __future__ import annotations

import http.client
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import quote, urldefrag, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

Response = tuple[int, dict[str, str], bytes]
"""Status, headers with lower-case names, body."""

Fetch = Callable[[str], Response]

_LINK_ATTRIBUTE = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}
_REFRESH = re.compile(r"\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?['\"]?([^'\"]+)", re.IGNORECASE)


@dataclass
class Walk:
    """Sets of URLs without fragment.

    ``requested`` has all URLs that a crawler should have asked for (without robots.txt); it is the
    union of ``pages``, ``redirects``, ``missing`` and ``other``.
    """

    pages: set[str] = field(default_factory=set)
    redirects: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    other: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)

    @property
    def requested(self) -> set[str]:
        return self.pages | self.redirects | self.missing | self.other


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in reversed(attrs)}
        if tag == "base" and not self.base:
            self.base = given.get("href", "")
        elif tag == "link" and {"next", "prev"} & set(given.get("rel", "").lower().split()):
            self.found.append(given.get("href", ""))
        elif tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            if match := _REFRESH.match(given.get("content", "")):
                self.found.append(match[1])
        elif (attribute := _LINK_ATTRIBUTE.get(tag)) and attribute in given:
            self.found.append(given[attribute])


def links(url: str, body: bytes) -> list[str]:
    """Return absolute http(s) URLs that the page links to, without fragments, in document order."""
    parser = _Links()
    parser.feed(body.decode("utf-8", "replace"))
    base = urljoin(url, parser.base)
    found = []
    for reference in parser.found:
        try:
            target = urldefrag(urljoin(base, reference.strip())).url
            parts = urlsplit(target)
        except ValueError:
            continue  # no URL by RFC 3986, as http://[/ is not
        if parts.scheme in ("http", "https") and parts.netloc:
            path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
            found.append(parts._replace(path=path).geturl())
    return found


def walk(starts: Iterable[str], fetch: Fetch, *, agent: str, limit: int = 20_000) -> Walk:
    """Follow every link within the hosts of ``starts``, breadth first, each URL once.

    Raises RuntimeError beyond ``limit`` requests: the site under test is not finite.
    """
    queue = deque(starts)
    hosts = {urlsplit(url).netloc for url in queue}
    rules = {host: _rules(host, fetch) for host in hosts}
    seen = set(queue)
    result = Walk()
    while queue:
        url = queue.popleft()
        if not rules[urlsplit(url).netloc].can_fetch(agent, url):
            result.forbidden.add(url)
            continue
        if len(result.requested) >= limit:
            raise RuntimeError(f"more than {limit} URLs")
        for target in _visit(url, fetch, result):
            if target not in seen and urlsplit(target).netloc in hosts:
                seen.add(target)
                queue.append(target)
    return result


def _visit(url: str, fetch: Fetch, result: Walk) -> list[str]:
    status, headers, body = fetch(url)
    if status in (301, 302, 303, 307, 308):
        result.redirects.add(url)
        return [urldefrag(urljoin(url, headers["location"])).url]
    if status in (404, 410):
        result.missing.add(url)
    elif status == 200:
        result.pages.add(url)
        if headers.get("content-type", "").startswith("text/html"):
            return links(url, body)
    else:
        result.other.add(url)
    return []


def _rules(host: str, fetch: Fetch) -> RobotFileParser:
    parser = RobotFileParser()
    status, _, body = fetch(f"http://{host}/robots.txt")
    parser.parse(body.decode("utf-8", "replace").splitlines() if status == 200 else [])
    return parser


def http_fetch(seconds: float = 30) -> Fetch:
    """Fetch over HTTP with ``http.client``, one kept connection a host."""
    connections: dict[str, http.client.HTTPConnection] = {}

    def fetch(url: str) -> Response:
        parts = urlsplit(url)
        if parts.netloc not in connections:
            connections[parts.netloc] = http.client.HTTPConnection(parts.netloc, timeout=seconds)
        connection = connections[parts.netloc]
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"User-Agent": "walk"})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    return fetch
