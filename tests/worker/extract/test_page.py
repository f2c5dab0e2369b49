"""Extraction: title, text, language and directives, and bodies that are not pages."""

from __future__ import annotations

import time

import pytest

from greencrawl.schema.errors import InvalidUrl
from greencrawl.worker.extract import extract, is_html
from greencrawl.worker.extract.hostile import (
    RAW,
    close_raw,
    flatten,
    has_attribute_bomb,
    hides_attribute_bomb,
)

URL = "https://example.org/docs/index.html"


def test_page_is_read_whole() -> None:
    page = extract(
        b"""<!DOCTYPE html><html lang="en-gb"><head><meta charset="utf-8">
        <title> A  title
        of two lines </title><link rel="canonical" href="/docs/"></head>
        <body><h1>Head</h1><p>Some <b>t</b>ext.</p><a href="next.html" rel="Next">on</a></body>""",
        URL,
        "text/html",
    )
    assert page.url == page.base == URL
    assert page.title == "A title of two lines"
    assert page.text == "Head Some text. on"
    assert page.language == "en-GB"
    assert page.canonical == "https://example.org/docs/"
    assert page.encoding == "utf-8"
    assert [(link.url, link.anchor, link.rel) for link in page.links] == [
        ("https://example.org/docs/next.html", "on", "next")
    ]
    assert (page.index, page.follow, page.invalid_links) == (True, True, 0)


# --- text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<ul><li>a<li>b</ul>c", "a b c"),
        ("x<div>y</div>z", "x y z"),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "1 2 3"),
        ("a<br>b<hr>c", "a b c"),
        ("<b>H</b>ello <i>w</i><span>orld</span>", "Hello world"),
        ("a\n\n\t b\r\n&nbsp;&nbsp; c", "a b c"),
        ("a<script>var x = '<p>no</p>'</script><style>p{}</style>b", "ab"),
        ("a<noscript>no</noscript><template>no</template>b", "ab"),
        ("a<!-- no -->b<?no?>", "ab"),
        ("a &lt;b&gt; &amp; &eacute; &#20013; &nosuch;", "a <b> & é 中 &nosuch;"),
        ("<svg><title>no</title></svg>a", "a"),
        ("<pre>a\n  b</pre>", "a b"),
    ],
)
def test_text_of_a_page_is_what_is_visible_and_blocks_separate_words(html: str, text: str) -> None:
    assert extract(f"<body>{html}".encode(), URL, "text/html").text == text


def test_page_that_shows_nothing_without_scripts_is_read_by_its_noscript() -> None:
    body = b"<body><script>x</script><noscript><p>a<p>b <a href=/c>c</a></noscript></body>"
    page = extract(body, URL, "text/html")
    assert page.text == "a b c"
    assert [link.url for link in page.links] == ["https://example.org/c"]


def test_title_of_a_drawing_is_not_taken_for_the_title_of_the_page() -> None:
    body = b"<svg><title>drawing</title></svg><title>document</title>"
    assert extract(body, URL, "text/html").title == "document"
    assert extract(b"<p>none", URL, "text/html").title == ""
    assert len(extract(b"<title>" + b"x" * 9000, URL, "text/html").title) == 1000


# --- language --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ('<html lang="de">', "de"),
        ('<html lang="zh_hans-cn">', "zh-Hans-CN"),
        ('<html lang="EN-us">', "en-US"),
        ('<html xml:lang="fr">', "fr"),
        ('<html lang="es" xml:lang="fr">', "es"),
        ('<html><meta http-equiv="Content-Language" content="pt-BR, en">', "pt-BR"),
        ('<html lang="english please">', ""),
        ('<html lang="x">', ""),
        ('<html lang="">', ""),
        ("<html>", ""),
    ],
)
def test_language_is_a_tag_or_nothing(html: str, language: str) -> None:
    assert extract(html.encode() + b"<p>x", URL, "text/html").language == language


# --- directives ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meta", "index", "follow"),
    [
        ('name="robots" content="noindex"', False, True),
        ('name="ROBOTS" content="NoFollow, max-snippet:3"', True, False),
        ('name="robots" content="noindex,nofollow"', False, False),
        ('name="robots" content="none"', False, False),
        ('name="robots" content="all"', True, True),
        ('name="greencrawl" content="none"', False, False),
        ('name="otherbot" content="none"', True, True),
        ('name="description" content="none"', True, True),
        ('name="" content="none"', True, True),
    ],
)
def test_meta_robots_applies_if_it_addresses_all_agents_or_ours(
    meta: str, index: bool, follow: bool
) -> None:
    page = extract(f"<meta {meta}><p>x".encode(), URL, "text/html", agent="greencrawl")
    assert (page.index, page.follow) == (index, follow)


