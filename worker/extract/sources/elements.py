"""Links in elements and attributes that a crawl has to ask for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

from lxml import etree

from greencrawl.worker.extract.sources.forms import submissions
from greencrawl.worker.extract.sources.gathered import MOST_REFERENCES, Gathered, elements
from greencrawl.worker.extract.sources.json_ld import urls_in
from greencrawl.worker.extract.sources.relations import Relation, source_of
from greencrawl.worker.extract.sources.wanted import Wanted

_DATA = ("data-href", "data-url", "data-uri", "data-link")
_WITH_DATA = etree.XPath(
    f"(//*[@data-href or @data-url or @data-uri or @data-link])[position() <= {MOST_REFERENCES}]"
)
_CITING = ("blockquote", "q", "ins", "del", "img", "frame", "iframe")
_OBJECTS = ("object", "embed", "applet")
_URL_PARAMETERS = frozenset({"ref", "src", "url", "href", "movie", "filename", "data"})
"""Names of ``param`` whose value is a URL, as old players had them."""


def gather_elements(
    found: Gathered, root: etree._Element, base: str, encoding: str, wanted: Wanted
) -> None:
    """Add the links of a tree, of all sources that are ``wanted`` and not read by default."""
    relations = map(_relation, elements(root, "link"))
    # Links with rel next or prev were read with the plain ones.
    links = ((one.reference, one.rel) for one in relations if source_of(one) in wanted.named)
    found.add_links(islice(links, MOST_REFERENCES), base)
    for source, reader in _READERS.items():
        if source in wanted.named:
            texts = islice(filter(None, reader(root)), MOST_REFERENCES)
            found.add_links(((text, "") for text in texts), base)
    if "forms" in wanted.named:
        sent = found.add_links(((text, "") for text in submissions(root, base, encoding)), base)
        found.forms.update(dict.fromkeys(filter(None, sent)))


def _relation(link: etree._Element) -> Relation:
    return Relation(link.get("href", ""), link.get("rel", ""), link.get("type", ""))


def _objects(root: etree._Element) -> Iterator[str]:
    for element in elements(root, *_OBJECTS):
        tag = element.tag
        yield element.get("src" if tag == "embed" else "data", "")
        yield element.get("codebase", "")
        yield from element.get("archive", "").replace(",", " ").split()
        if tag == "object":
            for parameter in element.iterchildren("param"):
                if parameter.get("name", "").strip().lower() in _URL_PARAMETERS:
                    yield parameter.get("value", "")


def _data(root: etree._Element) -> Iterator[str]:
    for element in cast("list[etree._Element]", _WITH_DATA(root)):
        yield from (element.get(name, "").strip() for name in _DATA)


def _json_ld(root: etree._Element) -> Iterator[str]:
    scripts = (one for one in elements(root, "script") if _is_json_ld(one))
    return urls_in(one.text or "" for one in scripts)


def _is_json_ld(script: etree._Element) -> bool:
    kind: str = script.get("type", "")
    return kind.partition(";")[0].strip().lower() == "application/ld+json"


def _og(root: etree._Element) -> Iterator[str]:
    for meta in elements(root, "meta"):
        if meta.get("property", "").strip().lower() == "og:url":
            yield meta.get("content", "").strip()


def _xlink(root: etree._Element) -> Iterator[str]:
    for element in elements(root, "a"):
        if element.get("href") is None:
            yield element.get("xlink:href", "")


def _cite(root: etree._Element) -> Iterator[str]:
    for element in elements(root, *_CITING):
        yield element.get("cite", "")
        yield element.get("longdesc", "")


_READERS = {
    "objects": _objects,
    "data": _data,
    "json-ld": _json_ld,
    "og": _og,
    "xlink": _xlink,
    "cite": _cite,
}
