"""The links of a page, in document order.

Followed are ``a`` and ``area`` (href), ``frame`` and ``iframe`` (src), ``link`` with rel next or
prev (href), and a meta refresh (given rel "refresh"). Not followed: images, scripts, style sheets,
other ``link`` relations, forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from lxml import etree

from greencrawl.schema.net.urls import MAX_URL, canonicalise, resolved
from greencrawl.schema.records import Link
from greencrawl.worker.extract.text import compiled, squeeze, text_of

READ = ("a", "area", "base", "frame", "iframe", "link", "meta", "title")
"""Elements that extraction reads."""

MAX_ANCHOR = 200
"""Characters of a link's text that are kept."""

MAX_BYTES = 32 * 1024 * 1024
"""Memory that the links of one page may take, about; a page whose links take more is a trap. A long
base before many short references would otherwise make gigabytes of a small page."""

_LINK_BYTES = 250
FEW = 8 * 1024 * 1024 // (_LINK_BYTES + MAX_URL)
"""References that take little memory, whatever they are."""

_ANCHOR_EVENTS = 100
_PAGING = frozenset({"next", "prev"})

# https://html.spec.whatwg.org/#shared-declarative-refresh-steps
_REFRESH = re.compile(
    r"\s*[\d.]+[\s;,]+(?:url\s*=\s*)?(?:\"([^\"]*)|'([^']*)|([^\"'].*))", re.IGNORECASE | re.DOTALL
)


class References(NamedTuple):
    """What the followed elements of a page refer to, in document order.

    ``texts`` are the references as they stand there, ``rels`` the rel beside each (None without
    one), ``elements`` where they stand, if somebody wants their texts.
    """

    texts: list[str]
    rels: list[str | None]
    elements: list[etree._Element] | None = None


class Resolved(NamedTuple):
    """Where the followed elements of a page lead, and the rel beside each reference.

    ``urls`` are canonical; "" stands for what is no http(s) URL. ``texts`` are short texts of the
    links, without what stands around them, if they are wanted: None for one that has none, "…"
    for a long one.
    """

    urls: list[str]
    rels: list[str | None]
    texts: list[str | None] | None = None


class Walked(NamedTuple):
    """What one walk tells of a page: its text, links, and the elements to read beside these."""

    text: str
    found: Resolved
    others: list[etree._Element]


def walked(
    root: etree._Element, url: str, encoding: str, agent: str, wanted: bool = False
) -> Walked | None:
    """Text and links of a page at a canonical ``url`` by one walk in C: half of what it takes here.

    None where nothing was compiled, and for a page with a base or with more than :data:`FEW`
    references. ``others`` are its elements ``title`` and those ``meta`` and ``link`` that may speak
    to robots, to ``agent`` among them, or name a language or a canonical URL.
    """
    found = None if compiled is None else compiled.outline(root, url, agent, FEW, wanted)
    if found is None:
        return None
    text, urls, rels, odd, others, said = found
    links = Resolved(urls, rels, said)
    if odd:
        links = _completed(links, odd, url, encoding)
    return Walked(text or text_of(root), links, others)


def _completed(found: Resolved, odd: list[int], base: str, encoding: str) -> Resolved:
    """The links of a walk that left to do those at ``odd``: a reference, or what may be a link."""
    urls: list[Any]
    urls, rels, said = found
    texts: list[str] = []
    none: set[int] = set()
    for place in odd:
        text = urls[place]
        if not isinstance(text, str):
            text, rels[place] = _reference(text, text.tag)
            if not text or text[0] == "#":
                none.add(place)
        texts.append(text or "")
    for place, url in zip(odd, resolved(texts, base, encoding), strict=True):
        urls[place] = url
    if none:
        urls = [url for place, url in enumerate(urls) if place not in none]
        rels = [rel for place, rel in enumerate(rels) if place not in none]
        if said is not None:
            said = [one for place, one in enumerate(said) if place not in none]
    return Resolved(urls, rels, said)


def references(
    elements: Sequence[etree._Element], tags: Sequence[str], *, has_base: bool, anchors: bool
) -> References:
    """The references of ``elements``, whose tags are ``tags``; other kinds are passed over.

    References within the page ("#top") are left out, unless it has a base and they lead there.
    ``anchors``: the elements are kept, for their texts.
    """
    texts: list[str] = []
    rels: list[str | None] = []
    kept: list[etree._Element] = []
    for element, tag in zip(elements, tags, strict=True):
        # Most are plain <a href>, so those take the short way.
        if tag == "a":
            text, rel = element.get("href"), element.get("rel")
        else:
            text, rel = _reference(element, tag)
        if text is not None and (has_base or (text and text[0] != "#")):
            texts.append(text)
            rels.append(rel)
            kept.append(element)
    return References(texts, rels, kept if anchors else None)


