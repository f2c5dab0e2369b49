"""The main text of a tree, and why a block is part of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from time import thread_time
from typing import NamedTuple

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise
from greencrawl.worker.extract.main.embedded import Data, data_of
from greencrawl.worker.extract.text import collapse, compiled, text_of

MODEL = Path(__file__).with_name("model.bin")
"""The file that ``python -m greencrawl.worker.extract.train`` wrote."""

MOST_BLOCKS = 16384
"""At most this many blocks of a page are read; reading also ends at its 65,536th element."""


NO_HTML = "it is not HTML, so nothing is read from it"
NO_MAIN_TEXT = "that needs the part in C: `python -m greencrawl.worker.extract.compile` makes it"
"""Why there is no main text if nothing was compiled."""

SHELL_SIGNS = 600
"""If a page shows more characters than this, its embedded data are not read."""
_LEAST_SIGNS = 200
_LEAST_SECONDS = 1e-6
_TIMES_SHOWN = 2
"""Main text from data must be at least this many times as long as all that the page shows."""
_DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Characters of Han, kana and Hangul. Each counts as three, because it is a word or half a word."""


_MAIN_TEXT, _COMMENT_TEXT = 1, 2
"""The same values as in ``enum choice`` of ``main.h``."""


class Judged(NamedTuple):
    """A block of a page.

    ``tag``: the tag of its element. ``length``: characters that are not white space. ``first``: the
    index of the first block with the same text. ``score``: how likely it is main text, from 0 to 1.
    ``chosen``: the block counts as main text; ``comment``: it counts as a reader's comment.
    ``element``: the index of its element in the tree. ``reason``: what the score is based on, as
    far as words can say. ``embedded``: the block is from data of the page, in scripts and
    attributes with these names; then ``element`` is an index in the tree of the data.
    """

    text: str
    tag: str
    length: int
    first: int
    score: float
    chosen: bool
    comment: bool
    element: int
    reason: str
    embedded: str = ""


def available() -> bool:
    """Return whether main text can be read: it needs the compiled part."""
    return compiled is not None


@cache
def _model() -> object:
    assert compiled is not None
    return compiled.main_model(MODEL.read_bytes())


def main_text(root: etree._Element, model: object | None = None) -> str:
    """Return the main text under the root of a page; "" if nothing was compiled.

    Paragraphs have an empty line between them, items of lists and rows of tables a line each, cells
    tabs between them. ``model`` replaces the package's own.
    """
    return _read(root, model)[0]


def spans_of(root: etree._Element, text: str, seconds: float = 0.0) -> bytes:
    """Return the places of the main text in ``text``, which is all visible text under the root.

    :func:`greencrawl.schema.text.spans.main_of` reads them. b"" if nothing was compiled, or if main
    text would take more CPU than ``seconds``, unless these are 0.
    """
    if compiled is None:
        return b""
    try:
        found = _read(root, None, seconds)[0]
    except TimeoutError:
        return b""
    return bytes(compiled.main_spans(text, found))


def comments_text(root: etree._Element) -> str:
    """Return the readers' comments of a page, by its markup.

    "" if there are none, for a forum, and if nothing was compiled.
    """
    if compiled is None:
        return ""
    return str(compiled.main_text(root, _model(), None, True))


def markdown(root: etree._Element, base: str, encoding: str = "utf-8") -> str:
    """Return the main text as Markdown.

    Its links are resolved against ``base``; ``encoding`` is the encoding of the page. A link to any
    other URL than http(s) stays as it is.
    """
    if compiled is None:
        return ""

    def resolve(reference: str) -> str:
        try:
            return canonicalise(reference, base, encoding)
        except InvalidUrl:
            return reference

    _, data = _read(root)
    tree = root if data is None else data.root
    return str(compiled.main_text(tree, _model(), resolve, False))


def judged(root: etree._Element) -> list[Judged]:
    """Return all blocks of a page in order; or of its embedded data, if its main text is from
    these.

    [] if nothing was compiled.
    """
    data = _read(root)[1]
    return _judged(root, "") if data is None else _judged(data.root, data.sources)