@pytest.mark.parametrize(
    ("header", "index", "follow"),
    [
        ("noindex", False, True),
        ("NOFOLLOW", True, False),
        ("otherbot: none", True, True),
        ("greencrawl: noindex, nofollow", False, False),
        ("otherbot: noindex, nofollow, greencrawl: nofollow", True, False),
        ("nofollow, otherbot: noindex", True, False),
        ("unavailable_after: 25 Jun 2030 15:00:00 PST, noindex", False, True),
        ("*: none", False, False),
        ("", True, True),
    ],
)
def test_robots_header_applies_if_it_addresses_all_agents_or_ours(
    header: str, index: bool, follow: bool
) -> None:
    page = extract(b"<p>x", URL, "text/html", agent="greencrawl", robots_tag=header)
    assert (page.index, page.follow) == (index, follow)


# --- what is no page -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "head", "expected"),
    [
        ("text/html", b"", True),
        ("TEXT/HTML; charset=utf-8", b"\x00", True),
        ("application/xhtml+xml", b"<?xml", True),
        ("text/html, text/html", b"", True),
        ("text/plain, text/html; charset=utf-8", b"", True),
        ('text/html; charset=utf-8, text/html; a="b,c"', b"", True),
        ("text/html, text/plain", b"", False),
        ("text/html,", b"", True),
        ("application/pdf", b"<html>", False),
        ("image/png", b"<html>", False),
        ("application/json", b"{}", False),
        ("text/plain", b"<html>", False),
        ("application/rss+xml", b"<rss>", False),
        (None, b"", False),
        (None, b"\xef\xbb\xbf  <!DOCTYPE html>", True),
        ("", b"<html lang=en>", True),
        (None, b"<a href=x>", True),
        (None, b"<!-- note --><p>x", True),
        (None, b"words, then <b>markup</b>", True),
        (None, b"only words", False),
        (None, "\ufeff<html>".encode("utf-16-le"), True),
        (None, "\ufeff<html>".encode("utf-16-be"), True),
        (None, "<html>".encode("utf-16-le"), True),
        (None, "<html>".encode("utf-16-be"), True),
        (None, b'<?xml version="1.0"?><!DOCTYPE html><html xmlns="x">', True),
        (None, b'<?xml version="1.0"?><rss version="2.0">', False),
        (None, b'<?xml version="1.0"?>', False),
        (None, b"%PDF-1.7\n<b>", False),
        (None, b"\x89PNG\r\n\x1a\n\x00\x00<b>", False),
        (None, b"PK\x03\x04<html>", False),
    ],
)
def test_html_is_recognised_by_content_type_or_first_bytes(
    content_type: str | None, head: bytes, expected: bool
) -> None:
    assert is_html(content_type, head) is expected


@pytest.mark.parametrize("content_type", ["application/pdf", "image/png", "application/json"])
def test_other_types_give_an_empty_page(content_type: str) -> None:
    page = extract(b"<title>x</title><a href=/y>z</a>", URL, content_type)
    assert (page.url, page.title, page.text, page.links) == (URL, "", "", [])


@pytest.mark.parametrize(
    "body", [b"", b" \n ", b"\x00", b"\xff\xfe", b"<!-- -->", b"<", b"&", b"</"]
)
def test_almost_empty_body_gives_a_page_without_links(body: bytes) -> None:
    page = extract(body, URL, "text/html")
    assert page.links == []
    assert page.title == ""


@pytest.mark.parametrize("url", ["mailto:a@example.org", "about:blank"])
def test_invalid_url_of_a_page_raises(url: str) -> None:
    with pytest.raises(InvalidUrl):
        extract(b"<p>x", url, "text/html")


# --- hostile bodies --------------------------------------------------------------------------

END = b"<p>end <a href=/end>last</a>"


def test_binary_body_declared_as_html_is_survived() -> None:
    extract(bytes(range(256)) * 4000, URL, "text/html")


def test_text_after_nul_bytes_is_read() -> None:
    page = extract(b"<title>a\x00b</title><p>c\x00d" + END, URL, "text/html")
    assert page.title == "a\N{REPLACEMENT CHARACTER}b"
    assert page.text.endswith("end last")
    assert page.links[-1].url == "https://example.org/end"


