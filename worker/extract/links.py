"""The links of a page, in document order.

These are followed: ``a`` and ``area`` (href), ``frame`` and ``iframe`` (src), ``link`` with rel
next or prev (href), and a meta refresh (with the rel "refresh"). All other sources are in
``greencrawl.worker.extract.sources``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.action_texts import LinkTexts, is_known, says_something, written
from greencrawl.schema.net.urls import MAX_URL, canonicalise, resolved
from greencrawl.schema.records import Link
from greencrawl.worker.extract.refresh import refresh_reference
from greencrawl.worker.extract.text import INVISIBLE, collapse, compiled, read_text

READ = ("a", "area", "base", "frame", "iframe", "link", "meta", "title")
"""Elements that extraction reads."""

MAX_ANCHOR = 200
"""At most this many characters of a link's text are kept."""

MAX_BYTES = 32 * 1024 * 1024
"""The links of one page may take about this much memory; a page that needs more is a trap.

Otherwise a long base before many short references would make gigabytes of a small page.
"""

_LINK_BYTES = 250
FEW = 8 * 1024 * 1024 // (_LINK_BYTES + MAX_URL)
"""This many references take little memory in any case."""

_ANCHOR_EVENTS = 100
_PAGING = frozenset({"next", "prev"})
NOTHING: Mapping[str, str] = MappingProxyType({})


class References(NamedTuple):
    """The references of a page's followed elements, in document order.

    ``texts`` are the references as written, ``rels`` the rel of each (None without one),
    ``elements`` their elements, if their texts are wanted. ``more`` are URLs from other sources,
    with their rels; ``requisites`` are those that the page needs to be shown. ``said`` has the
    links of ``more`` that have texts, with the texts, if they are wanted; ``forms`` are the URLs of
    forms.
    """

    texts: list[str]
    rels: list[str | None]
    elements: list[etree._Element] | None = None
    more: Mapping[str, str] = NOTHING
    requisites: Collection[str] = ()
    said: Sequence[tuple[str, str]] = ()
    forms: Collection[str] = ()


class Resolved(NamedTuple):
    """The URLs of a page's followed elements, and the rel of each reference.

    ``urls`` are canonical; "" stands for a URL that is not http(s). ``texts`` are the texts of the
    links, if they are wanted. The other fields are as in :class:`References`.
    """

    urls: list[str]
    rels: list[str | None]
    texts: LinkTexts | None = None
    more: Mapping[str, str] = NOTHING
    requisites: Collection[str] = ()
    said: Sequence[tuple[str, str]] = ()
    forms: Collection[str] = ()


class Walked(NamedTuple):
    """The result of one walk over a page: its text, links, and the elements to read besides.

    ``samples`` represent the text, see ``greencrawl.worker.traps.novelty``.
    """

    text: str
    found: Resolved
    others: list[etree._Element]
    samples: bytes


def walked(
    root: etree._Element,
    url: str,
    encoding: str,
    agent: str,
    texts: bool = False,
    samples: bool = True,
) -> Walked | None:
    """Return text and links of a page at a canonical ``url`` by one walk in C, which takes half of
    the time.

    None if nothing was compiled, and for a page with a base or with more than :data:`FEW`
    references. ``others`` are its elements ``title``, frames with a document in ``srcdoc``, and
    those ``meta`` and ``link`` that may hold directives for robots or ``agent``, a language or a
    canonical URL. With ``texts`` it also reads the texts of links. Without ``samples`` it takes
    none, which saves a tenth of the time.
    """
    if compiled is None:
        return None
    if texts:
        _teach(compiled.learn)
    found = compiled.outline(root, url, agent, FEW, texts, samples)
    if found is None:
        return None
    text, urls, rels, odd, others, said, taken = found
    none = _complete(urls, rels, odd, url, encoding) if odd else set()
    if none:
        places = [place for place in range(len(urls)) if place not in none]
        urls, rels = [urls[place] for place in places], [rels[place] for place in places]
        if said is not None:
            kinds, words = said
            words = {new: words[old] for new, old in enumerate(places) if old in words}
            said = bytes(kinds[place] for place in places), words
    if not text:
        text, taken = read_text(root, url, samples)
    links = Resolved(urls, rels, None if said is None else LinkTexts(urls, *said))
    return Walked(text, links, others, taken)


@cache
def _teach(learn: Callable[..., None]) -> None:
    """Tell the part in C, once, which texts of links are known words."""
    learn(*written())


def _complete(
    urls: list[Any], rels: list[str | None], odd: list[int], base: str, encoding: str
) -> set[int]:
    """Resolve the references that a walk left at ``odd``; return the indexes of those that are no
    links."""
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
    return none


def live(root: etree._Element, *tags: str) -> Iterator[etree._Element]:
    """Yield the elements of a tree that have one of these tags, in document order.

    Elements in a ``template`` are left out: it is part of no document before a script copies it. A
    template with ``shadowrootmode`` is shown as it is.
    """
    inert: set[etree._Element] = set()
    for element in root.iter(*tags, "template"):
        if element in inert:
            continue
        if element.tag != "template":
            yield element
        elif element.get("shadowrootmode") is None:
            inert.update(element.iter(*tags, "template"))


