"""The visible text of a page: plain, in one line, in a single pass of C code."""

from __future__ import annotations

from lxml import etree

from greencrawl.worker.extract import speedups

_WORDS_END = """
    address article aside blockquote br button caption center dd details dialog dir div dl dt
    fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr img input legend li main
    menu nav ol option p pre search section select summary table tbody td textarea tfoot th thead
    tr ul
"""
BLOCKS = tuple(_WORDS_END.split())
"""Elements before and behind which words end."""

INVISIBLE = ("script", "style", "template", "iframe", "object", "svg", "title")
"""Elements of which nothing is read; nor is ``noscript``, unless nothing else can be."""

compiled = speedups.load(BLOCKS, INVISIBLE)


def html_parser() -> etree.HTMLParser:
    """A parser of UTF-8 that reads nothing else and keeps neither comments nor instructions.

    lxml's expands no declared entities and loads no DTD, so it has no switches for these;
    ``huge_tree`` stays off, which bounds the depth of the tree and the length of a text node.
    """
    return etree.HTMLParser(
        encoding="utf-8",
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
    )


def _stylesheet(*invisible: str) -> etree.XSLT:
    return etree.XSLT(
        etree.XML(
            f"""
            <xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
              <xsl:output method="text" encoding="utf-8"/>
              <xsl:template match="{"|".join(invisible)}"/>
              <xsl:template match="{"|".join(BLOCKS)}">
                <xsl:text> </xsl:text><xsl:apply-templates/><xsl:text> </xsl:text>
              </xsl:template>
            </xsl:stylesheet>
            """
        )
    )


# Words of neighbouring blocks must not run together ("<li>a<li>b"), those of inline elements must
# ("<b>H</b>ello"): method="text" knows no blocks, and joining text nodes knows no inline elements.
_visible = _stylesheet(*INVISIBLE, "noscript")
_without_scripts = _stylesheet(*INVISIBLE)

# Python's split and join make an object of every word: 100 µs for 18 KB where this takes 35, and
# normalising within the style sheet, in a variable, doubles its cost on pages of many elements.
_normalize_space = etree.XPath("normalize-space($text)", smart_strings=False)
_anywhere = etree.Element("anywhere")
_NO_BREAK_SPACE = "\xa0".encode()


def text_of(root: etree._Element) -> str:
    """Visible text under ``root``, white space of ASCII and no-break spaces collapsed to spaces.

    Scripts, styles, templates and ``noscript`` are left out; only of a page that shows nothing
    else, as many forums do, ``noscript`` is read. What style sheets hide is not known. The tree is
    not changed.
    """
    if compiled is not None:
        return str(compiled.visible(root, False) or compiled.visible(root, True))
    return by_stylesheet(root)


def read_text(root: etree._Element, url: str, wanted: bool = True) -> tuple[str, bytes]:
    """:func:`text_of`, and samples of it; these are b"" where nothing was compiled, or they are
    not ``wanted``."""
    if not wanted:
        return text_of(root), b""
    if compiled is None:
        return by_stylesheet(root), b""
    text, samples = compiled.sampled(root, False, url)
    if not text:
        text, samples = compiled.sampled(root, True, url)
    return text, samples


def by_stylesheet(root: etree._Element) -> str:
    """:func:`text_of` where nothing was compiled."""
    return _collapsed(_visible(root)) or _collapsed(_without_scripts(root))


def _collapsed(result: etree._XSLTResultTree) -> str:
    """The text of a transformation, runs of ASCII white space and no-break spaces collapsed."""
    text = bytes(result).replace(_NO_BREAK_SPACE, b" ")
    return str(_normalize_space(_anywhere, text=text))


def squeeze(text: str) -> str:
    """Collapse white space, no-break spaces included, to single spaces."""
    return " ".join(text.split())