def test_xhtml_with_a_prolog_is_read() -> None:
    body = (
        b'<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0'
        b' Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">\n'
        b'<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="cs"><head><title>T</title></head>'
        b'<body><p>p<br/><a href="/x"/></p></body></html>'
    )
    page = extract(body, URL, "application/xhtml+xml")
    assert (page.title, page.text, page.language) == ("T", "p", "cs")
    assert [link.url for link in page.links] == ["https://example.org/x"]


def test_entities_of_a_document_type_are_not_expanded() -> None:
    lines = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    body = f'<!DOCTYPE html [<!ENTITY e0 "boom">{lines}<!ENTITY f SYSTEM "file:///etc/passwd">]>'
    page = extract(body.encode() + b"<p>&e11;&f;" + END, URL, "text/html")
    assert "root:" not in page.text
    assert "boom" not in page.text
    assert page.text.endswith("end last")


@pytest.mark.parametrize(
    "filling",
    [
        b"<div>" * 100_000,
        b"<font><b>" * 200,
        b"<a href=/x><span>" * 50_000,
        b"<p " + b" ".join(b"a%d=1" % n for n in range(30_000)) + b">",
        b"<p " + b'"" \'' * 50_001 + b"'>",
        b"word " * 1_000_000,
        b"<" * 1_000_000,
        b"&" * 1_000_000,
        b"<i/" * 100_000,
        b"<table><tr><td>" * 20_000,
        b"<!-- -- >" * 50_000 + b"-->",
        b"<script>" + b"if (a < b) c('\"');" * 20_000 + b"</script>",
        b"<svg><path d='M" + b" 1,2" * 30_000 + b"'/></svg>",
        b"<img src='data:image/png;base64," + b"AAAA/+==" * 30_000 + b"'>",
    ],
    ids=lambda filling: repr(bytes(filling[:12])),
)
def test_pathological_markup_neither_hangs_nor_hides_what_follows(filling: bytes) -> None:
    began = time.process_time()
    page = extract(b"<title>t</title>" + filling + END, URL, "text/html")
    assert time.process_time() - began < 3
    assert page.title == "t"
    assert page.text.endswith("end last")
    assert page.links[-1].url == "https://example.org/end"


def test_bomb_of_attributes_is_reduced_before_it_is_parsed() -> None:
    bomb = b"<a " + b" ".join(b"a%d=1" % n for n in range(100_000)) + b" href=/lost>x</a>"
    began = time.process_time()
    page = extract(b"<p>before</p><style>p{}</style>" + bomb + END, URL, "text/html")
    assert time.process_time() - began < 3
    assert page.text == "before x end last"
    assert [link.url for link in page.links] == ["https://example.org/end"]


@pytest.mark.parametrize(
    ("before", "after", "bomb"),
    [
        (b"<p", b">", True),
        (b"<p", b"", True),
        (b"<p>", b"</p>", False),
        (b"<script>if (a <b", b"</script>", False),
        (b"<script></script><i", b">", True),
        (b"<style>", b"</style>", False),
        (b"<p title='", b"'>", False),
    ],
)
def test_only_a_tag_can_be_an_attribute_bomb(before: bytes, after: bytes, bomb: bool) -> None:
    words = b"".join(b" a%d" % n for n in range(10_000))
    assert has_attribute_bomb(b"<html>" + before + words + after) is bomb


@pytest.mark.parametrize(
    ("begin", "one", "end", "bomb"),
    [
        (b"<p", b" a%d='>'", b">", True),
        (b"<p", b' a%d = "<p>"', b">", True),
        (b"<p", b"/a%d='>'", b"/>", True),
        (b'<p x=y"', b" a%d='>'", b' z=">', True),  # a quote within an unquoted value
        (b'<p "', b" a%d='>'", b' z=">', True),
        (b"<p>", b"<i a%d='>'>", b"</p>", False),
        (b"<p title='", b' a%d=">"', b"'>", False),
        (b"<!--", b"<p a%d='>'", b"-->", False),
        (b"<script>", b"<p a%d='>'", b"</script>", False),
    ],
)
def test_a_tag_end_within_a_value_does_not_hide_an_attribute_bomb(
    begin: bytes, one: bytes, end: bytes, bomb: bool
) -> None:
    many = b"".join(one % n for n in range(5_000))
    assert hides_attribute_bomb(b"<html>" + begin + many + end) is bomb


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize(
    "around", ["<svg>{}</svg>", "<svg><g>{}</g></svg>", "<p><MATH>{}</MATH>", "<svg><svg/>{}</svg>"]
)
def test_an_unclosed_element_in_a_drawing_ends_with_the_drawing(name: str, around: str) -> None:
    html = "<title>T</title><p>before" + around.format(f"<{name} id=a>x") + "<a href=/b>behind</a>"
    page = extract(html.encode(), "http://h/")
    assert [link.url for link in page.links] == ["http://h/b"]
    assert (page.title, "behind" in page.text) == ("T", True)


