"""A parsed page with forms."""

from __future__ import annotations

from dataclasses import dataclass

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise


@dataclass(frozen=True)
class Document:
    """A parsed page; its references are resolved against ``base``.

    ``url`` and ``base`` are canonical URLs; ``encoding`` is one of
    ``greencrawl.schema.text.encodings``.
    """

    root: etree._Element
    url: str
    base: str
    encoding: str


def joined(reference: str, base: str, encoding: str) -> str:
    """Return the canonical URL of ``reference`` on a page at ``base``, "" if it is invalid."""
    try:
        return canonicalise(reference, base, encoding)
    except InvalidUrl:
        return ""
