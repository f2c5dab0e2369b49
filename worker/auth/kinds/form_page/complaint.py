"""The message of a site to a person whose login it refused, made safe to show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from lxml import etree

from greencrawl.worker.auth.kinds.form_page.document import Document

MAX_SAID = 200
"""At most this many characters of a page's message are shown."""
_NOTICES = 100
"""At most this many elements are searched for a complaint."""
_COMPLAINT = re.compile(r"error|alert|invalid|fail|warn|danger|fehler|erreur", re.IGNORECASE)
_NOTICE = re.compile(r"message|notice|flash|feedback|help-block|info", re.IGNORECASE)
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


def complaint(document: Document | None, hidden: Iterable[str]) -> str:
    """Return what a page tells a person whose login failed, "" if nothing is found.

    It is shortened, and without the ``hidden`` words.
    """
    if document is None:
        return ""
    notices = ""
    looked = 0
    for element in document.root.iter(etree.Element):
        named = f"{element.get('class', '')} {element.get('id', '')} {element.get('role', '')}"
        if len(named) < 4 or element.tag in ("html", "body", "form", "script", "style", "input"):
            continue
        complains = _COMPLAINT.search(named)
        if not complains and (notices or not _NOTICE.search(named)):
            continue
        if "hidden" in element.attrib or _INVISIBLE.search(element.get("style", "")):
            continue
        looked += 1
        if looked > _NOTICES:
            break
        text = _text(element)
        if not text or len(text) > 4 * MAX_SAID:
            continue
        if complains:
            return shortened(masked(text, hidden))
        notices = text
    return shortened(masked(notices, hidden))


def _text(element: etree._Element) -> str:
    """Return the text of an element, up to the length of a complaint."""
    pieces: list[str] = []
    length = 0
    for event, child in etree.iterwalk(element, events=("start", "end")):
        if event == "end":
            piece = child.tail if child is not element else ""
        else:
            piece = "" if child.tag in ("script", "style", "textarea") else child.text
        pieces.append(piece or "")
        length += len(piece or "") + 1
        if length > 20 * MAX_SAID:
            break
    return " ".join(" ".join(pieces).split())


def masked(text: str, hidden: Iterable[str]) -> str:
    """Return ``text`` without the ``hidden`` words, as they are and as URLs have them."""
    forms = {
        form
        for word in hidden
        for form in (word, " ".join(word.split()), quote(word), quote(word, ""), quote_plus(word))
    }
    for form in sorted(filter(None, forms), key=len, reverse=True):
        text = re.sub(re.escape(form), "…", text, flags=re.IGNORECASE)
    return text


def shortened(text: str) -> str:
    """Return one line of at most ``MAX_SAID`` characters, without control sequences of
    terminals."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= MAX_SAID else f"{text[: MAX_SAID - 1]}…"
