"""Requisites: what pages and style sheets need to be shown."""

from __future__ import annotations

from html import escape
from time import process_time

import pytest

from greencrawl.worker.extract import outline
from greencrawl.worker.extract.sources.css import (
    MOST_BYTES,
    MOST_TOKENS,
    needs_in,
    needs_of,
    urls_in,
)
from greencrawl.worker.extract.sources.gathered import MOST_REFERENCES, MOST_STYLE_CHARACTERS
from greencrawl.worker.extract.sources.srcset import candidates
from greencrawl.worker.extract.sources.wanted import Wanted

URL = "https://h.example/dir/page"


def needed(html: str, **headers: str) -> list[str]:
    wanted = Wanted(requisites=True)
    _, found = outline(html.encode(), URL, "text/html", wanted=wanted, headers=headers)
    return [url.removeprefix("https://h.example/dir/") for url in found.requisites]


@pytest.mark.parametrize(
    "html",
    [
        "<img src=1>", "<img src=' 1 '>", "<img lowsrc=1>", "<img dynsrc=1>",
        "<img srcset='1 2x'>", "<picture><source srcset='1'></picture>",
        "<link rel=stylesheet href=1>", "<link rel='Alternate StyleSheet' href=1>",
        "<link rel='shortcut icon' href=1>", "<link rel=apple-touch-icon href=1>",
        "<link rel=preload href=1>", "<link rel=preload imagesrcset='1 9w'>",
        "<link rel=modulepreload href=1>", "<link rel=manifest href=1>",
        "<link rel=prefetch href=1>", "<script src=1></script>",
        "<audio src=1></audio>", "<video poster=1></video>", "<video src=1></video>",
        "<video><source src=1><track></video>", "<video><track src=1></video>",
        "<object data=1></object>", "<embed src=1>", "<applet archive=1></applet>",
        "<input type=IMAGE src=1>", "<body background=1>", "<table background=1></table>",
        "<table><tr><td background=1></table>", "<html manifest=1>",
        "<svg><image xlink:href=1 /></svg>", "<svg><image href=1 /></svg>",
        "<svg><use href='1#part' /></svg>", "<svg><script xlink:href=1></script></svg>",
        "<svg><filter><feImage href=1 /></filter></svg>",
        "<p style='background: url(1)'>", "<style>@import '1';</style>",
        "<noscript><img src=1></noscript>",
        f"<iframe srcdoc='{escape('<img src=1>')}'></iframe>",
    ],
)  # fmt: skip
def test_requisite_of_a_page_is_found_in_each_kind_of_element(html: str) -> None:
    assert needed(html) == ["1"]


@pytest.mark.parametrize(
    "html",
    [
        "<a href=1>", "<iframe src=1></iframe>", "<link rel=next href=1>", "<img src='#1'>",
        "<link rel=dns-prefetch href=1>", "<link rel=preconnect href=1>", "<link href=1>",
        "<input src=1>", "<svg><use href='#part' /></svg>", "<img src='data:image/gif;base64,R0'>",
        "<img data-src=1>", "<!-- <img src=1> -->", "<script>'<img src=1>'</script>",
        "<p title='url(1)'>", "<img src=about:blank>", "<img src=ftp://h/1>", "<img src>",
    ],
)  # fmt: skip
def test_other_references_of_a_page_are_no_requisites(html: str) -> None:
    assert needed(html) == []


def test_each_requisite_is_listed_once_and_resolved_with_the_base() -> None:
    html = "<base href=//cdn.example/><img src=1><img src=1><script src=/2></script>"
    assert needed(html) == ["https://cdn.example/1", "https://cdn.example/2"]


def test_link_header_can_name_requisites() -> None:
    assert needed("<p>x", link="<1>; rel=preload; as=style, <2>; rel=next") == ["1"]


def test_requisites_are_not_read_by_default() -> None:
    _, found = outline(b"<img src=1><style>@import '1'</style>", URL, "text/html")
    assert list(found.requisites) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", ["1"]),
        ("1 1x, 2 2x", ["1", "2"]),
        (" 1,2 ", ["1,2"]),
        ("1, 2", ["1", "2"]),
        ("1,,, 2 , 3", ["1", "2", "3"]),
        (",1 100w,2 200w", ["1", "2"]),
        ("1 (a,b) 1x,2", ["1", "2"]),
        ("1 (a,b", ["1"]),
        ("data:image/gif;base64,R0 1x, 2", ["data:image/gif;base64,R0", "2"]),
        ("", []),
        (" , ", []),
    ],
)
def test_urls_of_a_srcset_are_read(text: str, expected: list[str]) -> None:
    assert list(candidates(text)) == expected


