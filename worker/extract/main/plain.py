"""Documents of plain text, also Markdown: their whole text is main text."""

from __future__ import annotations

import re
from typing import NamedTuple

from greencrawl.schema.text.encodings import decode
from greencrawl.worker.extract.charset import sniff
from greencrawl.worker.extract.media import PLAIN, is_binary, media_type
from greencrawl.worker.extract.text import collapse, compiled

LONGEST_TITLE = 120
"""A title has at most this many characters: a longer first line is a paragraph."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HEAD_CHARACTERS = 1024
_EMPTY_LINES = re.compile(r"\n{3,}")
_HEADING = re.compile(r"#{1,6}\s+(.*?)(?:\s#+)?\Z")
_UNDERLINE = re.compile(r"(?:={3,}|-{3,})\Z")
_OPENS = tuple("{[<(#/*;|>-=\"'")
_CLOSES = tuple(".,;:{[(|\\")


class Plain(NamedTuple):
    """``text``: in one line; ``main``: with line breaks, and at most one empty line in a row."""

    title: str
    text: str
    main: str
    encoding: str

    @property
    def spans(self) -> bytes:
        """Return where the main text stands in the text; b"" if nothing was compiled."""
        return b"" if compiled is None else bytes(compiled.main_spans(self.text, self.main))


def read(body: bytes, content_type: str | None) -> Plain:
    """Read a document of plain text; binary data, which servers may declare as text, give
    nothing."""
    encoding, skipped = sniff(body, content_type if media_type(content_type) else PLAIN)
    said = decode(body[skipped:], encoding)
    if is_binary(said[:_HEAD_CHARACTERS]):
        return Plain("", "", "", encoding)
    lines = _CONTROL.sub("", said).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    main = _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip(" \t") for line in lines)).strip()
    return Plain(_title(main), collapse(main), main, encoding)


def _title(main: str) -> str:
    """Return the first line if it is a heading, else "".

    A line with a mark of Markdown is a heading. So is a short line that is separated from what
    follows, and is neither a sentence nor code.
    """
    first, _, rest = main.partition("\n")
    second = rest.partition("\n")[0].strip()
    line = collapse(first[: 2 * LONGEST_TITLE])
    marked = _HEADING.match(line)
    if marked is not None:
        line = marked[1]
    elif not rest or (second and not _UNDERLINE.match(second)):
        return ""
    if len(first) > 2 * LONGEST_TITLE or len(line) > LONGEST_TITLE:
        return ""
    if not any(sign.isalpha() for sign in line) or "://" in line:
        return ""
    return "" if line.startswith(_OPENS) or line.endswith(_CLOSES) else line
