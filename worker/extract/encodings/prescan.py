"""The encoding that a document itself declares, found before it is parsed.

:func:`prescan` is https://html.spec.whatwg.org/#prescan-a-byte-stream-to-determine-its-encoding.
:func:`late` does what browsers do for a ``meta`` after the prescanned bytes: it counts if it is in
the head.
"""

from __future__ import annotations

import re
from functools import lru_cache

from greencrawl.schema.text.encodings import standard_name

PRESCAN_BYTES = 1024
LATE_BYTES = 65_536
_EARLY_BYTES = 512
"""A meta that ends within this many bytes is cached with all that is before it: pages of a site
begin alike."""

# A tag that is cut off matches nothing, and so ends the search. "(@" marks the wanted group.
_ATTRIBUTE = (
    rb"[\t\n\f\r /]*+(@[^\t\n\f\r />][^\t\n\f\r =/>]*+)(?=[\t\n\f\r =/>])"
    rb"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+"
    rb"(?:\"(@[^\"]*+)\"|'(@[^']*+)'|(@[^\t\n\f\r \"'>][^\t\n\f\r >]*+)(?=[\t\n\f\r >])|(?=>))"
    rb"|(?![\t\n\f\r ]*+=))"
)
_ATTRIBUTES = b"(?>(?:" + _ATTRIBUTE.replace(b"(@", b"(?:") + b")*)"
_TAG_END = rb"[\t\n\f\r /]*+>"
_ATTRIBUTE_AT = re.compile(_ATTRIBUTE.replace(b"(@", b"("))
_TAG_END_AT = re.compile(_TAG_END)

# Everything up to the next meta. A comment's end may share its dashes with its start.
_COMMENT = rb"<!--(?:-?>|[^-]*+(?>(?:-(?!->)[^-]*+)*)-->)"
_UP_TO_META = re.compile(
    rb"(?>(?:[^<]++"
    rb"|" + _COMMENT + rb"|<(?!meta[\t\n\f\r /])/?[a-z][^\t\n\f\r >]*+" + _ATTRIBUTES + _TAG_END
    + rb"|<(?!!--)(?:!|\?|/(?![a-z]))[^>]*+>"
    rb"|<(?![a-z!/?]))*)<meta(?=[\t\n\f\r /])",
    re.IGNORECASE,
)  # fmt: skip
_XML = re.compile(
    rb"<\?xml(?=[^>]*+>)(?>(?:(?!encoding|>).)*)encoding[\x00-\x20]*+=[\x00-\x20]*+"
    rb"(?:\"([^\"\x00-\x20]*+)\"|'([^'\x00-\x20]*+)')",
    re.DOTALL,
)
_WIDE_XML = ((b"<\x00?\x00x\x00", "utf-16le"), (b"\x00<\x00?\x00x", "utf-16be"))
_IN_CONTENT = re.compile(
    rb"charset[\t\n\f\r ]*+=[\t\n\f\r ]*+"
    rb"(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*+))?"
)

# Elements that may be in a head; for an element whose content is no markup, up to its end tag.
_HEAD_TAG = re.compile(rb"<(/?)([a-z][^\t\n\f\r />]*+)", re.IGNORECASE)
_IN_HEAD = frozenset(
    (b"html", b"head", b"meta", b"link", b"base", b"script", b"style", b"title", b"noscript",
     b"template", b"object", b"basefont", b"bgsound")
)  # fmt: skip
_RAW = frozenset((b"script", b"style", b"title", b"noscript"))
_NO_TAG = re.compile(rb"<(?:!--(?:-?>|.*?(?:-->|--!>|\Z))|[!?/][^>]*+>|(?=[^!?/])|\Z)", re.DOTALL)


def prescan(head: bytes) -> str | None:
    """Return what the first bytes of an HTML document declare, None if nothing."""
    for mark, wide in _WIDE_XML if b"\0" in head[:2] else ():
        if head.startswith(mark):
            return wide
    at = head.find(b"charset", 0, _EARLY_BYTES)
    end = head.find(b">", at, _EARLY_BYTES) if at > 0 else -1
    if end > 0 and (name := _early(head[: end + 1])) is not None:
        return name  # the first declaration counts, and no later one
    return _metas(head) or xml(head)


def _metas(head: bytes) -> str | None:
    """Return the encoding of the first ``meta`` that declares one; one that is cut off does not
    count."""
    at = 0
    while found := _UP_TO_META.match(head, at):
        name, at = _meta(head, found.end())
        if name is not None:
            return name
        if at < 0:
            break
    return None


_early = lru_cache(maxsize=512)(_metas)


def xml(head: bytes) -> str | None:
    """Return what an XML declaration at the very start says."""
    found = _XML.match(head)
    return None if found is None else _usable(found[1] or found[2] or b"")


def late(body: bytes) -> str | None:
    """Return what a ``meta`` of the head after the prescanned bytes declares."""
    body = body[:LATE_BYTES]
    low = body.lower()
    last = low.rfind(b"charset", PRESCAN_BYTES - 100)
    at = low.find(b"<") if last >= 0 else -1
    while 0 <= at < last:
        found = _HEAD_TAG.match(body, at)
        if found is None:
            skipped = _NO_TAG.match(body, at)
            if skipped is None:  # the rest of it is a declaration
                return None
            at = low.find(b"<", skipped.end())
            continue
        closing, tag = found[1], found[2].lower()
        if tag == b"head" if closing else tag not in _IN_HEAD:
            return None
        name, end = _meta(body, found.end())
        if end < 0:
            return None
        if tag == b"meta" and name is not None and not closing:
            return name
        if not closing and tag in _RAW:
            end = low.find(b"</" + tag, end)
        at = low.find(b"<", end) if end >= 0 else -1
    return None


def _meta(head: bytes, at: int) -> tuple[str | None, int]:
    """Return the encoding that the attributes from ``at`` on declare, and where the tag ends; -1 if
    the tag has no end."""
    seen: set[bytes] = set()
    pragma, needs_pragma = False, None
    name: str | None = None
    charset = False
    while found := _ATTRIBUTE_AT.match(head, at):
        at = found.end()
        attribute = found[1].lower()
        if attribute in seen:
            continue
        seen.add(attribute)
        value = (found[2] or found[3] or found[4] or b"").lower()
        if attribute == b"http-equiv":
            pragma = value == b"content-type"
        elif attribute == b"content" and not charset:
            told = _of_content(value)
            if told is not None:
                name, charset, needs_pragma = told, True, True
        elif attribute == b"charset":
            name, charset, needs_pragma = _usable(value), True, False
    closed = _TAG_END_AT.match(head, at)
    if closed is None:
        return None, -1
    if needs_pragma is None or (needs_pragma and not pragma):
        return None, closed.end()
    return name, closed.end()


def _of_content(value: bytes) -> str | None:
    """Return the encoding in the ``content`` of a meta.

    https://html.spec.whatwg.org/#extracting-character-encodings-from-meta-elements
    """
    found = _IN_CONTENT.search(value)
    return None if found is None else _usable(found[1] or found[2] or found[3] or b"")


def _usable(label: bytes) -> str | None:
    """Return the encoding of a label that was read as ASCII; None if there is none."""
    name = standard_name(label.decode("latin-1").strip("\t\n\f\r "))
    # UTF-16 cannot be true: we could not have read the label as ASCII
    if name is not None and name.startswith("utf-16"):
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name
