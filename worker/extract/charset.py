"""Finds the encoding of a text, as browsers do, and converts the text to UTF-8.

The order is that of https://html.spec.whatwg.org/#determining-the-character-encoding: byte order
mark, HTTP header, then the document's own declaration, depending on its type. If a text declares
nothing, its bytes decide (``greencrawl.worker.extract.encodings.detector``).
"""

from __future__ import annotations

import re

from greencrawl.schema.text.encodings import decode, standard_name
from greencrawl.worker.extract.encodings.detector import guess
from greencrawl.worker.extract.encodings.prescan import PRESCAN_BYTES, late, prescan, xml
from greencrawl.worker.extract.media import media_type

__all__ = ["declared", "guess", "sniff", "to_utf8"]

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))
_MARKS = tuple(mark for mark, _ in _BOMS)

_HEADER = re.compile(r";\s*charset\s*=\s*[\"']?\s*([^\s\"';]+)", re.IGNORECASE)


def declared(body: bytes, content_type: str | None = None) -> tuple[str | None, int]:
    """Return the encoding that a byte order mark or the header names, None without one.

    The result is a standard name, whatever the type of the document. Also return the length of a
    mark to skip.
    """
    if body.startswith(_MARKS):
        for mark, name in _BOMS:
            if body.startswith(mark):
                return name, len(mark)
    found = _HEADER.search(content_type) if content_type and ";" in content_type else None
    return (standard_name(found[1]) if found else None), 0


def sniff(body: bytes, content_type: str | None = None) -> tuple[str, int]:
    """Return the encoding's standard name, and the length of a byte order mark to skip."""
    name, skipped = declared(body, content_type)
    return name or _declared(body, content_type) or guess(body), skipped


def _declared(body: bytes, content_type: str | None) -> str | None:
    """Return the document's own declaration, depending on its type."""
    kind = media_type(content_type)
    if kind.endswith(("/xml", "+xml")) and not kind.endswith("/xhtml+xml"):
        return xml(body[:PRESCAN_BYTES])
    if kind and "html" not in kind:
        return None
    return prescan(body[:PRESCAN_BYTES]) or (late(body) if len(body) > PRESCAN_BYTES else None)


def to_utf8(body: bytes, name: str) -> bytes:
    """Return the body as UTF-8; invalid bytes become U+FFFD, nothing is cut off.

    libxml2 stops at a byte that is invalid in a legacy encoding, and the rest of the page would be
    lost. So it gets only UTF-8, in which it replaces wrong bytes (and NUL) itself.
    """
    return body if name == "utf-8" else decode(body, name).encode()
