"""Main text of a tree, and why it is that."""

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
from greencrawl.worker.extract.text import compiled, squeeze, text_of

MODEL = Path(__file__).with_name("model.bin")
"""What ``python -m greencrawl.worker.extract.train`` wrote."""

MOST_BLOCKS = 16384
"""Of a page nothing is read behind this block, nor behind its 65,536th element."""


NO_MAIN_TEXT = "that needs the part in C: `python -m greencrawl.worker.extract.compile` makes it"
"""Why there is none where nothing was compiled."""

SHELL_SIGNS = 600
"""A page that shows more than this is no shell: its embedded data are not looked at."""
_LEAST_SIGNS = 200
_LEAST_SECONDS = 1e-6
_TIMES_SHOWN = 2
"""Main text of data is that long at least, and so many times as long as all that the page shows."""
_DENSE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Signs of Han, kana and Hangul, which count three: they are words, or a half of one."""


_MAIN_TEXT, _COMMENT_TEXT = 1, 2
"""As ``enum choice`` in ``main.h``."""


class Judged(NamedTuple):
    """A block of a page. ``tag``: of the element it lies in; ``length``: signs that are no white
    space; ``first``: the place of the first block that has the same text; ``score``: how likely it
    is main text, from 0 to 1; ``chosen``: it is taken for main text, ``comment``: for what a reader
    wrote of it; ``element``: the place of its element among all those of the tree; ``reason``: what
    the score goes by, as far as words tell it. ``embedded``: it is no block of the page but of data
    that the page carries, in the scripts and attributes of these names; ``element`` is one of the
    data's tree then."""

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
    """Whether main text can be read: it needs the compiled part."""
    return compiled is not None


@cache
def _model() -> object:
    assert compiled is not None
    return compiled.main_model(MODEL.read_bytes())


def main_text(root: etree._Element, model: object | None = None) -> str:
    """The main text under the root of a page: paragraphs with an empty line between them, items of
    lists and rows of tables on a line each, cells with tabs between them. "" where nothing was
    compiled. ``model`` is another than the package's."""
    return _read(root, model)[0]


def spans_of(root: etree._Element, text: str, seconds: float = 0.0) -> bytes:
    """The places of the main text in ``text``, which is all that is visible under the root;
    :func:`greencrawl.schema.text.spans.main_of` reads them. It is b"" if nothing was compiled, or
    if main text would take more CPU than ``seconds``, unless these are 0."""
    if compiled is None:
        return b""
    try:
        found = _read(root, None, seconds)[0]
    except TimeoutError:
        return b""
    return bytes(compiled.main_spans(text, found))


def comments_text(root: etree._Element) -> str:
    """What readers wrote of a page, as markup says, that is no forum; "" of others, and where
    nothing was compiled."""
    if compiled is None:
        return ""
    return str(compiled.main_text(root, _model(), None, True))


def markdown(root: etree._Element, base: str, encoding: str = "utf-8") -> str:
    """The same as Markdown. ``base`` is what its links are relative to, ``encoding`` the page's; a
    link that leads to no http(s) URL stands as it is."""
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
    """All blocks of a page in order, or those of its embedded data where main text is read from
    these. [] where nothing was compiled."""
    data = _read(root)[1]
    return _judged(root, "") if data is None else _judged(data.root, data.sources)


def data_instead(root: etree._Element) -> Data | None:
    """The data of a page where its main text is read from that; None where the page shows its
    text, and where nothing was compiled."""
    return _read(root)[1]


def remark(root: etree._Element | None) -> str:
    """Why a page has no block of text, or that those are of its embedded data; "" of others."""
    if root is None:
        return "it is no HTML: nothing is read of it"
    if compiled is None:
        return ""
    data = data_instead(root)
    if data is not None:
        return f"the page shows next to nothing: this is of its embedded data ({data.sources})"
    if compiled.main_blocks(root, None)[0]:
        return ""
    scripts = sum(1 for _ in root.iter("script"))
    many = f" without its {scripts} script{'s' * (scripts > 1)}" if scripts else ""
    return f"the page shows no text{many}"


def _read(
    root: etree._Element, model: object | None = None, seconds: float = 0.0
) -> tuple[str, Data | None]:
    """The main text, and the data that it comes from if it is not from the page's own blocks. A
    page that shows next to nothing is a shell if its data hold much more. Raises TimeoutError where
    it would take more CPU than ``seconds``, unless these are 0."""
    if compiled is None:
        return "", None
    model = model or _model()
    until = thread_time() + seconds if seconds else 0.0
    own = str(compiled.main_text(root, model, None, False, seconds))
    shown = len(own) if len(own) > SHELL_SIGNS else len(text_of(root))
    if shown > SHELL_SIGNS:
        return own, None
    data = data_of(root, squeeze(root.findtext(".//title") or ""), until)
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
    """Where in a row of features those are that a person can make sense of."""

    heading: int
    linked: int
    repeats: list[tuple[str, int]]
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
    """What a block's features say, 0 to 255 each (see ``features.c``)."""
    places, said = _places(), []
    if row[places.heading]:
        said.append(f"heading {row[places.heading]}")
    if row[places.linked] > 25:
        said.append(f"{min(row[places.linked] * 2 // 5, 100)} % links")
    said += [
        f"{what} repeats {row[place] * 2 // 5} %"
        for what, place in places.repeats
        if 25 < row[place] <= 250
    ]
    for label, words in places.words:
        if found := [name for name, place in words if row[place]]:
            said.append(f"{label} {' '.join(found)}")
    return ", ".join(said)
