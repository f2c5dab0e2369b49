"""Metadata of a page: title, author, date, site and the like.

It is in markup, JSON-LD, OpenGraph, microdata, the URL and the text.
"""

from __future__ import annotations

from functools import partial
from html import unescape
from itertools import islice
from typing import Any, NamedTuple

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise
from greencrawl.worker.extract.main import jsonld, titles
from greencrawl.worker.extract.main.bylines import LONGEST, Marked, Texts
from greencrawl.worker.extract.main.dates import date_in_text, date_in_url, iso_date
from greencrawl.worker.extract.main.names import author_of
from greencrawl.worker.extract.text import collapse, text_of

MOST_ELEMENTS = 2000
"""At most this many elements of each sort are read: headings, times, bylines, links of the head."""
MOST_FEEDS = 20
_SITES = ("og:site_name", "application-name")
_TITLES = ("og:title", "twitter:title", "dc.title", "parsely-title", "sailthru.title")
_AUTHORS = (
    "author", "article:author", "parsely-author", "dc.creator", "dcterms.creator",
    "sailthru.author", "article:author_name", "byl", "citation_author",
)  # fmt: skip
_DATES = (
    "article:published_time", "og:published_time", "datepublished", "date", "dc.date", "pubdate",
    "publishdate", "publish-date", "publish_date", "published_at", "parsely-pub-date",
    "dcterms.created", "dcterms.date", "dc.date.issued", "dc.date.created", "sailthru.date",
    "citation_publication_date", "article.published", "cxenseparse:recs:publishtime", "created",
    "release_date", "originalpublicationdate",
)  # fmt: skip
_FEEDS = frozenset({"application/rss+xml", "application/atom+xml", "application/feed+json"})
_ARTICLES = ("Article", "BlogPosting", "Report", "WebPage", "Recipe", "Product", "Posting", "Event")


class Metadata(NamedTuple):
    """Metadata; each field is "" if the page does not say it.

    ``date``: year, month and day of publication in ISO 8601. ``kind``: OpenGraph's ``og:type``, or
    the type of the JSON-LD object that the page is about, such as ``NewsArticle``. ``image``,
    ``canonical`` and ``feeds`` (RSS, Atom, JSON Feed): absolute URLs.
    """

    title: str = ""
    author: str = ""
    date: str = ""
    site_name: str = ""
    description: str = ""
    image: str = ""
    kind: str = ""
    canonical: str = ""
    feeds: tuple[str, ...] = ()


def title_of(root: etree._Element, title: str) -> str:
    """Return the title in a page, without the name of its site.

    If a heading says the same, the heading is returned. ``title`` is the text of the ``title``
    element.
    """
    metas = _metas(root)
    return _title(root, metas, title, _first(metas, *_SITES), Texts())


def metadata(
    root: etree._Element, url: str, title: str = "", *, base: str = "", encoding: str = "utf-8"
) -> Metadata:
    """Return what the page under ``root`` says of itself; ``title`` as for :func:`title_of`.

    Its references are resolved against ``base``, if not its own ``url``; ``encoding`` is the
    page's.
    """
    metas = _metas(root)
    objects = list(jsonld.objects(jsonld.blocks(root)))
    site = _first(metas, *_SITES) or _site(objects)
    to = partial(_absolute, base=base or url, encoding=encoding)
    links = list(islice(root.iter("link"), MOST_ELEMENTS))
    marked, texts = Marked(root), Texts()
    return Metadata(
        title=_title(root, metas, title, site, texts),
        author=_author(metas, objects, marked, texts),
        date=_date(root, metas, objects, url, marked, texts),
        site_name=site,
        description=_first(metas, "og:description", "description", "twitter:description"),
        image=to(_first(metas, "og:image", "twitter:image") or _image(objects)),
        kind=_first(metas, "og:type") or _kind(objects),
        canonical=next(filter(None, map(to, _references(links, "canonical"))), ""),
        feeds=tuple(dict.fromkeys(filter(None, map(to, _references(links, "alternate", _FEEDS)))))[
            :MOST_FEEDS
        ],
    )


def _absolute(reference: str, base: str, encoding: str) -> str:
    """Return a URL, "" if it is not http(s)."""
    try:
        return canonicalise(reference, base, encoding) if reference else ""
    except InvalidUrl:
        return ""


