"""The evidence of one page, and facts about other pages with the same text."""

from __future__ import annotations

from msgspec import Struct

from greencrawl.schema.records import StoredPage
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.traps.novelty import Found
from greencrawl.worker.traps.queries import plain

_TEXTS = 64
"""Texts without anything new that are remembered for a host."""
_HEAD = 16_384
"""Bytes of a text that is no page, of which samples are taken."""
_FEEDS = (b"<rss", b"<feed", b"<rdf:RDF")

HINTS = {
    "repeats": "its path repeats itself",
    "deep": "its path is very long",
    "far": "its date is far from now",
    "many": "its query grows",
    "mixed": "its parameters come in many combinations",
    "choices": "its folders come in any order, as choices do",
    "search": "it is a search of the site",
    "session": "its URLs differ in a session's id",
}
"""Unusual features of a shape, known before any of its URLs was fetched."""
HINT_SCORES = {
    "repeats": 4.5,
    "far": 3.0,
    "deep": 2.0,
    "many": 2.0,
    "mixed": 2.0,
    "choices": 2.0,
    "search": 3.0,
}
"""The score against a shape before anything of it was fetched."""


class Same(Struct, gc=False):
    """Pages with the same text.

    The fields are: how many pages; a bit for each depth of their folders; the shape of the first as
    a number; whether there are others; whether one of them has a query. Documentation has the same
    text at many paths; a text that also answers a query is a form, or says that something is
    missing.
    """

    pages: int
    depths: int
    shape: int
    several: bool = False
    asked: bool = False
    bred: int = 0
    """How many of them were found on another page with this text."""

    @property
    def wide(self) -> bool:
        """Return whether the text belongs to no single page, wherever it is."""
        return self.several and self.asked


class Evidence(Struct, gc=False):
    """The evidence of one page. The text is ``new`` (1: much of it, 0: none, between: little).

    The counters count links to new URLs: to its own shape, to shapes that yield, to shapes that
    lead to these, to shapes that are not known enough, and to poor ones. ``copy``: the page calls
    itself a copy. ``equal``: similar pages were seen before, often. ``deep``: they are in folders
    of many depths. ``wide``: how many pages of several shapes had its text. ``query``: its URL has
    one. ``numbered``: its URL ends in a number or an id. ``data``: programs read it. ``moved``: it
    redirects to a known URL. ``leading``: how surely such a shape leads on, up to 1. ``inner``: its
    URL was found on a page of its own shape; ``odd``: a hint against its shape is known. ``bred``:
    pages with its long text link to each other. ``figures_only``: only its figures are its own.
    """

    new: float
    own: int = 0
    good: int = 0
    leading: float = 0.0
    unknown: int = 0
    poor: int = 0
    copy: bool = False
    equal: bool = False
    deep: bool = False
    wide: int = 0
    query: bool = False
    data: bool = False
    moved: bool = False
    numbered: bool = False
    inner: bool = False
    odd: bool = False
    bred: bool = False
    figures_only: bool = False
    named: bool = False


def count_text(texts: dict[int, Same], text: int, shape: int, name: str) -> Same:
    """Count a page without anything new by its text (a hash) and its shape; return the facts about
    such pages.

    ``name`` is the name of the shape.
    """
    same = texts.pop(text, None)
    if same is None:
        same = Same(0, 0, shape)
    texts[text] = same
    if len(texts) > _TEXTS:
        del texts[next(iter(texts))]
    same.pages = min(same.pages + 1, 255)
    same.depths |= 1 << min(name.partition("?")[0].count("/"), 15)
    same.several = same.several or same.shape != shape
    same.asked = same.asked or "?" in name
    return same


def as_text(body: bytes) -> str:
    """Return the start of a body that is text, but no page; "" for other bodies."""
    head = body[:_HEAD]
    if b"\0" in head or b"\r\n%%EOF" in head or head.startswith(b"%PDF"):
        return ""
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        return head[: error.start].decode() if error.start > _HEAD - 4 else ""


def is_data(row: StoredPage) -> bool:
    """Return whether a body is JSON or a feed, which programs read."""
    head = row.body[:512].lstrip()
    if head.startswith((b"{", b"[")):
        return True
    return head.startswith(b"<") and any(mark in head for mark in _FEEDS)


def newness(found: Found, row: StoredPage) -> float:
    """Return 1 if much of a page is new, 0 if nothing is, and a number in between if little is."""
    if row.status // 100 == 3:
        return 0.0
    if found.is_much:
        return 1.0
    if not found.text or not found.fresh:
        return 0.0
    step = max(found.text >> 6, 8)
    return 0.0 if found.fresh <= step and found.share < 0.05 else 0.3


def is_copy(row: StoredPage, reading: Reading | None) -> bool:
    """Return whether a page says that it is another page's copy."""
    if reading is None or not reading.canonical or reading.canonical == row.url:
        return False
    return reading.canonical != plain(row.url)
