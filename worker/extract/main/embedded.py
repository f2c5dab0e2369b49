"""Text that a page carries as data and does not show: scripts would fill in its content.

The JSON-LD of a page and its state, as frameworks write it (``__NEXT_DATA__``,
``application/json``, ``window.__STATE__ = …``, attributes such as ``data-page``), become a tree of
their own. An object becomes an element whose class is the key of the object; a text becomes a
paragraph, or the elements of its own markup. Blocks of that tree are judged like those of a page.
Code, such as the states of Nuxt 2, is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from html import escape
from time import thread_time
from typing import Any, NamedTuple

import msgspec
from lxml import etree

from greencrawl.worker.extract.main.names import fold
from greencrawl.worker.extract.text import html_parser

MOST_DATA = 2 * 1024 * 1024
"""At most this many characters of a page's scripts are read; the source of the tree has at most as
many."""
MOST_VALUES = 20_000
"""At most this many texts, objects and lists of a page are read."""
_BETWEEN_LOOKS = 16
"""Values between two checks of the clock."""
DEEPEST = 40
"""The greatest depth of nested objects and lists that is read."""

_ASSIGNED = re.compile(
    r"(?:\b(?:var|let|const)\s+|\b(?:window|self|globalThis)\s?(?:\.|\[[\"']))([\w$]{1,64})"
    r"(?:[\"']\])?\s?=\s{0,20}(JSON\.parse\(\s{0,20})?(?=[{\[\"])"
)
_MOST_ASSIGNED = 20
_HOLDERS = etree.XPath(
    "//*[@*[starts-with(name(), 'data-') and string-length() > 150 and starts-with(., '{')]]"
)
_MOST_HOLDERS = 20
_JSON = re.compile(r"\s*[{\[].*[}\]]\s*\Z", re.DOTALL)
_LONGEST_NAME = 64
_LONGEST_TITLE = 1000
_LEAST_JSON = 100
"""A shorter text that might be JSON is not parsed."""
_OTHERS = ("importmap", "speculationrules", "manifest")
_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"\S\s+\S|[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]{4}")
_CODE = re.compile(
    r"\s*(?:[{\[#.@]|https?:|/\S*$|function\b|data:|<(?:svg|script|style)\b)|.*[{;]\s*\}"
)
_MARKUP = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,15})\b([^<>]{0,4000})>")
_RAW = re.compile(r"<(script|style)\b.*?(?:</\1\s{0,20}>|\Z)", re.DOTALL | re.IGNORECASE)
_HREF = re.compile(r"\shref\s?=\s?(\"[^\"<>]*\"|'[^'<>]*')", re.IGNORECASE)
_NAME = re.compile(r"[^\w-]+")
_UNREAD = frozenset({"script", "style", "title", "textarea", "template", "iframe", "svg", "html",
                     "head", "body", "noscript", "xmp", "plaintext", "math"})  # fmt: skip
_KEYS = """
    i18n messages translations locale locales dictionary runtimeconfig config env query assets
    buildmanifest featureflags css styles theme