def _references(
    links: list[etree._Element], rel: str, types: frozenset[str] | None = None
) -> list[str]:
    """Return where ``link`` elements of one relation lead, of these types or any."""
    return [
        link.get("href", "").strip()
        for link in links
        if rel in link.get("rel", "").lower().split()
        and (types is None or link.get("type", "").partition(";")[0].strip().lower() in types)
    ]


def _site(objects: list[dict[str, Any]]) -> str:
    for one in objects:
        if "WebSite" in jsonld.types_of(one) and (name := _name(one.get("name"))):
            return name
    return next(filter(None, (_name(one.get("publisher")) for one in _typed(objects))), "")


def _image(objects: list[dict[str, Any]]) -> str:
    for one in _typed(objects):
        image = one.get("image")
        image = image[0] if isinstance(image, list) and image else image
        image = image.get("url") if isinstance(image, dict) else image
        if isinstance(image, str) and image:
            return image
    return ""


def _kind(objects: list[dict[str, Any]]) -> str:
    for one in _typed(objects):
        kind = one.get("@type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if isinstance(kind, str):
            return kind[:LONGEST]
    return ""


def _metas(root: etree._Element) -> dict[str, list[str]]:
    """Return contents by name or property in lower case."""
    found: dict[str, list[str]] = {}
    for meta in islice(root.iter("meta"), MOST_ELEMENTS):
        for attribute in ("property", "name", "itemprop"):
            name = meta.get(attribute)
            content = meta.get("content")
            if name and content and content.strip():
                found.setdefault(name.strip().lower(), []).append(collapse(content)[:LONGEST])
    return found


def _first(metas: dict[str, list[str]], *names: str) -> str:
    return next((metas[name][0] for name in names if name in metas), "")


def _typed(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects that the page is about: articles first."""
    types = [(one, jsonld.types_of(one)) for one in objects]
    return [one for kind in _ARTICLES for one, said in types if kind in said]


def _title(
    root: etree._Element, metas: dict[str, list[str]], title: str, site: str, texts: Texts
) -> str:
    said = [value for name in _TITLES for value in metas.get(name, ())]
    elements = islice(root.iter("h1"), MOST_ELEMENTS)
    headings = [text for one in elements if (text := texts.of(one))]
    return titles.choose(title, said, site, headings)


def _author(
    metas: dict[str, list[str]], objects: list[dict[str, Any]], marked: Marked, texts: Texts
) -> str:
    for one in _typed(objects):
        if found := author_of(_name(one.get("author") or one.get("creator"))):
            return found
    for name in _AUTHORS:
        for value in metas.get(name, ()):
            if found := author_of(value):
                return found
    for element in marked.bylines():
        if found := author_of(texts.of(element)):
            return found
    return ""


def _name(value: Any) -> str:
    """Return the name of a person or organisation of JSON-LD, or of several."""
    if isinstance(value, list):
        return ", ".join(filter(None, dict.fromkeys(_name(one) for one in value[:10])))
    if isinstance(value, dict):
        return _name(value.get("name"))
    return collapse(unescape(value))[:LONGEST] if isinstance(value, str) else ""


def _date(
    root: etree._Element,
    metas: dict[str, list[str]],
    objects: list[dict[str, Any]],
    url: str,
    marked: Marked,
    texts: Texts,
) -> str:
    for one in _typed(objects):
        for key in ("datePublished", "dateCreated", "uploadDate"):
            said = one.get(key)
            if found := iso_date(said[:LONGEST] if isinstance(said, str) else ""):
                return found
    for name in _DATES:
        for value in metas.get(name, ()):
            if found := iso_date(value) or date_in_text(value):
                return found
    times = []
    for number, element in enumerate(root.iter("time", "abbr")):
        if number >= MOST_ELEMENTS:
            break
        value = element.get("datetime") or element.get("title") or ""
        if found := iso_date(value) or date_in_text(value or texts.of(element)):
            said = f"{element.get('class', '')} {element.get('itemprop', '')}".lower()
            if "publish" in said or element.get("pubdate") is not None:
                return found
            if "updated" not in said and "modified" not in said:
                times.append(found)
    if times:
        return times[0]
    if found := date_in_url(url):
        return found
    for element in marked.dated():
        if found := date_in_text(texts.of(element)):
            return found
    body = next(root.iter("article", "main", "body"), None)
    return "" if body is None else date_in_text(text_of(body)[:_TEXT])


_TEXT = 3000
"""A date is searched in this many characters of a page's text."""
