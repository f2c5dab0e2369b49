"""crawler-commons' odd sitemaps: what each file lists, by us and by ultimate-sitemap-parser.

The right URLs come from the files themselves: a simple reader takes them from the elements that
lxml finds, in any namespace, or from the lines. The number of URLs is written down for each file,
so that a mistake of that reader is noticed. Each reader gets the bytes as a server would send them,
including gzip.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from lxml import etree
from usp.fetch_parse import SitemapFetcher
from usp.objects.sitemap import AbstractIndexSitemap, AbstractSitemap
from usp.web_client.abstract_client import (
    AbstractWebClient,
    AbstractWebClientResponse,
    AbstractWebClientSuccessResponse,
)

from bench.suites.table import Figure, tried
from greencrawl.schema.net.urls import canonicalise
from greencrawl.worker.process.steps import finish
from greencrawl.worker.sitemaps.listed import listed_steps

COUNTS = {
    "atom.xml": 2, "do-not-visit.txt": 1, "sitemap-with-bom.txt": 2, "sitemap.badns.xml": 2,
    "sitemap.index.xml": 15, "sitemap.ns.xml": 2, "sitemap.txt": 2, "sitemap.txt.gz": 5,
    "xmlSitemap.gz": 5, "hebdenbridgetimes-articles-sitemap.xml": 74, "pagemaps-sitemap.xml": 2,
    "shinpaideshou-news-sitemap.xml": 3, "sitemap-images.xml": 1, "sitemap-links.xml": 3,
    "sitemap-mobile.xml": 3, "sitemap-news.xml": 2, "sitemap-videos-tvshow.xml": 1,
    "sitemap-videos.xml": 3,
}  # fmt: skip
"""The number of distinct URLs of each file. URLs of other languages count; URLs of images and
videos do not."""

_AT = "http://www.example.com/{}"


class Case(NamedTuple):
    """A file, and the URLs that it lists."""

    name: str
    body: bytes
    urls: frozenset[str]


def cases(folder: Path) -> list[Case]:
    """Return all files of the suite. Raises SystemExit if a file has changed."""
    found = []
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        body = path.read_bytes()
        urls = frozenset(map(canonicalise, _references(body)))
        if len(urls) != COUNTS.get(path.name):
            raise SystemExit(f"{path.name}: {len(urls)} URLs, not {COUNTS.get(path.name)}")
        found.append(Case(path.name, body, urls))
    return found


def _references(body: bytes) -> Iterator[str]:
    if body.startswith(b"\x1f\x8b"):
        body = gzip.decompress(body)
    text = body.decode("utf-8-sig").strip()
    if not text.startswith("<"):
        yield from text.split()
        return
    root = etree.fromstring(text.encode())
    for loc in root.xpath("//*[local-name()='loc']"):
        if etree.QName(loc.getparent()).localname in ("url", "sitemap"):
            yield loc.text.strip()
    for sitemap in root.xpath("//*[local-name()='sitemap'][not(*)]"):
        yield sitemap.text.strip()
    for link in root.xpath("//*[local-name()='url' or local-name()='entry']/*[@href]"):
        if link.get("rel", "alternate") == "alternate":
            yield link.get("href")


def _ours(case: Case) -> bool:
    listed = finish(listed_steps(case.body, _AT.format(case.name)))
    right = {*listed.urls, *listed.sitemaps} == case.urls
    return right and not listed.failure and not listed.note


class _Response(AbstractWebClientSuccessResponse):
    def __init__(self, url: str, body: bytes) -> None:
        self._url, self._body = url, body

    def status_code(self) -> int:
        return 200

    def status_message(self) -> str:
        return "OK"

    def header(self, case_insensitive_name: str) -> str | None:
        return None

    def raw_data(self) -> bytes:
        return self._body

    def url(self) -> str:
        return self._url


class _Client(AbstractWebClient):
    """A web with one file; every other address has an empty one."""

    def __init__(self, url: str, body: bytes) -> None:
        self._url, self._body = url, body

    def set_max_response_data_length(self, max_response_data_length: int | None) -> None:
        pass

    def get(self, url: str) -> AbstractWebClientResponse:
        return _Response(url, self._body if url == self._url else b"")


def _theirs(case: Case) -> bool:
    url = _AT.format(case.name)
    tree = SitemapFetcher(url=url, recursion_level=0, web_client=_Client(url, case.body)).sitemap()
    return frozenset(_listed(tree)) == case.urls


def _listed(tree: AbstractSitemap) -> Iterator[str]:
    if isinstance(tree, AbstractIndexSitemap):
        for one in tree.sub_sitemaps:
            yield canonicalise(one.url)
    for page in tree.pages:
        yield canonicalise(page.url)
        for _, other in page.alternates or ():
            yield canonicalise(other)


def figures(folder: Path) -> list[Figure]:
    """Return the figures of ours and of the library."""
    logging.disable(logging.CRITICAL)
    found = cases(folder)
    shown: Callable[[Case], str] = lambda case: case.name  # noqa: E731
    others = {"ultimate-sitemap-parser": _theirs}
    return [tried("odd sitemaps", found, _ours, others, len(found), shown)]
