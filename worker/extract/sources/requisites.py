"""The files that a page needs to be shown: images, styles, scripts, fonts and the like."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

from lxml import etree

from greencrawl.worker.extract.sources.css import urls_in
from greencrawl.worker.extract.sources.gathered import MOST_REFERENCES, Gathered, elements
from greencrawl.worker.extract.sources.relations import Relation, is_requisite
from greencrawl.worker.extract.sources.srcset import candidates

_ATTRIBUTES = {
    "applet": ("archive",),
    "audio": ("src",),
    "body": ("background",),
    "embed": ("src",),
    "feimage": ("href", "xlink:href"),
    "html": ("manifest",),
    "image": ("href", "xlink:href", "src"),
    "img": ("src", "lowsrc", "dynsrc"),
    "object": ("data",),
    "script": ("src", "href", "xlink:href"),
    "source": ("src",),
    "table": ("background",),
    "td": ("background",),
    "th": ("background",),
    "tr": ("background",),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
"""Elements that show files, and the attributes that refer to them."""
_SETS = {"img": "srcset", "source": "srcset", "link": "imagesrcset"}
_TAGS = (*_ATTRIBUTES, "link", "input", "style")
_STYLES = etree.XPath(
    f"(//@style[contains(., '(')])[position() <= {MOST_REFERENCES}]", smart_strings=False
)


def gather_requisites(found: Gathered, root: etree._Element, base: str) -> None:
    """Add what a tree needs."""
    found.add_requisites(islice(filter(None, _of_elements(found, root)), MOST_REFERENCES), base)
    for style in cast("list[str]", _STYLES(root)):
        if not found.style_characters:
            break
        found.add_requisites(_of_style(found, style), base)


def _of_style(found: Gathered, style: str) -> Iterator[str]:
    """Yield the files that a style needs, as far as it is read."""
    style = style[: found.style_characters]
    found.style_characters -= len(style)
    return urls_in(style)


def _of_elements(found: Gathered, root: etree._Element) -> Iterator[str]:
    for element in elements(root, *_TAGS):
        tag = element.tag
        for name in _ATTRIBUTES.get(tag, ()):
            if (text := element.get(name)) is not None:
                yield text.strip()
        if tag in _SETS and (text := element.get(_SETS[tag])) is not None:
            yield from candidates(text)
        if tag == "link":
            relation = Relation(element.get("href", ""), element.get("rel", ""))
            if is_requisite(relation):
                yield relation.reference.strip()
        elif tag == "input":
            if element.get("type", "").strip().lower() == "image":
                yield element.get("src", "").strip()
        elif tag == "style":
            yield from _of_style(found, element.text or "")