def collect(found: References | Resolved, base: str, encoding: str) -> tuple[list[Link], int, int]:
    """The links that were ``found``, each URL once; how many references were no http(s) URL; and
    how many were not looked at.

    They are resolved against ``base``. Their texts are left empty where their elements are.

    Of several links to one URL the first stays; it loses a rel that one of the others has not, so
    that "nofollow" needs all of them. What goes beyond ``MAX_BYTES`` is not looked at. Raises
    :class:`InvalidUrl` if ``base`` is none.
    """
    base = canonicalise(base, encoding=encoding)
    links: dict[str, Link] = {}
    invalid = 0
    left = MAX_BYTES
    elements: Sequence[etree._Element | None] | None = None
    if isinstance(found, Resolved):
        urls: Iterable[str] = found.urls
    else:
        urls, elements = _urls(found.texts, base, encoding), found.elements
    if elements is None:
        elements = [None] * len(found.rels)
    looked = 0
    for url, rel, element in zip(urls, found.rels, elements, strict=True):
        looked += 1
        if not url:
            invalid += 1
            continue
        rel = " ".join(rel.lower().split()) if rel else ""
        known = links.get(url)
        if known is None:
            links[url] = Link(url, "" if element is None else _anchor(element), rel)
            left -= _LINK_BYTES + len(url)
            if left < 0:
                break
            continue
        if element is not None and not known.anchor:
            known.anchor = _anchor(element)
        if known.rel and known.rel != rel:
            others = rel.split()
            known.rel = " ".join(word for word in known.rel.split() if word in others)
    return list(links.values()), invalid, len(found.rels) - looked


def _urls(texts: list[str], base: str, encoding: str) -> Iterator[str]:
    """The URLs of references; not all at once, since they may be much longer."""
    for i in range(0, len(texts), FEW):
        yield from resolved(texts[i : i + FEW], base, encoding)


def _reference(element: etree._Element, tag: str) -> tuple[str | None, str | None]:
    """What an element other than ``a`` refers to, if it is followed, and its rel."""
    if tag in ("frame", "iframe"):
        return element.get("src"), None
    if tag == "meta":
        return refresh_target(element), "refresh"
    if tag in ("base", "title"):
        return None, None
    rel = element.get("rel", "")
    if tag == "link" and _PAGING.isdisjoint(rel.lower().split()):
        return None, None
    return element.get("href"), rel


def refresh_target(meta: etree._Element) -> str | None:
    """The URL of ``<meta http-equiv="refresh" content="5; url=…">``, or None."""
    if meta.get("http-equiv", "").strip().lower() != "refresh":
        return None
    found = _REFRESH.match(meta.get("content", ""))
    if found is None:
        return None
    return next(group for group in found.groups() if group is not None).strip()


def _anchor(element: etree._Element) -> str:
    """The text of a link, with the alternative texts of images; for an area, its own.

    That of one that shows nothing is its aria-label or title.

    Bounded in work, too: unclosed links nest, and each would read all that follows it.
    """
    if element.tag != "a":
        return squeeze(element.get("alt") or element.get("title") or "")[:MAX_ANCHOR]
    if len(element) == 0:
        text = squeeze((element.text or "")[: 4 * MAX_ANCHOR])[:MAX_ANCHOR]
        return text or _named(element)
    pieces: list[str] = []
    length = 0
    walk = etree.iterwalk(element, events=("start", "end"))
    for event, node in islice(walk, _ANCHOR_EVENTS):
        if event == "end":
            piece = node.tail if node is not element else None
        elif node.tag == "img":
            piece = node.get("alt")
        else:
            piece = None if node.tag in ("script", "style") else node.text
        if piece:
            pieces.append(piece[: 4 * MAX_ANCHOR])
            length += len(piece)
            if length > 4 * MAX_ANCHOR:
                break
    return squeeze("".join(pieces))[:MAX_ANCHOR] or _named(element)


def _named(element: etree._Element) -> str:
    """What stands in for the text of a link that shows an icon, say."""
    return squeeze(element.get("aria-label") or element.get("title") or "")[:MAX_ANCHOR]
