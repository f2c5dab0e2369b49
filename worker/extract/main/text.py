"""Main text of a tree, and why it is that."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise
from greencrawl.worker.extract.text import compiled

MODEL = Path(__file__).with_name("model.bin")
"""What ``python -m greencrawl.worker.extract.train`` wrote."""

MOST_BLOCKS = 16384
"""Of a page nothing is read behind this block, nor behind its 65,536th element."""


class Judged(NamedTuple):
    """A block of a page. ``tag``: of the element it lies in; ``length``: signs that are no white
    space; ``first``: the place of the first block that has the same text; ``score``: how likely it
    is main text, from 0 to 1."""

    text: str
    tag: str
    length: int
    first: int
    score: float
    chosen: bool


def available() -> bool:
    """Whether main text can be read: it needs the compiled part."""
    return compiled is not None


@cache
def _model() -> object:
    assert compiled is not None
    return compiled.main_model(MODEL.read_bytes())


def main_text(root: etree._Element) -> str:
    """The main text under the root of a page: paragraphs with an empty line between them, items of
    lists and rows of tables on a line each, cells with tabs between them. "" where nothing was
    compiled."""
    if compiled is None:
        return ""
    return str(compiled.main_text(root, _model(), None))


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

    return str(compiled.main_text(root, _model(), resolve))


def judged(root: etree._Element) -> list[Judged]:
    """All blocks of a page in order. [] where nothing was compiled."""
    if compiled is None:
        return []
    return [Judged(*row) for row in compiled.main_blocks(root, _model())[0]]