def base_of(elements: Iterable[etree._Element], url: str, encoding: str) -> str | None:
    """Return the canonical URL of the first valid ``<base href>``, None without one."""
    for element in elements:
        href = element.get("href") if element.tag == "base" else None
        if href is not None:
            try:
                return canonicalise(href, url, encoding)
            except InvalidUrl:
                return None
    return None


def references(
    elements: Sequence[etree._Element], tags: Sequence[str], *, has_base: bool, anchors: bool
) -> References:
    """Return the references of ``elements``, whose tags are ``tags``; other kinds are skipped.

    References within the page ("#top") are left out, unless the page has a base: then they lead to
    the base. ``anchors``: the elements are kept, for their texts.
    """
    texts: list[str] = []
    rels: list[str | None] = []
    kept: list[etree._Element] = []
    for element, tag in zip(elements, tags, strict=True):
        # Most are plain <a href>, so those take a short path.
        if tag == "a":
            text, rel = element.get("href"), element.get("rel")
        else:
            text, rel = _reference(element, tag)
        if text is not None and (has_base or (text and text[0] != "#")):
            texts.append(text)
            rels.append(rel)
            kept.append(element)
    return References(texts, rels, kept if anchors else None)


def collect(
    found: References | Resolved,
    base: str,
    encoding: str,
    said: list[tuple[str, str]] | None = None,
) -> tuple[list[Link], int, int]:
    """Make links of the references that were ``found``, each URL once.

    Returns the links, how many references were no http(s) URL, and how many were not read. ``said``
    gets the URL of each reference and its text. References are resolved against ``base``. Texts of
    links stay empty if their elements are kept.

    If several links lead to one URL, the first stays. It loses a rel that another of these links
    lacks: so "nofollow" counts only if all of them have it. References beyond ``MAX_BYTES`` are not
    read. Raises :class:`InvalidUrl` if ``base`` is invalid.
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
        elif known.rel and known.rel != rel:
            others = rel.split()
            known.rel = " ".join(word for word in known.rel.split() if word in others)
        if said is not None and element is not None:
            said.append((links[url].url, label_of(element)))
    for url, rel in found.more.items():
        known = links.setdefault(url, Link(url, "", rel))
        if known.rel and known.rel != rel:
            known.rel = " ".join(word for word in known.rel.split() if word in rel.split())
    return list(links.values()), invalid, len(found.rels) - looked


def _urls(texts: list[str], base: str, encoding: str) -> Iterator[str]:
    """Yield the URLs of references; make them in portions, since they may be much longer."""
    for i in range(0, len(texts), FEW):
        yield from resolved(texts[i : i + FEW], base, encoding)


def _reference(element: etree._Element, tag: str) -> tuple[str | None, str | None]:
    """Return the reference of an element other than ``a``, if it is followed, and its rel."""
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
    """Return the URL of ``<meta http-equiv="refresh" content="5; url=…">``, or None."""
    if meta.get("http-equiv", "").strip().lower() != "refresh":
        return None
    return refresh_reference(meta.get("content", ""))


def _anchor(element: etree._Element) -> str:
    """Return the text of a link, with the alternative texts of images; for an ``area``, return its
    alternative text or title.

    The work is bounded, too: unclosed links nest, and each would read all that follows it.
    """
    if element.tag != "a":
        return collapse(element.get("alt") or element.get("title") or "")[:MAX_ANCHOR]
    if len(element) == 0:
        return collapse((element.text or "")[: 4 * MAX_ANCHOR])[:MAX_ANCHOR]
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
    return collapse("".join(pieces))[:MAX_ANCHOR]


def label_of(element: etree._Element) -> str:
    """Return the text of a link for recognising actions.

    The candidates are its text, the text of an image, its title and its aria-label. Return the
    first that is a known word, else the first that says something. :func:`walked` does the same.
    The work is bounded like that of :func:`_anchor`.
    """
    if element.tag != "a":
        return ""
    pieces: list[str] = []
    images: list[str] = []
    walk = etree.iterwalk(element, events=("start", "end", "comment", "pi"))
    for event, node in islice(walk, _ANCHOR_EVENTS):
        if event != "start":
            piece = node.tail if node is not element else None
        elif node.tag == "a" and node is not element:
            break
        elif node.tag in INVISIBLE or node.tag == "noscript":
            piece = None
            walk.skip_subtree()
        else:
            piece = node.text
            if node.tag == "img":
                images.append(node.get("alt", ""))
        if piece:
            pieces.append(piece[: 4 * MAX_ANCHOR])
    found = ["".join(pieces), next(filter(None, images), "")]
    found += [str(value) for name, value in element.items() if name in ("title", "aria-label")]
    text = next(filter(is_known, found), "") or next(filter(says_something, found), "")
    return collapse(text[: 4 * MAX_ANCHOR])
