"""From the bytes of a page to its record, reading the tree once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise, resolved
from greencrawl.schema.records import Directives, Page
from greencrawl.worker.extract.charset import sniff, to_utf8
from greencrawl.worker.extract.directives import of_headers, with_metas
from greencrawl.worker.extract.hostile import (
    TooExpensive,
    close_raw,
    flatten,
    has_attribute_bomb,
    hides_attribute_bomb,
    swallows,
)
from greencrawl.worker.extract.language import tag
from greencrawl.worker.extract.links import (
    FEW,
    NOTHING,
    READ,
    References,
    Resolved,
    base_of,
    collect,
    live,
    references,
    walked,
)
from greencrawl.worker.extract.main import plain, spans_of
from greencrawl.worker.extract.media import is_html, is_plain
from greencrawl.worker.extract.sources.gather import gather
from greencrawl.worker.extract.sources.headers import READ as READ_HEADERS
from greencrawl.worker.extract.sources.wanted import USUAL, Wanted
from greencrawl.worker.extract.text import collapse, compiled, html_parser, read_text

MAX_TITLE = 1000
"""At most this many characters of a title are kept."""

_HEAD_BYTES = 1024

_parser = html_parser()


_FLATTENED = 256 * 1024
"""A longer page takes tens of milliseconds to flatten."""
_SMALL = 16 * 1024
"""A shorter page cannot hold attributes that take long."""


def _unbounded(
    seconds: float, bounded: bool, body: bytes, parser: etree.HTMLParser
) -> etree._Element | None:
    return etree.fromstring(body, parser)


# The arguments begin with the CPU seconds that the parse may take (0: any number), and whether its
# tree has to be small. A parse that exceeds these limits raises TimeoutError.
_read: Callable[[float, bool, bytes, etree.HTMLParser], etree._Element | None] = _unbounded


def bound_parses() -> bool:
    """From now on, end parses of this process that take too much; see ``bounds.c``.

    Return False if nothing was compiled.
    """
    global _read
    if compiled is None or not compiled.watch(etree.__file__):
        return False
    _read = partial(compiled.bounded, etree.fromstring)
    return True


def stops() -> bool:
    """Return whether a parse in this process is stopped when it takes too much CPU."""
    return _read is not _unbounded


def parsed(
    body: bytes, parser: etree.HTMLParser, seconds: float, bounded: bool = False
) -> etree._Element | None:
    """Return the root of a tree.

    Raises TooExpensive if a parse can be stopped and takes more CPU than ``seconds``, or if it is
    ``bounded`` and its tree is large.
    """
    try:
        return _read(seconds, bounded, body, parser)
    except TimeoutError:
        raise TooExpensive(seconds) from None


def tree_of(
    body: bytes, content_type: str | None = None, seconds: float = 0.0, brief: bool = False
) -> tuple[etree._Element | None, str]:
    """Return the root of a document's tree, None if there is nothing to parse; and its encoding.

    Raises TooExpensive like :func:`outline`.
    """
    encoding, skipped = sniff(body, content_type)
    return _parse(to_utf8(body[skipped:] if skipped else body, encoding), seconds, brief), encoding


def extract(
    body: bytes,
    url: str,
    content_type: str | None = None,
    *,
    agent: str = "",
    robots_tag: str = "",
    anchors: bool = True,
) -> Page:
    """Read title, text, language, links and directives of an HTML document, or one of plain text.

    ``url`` is the URL it was fetched from, ``content_type`` the header with its charset. ``agent``
    is our product token in lower case, which a page may name; ``robots_tag`` is its X-Robots-Tag
    header; ``anchors``: texts of links are wanted. The bytes never cause an error: what is neither
    HTML nor text gives an empty Page. Raises :class:`InvalidUrl` if ``url`` is invalid.
    """
    page, found = outline(
        body,
        url,
        content_type,
        agent=agent,
        said=of_headers({"x-robots-tag": robots_tag}, (), agent),
        anchors=anchors,
    )
    add_links(page, found)
    return page


def add_links(
    page: Page, found: References | Resolved, said: list[tuple[str, str]] | None = None
) -> None:
    """Put the links that :func:`outline` ``found`` into ``page``.

    ``said`` gets the URL and the text of each link.
    """
    page.links, page.invalid_links, page.omitted_links = collect(
        found, page.base, page.encoding, said
    )


def outline(
    body: bytes,
    url: str,
    content_type: str | None = None,
    *,
    agent: str = "",
    said: Directives | None = None,
    anchors: bool = False,
    texts: bool = False,
    samples: bool = True,
    spans: bool = False,
    main_seconds: float = 0.0,
    seconds: float = 0.0,
    brief: bool = False,
    headers: Mapping[str, str] = NOTHING,
    wanted: Wanted = USUAL,
    roots: list[etree._Element] | None = None,
) -> tuple[Page, References | Resolved]:
    """Read a page as :func:`extract` does; return it, and the references that become its links.

    ``said`` has the directives in the answer's headers; the page's own ones are added. With
    ``seconds`` it raises TooExpensive if its parse takes more CPU than that; only the part in C can
    stop it (:func:`bound_parses`). With ``brief`` it also raises TooExpensive if the page is long
    and has to be flattened, or its tree is large. Without ``anchors`` the texts of links cannot be
    read afterwards, ``url`` has to be canonical, and a few references (up to :data:`FEW`)
    come resolved. With ``texts`` it also reads the texts of links, beside the resolved references,
    or for :func:`add_links`. With ``samples`` it takes samples of the text. With ``spans`` it finds
    the spans of the main text; they are b"" if nothing was compiled, or if they would take more CPU
    than ``main_seconds``, unless these are 0. ``headers`` are the answer's header fields with
    lower-case names; ``wanted`` has the sources of links. ``roots`` gets the root of the tree if
    there is one.
    """
    if not is_html(content_type, body[:_HEAD_BYTES]):
        return _no_html(body, url, content_type, said, spans), References([], [])
    root, encoding = tree_of(body, content_type, seconds, brief)
    if root is None:
        return _empty(url, encoding, said), References([], [])
    if roots is not None:
        roots.append(root)
    page, found = _outline(
        root, encoding, url, agent, said, anchors, texts, samples, headers, wanted
    )
    if spans:
        page.spans = spans_of(root, page.text, main_seconds)
    return page, found


def extract_with_tree(
    body: bytes, url: str, content_type: str | None = None
) -> tuple[Page, etree._Element | None]:
    """Return what :func:`extract` reads, and the root of the tree; None if there is none."""
    if not is_html(content_type, body[:_HEAD_BYTES]):
        return _no_html(body, url, content_type, None, spans=True), None
    root, encoding = tree_of(body, content_type)
    if root is None:
        return _empty(url, encoding, None), None
    page, found = _outline(root, encoding, url, anchors=True)
    add_links(page, found)
    return page, root


def _outline(
    root: etree._Element,
    encoding: str,
    url: str,
    agent: str = "",
    said: Directives | None = None,
    anchors: bool = False,
    texts: bool = False,
    samples: bool = True,
    headers: Mapping[str, str] = NOTHING,
    wanted: Wanted = USUAL,
) -> tuple[Page, References | Resolved]:
    """Run :func:`outline` on a tree."""
    found: References | Resolved
    base: str | None = None
    quick = None
    if not anchors and wanted.plain:
        quick = walked(root, url, encoding, agent, texts, samples)
    if quick is not None:
        text, found, others, taken = quick
    else:
        text, taken = read_text(root, url, samples)
        elements = list(live(root, *READ))
        tags = [element.tag for element in elements]
        others = [element for element, tag in zip(elements, tags, strict=True) if tag != "a"]
        base = base_of(others, url, encoding)
        anchors = anchors or texts
        if not wanted.plain:
            elements = [element for element in elements if wanted.reads(element.tag)]
            tags = [element.tag for element in elements]
        found = references(elements, tags, has_base=base is not None, anchors=anchors)
        if not anchors and len(found.texts) <= FEW:
            found = Resolved(resolved(found.texts, base or url, encoding), found.rels)
    tagged = [(element.tag, element) for element in others]
    metas = [element for name, element in tagged if name == "meta"]
    if metas:
        said = with_metas(said, _named(metas, ("robots", agent, "tdm-reservation", "tdm-policy")))
    words = () if said is None else said.robots
    frames = [one for name, one in tagged if name == "iframe" and one.get("srcdoc")]
    if frames or wanted.further or not READ_HEADERS.isdisjoint(headers):
        more = gather(root, frames, url, base or url, encoding, headers, wanted, texts)
        found = found._replace(
            more=more.links, requisites=more.requisites, said=more.said, forms=more.forms
        )
    page = Page(
        url=url,
        title=_title(tagged),
        text=text,
        language=_language(root, metas),
        canonical=_canonical(tagged, base or url, encoding),
        base=base or url,
        encoding=encoding,
        index="noindex" not in words,
        follow="nofollow" not in words,
        samples=taken,
        directives=said,
    )
    return page, found


def _empty(url: str, encoding: str, said: Directives | None) -> Page:
    """Return a page without content: only its headers were read."""
    words = () if said is None else said.robots
    index, follow = "noindex" not in words, "nofollow" not in words
    return Page(url=url, base=url, encoding=encoding, index=index, follow=follow, directives=said)


def _no_html(
    body: bytes, url: str, content_type: str | None, said: Directives | None, spans: bool
) -> Page:
    """Return a page of plain text, all of which is its main text; for other content, an empty
    page."""
    page = _empty(url, "utf-8", said)
    if is_plain(content_type, url, body[:_HEAD_BYTES]):
        found = plain.read(body, content_type)
        page.title, page.text, page.encoding = found.title, found.text, found.encoding
        if spans:
            page.spans = found.spans
    return page


def _parse(body: bytes, seconds: float = 0.0, brief: bool = False) -> etree._Element | None:
    """Return the root of the tree, or None if there is nothing to parse.

    Raises TooExpensive like :func:`outline`.
    """
    if len(body) > _SMALL:
        if not brief or _read is _unbounded:
            bomb = hides_attribute_bomb(body)
        else:  # the parser is stopped in time, so nothing need be known beforehand
            bomb = len(body) <= _FLATTENED and has_attribute_bomb(body)
        if bomb:
            body = _flattened(body, brief)
    root = parsed(body, _parser, seconds, brief)
    last = _parser.error_log.last_error
    if last is not None and last.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT:
        root = parsed(_flattened(body, brief), _parser, seconds, brief)
    if root is not None and swallows(root):
        root = None  # the next tree uses its memory
        root = parsed(close_raw(body), _parser, seconds, brief)
    if last is not None and root is not None and next(root.iter("template"), None) is not None:
        _open_templates(root)
    return root


def _open_templates(root: etree._Element) -> None:
    """Mark templates as shown if one of them may contain the rest of the page by mistake.

    An open element in a template, such as a ``td``, hides the template's end from the parser, which
    reports that.
    """
    said = "Opening and ending tag mismatch: template "
    if any(error.message.startswith(said) for error in _parser.error_log):
        for template in root.iter("template"):
            template.set("shadowrootmode", "open")


def _flattened(body: bytes, brief: bool) -> bytes:
    if brief and len(body) > _FLATTENED:
        raise TooExpensive(0.0)
    return flatten(body)


def _title(elements: list[tuple[str, etree._Element]]) -> str:
    for name, element in elements:
        if name != "title":
            continue
        parent = element.getparent()
        if parent is None or parent.tag != "svg":
            return collapse((element.text or "")[: 4 * MAX_TITLE])[:MAX_TITLE]
    return ""


def _named(metas: list[etree._Element], names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return names and contents of ``<meta name=…>`` for names in lower case."""
    return [
        (name, meta.get("content", ""))
        for meta in metas
        if (name := meta.get("name", "").strip().lower()) and name in names
    ]


def _language(root: etree._Element, metas: list[etree._Element]) -> str:
    """Return the language of the root's lang or xml:lang, else of a content-language meta."""
    declared = root.get("lang") or root.get("xml:lang") or ""
    if not declared:
        for meta in metas:
            if meta.get("http-equiv", "").strip().lower() == "content-language":
                declared = meta.get("content", "")
                break
    return tag(declared)


def _canonical(elements: list[tuple[str, etree._Element]], base: str, encoding: str) -> str | None:
    """Return what the first ``<link rel="canonical">`` names, None if that is not http(s)."""
    for name, element in elements:
        if name == "link" and "canonical" in element.get("rel", "").lower().split():
            try:
                return canonicalise(element.get("href", ""), base, encoding)
            except InvalidUrl:
                return None
    return None
