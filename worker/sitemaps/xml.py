"""The URLs in a sitemap, an index of sitemaps or a feed, by elements, as the text comes in.

The parser is expat. An element counts by its name without the prefix and by its place, so it does
not matter which namespaces a file declares: ``loc`` has the URL of a page in ``url`` and of a
sitemap in ``sitemap``, and is ignored in ``image:image``. References that are not XML's – ``&`` in
a query, names of HTML – are taken as they stand: nothing that a file declares is ever inserted for
one. No DTD is fetched.
"""

from __future__ import annotations

import re
from xml.parsers import expat

MAX_DEPTH = 64
"""At most this many elements are nested; real files have seven."""
MAX_TOKEN = 128 * 1024
"""An open tag or comment has at most this many characters, because expat reads it again with every
slice."""
MAX_TEXT = 64 * 1024
"""A reference has at most this many characters."""

# An "&" that begins no reference of XML, and none that the next slice completes.
_BARE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});)")
_NO_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_LONGEST_REFERENCE = 12
_SCHEMES = ("http://", "https://")
_OF_SITEMAPS = ("sitemap", "sitemapindex")
_LISTS = ("url", "urlset", *_OF_SITEMAPS)


class Broken(Exception):
    """Raised when a document is no longer XML, or exceeds a limit."""


def _refuse_defaults(*_: object) -> None:
    """Refuse defaults: expat would add them to every element, and multiply a few bytes by
    100,000."""
    raise Broken("its DTD declares attributes")


class XmlReader:
    """Reads one document.

    The URLs that it lists are added to ``urls``, ``alternates`` (the same pages in other languages)
    and ``sitemaps`` as they stand there. The caller may empty these lists meanwhile.
    """

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.alternates: list[str] = []
        self.sitemaps: list[str] = []
        self.root = ""
        """The root's name, "" before it was read."""
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.AttlistDeclHandler = _refuse_defaults
        self._held = ""
        self._fed = 0
        self._path: list[tuple[str, str]] = []
        """(prefix, name) of the open elements."""
        self._text: list[str] | None = None
        self._to: list[str] | None = None
        self._at = self._size = 0
        self._literal = False
        self._found = False
        self._guid = ""

    def feed(self, text: str) -> None:
        """Read on. Raises Broken; URLs that were read before count."""
        text = self._held + text
        if not self._fed:  # text before a declaration is invalid in XML, and common
            text = text.lstrip("\ufeff \t\r\n")
        at = text.rfind("&", -_LONGEST_REFERENCE)
        self._held = ""
        if at >= 0 and ";" not in text[at:]:
            text, self._held = text[:at], text[at:]
        self._parse(text)
        if self._fed - self._parser.CurrentByteIndex > MAX_TOKEN:
            raise Broken(f"a tag or comment of more than {MAX_TOKEN:,} bytes")

    def end(self) -> None:
        """End the document. Raises Broken if it is not complete."""
        self._parse(self._held)
        self._parse("", last=True)

    def _parse(self, text: str, *, last: bool = False) -> None:
        if "&" in text:
            text = _BARE.sub("&amp;", text)
        data = _NO_XML.sub("", text).encode()
        self._fed += len(data)
        try:
            self._parser.Parse(data, last)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise Broken(f"its XML is broken in line {error.lineno}: {what}") from None

    # -- called by expat

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        prefix, _, name = tag.rpartition(":")
        name = name.lower()
        path = self._path
        if not path:
            self.root = name
        elif len(path) >= MAX_DEPTH:
            raise Broken(f"more than {MAX_DEPTH} elements within each other")
        above, parent = path[-1] if path else ("", "")
        path.append((prefix, name))
        if name == "loc":
            if parent in _LISTS and above == prefix:
                self._collect(self.sitemaps if parent in _OF_SITEMAPS else self.urls)
        elif name == "sitemap":  # some write the URL directly into it
            self._collect(self.sitemaps)
        elif name == "link":
            self._link(parent, attributes)
        elif name in ("item", "entry"):
            self._found, self._guid = False, ""
        elif name == "guid" and parent == "item" and _is_link(attributes):
            self._collect()

    def _link(self, parent: str, attributes: dict[str, str]) -> None:
        target = attributes.get("href", "")[:MAX_TEXT]
        rel = attributes.get("rel", "alternate").lower().split()
        if parent == "url":
            if target and "alternate" in rel:
                self.alternates.append(target)
        elif parent in ("entry", "item") and target:
            if "alternate" in rel:
                self.urls.append(target)
                self._found = True
        elif parent == "item":
            self._collect(self.urls)

    def _collect(self, to: list[str] | None = None) -> None:
        """Collect the text of the element that has just begun, without that of elements in it.

        At the end of the element its text goes to ``to``; without ``to`` it is the item's guid.
        """
        self._text, self._to, self._at = [], to, len(self._path)
        self._size, self._literal = 0, False
        self._parser.CharacterDataHandler = self._take
        self._parser.StartCdataSectionHandler = self._take_literally

    def _take(self, data: str) -> None:
        if self._text is not None and self._size <= MAX_TEXT and len(self._path) == self._at:
            self._size += len(data)
            self._text.append(data)

    def _take_literally(self) -> None:
        self._literal = True

    def _end(self, _tag: str) -> None:
        _, name = self._path.pop()
        if self._text is not None and len(self._path) < self._at:
            self._taken()
        if name == "item" and self._guid and not self._found:
            self.urls.append(self._guid)

    def _taken(self) -> None:
        text = "".join(self._text or ()).strip()
        self._text = None
        self._parser.CharacterDataHandler = self._parser.StartCdataSectionHandler = None
        if self._literal:
            text = text.replace("&amp;", "&")
        if not text:
            return
        if self._to is not None:
            self._to.append(text)
            self._found = True
        elif text.startswith(_SCHEMES):
            self._guid = text


def _is_link(guid: dict[str, str]) -> bool:
    return guid.get("isPermaLink", "true").lower() != "false"
