"""The crawled web: a function of the URL, so that every process that has a URL knows its links.

A crawl has a graph of its own. The graph's tag is the first part of every path, so each request at
a target shows its crawl. Host *i* of *hosts* has the pages ``/TAG/p/0`` … as a tree. Each page also
links to a page of another host and to a leaf that no other page links to, so that a lost link means
a missing page. Some links lead through redirects, within and between hosts; some pages are missing,
or forbidden by robots.txt. ``/v/`` pages link to another leaf at each fetch.

Letters at the end of a tag say what else the graph has, and which options its crawl has:

=====  =============================================================================================
``s``  sitemaps: robots.txt of its hosts names an index of some, gzipped and not, and one at another
       host; others have one at the usual place, or none. Leaves ``/m/`` that nothing else links to
``q``  requisites: pages need images and style sheets, and these need others
``t``  traps: a calendar, a list in all orders, ids of sessions; and pages that say something
=====  =============================================================================================

A robots.txt belongs to a host, not to a crawl. So a graph with sitemaps has hosts of its own, and
all of it is a function of its key (:func:`mapped`).
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

SHARED_HOSTS = 60
"""Hosts with lower numbers are shared by all crawls; fresh hosts follow."""
MAPPED_FIRST, MAPPED_STEP = 20_000, 10
"""Hosts from this number on have sitemaps; each graph has this many numbers."""
ROBOTS_DELAY_SECONDS = 1.0
USUAL_PLACE = "/sitemap.xml"
SITEMAP_SECONDS = 0.8
"""A sitemap takes this long, so that its task is leased when something is harmed."""
LISTED, FORBIDDEN = 8, 60
"""A sitemap names this many leaves; the longest one has this many URLs that robots.txt forbids."""
DAYS, ORDERS, LIST_PAGES, VISITS = 40, "abcd", 5, 6
"""The sizes of the traps."""
_FILES = ("0.xml", "1.xml.gz", "2.txt", "old.xml")
_WORDS = 60
_TAG = re.compile(r"/(g(\d+)x(\d+)x(\d+)x(\d+)([qst]*))/")

Kind = Literal["html", "css", "image", "font", "index", "urlset", "gzip", "text"]


@dataclass(frozen=True)
class Graph:
    """The web of one crawl: ``hosts`` from number ``first`` on, ``pages`` of a tree on each."""

    key: int
    first: int
    hosts: int
    pages: int
    extras: str = ""

    @property
    def tag(self) -> str:
        return f"g{self.key}x{self.first}x{self.hosts}x{self.pages}{self.extras}"

    def host(self, i: int) -> int:
        """Return the number of its ``i``-th host; shared hosts wrap around."""
        number = self.first + i % self.hosts
        return number % SHARED_HOSTS if self.first < SHARED_HOSTS else number

    def url(self, i: int, path: str, port: int) -> str:
        """Return the URL of ``path``, below the tag, on its ``i``-th host."""
        return f"http://{address(self.host(i))}:{port}/{self.tag}/{path}"

    def seeds(self, count: int, port: int) -> list[str]:
        """Return first pages of some of its hosts; the others are found only by links. With
        sitemaps each host has a first page that no page links to, since a page that is found by a
        link brings no sitemap.
        """
        if "s" in self.extras:
            return [self.url(i, "home", port) for i in range(self.hosts)]
        return [self.url(i, "p/0", port) for i in range(min(count, self.hosts))]


@dataclass(frozen=True)
class Resource:
    """The content of a URL. ``wait`` in seconds; ``links`` are absolute, and so are the URLs that
    the page ``needs`` to be shown.
    """

    status: int
    links: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    location: str = ""
    kind: Kind = "html"
    text: str = ""
    wait: float = 0.0
    changing: bool = False
    final: bool = True
    """False: robots.txt forbids the URL, so it is never requested."""


def address(number: int) -> str:
    """Return the loopback address of a host."""
    return f"127.{20 + number // 40000}.{number // 200 % 200}.{number % 200 + 2}"


def number_of(host: str) -> int:
    """Return a host's number by its address."""
    _, b, c, d = (int(part) for part in host.partition(":")[0].split("."))
    return (b - 20) * 40000 + c * 200 + d - 2


