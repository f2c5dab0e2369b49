"""A page with forms, once it was parsed."""

from __future__ import annotations

from dataclasses import dataclass

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise


@dataclass(frozen=True)
class Document:
    """A page that was parsed. ``base`` is what its references count from.

    ``url`` and ``base`` are canonical URLs; ``encoding`` is one of
    ``greencrawl.schema.text.encodings``.
    """

    root: etree._Element
    url: str
    base: str
    encoding: str


def joined(reference: str, base: str, encoding: str) -> str:
    """The canonical URL of ``reference`` on a page at ``base``, "" if it is none."""
    try:
        return canonicalise(reference, base, encoding)
    except InvalidUrl:
        return ""