def data_instead(root: etree._Element) -> Data | None:
    """Return the data of a page if its main text is from them; else None.

    None, too, if nothing was compiled.
    """
    return _read(root)[1]


def remark(root: etree._Element | None) -> str:
    """Say why a page has no block of text, or that its blocks are from embedded data; else ""."""
    if root is None:
        return NO_HTML
    if compiled is None:
        return ""
    data = data_instead(root)
    if data is not None:
        return f"the page shows almost no text: this comes from its embedded data ({data.sources})"
    if compiled.main_blocks(root, None)[0]:
        return ""
    scripts = sum(1 for _ in root.iter("script"))
    many = f" without its {scripts} script{'s' * (scripts > 1)}" if scripts else ""
    return f"the page shows no text{many}"


def _read(
    root: etree._Element, model: object | None = None, seconds: float = 0.0
) -> tuple[str, Data | None]:
    """Return the main text, and the data that it is from, if it is not from the page's own blocks.

    If a page shows almost nothing and its data hold much more, the data count. Raises TimeoutError
    if it would take more CPU than ``seconds``, unless these are 0.
    """
    if compiled is None:
        return "", None
    model = model or _model()
    until = thread_time() + seconds if seconds else 0.0
    own = str(compiled.main_text(root, model, None, False, seconds))
    shown = len(own) if len(own) > SHELL_SIGNS else len(text_of(root))
    if shown > SHELL_SIGNS:
        return own, None
    data = data_of(root, collapse(root.findtext(".//title") or ""), until)
    if data is None:
        return own, None
    left = max(until - thread_time(), _LEAST_SECONDS) if until else 0.0
    text = str(compiled.main_text(data.root, model, None, False, left))
    if len(text) + 2 * len(_DENSE.findall(text[:_LEAST_SIGNS])) < _LEAST_SIGNS:
        return own, None
    if len(text) < _TIMES_SHOWN * shown:
        return own, None
    return text, data


def _judged(root: etree._Element, embedded: str) -> list[Judged]:
    if compiled is None:
        return []
    blocks, rows = compiled.main_blocks(root, _model())
    width = len(rows) // max(len(blocks), 1)
    found = []
    for at, (text, tag, length, first, score, choice, element) in enumerate(blocks):
        chosen, comment = choice == _MAIN_TEXT, choice == _COMMENT_TEXT
        reason = _reason(rows[at * width : (at + 1) * width])
        found.append(
            Judged(text, tag, length, first, score, chosen, comment, element, reason, embedded)
        )
    return found


class _Places(NamedTuple):
    """The indexes of those features that a person can understand."""

    heading: int
    linked: int
    repeating: list[tuple[str, int]]
    words: list[tuple[str, list[tuple[str, int]]]]


@cache
def _places() -> _Places:
    assert compiled is not None
    at = {name: place for place, name in enumerate(compiled.main_features()[0])}
    words = zip(
        ("in", "named", "words of"), ("above", "near", "hint"), compiled.main_words(), strict=True
    )
    return _Places(
        at["heading"],
        at["linked"],
        [("JSON-LD", at["in body"]), ("its description", at["in description"])],
        [
            (label, [(name, at[f"{feature} {place}"]) for place, name in enumerate(names)])
            for label, feature, names in words
        ],
    )


def _reason(row: bytes) -> str:
    """Describe a block's features, 0 to 255 each (see ``features.c``)."""
    places, said = _places(), []
    if row[places.heading]:
        said.append(f"heading {row[places.heading]}")
    if row[places.linked] > 25:
        said.append(f"{min(row[places.linked] * 2 // 5, 100)} % links")
    said += [
        f"{what} repeats {row[place] * 2 // 5} %"
        for what, place in places.repeating
        if 25 < row[place] <= 250
    ]
    for label, words in places.words:
        if found := [name for name, place in words if row[place]]:
            said.append(f"{label} {' '.join(found)}")
    return ", ".join(said)