def has_login(number: int) -> bool:
    """Return whether the host's pages are for those who are logged in."""
    return number < SHARED_HOSTS and number % 20 == 7


def robots_delay(number: int) -> float:
    """Return the crawl-delay of the host's robots.txt, 0 for none."""
    return ROBOTS_DELAY_SECONDS if number % 15 == 4 else 0.0


def mapped(key: int) -> Graph:
    """Return the graph with sitemaps of a key."""
    extras = "q" * (key % 2) + "s" + "t" * (key % 3 == 0)
    return Graph(key, MAPPED_FIRST + key * MAPPED_STEP, 3 + key % 3, 3 + key % 5, extras)


def mapped_at(number: int) -> tuple[Graph, int] | None:
    """Return the graph with sitemaps that has this host, and the host's place in it."""
    if number < MAPPED_FIRST:
        return None
    key, i = divmod(number - MAPPED_FIRST, MAPPED_STEP)
    graph = mapped(key)
    return (graph, i) if i < graph.hosts else None


def named(number: int, port: int) -> tuple[str, ...]:
    """Return the sitemaps that the host's robots.txt names: every third robots.txt names some."""
    found = mapped_at(number)
    if found is None or found[1] % 3:
        return ()
    graph, i = found
    return graph.url(i, "x/index.xml", port), graph.url(i + 1, f"x/of{i}.xml", port)


def guess(number: int, port: int) -> str:
    """Return the usual place of a sitemap, where a crawl with sitemaps looks for one; "" for
    nowhere."""
    asks = mapped_at(number) is not None and not named(number, port)
    return f"http://{address(number)}:{port}{USUAL_PLACE}" if asks else ""


def is_guess(url: str) -> bool:
    """Return whether a URL is a usual place: if it is missing or did not answer, the store has no
    row of it."""
    return urlsplit(url).path == USUAL_PLACE


def robots(number: int, port: int) -> bytes:
    """Return the host's robots.txt; those of fresh hosts and some others are long and do not
    compress."""
    text = "User-agent: *\nDisallow: /private/\n"
    if delay := robots_delay(number):
        text += f"Crawl-delay: {delay:g}\n"
    text += "".join(f"Sitemap: {url}\n" for url in named(number, port))
    if SHARED_HOSTS <= number < MAPPED_FIRST or number % 6 == 5:
        lines = (hashlib.sha512(f"{number}.{i}".encode()).hexdigest() for i in range(1500))
        text += "".join(f"# {line}\n" for line in lines)
    return text.encode()


def graph_of(target: str) -> Graph | None:
    """Return the graph that a path or URL belongs to."""
    found = _TAG.search(target)
    if found is None:
        return None
    *numbers, extras = found.groups()[1:]
    return Graph(*map(int, numbers), extras)


def _mix(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest(), "big")


def resource_at(url: str) -> Resource:
    """Return the content of ``url`` in any graph; 404 for a URL of no graph."""
    parts = urlsplit(url)
    graph, port = graph_of(parts.path), parts.port
    if port is None:
        return Resource(404)
    number = number_of(parts.hostname or "")
    wait = _mix(url) % 100 / 1000 if _mix(url, 1) % 10 else 0.4
    if graph is None:
        return _at_usual_place(parts.path, number, port)
    if parts.path.startswith("/private/"):
        return Resource(200, final=False)
    i = next((i for i in range(graph.hosts) if graph.host(i) == number), -1)
    kind, _, rest = parts.path.split(f"/{graph.tag}/", 1)[1].partition("/")
    if kind == "m" and "s" in graph.extras:
        return Resource(200, wait=wait, text=_text(graph, url))
    if kind == "missing" or i < 0:
        return Resource(404)
    if kind == "home":
        return Resource(200, (graph.url(i, "p/0", port),), wait=wait, text=_text(graph, url))
    if kind == "p" and rest.isdigit() and int(rest) < graph.pages:
        n = int(rest)
        links = (*_links(graph, i, n, port), *_traps_of_page(graph, i, n, port))
        needs = tuple(_needs_of_page(graph, i, n, port))
        return Resource(200, links, needs, wait=wait, text=_text(graph, url))
    if kind == "r":
        other = i if int(rest) % 2 else _mix(graph.tag, i, rest) % graph.hosts
        return Resource(302, location=graph.url(other, f"t/{i}.{rest}", port))
    if kind == "v":
        return Resource(200, wait=wait, changing=True, text=_text(graph, url))
    if kind in ("u", "t", "w"):
        return Resource(200, wait=wait, text=_text(graph, url))
    if kind == "x" and "s" in graph.extras:
        return _sitemap(graph, i, rest, port)
    if kind in ("css", "image", "font") and "q" in graph.extras:
        return _requisite(graph, i, kind, rest, port)
    return _trap(graph, i, kind, rest, parts.query, port) if "t" in graph.extras else Resource(404)


