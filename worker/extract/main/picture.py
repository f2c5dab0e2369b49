"""A page in its own layout, each block of text coloured by its score, as one HTML file.

Nothing of it is run or fetched: only elements and attributes of text and layout stay, and a policy
in the head forbids the rest. The serialiser of the tree escapes texts. Style sheets within the page
stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from lxml import etree

from greencrawl.worker.extract.main.text import Judged

MARK = "<!doctype html><!-- greencrawl extract --why -->"
"""The start of such a file."""
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "form-action 'none'; base-uri 'none'"
)
_ELEMENTS = """
    script style iframe frame frameset object embed applet link base meta title noembed noframes
    plaintext xmp audio video source track template svg math head portal
"""
_GONE = frozenset(_ELEMENTS.split())
"""Elements that are left out with all their content."""
_UNREAD = frozenset({"select", "datalist", "option", "textarea", "canvas"})
"""Elements that stay, whose texts are no blocks."""
_TAG = re.compile(r"[a-z][a-z0-9-]*")
_ATTRIBUTES = """
    class id style dir lang align valign width height colspan rowspan start type value checked
    disabled hidden open border cellpadding cellspacing bgcolor color size face nowrap alt
"""
_KEPT = frozenset(_ATTRIBUTES.split())
"""Attributes that stay."""
_WHITE = re.compile("[\x00-\x20\xa0\u2000-\u200b\u3000\ufeff]+")
_END_OF_STYLE = re.compile("</(?=style)", re.IGNORECASE)
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COMMENT_HUE = 220
_STYLE = """
.gc-text { color: #111 !important; background: var(--gc) !important; }
.gc-own { outline: 1px solid #2a8a4a !important; box-shadow: -5px 0 0 #2a8a4a !important; }
img { display: none !important; }
#gc-key { position: sticky; top: 0; z-index: 2147483647; background: #fff; color: #111;
font: 14px/1.6 sans-serif; margin: 0 0 12px; padding: 6px 10px; border-bottom: 2px solid #2a8a4a; }
#gc-key span { padding: 2px 4px; }
"""


def picture(root: etree._Element, blocks: Sequence[Judged], remark: str = "") -> str:
    """Return the file. The tree under ``root``, whose blocks are ``blocks``, is changed.

    ``remark`` is shown above it.
    """
    behind = list(root.itersiblings())  # what follows </html>
    elements = [one for tree in (root, *behind) for one in tree.iter() if isinstance(one.tag, str)]
    body = next(root.iter("body"), root)
    body.extend(behind)
    owners: dict[etree._Element, list[tuple[Judged, int]]] = {}
    for block in blocks:
        if block.element < len(elements):
            owners.setdefault(elements[block.element], []).append((block, _signs(block.text)))
    style = "\n".join(one.text or "" for one in elements if one.tag == "style")
    for one in elements:
        if one.tag in _GONE:
            _take_out(one)
    read = sum(_signs(block.text) for block in blocks)
    if read <= sum(_signs(text) for _, _, text, _ in _texts(root, owners, noscript=False)):
        for one in list(root.iter("noscript")):
            _take_out(one)
    for one in (*elements, body):  # also elements that are no longer in the tree
        _clean(one)
    _paint(list(_texts(root, owners, noscript=True)), owners)
    title = f"{sum(block.chosen for block in blocks):,} of {len(blocks):,} blocks are main text"
    return (
        f"{MARK}\n<html><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{title}</title><style>{_END_OF_STYLE.sub('', style)}</style>"
        f"<style>{_STYLE}</style></head>"
        f"<body{''.join(_attribute(*one) for one in body.items())}>{_key(title, remark)}"
        f"{_inner(body)}</body></html>\n"
    )  # fmt: skip


def _signs(text: str) -> int:
    """Return how many characters are no white space."""
    return len(_WHITE.sub("", text))


def _take_out(one: etree._Element) -> None:
    """Remove an element, and keep what follows it."""
    parent, before = one.getparent(), one.getprevious()
    if parent is None:
        return
    if one.tail and before is not None:
        before.tail = (before.tail or "") + one.tail
    elif one.tail:
        parent.text = (parent.text or "") + one.tail
    parent.remove(one)


def _clean(one: etree._Element) -> None:
    if one.tag == "noscript" or not _TAG.fullmatch(one.tag):
        one.tag = "div" if one.tag == "noscript" else "span"
    kept = [(name, _plain(value)) for name, value in one.items() if name in _KEPT]
    one.attrib.clear()  # not one by one: names may be invalid in XML
    for name, value in kept:
        one.set(name, value)


def _plain(text: str | bytes) -> str:
    """Return a text without the characters that XML forbids."""
    return _NO_XML.sub("", str(text))


Text = tuple[etree._Element, bool, str, "etree._Element | None"]
"""(an element; True if the text follows it, False if the text begins it; the text; the element that
owns the blocks of the text)"""


def _texts(
    root: etree._Element, owners: dict[etree._Element, list[tuple[Judged, int]]], *, noscript: bool
) -> Iterator[Text]:
    """Yield all texts that are read, in order; with ``noscript`` also the texts in ``noscript``
    elements."""
    stack: list[etree._Element] = []
    passed: etree._Element | None = None
    for event, one in etree.iterwalk(root, events=("start", "end")):
        if event == "start":
            if one in owners:
                stack.append(one)
            unread = one.tag in _UNREAD or (one.tag == "noscript" and not noscript)
            if passed is None and unread:
                passed = one
            if passed is None and one.text:
                yield one, False, one.text, stack[-1] if stack else None
            continue
        if passed is one:
            passed = None
        if one in owners:
            stack.pop()
        if passed is None and one.tail and one is not root:
            yield one, True, one.tail, stack[-1] if stack else None


def _paint(texts: Sequence[Text], owners: dict[etree._Element, list[tuple[Judged, int]]]) -> None:
    """Colour each text like its block.

    Blocks of one element follow each other; their lengths tell where a block ends.
    """
    at: dict[etree._Element, tuple[int, int]] = {}
    for one, behind, text, owner in texts:
        signs = _signs(text)
        if not signs or owner is None:
            continue
        place, done = at.get(owner, (0, 0))
        if place >= len(owners[owner]):
            continue
        _wrap(one, behind, text, owners[owner][place][0])
        done += signs
        while place < len(owners[owner]) and done >= owners[owner][place][1]:
            done -= owners[owner][place][1]
            place += 1
        at[owner] = place, done
    for one, own in owners.items():
        if any(block.chosen or block.comment for block, _ in own):
            one.set("class", f"{one.get('class', '')} gc-own".strip())


def _wrap(one: etree._Element, behind: bool, text: str, block: Judged) -> None:
    span = one.makeelement("span", {"class": "gc-text", "style": f"--gc: {_colour(block)}"})
    span.text = _plain(text)
    span.set("title", _plain(_said(block)))
    if behind:
        one.tail = None
        one.addnext(span)
    else:
        one.text = None
        one.insert(0, span)


def _colour(block: Judged) -> str:
    hue = _COMMENT_HUE if block.comment else round(120 * block.score)
    return f"hsl({hue} 75% 82%)"


def _said(block: Judged) -> str:
    what = "main text" if block.chosen else "a comment" if block.comment else "left out"
    about = f"{block.tag}, {block.length:,} characters"
    return f"{block.score:.2f}, {what}: {about}{', ' if block.reason else ''}{block.reason}"


def _key(title: str, remark: str) -> str:
    scores = "".join(
        f'<span style="background: hsl({round(120 * score)} 75% 82%)"> {score:.1f} </span>'
        for score in (0, 0.2, 0.4, 0.6, 0.8, 1)
    )
    comments = f'<span style="background: hsl({_COMMENT_HUE} 75% 82%)"> a comment </span>'
    said = f"<b>{escape(remark[:1].upper() + remark[1:])}.</b> " if remark else ""
    return (
        f'<div id="gc-key">{said}<b>{title}:</b> those in a frame. How likely each is: {scores} '
        f"{comments}. Hold the pointer over a text to see why.</div>"
    )


def _attribute(name: str | bytes, value: str | bytes) -> str:
    return f' {name!s}="{escape(str(value))}"'


def _inner(body: etree._Element) -> str:
    parts = [escape(body.text or "", quote=False)]
    parts += [etree.tostring(one, method="html", encoding="unicode") for one in body]
    return "".join(parts)
