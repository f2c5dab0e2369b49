"""Readers of main text: ours, and other libraries, all from the bytes of a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lxml import etree

from greencrawl.schema.text.encodings import decode
from greencrawl.worker.extract.charset import sniff
from greencrawl.worker.extract.hostile import TooExpensive
from greencrawl.worker.extract.main import main_text
from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import text_of

Reader = Callable[[bytes], str]

PARSE_SECONDS = 0.25
"""CPU that a worker allows for a parse before it gives the page to a process of its own."""


def root_of(body: bytes) -> etree._Element | None:
    """Return the tree of a page as a worker makes it.

    A worker stops a parse that takes too long, and another process parses the page again. For such
    a page this is the tree of the other process.
    """
    try:
        return tree_of(body, None, PARSE_SECONDS, brief=True)[0]
    except TooExpensive:
        return tree_of(body)[0]


def ours(body: bytes) -> str:
    """Return main text by the model of the package."""
    root = root_of(body)
    return "" if root is None else main_text(root)


def whole(body: bytes) -> str:
    """Return all visible text."""
    root = root_of(body)
    return "" if root is None else text_of(root)


def _trafilatura(body: bytes, **options: bool) -> str:
    import trafilatura

    return trafilatura.extract(body, **options) or ""


def _resiliparse(body: bytes) -> str:
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding

    return str(extract_plain_text(bytes_to_str(body, detect_encoding(body)), main_content=True))


def _readability(body: bytes) -> str:
    from readability import Document

    encoding, skipped = sniff(body)  # its own detection of bytes fails in the pinned release
    summary = Document(decode(body[skipped:], encoding)).summary()
    return whole(b'<meta charset="utf-8">' + summary.encode())


OTHERS: dict[str, Reader] = {
    "trafilatura": _trafilatura,
    "trafilatura, no comments": partial(_trafilatura, include_comments=False),
    "trafilatura, fast": partial(_trafilatura, fast=True),
    "resiliparse": _resiliparse,
    "readability-lxml": _readability,
    "whole text": whole,
}
PACKAGES = ("trafilatura", "resiliparse", "readability-lxml")
"""Packages whose versions a record names."""
REFERENCE = "trafilatura, no comments"
"""The reader with which ours is compared page by page."""
OURS = "ours"