"""
_NO_TEXT = frozenset(_KEYS.split())
"""Keys, in lower case, whose values are no text of the page."""
_INLINE = ("text", "span")
_ELEMENTS = {
    "paragraph": "p", "block": "p", "list-item": "li", "listitem": "li", "list_item": "li",
    "unordered-list": "ul", "bulletlist": "ul", "ordered-list": "ol", "orderedlist": "ol",
    "blockquote": "blockquote", "codeblock": "pre", "code_block": "pre",
    "heading": "h2", **{f"heading-{level}": f"h{level}" for level in range(1, 7)},
}  # fmt: skip
"""Elements for the types of nodes that rich text editors write."""
_LONG_TEXT = 200
"""An object with a text of this length is an article; an object with a URL and no such text is a
link to an article."""
_PLACES = ("url", "href", "link", "path", "slug", "permalink", "uri", "canonicalUrl")


class Data(NamedTuple):
    """A tree made of data, and the names of the scripts that held them."""

    root: etree._Element
    sources: str


def data_of(root: etree._Element, title: str, until: float = 0.0) -> Data | None:
    """Return the tree of the data in a page's scripts; None if they hold no text.

    ``title`` is the title of the page. Raises TimeoutError if the thread's CPU time exceeds
    ``until``, unless that is 0.
    """
    title = title[:_LONGEST_TITLE]
    source = _Source(fold(title), until)
    names = []
    for name, value in _values(root):
        before = len(source.pieces)
        source.add(value, name, 0)
        if len(source.pieces) > before:
            names.append(name)
    source.look_at_clock()
    if not source.texts:
        return None
    said = escape(title)
    head = f"<html><head><title>{said}</title></head><body><h1>{said}</h1>"
    page = f"{head}{''.join(source.pieces)}</body></html>".encode("utf-8", "replace")
    made = etree.fromstring(page, html_parser())
    return Data(made, ", ".join(dict.fromkeys(name[:_LONGEST_NAME] for name in names)))


def _values(root: etree._Element) -> Iterator[tuple[str, Any]]:
    """Yield the name and content of each script; JSON-LD first."""
    scripts = [(script, (script.get("type") or "").lower()) for script in root.iter("script")]
    scripts.sort(key=lambda one: ("ld+json" not in one[1], "json" not in one[1]))
    left = MOST_DATA
    for script, kind in scripts:
        text = script.text or ""
        left -= len(text)
        if left < 0:
            return
        if "json" in kind and not any(other in kind for other in _OTHERS):
            name = "JSON-LD" if "ld+json" in kind else script.get("id") or kind
            with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
                yield name, msgspec.json.decode(text.strip().encode())
        elif not kind or "javascript" in kind or kind == "module":
            yield from _assigned(text)
    holders: Any = _HOLDERS(root)
    for holder in holders[:_MOST_HOLDERS]:
        for name, said in holder.items():
            left -= len(said)
            if name.startswith("data-") and said.startswith("{") and left >= 0:
                with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
                    yield name, msgspec.json.decode(said.encode())


def _assigned(script: str) -> Iterator[tuple[str, Any]]:
    """Yield each name of the window to which a script assigns JSON, and the value."""
    at = 0
    for _ in range(_MOST_ASSIGNED):
        found = _ASSIGNED.search(script, at)
        if found is None:
            return
        at = found.end()
        with suppress(ValueError, RecursionError):
            value, at = _DECODER.raw_decode(script, at)
            if found[2] and isinstance(value, str):
                value = _DECODER.decode(value)
            if isinstance(value, dict | list):
                yield found[1], value


class _Source:
    """Builds the source of a tree."""

    def __init__(self, title: str, until: float) -> None:
        self.pieces: list[str] = []
        self._title = title
        self._until = until
        self._linked = False
        self.texts = 0
        self._values = self._length = 0

    def add(self, value: Any, key: str, depth: int, inline: bool = False) -> None:
        """Write a value with the name ``key``."""
        self._values += 1
        if self._values % _BETWEEN_LOOKS == 1:
            self.look_at_clock()
        if self._values > MOST_VALUES or depth > DEEPEST or self._length > MOST_DATA:
            return
        if isinstance(value, str) and len(value) >= _LEAST_JSON and _JSON.match(value):
            with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
                self.add(msgspec.json.decode(value.encode()), key, depth + 1)
        elif isinstance(value, str):
            self._add_text(value, key, inline)
        elif isinstance(value, list):
            for one in value:
                self.add(one, key, depth + 1, inline)
        elif isinstance(value, dict):
            self._add_object(value, key, depth)

    def look_at_clock(self) -> None:
        """Raise TimeoutError if the time is over."""
        if self._until and thread_time() > self._until:
            raise TimeoutError("embedded data took too long")

    def _add_object(self, value: dict[str, Any], key: str, depth: int) -> None:
        kind = (
            value.get("type") or value.get("_type") or value.get("nodeType") or value.get("@type")
        )
        kind = kind if isinstance(kind, str) else ""
        if kind.lower() in _INLINE:
            self.add(value.get("text") or value.get("value"), key, depth + 1, inline=True)
            return
        texts = [one for one in value.values() if isinstance(one, str)]
        is_long = any(len(one) >= _LONG_TEXT and _SPACE.search(one) for one in texts)
        element = _ELEMENTS.get(kind.lower(), "article" if is_long else "div")
        around = self._linked
        self._linked = not is_long and any(isinstance(value.get(key), str) for key in _PLACES)
        name = _NAME.sub(" ", key[:_LONGEST_NAME])
        place = len(self.pieces)
        self._write(f'<{element} class="{name}">')
        for inner, one in value.items():
            if inner.lower() not in _NO_TEXT:
                self.add(one, inner, depth + 1)
        self._linked = around
        if len(self.pieces) > place + 1:
            self._write(f"</{element}>")
        else:
            self.pieces.pop()

    def _add_text(self, text: str, key: str, inline: bool) -> None:
        if inline:
            self._write(escape(text))
            self.texts += 1
        elif _SPACE.search(text) and not _CODE.match(text):
            name = _NAME.sub(" ", key[:_LONGEST_NAME])
            folded = fold(text) if len(text) <= _LONGEST_TITLE else ""
            tag = "h1" if folded and folded in self._title else "p"
            if _MARKUP.search(text):
                body = _MARKUP.sub(_plain, _RAW.sub(" ", text))
            else:
                parts = [escape(part) for part in re.split(r"\n\s*\n|\r\n", text) if part.strip()]
                body = f"<{tag}>{f'</{tag}><{tag}>'.join(parts)}</{tag}>"
            if self._linked:
                body = f'<a href="#">{body}</a>'
            self._write(f'<div class="{name}" itemprop="{name}">{body}</div>')
            self.texts += 1

    def _write(self, piece: str) -> None:
        self._length += len(piece)
        self.pieces.append(piece)


def _plain(tag: re.Match[str]) -> str:
    """Return a tag without its attributes, except where a link leads."""
    closes, name, attributes = tag[1], tag[2].lower(), tag[3]
    if name in _UNREAD:
        return " "
    if closes or name != "a":
        return f"<{closes}{name}>"
    href = _HREF.search(attributes)
    return f"<a href={href[1]}>" if href else "<a>"
