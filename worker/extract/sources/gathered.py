"""The references of a page beside its plain links, within limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from lxml import etree

from greencrawl.schema.net.urls import resolved
from greencrawl.worker.extract.links import live

MOST_REFERENCES = 20_000
"""At most this many references of a page are read, all sources together."""
MOST_CHARACTERS = 4 * 1024 * 1024
"""Their URLs have at most this many characters: otherwise a long base would make 160 MB of a small
page."""
MOST_ELEMENTS = 50_000
"""One reader reads at most this many elements of a page: this takes 0.1 s of CPU if none of them
has a URL."""
MOST_STYLE_CHARACTERS = 1024 * 1024
"""At most this many characters of all ``style`` elements and attributes of a page are read: this
takes 0.1 s of CPU at worst."""
_BATCH = 500


def elements(root: etree._Element, *tags: str) -> Iterator[etree._Element]:
    """Yield the elements of a tree that have one of these tags, in document order, up to the
    limit."""
    return islice(live(root, *tags), MOST_ELEMENTS)


class Gathered:
    """URLs of one page: ``links``, with the rel of each, and ``requisites``, which it needs to be
    shown.

    Each is canonical, and comes once. ``encoding`` is the encoding of the page; queries are sent in
    it. ``said`` has links whose texts are wanted, each with its text; ``forms`` has the links of
    forms. ``style_characters`` is how much may still be read of styles.
    """

    def __init__(self, encoding: str) -> None:
        self.links: dict[str, str] = {}
        self.requisites: dict[str, None] = {}
        self.said: list[tuple[str, str]] = []
        self.forms: dict[str, None] = {}
        self.style_characters = MOST_STYLE_CHARACTERS
        self._encoding = encoding
        self._references = MOST_REFERENCES
        self._characters = MOST_CHARACTERS

    def add_links(self, references: Iterable[tuple[str, str]], base: str) -> list[str]:
        """Add references, resolved against ``base``, each with its rel.

        If several references have one URL, the first stays; it loses a rel that another one lacks.
        Return the URLs of the references, "" for an invalid one; leave out references beyond a
        limit, and references within the page.
        """
        found = [one for one in references if one[0] and one[0][0] != "#"]
        urls = list(self._urls((text for text, _ in found), base))
        for url, (_, rel) in zip(urls, found, strict=False):
            words = rel.lower().split()
            known = self.links.setdefault(url, " ".join(words))
            if known and known.split() != words:
                self.links[url] = " ".join(word for word in known.split() if word in words)
        self.links.pop("", None)
        return urls

    def add_requisites(self, references: Iterable[str], base: str) -> None:
        """Add references to what the page needs, resolved against ``base``."""
        texts = (text for text in references if text and text[0] != "#")
        self.requisites.update(dict.fromkeys(self._urls(texts, base)))
        self.requisites.pop("", None)

    def _urls(self, texts: Iterable[str], base: str) -> Iterator[str]:
        """Yield the URLs of references, "" for an invalid one; end at a limit."""
        texts = iter(texts)
        while some := list(islice(texts, min(_BATCH, self._references))):
            self._references -= len(some)
            for url in resolved(some, base, self._encoding):
                self._characters -= len(url)
                if self._characters < 0:
                    self._references = 0
                    return
                yield url
