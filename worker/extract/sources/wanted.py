"""The sources of links that a crawl reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from greencrawl.schema.text.link_sources import DEFAULT

ELEMENTS = {
    "a": "a",
    "area": "area",
    "frame": "frame",
    "iframe": "iframe",
    "link": "paging",
    "meta": "refresh",
}
"""The source of links that the plain reference of an element belongs to."""


@dataclass(frozen=True)
class Wanted:
    """The names of ``sources``, and whether requisites of pages are wanted.

    The names are defined in ``greencrawl.schema.text.link_sources``.
    """

    sources: frozenset[str] = DEFAULT
    requisites: bool = False

    @cached_property
    def plain(self) -> bool:
        """Return whether the plain references of all elements are followed, as by default."""
        return self.sources.issuperset(ELEMENTS.values())

    @cached_property
    def named(self) -> frozenset[str]:
        """Return the sources that are read because the crawl names them."""
        return self.sources - DEFAULT

    @cached_property
    def further(self) -> bool:
        """Return whether a wanted source is in elements that are otherwise not read."""
        return self.requisites or bool(self.named)

    def reads(self, tag: str) -> bool:
        """Return whether the plain reference of an element is followed."""
        return ELEMENTS.get(tag) in self.sources


USUAL = Wanted()
"""The sources that are read by default."""