@pytest.mark.parametrize(
    "html",
    [
        "<svg><title>x</title><style>a{}</style></svg><a href=/b>x</a>",
        "<svg><style/><title/></svg><a href=/b>x</a>",
        "<a href=/b>x</a><script>var s = '<svg><style></svg>'</script>",
        "<a href=/b>x</a><textarea><svg></svg>",
        "<a href=/b>x</a><svg><title>x",
        "<!-- <svg><style></svg> --><a href=/b>x</a><style>",
    ],
)
def test_a_page_whose_drawings_hide_nothing_is_parsed_once(
    html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.extract.page.close_raw", None)
    assert [link.url for link in extract(html.encode(), "http://h/").links] == ["http://h/b"]


def test_unclosed_raw_elements_are_closed_where_their_drawing_ends() -> None:
    assert close_raw(b"<style>a</svg></style><svg><title>x</svg>b<SVG><g><Style>y</SVG>c") == (
        b"<style>a</svg></style><svg><title>x</title></svg>b<SVG><g><Style>y</style></SVG>c"
    )
    assert close_raw(b"<!-- <svg><title></svg> --><svg><title/></svg></math><title></svg>") == (
        b"<!-- <svg><title></svg> --><svg><title/></svg></math><title></svg>"
    )


@pytest.mark.parametrize(
    "piece", [b"<svg><style>", b"<svg ", b"<style", b"<!--", b"<svg><title></svg>", b"<svg/", b"<"]
)
def test_closing_raw_elements_takes_bounded_time(piece: bytes) -> None:
    began = time.process_time()
    close_raw(piece * (1_000_000 // len(piece)))
    extract(piece * (500_000 // len(piece)) + b"<svg><style></svg>", "http://h/")
    assert time.process_time() - began < 3.0


def test_search_for_attribute_bombs_takes_linear_time() -> None:
    began = time.process_time()
    has_attribute_bomb(b"<p" + b" x='" * 1_500_000)
    has_attribute_bomb((b"<p" + b" x" * 9_000 + b">") * 300)
    for filling in (b" x='", b'="', b' a=b"', b"='>", b"<p a=", b"<p a=' ", b"a" * 99 + b"\n="):
        hides_attribute_bomb(b"<p a='>'>" + b"<p" + filling * (1_000_000 // len(filling)))
    assert time.process_time() - began < 3


@pytest.mark.parametrize("unit", ["word ", "wordwordwo", "港は", "&amp; ", "a < b "])
def test_a_text_longer_than_the_parser_takes_is_read_whole(unit: str) -> None:
    count = 10_500_000 // len(unit.encode())
    body = f"<html><body><p>before<p>{unit * count}<p>after</body>".encode()
    text = extract(body, "http://h/", "text/html; charset=utf-8").text
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert "\ufffd" not in text
    sign = unit.replace("&amp;", "&").strip()[0]
    assert text.count(sign) - "before  after".count(sign) == count * unit.count(sign)


def test_flattening_keeps_all_bytes_that_begin_no_character() -> None:
    assert flatten(b"<p>" + b"\x80" * 9_100_000).count(b"\x80") == 9_100_000


def test_flattened_page_keeps_inline_words_together() -> None:
    page = extract(b"<b>H</b><i>ello</i><ul><li>a<li>b" + b"<font>" * 400 + END, URL, "text/html")
    assert page.text == "Hello a b end last"


@pytest.mark.parametrize("tag", ["main", "article", "section", "header", "nav", "x-page"])
def test_text_is_read_if_the_parser_puts_it_into_the_head(tag: str) -> None:
    """Pages may leave out head and body, and libxml2 knows no element of HTML 5."""
    for head in ("<title>x</title>", "<meta charset=utf-8><title>x</title>"):
        body = f"<!doctype html>{head}<{tag}><p>one</p></{tag}><p>two".encode()
        page = extract(body, "http://h/", "text/html")
        assert (page.title, page.text) == ("x", "one two")