def _text(graph: Graph, url: str) -> str:
    """Return words that no other page has, if the crawl looks for traps; else ""."""
    if "t" not in graph.extras:
        return ""
    page = url.partition("?")[0]
    return " ".join(f"word{_mix(page, n) % 10**9}" for n in range(_WORDS))


def _links(graph: Graph, i: int, n: int, port: int) -> Iterable[str]:
    for child in (2 * n + 1, 2 * n + 2):
        if child < graph.pages:
            yield graph.url(i, f"p/{child}", port)
    other = _mix(graph.tag, i, n)
    yield graph.url(i + 1, "p/0", port)
    yield graph.url(other % graph.hosts, f"p/{other // 100 % graph.pages}", port)
    yield graph.url(other // 7 % graph.hosts, f"u/{i}.{n}", port)
    if n % 9 == 4:
        yield graph.url(i, f"r/{n}", port)
    if n % 3 == 0:
        yield graph.url(i, f"v/{n}", port)
    if n % 13 == 6:
        yield graph.url(i, f"missing/{n}", port)
    if n % 17 == 3:
        yield f"http://{address(graph.host(i))}:{port}/private/{graph.tag}/{n}"


# --- sitemaps --------------------------------------------------------------------------------


def _at_usual_place(path: str, number: int, port: int) -> Resource:
    found = mapped_at(number)
    if path != USUAL_PLACE or found is None or found[1] % 3 != 1:
        return Resource(404)
    graph, i = found
    return Resource(
        200, tuple(_leaves(graph, i, "usual", port)), kind="urlset", wait=SITEMAP_SECONDS
    )


def _sitemap(graph: Graph, i: int, name: str, port: int) -> Resource:
    """Return a sitemap of the ``i``-th host: an index, its files, a file that has moved, and a file
    that another host names."""
    if name == "index.xml":
        files = tuple(graph.url(i, f"x/{file}", port) for file in _FILES)
        return Resource(200, files, kind="index", wait=SITEMAP_SECONDS)
    if name == "old.xml":
        return Resource(302, location=graph.url(i, "x/new.xml", port))
    leaves = list(_leaves(graph, i, name, port))
    if name == "0.xml":  # long, and quickly settled
        start = f"http://{address(graph.host(i))}:{port}/private/{graph.tag}"
        leaves += [f"{start}/x{n}" for n in range(FORBIDDEN)]
    kinds: dict[str, Kind] = {"xml": "urlset", "gz": "gzip", "txt": "text"}
    return Resource(200, tuple(leaves), kind=kinds[name.rpartition(".")[2]], wait=SITEMAP_SECONDS)


def _leaves(graph: Graph, i: int, name: str, port: int) -> Iterable[str]:
    """Yield pages that only this sitemap names, on hosts of the graph and on some that all crawls
    share."""
    for n in range(LISTED):
        path = f"m/{i}.{name}.{n}"
        mixed = _mix(graph.tag, path)
        shared = mixed % SHARED_HOSTS
        if n % 4 or has_login(shared):
            yield graph.url(mixed % graph.hosts, path, port)
        else:
            yield f"http://{address(shared)}:{port}/{graph.tag}/{path}"


# --- requisites ------------------------------------------------------------------------------


def _needs_of_page(graph: Graph, i: int, n: int, port: int) -> Iterable[str]:
    if "q" not in graph.extras:
        return
    yield graph.url(i + 1, f"image/{i}.{n}.png", port)
    if n % 2 == 0:
        yield graph.url(i, f"css/{n}.css", port)


def _requisite(graph: Graph, i: int, kind: str, rest: str, port: int) -> Resource:
    """A style sheet needs an image and imports another one, which needs a font at another host."""
    if kind == "image":
        return Resource(200, kind="image")
    if kind == "font":
        return Resource(200, kind="font")
    n, _, more = rest.partition(".")
    if more == "more.css":
        return Resource(200, needs=(graph.url(i + 1, f"font/{i}.{n}.woff2", port),), kind="css")
    needs = graph.url(i, f"css/{n}.more.css", port), graph.url(i, f"image/{n}.back.png", port)
    return Resource(200, needs=needs, kind="css")


# --- traps -----------------------------------------------------------------------------------


def _traps_of_page(graph: Graph, i: int, n: int, port: int) -> Iterable[str]:
    """Yield the first URLs of the first host's traps."""
    if "t" not in graph.extras or i:
        return
    if n == 0:
        yield graph.url(0, "day/0", port)
        yield graph.url(0, f"list?by={ORDERS[0]}&page=0", port)
    if n == 1:
        for visit in range(VISITS):
            number = hashlib.blake2b(f"{graph.tag} {visit}".encode(), digest_size=16).hexdigest()
            yield graph.url(0, f"t/shop?PHPSESSID={number}", port)


def _trap(graph: Graph, i: int, kind: str, rest: str, query: str, port: int) -> Resource:
    """A day leads to three others; a list to each order of itself, and to its next page."""
    if kind == "day" and rest.isdigit() and not i:
        n = int(rest)
        days = [graph.url(0, f"day/{day}", port) for day in range(3 * n + 1, 3 * n + 4)]
        return Resource(200, tuple(days[: max(0, DAYS - 3 * n - 1)]), text="Nothing on this day.")
    if kind == "list" and not i:
        given = dict(parse_qsl(query))
        n = int(given["page"])
        pages = [
            graph.url(0, f"list?by={by}&page={page}", port)
            for page in (n, n + 1)
            for by in ORDERS
            if page < LIST_PAGES
        ]
        return Resource(200, tuple(pages), text="Red, green, blue.")
    return Resource(404)


# --- what follows from a URL -----------------------------------------------------------------


def brings(url: str) -> tuple[str, ...]:
    """Return the sitemaps that a page brings if it is a seed: those of its origin."""
    parts = urlsplit(url)
    number, port = number_of(parts.hostname or ""), parts.port or 0
    usual = guess(number, port)
    return (*named(number, port), *([usual] if usual else []))


def found_at(url: str) -> tuple[str, ...]:
    """Return all URLs that a fetch of ``url`` leads to, without sitemaps and links that change
    between fetches."""
    there = resource_at(url)
    return (*there.links, *there.needs, *([there.location] if there.location else []))


def reachable(starts: Collection[str], closed: Container[str] = ()) -> set[str]:
    """Return all URLs that a crawl from ``starts`` must have settled. This leaves out links of
    changing pages, and URLs to which only pages in ``closed`` link, since these could not be read.
    It also leaves out sitemaps at the usual place and the URLs that they name: SQL tells whether
    these sitemaps were read.
    """
    seen = set(starts)
    for url in starts:
        if url not in closed and url.endswith("/home"):
            seen.update(one for one in brings(url) if not is_guess(one))
    queue = deque(seen)
    while queue:
        url = queue.popleft()
        if url in closed:
            continue
        for link in found_at(url):
            if link not in seen:
                seen.add(link)
                queue.append(link)
    return seen
