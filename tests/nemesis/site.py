"""The web that is crawled: a function of the URL, so that whoever has a URL knows what it links to.

A crawl has a graph of its own, named by its tag, the first part of every path; so each request at
a target tells of which crawl it is. Host *i* of *hosts* has the pages ``/TAG/p/0`` … as a tree.
Each page also links to a page of another host and to a leaf that nothing else links to, so that a
link that is lost is a missing page. Some lead through redirects, within and between
hosts, some are missing or forbidden by robots.txt.
``/v/`` pages link to another leaf at each fetch.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

SHARED_HOSTS = 60
"""Hosts that all crawls share, those with lower numbers; fresh ones follow."""
ROBOTS_DELAY_SECONDS = 1.0
_TAG = re.compile(r"/(g(\d+)x(\d+)x(\d+)x(\d+))/")


@dataclass(frozen=True)
class Graph:
    """The web of one crawl: ``hosts`` from number ``first`` on, ``pages`` of a tree on each."""

    key: int
    first: int
    hosts: int
    pages: int

    @property
    def tag(self) -> str:
        return f"g{self.key}x{self.first}x{self.hosts}x{self.pages}"

    def host(self, i: int) -> int:
        """Number of its ``i``-th host; shared ones wrap around."""
        number = self.first + i % self.hosts
        return number % SHARED_HOSTS if self.first < SHARED_HOSTS else number

    def url(self, i: int, path: str, port: int) -> str:
        """``path`` behind the tag, on its ``i``-th host."""
        return f"http://{address(self.host(i))}:{port}/{self.tag}/{path}"

    def seeds(self, count: int, port: int) -> list[str]:
        """First pages of some of its hosts; the others are found by links only."""
        return [self.url(i, "p/0", port) for i in range(min(count, self.hosts))]


@dataclass(frozen=True)
class Look:
    """What stands at a URL. ``wait`` in seconds; ``links`` are absolute."""

    status: int
    links: tuple[str, ...] = ()
    location: str = ""
    wait: float = 0.0
    changing: bool = False
    final: bool = True
    """False: nothing is asked for there, since robots.txt forbids it."""


def address(number: int) -> str:
    """Loopback address of a host."""
    return f"127.{20 + number // 40000}.{number // 200 % 200}.{number % 200 + 2}"


def number_of(host: str) -> int:
    """The host's number by its address."""
    _, b, c, d = (int(part) for part in host.partition(":")[0].split("."))
    return (b - 20) * 40000 + c * 200 + d - 2


def has_login(number: int) -> bool:
    """Whether the host's pages are for those who are logged in."""
    return number < SHARED_HOSTS and number % 20 == 7


def robots_delay(number: int) -> float:
    """Crawl-delay of the host's robots.txt, 0 for none."""
    return ROBOTS_DELAY_SECONDS if number % 15 == 4 else 0.0


def robots(number: int) -> bytes:
    """The host's robots.txt; those of fresh hosts and some others are long and do not compress."""
    text = "User-agent: *\nDisallow: /private/\n"
    if delay := robots_delay(number):
        text += f"Crawl-delay: {delay:g}\n"
    if number >= SHARED_HOSTS or number % 6 == 5:
        lines = (hashlib.sha512(f"{number}.{i}".encode()).hexdigest() for i in range(1500))
        text += "".join(f"# {line}\n" for line in lines)
    return text.encode()


def graph_of(target: str) -> Graph | None:
    """The graph that a path or URL belongs to."""
    found = _TAG.search(target)
    return Graph(*(int(part) for part in found.groups()[1:])) if found else None


def _mix(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest(), "big")


def look(url: str) -> Look:
    """What stands at ``url`` of any graph; 404 for what is in none."""
    parts = urlsplit(url)
    graph = graph_of(parts.path)
    if graph is None or parts.port is None:
        return Look(404)
    number, port = number_of(parts.hostname or ""), parts.port
    i = next((i for i in range(graph.hosts) if graph.host(i) == number), -1)
    kind, _, rest = parts.path.split(f"/{graph.tag}/", 1)[1].partition("/")
    wait = _mix(url) % 100 / 1000 if _mix(url, 1) % 10 else 0.4
    if parts.path.startswith("/private/"):
        return Look(200, final=False)
    if kind == "missing" or i < 0:
        return Look(404)
    if kind == "p" and rest.isdigit() and int(rest) < graph.pages:
        return Look(200, tuple(_links(graph, i, int(rest), port)), wait=wait)
    if kind == "r":
        other = i if int(rest) % 2 else _mix(graph.tag, i, rest) % graph.hosts
        return Look(302, location=graph.url(other, f"t/{i}.{rest}", port))
    if kind == "v":
        return Look(200, wait=wait, changing=True)
    return Look(200, wait=wait) if kind in ("u", "t", "w") else Look(404)


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


def reachable(starts: Iterable[str], closed: Container[str] = ()) -> set[str]:
    """All URLs that a crawl from ``starts`` must have settled, apart from what changing pages link
    to, and from what only the pages in ``closed`` do, which could not be read.
    """
    seen = set(starts)
    queue = deque(seen)
    while queue:
        url = queue.popleft()
        if url in closed:
            continue
        there = look(url)
        for link in (*there.links, *([there.location] if there.location else [])):
            if link not in seen:
                seen.add(link)
                queue.append(link)
    return seen
