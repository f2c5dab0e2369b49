"""Documents within a page: ``iframe srcdoc``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lxml import etree

from greencrawl.worker.extract.hostile import hides_attribute_bomb
from greencrawl.worker.extract.text import html_parser

MOST_DOCUMENTS = 50
MOST_BYTES = 128 * 1024
"""All such documents of a page have at most this many bytes; they may take 0.1 s of CPU at worst.

Further documents are not read. The same holds for a document with a tag of thousands of attributes,
and for a document within another one.
"""

_parser = html_parser()


def documents(frames: Iterable[etree._Element]) -> Iterator[etree._Element]:
    """Yield the roots of the documents in ``frames``, as far as they are read."""
    left, count = MOST_BYTES, 0
    for frame in frames:
        body = frame.get("srcdoc", "").encode("utf-8", "replace")
        left -= len(body)
        count += 1
        if left < 0 or count > MOST_DOCUMENTS:
            return
        if hides_attribute_bomb(body):
            continue
        root = etree.fromstring(body, _parser)
        if root is not None:
            yield root