@pytest.mark.parametrize(
    ("sheet", "expected"),
    [
        ("a{background:url(1)}", ["1"]),
        ("a{background: URL( '1' ) , url(\"2\")}", ["1", "2"]),
        ("@import '1'; @import url(2) screen; @IMPORT/**/\"3\" layer(x);", ["1", "2", "3"]),
        ("@font-face{src:local('no'),url(1)format('woff2'),url(2)}", ["1", "2"]),
        (
            "a{b:image-set('1' 1x, url(2) type('no') 2x, \"3\" type(\"no\"))} c{d:'no'}",
            ["1", "2", "3"],
        ),
        ("a{b:-webkit-image-set(url(1) 1x)}", ["1"]),
        ("/* url(no) @import 'no' */ a{content:'url(no)'; b:url(1)}", ["1"]),
        ("a{b:url(a\\ b\\29 c)} d{e:url('\\000031\\a  2\\\n3')}", ["a b)c", "1\n 23"]),
        ("a{b:my-url(no)} c{d:url()} e{f:url( )}", []),
        ("a{b:url(1", ["1"]),
        ("a{b:url('1", ["1"]),
        ("a{b:'no\n} c{d:url(1)}", ["1"]),
        ("@import-x 'no'; @importer 'no'; a{b:'no'}", []),
        ("@namespace url(http://www.w3.org/2000/svg); a{b:url(1)}", ["1"]),
        ("@NAMESPACE/**/svg/* url( */ URL( 'no' ); @namespace 'no'; @import '1';", ["1"]),
        ("@namespace x;a{b:url(1)}", ["1"]),
        ("a{b:url(\\0)url(\\110000)url(\\d800)}", ["\ufffd"] * 3),
    ],
)
def test_references_of_a_style_sheet_are_read(sheet: str, expected: list[str]) -> None:
    assert list(urls_in(sheet)) == expected


def test_style_sheet_says_what_it_imports() -> None:
    sheet = "@import '1'; @import/**/url(2); @import url('3') x; a{b:url(4)} image-set('5' 1x)"
    assert list(needs_in(sheet)) == [
        ("1", True), ("2", True), ("3", True), ("4", False), ("5", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("url(中)".encode(), "text/css"),
        ("url(中)".encode("gbk"), "text/css; charset=gb2312"),
        (b'@charset "gbk";' + "url(中)".encode("gbk"), "text/css"),
        (b"\xef\xbb\xbf" + "url(中)".encode(), "text/css; charset=gbk"),
        (b"\xff\xfe" + "url(中)".encode("utf-16le"), "text/css"),
    ],
)
def test_style_sheet_is_read_in_its_encoding(body: bytes, content_type: str) -> None:
    assert list(needs_of(body, content_type)) == [("中", False)]


@pytest.mark.parametrize(
    "piece",
    [
        "url(", "url('", "url( ", 'url("\\', "@import ", "@import/*", "@import'", "/*", "'", '"\\',
        "\\",
        "image-set(", "image-set('a' ", "image-set((", "image-set(type(", "(", "'a' ", "url(a)",
        "image-set(''", "image-set(url(", "@import/**/", "@import url(", "@namespace ",
        "@namespace a", "@namespace/*", "@namespace url(", "@namespace x'", "@namespace u",
    ],
)  # fmt: skip
def test_style_sheet_takes_time_by_its_length_alone(piece: str) -> None:
    began = process_time()
    assert len(list(urls_in(piece * (MOST_BYTES // len(piece))))) <= 2 * MOST_TOKENS
    assert process_time() - began < 1.5


def test_style_sheet_is_read_to_a_bound() -> None:
    body = b"url(1)" + b" " * MOST_BYTES + b"url(2)"
    assert list(needs_of(body, "text/css")) == [("1", False)]
    assert len(list(urls_in("url(1)" * (MOST_TOKENS + 1)))) == MOST_TOKENS


@pytest.mark.parametrize("piece", [",", " ", "a ", "a,", "a (", "a ()", "a (,", "(", ")"])
def test_srcset_takes_time_by_its_length_alone(piece: str) -> None:
    began = process_time()
    list(candidates(piece * (1_000_000 // len(piece))))
    assert process_time() - began < 1.5


def test_number_of_requisites_of_a_page_is_bounded() -> None:
    began = process_time()
    assert (
        len(needed("".join(f"<img src={n}>" for n in range(MOST_REFERENCES + 9))))
        == MOST_REFERENCES
    )
    styles = "".join(f"<p style='a:url({n})'>" for n in range(MOST_REFERENCES + 9))
    assert len(needed(styles)) == MOST_REFERENCES
    assert process_time() - began < 3


@pytest.mark.parametrize("tag", ["style", "p"])
def test_styles_of_a_page_are_read_to_a_bound_in_all(tag: str) -> None:
    def styled(text: str) -> str:
        return f"<style>{text}</style>" if tag == "style" else f"<p style='{text}'></p>"

    half = " " * (MOST_STYLE_CHARACTERS // 2 - 12)
    html = styled("a:url(1)" + half) + styled("a:url(2)" + half) + styled("a:url(3)")
    assert needed(html) == ["1", "2", "3"]
    assert needed(html + styled("a:url(4)")) == ["1", "2", "3"]
    assert needed(styled("a:url(1)" + half * 2 + " " * 20) + styled("a:url(2)")) == ["1"]


def test_styles_by_the_megabyte_take_little_time() -> None:
    """They refer to nothing, so no other bound ends the reading."""
    html = ("<style>" + 'url("")' * 20_000 + "</style>") * 50
    _, took = timed(html, requisites=False)
    found, more = timed(html, requisites=True)
    assert found == []
    assert more - took < 0.3


def timed(html: str, *, requisites: bool) -> tuple[list[str], float]:
    """Return the requisites, and the CPU seconds that they took: the best of three."""
    took = []
    for _ in range(3):
        began = process_time()
        _, found = outline(html.encode(), URL, "text/html", wanted=Wanted(requisites=requisites))
        took.append(process_time() - began)
    return list(found.requisites), min(took)
