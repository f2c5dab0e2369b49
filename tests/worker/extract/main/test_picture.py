"""A picture shows a page in its own layout, with the judgement of each block."""

from __future__ import annotations

import html
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from greencrawl.worker.extract import main
from greencrawl.worker.extract.main.library import extract, picture_of
from greencrawl.worker.extract.main.picture import MARK
from tests.worker.extract.main.test_comments import SAID, with_comments
from tests.worker.extract.main.test_main_text import ARTICLE, HOSTILE, PIECES, STORY

pytestmark = pytest.mark.skipif(not main.available(), reason="nothing was compiled")


def drawn(body: str) -> str:
    return picture_of(extract(body.encode(), "http://h/", "text/html; charset=utf-8"))


def spans(picture: str) -> dict[str, str]:
    """Return the text of each painted piece → what the picture says of it."""
    root = etree.HTML(picture)
    return {
        "".join(one.itertext()): one.get("title") for one in root.iter("span") if one.get("title")
    }


def test_each_block_in_a_picture_shows_its_score_and_the_reason() -> None:
    found = spans(drawn(with_comments("<div id=comments>", "</div>")))
    assert found[STORY[1]].startswith(("0.9", "1.0"))
    assert "main text: p, " in found[STORY[1]]
    assert "in article" in found[STORY[1]]
    assert "left out: li" in found["Topic 3"]
    assert "100 % links" in found["Topic 3"]
    assert "a comment: p" in found[SAID[0]]


def test_blocks_within_one_element_are_painted_separately() -> None:
    first = f"{STORY[0]} <b>bold</b><br><br>{STORY[1]}"
    body = f"<div>{first}<p>{STORY[2]}</p>{STORY[3]} <i>at last</i></div>"
    page = extract(body.encode(), "http://h/")
    said = {block.text: f"{block.length:,} characters" for block in page.blocks}
    found = spans(picture_of(page))
    assert [*found] == [f"{STORY[0]} ", "bold", *STORY[1:3], f"{STORY[3]} ", "at last"]
    assert said[f"{STORY[0]} bold"] in found["bold"]
    assert said[STORY[1]] in found[STORY[1]]
    assert said[f"{STORY[3]} at last"] in found[f"{STORY[3]} "]
    assert said[f"{STORY[3]} at last"] in found["at last"]


@pytest.mark.parametrize("shows", ["", f"<p>{STORY[0] * 10}"])
def test_noscript_is_painted_only_if_it_is_read(shows: str) -> None:
    hidden = f"<noscript>{''.join(f'<p>{p}</p>' for p in STORY * 3)}</noscript>"
    found = spans(drawn(f"<body>{shows}{hidden}<p>behind it"))
    assert (STORY[1] in found) == (shows == "")
    assert "behind it" in found


EVIL = """<title></title><script>alert(1)</script></title>
<body onload="alert(1)" class="a&quot;><script>"><base href="http://evil.example/">
<meta http-equiv=refresh content="0;url=http://evil.example">
<link rel=stylesheet href="http://evil.example/c.css"><style>p { color: red }</style>
<style>@import "http://evil.example/i.css"; p { background: url(http://evil.example/b) }</style>
<img src=http://evil.example/i srcset=x onerror=alert(1)>
<iframe srcdoc="<script>alert(1)</script>"></iframe>
<svg onload=alert(1)><script>alert(1)</script><a xlink:href="javascript:alert(1)">x</a></svg>
<form action=http://evil.example><button formaction=javascript:alert(1)>b</button></form>
<a href="javascript:alert(1)" ping=http://evil.example>a link</a>
<video poster=http://evil.example/p></video>
<p>&lt;script&gt;alert(1)&lt;/script&gt; &lt;img src=x onerror=alert(1)&gt; text</p>
<math><mtext><style><img src=x onerror=alert(1)></style></mtext></math><xmp></xmp>
<script>alert(1)</script><textarea></textarea><script>alert(1)</script>
<p title="x" data-x=y style="background:url(http://evil.example/s)">q"""


def test_a_picture_runs_and_fetches_nothing_of_its_page() -> None:
    picture = drawn(EVIL)
    root = etree.HTML(picture)
    tags = {one.tag for one in root.iter()}
    assert not tags & {"script", "iframe", "link", "base", "svg", "math", "img src", "video", "xmp"}
    names = {name for one in root.iter() for name in one.attrib}
    allowed = {"class", "id", "style", "title", "charset", "http-equiv", "content"}
    assert names <= allowed
    (policy,) = [one.get("content") for one in root.iter("meta") if one.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert picture.index("Content-Security-Policy") < picture.index("<style>")
    assert html.escape("<script>alert(1)</script>", quote=False) in picture
    assert "p { color: red }" in picture
    assert picture.startswith(MARK)


def test_a_style_sheet_in_a_picture_cannot_close_its_element_early() -> None:
    picture = drawn("<p>a<style>p{}</STYLE ><p>b")
    assert len(re.findall("</style", picture, re.IGNORECASE)) == 2


def test_a_picture_says_if_a_document_is_not_html_and_uses_up_the_tree_of_a_page() -> None:
    assert "<b>It is not HTML" in picture_of(extract(b"%PDF-1.7", "http://h/", "application/pdf"))
    page = extract(ARTICLE.encode(), "http://h/")
    assert STORY[1] in picture_of(page)
    with pytest.raises(RuntimeError, match="its picture is made"):
        page.css("p")


@given(
    pieces=st.lists(st.sampled_from([*PIECES, "<select><option>", "<svg>", "<td>"]), max_size=40)
)
def test_any_page_is_drawn(pieces: list[str]) -> None:
    page = extract("".join(pieces).encode(), "http://h/")
    texts = "".join("".join(block.text.split()) for block in page.blocks)
    picture = picture_of(page)
    if texts:
        assert spans(picture)


@pytest.mark.parametrize("kind", ["elements", "deep", "blocks", "links"])
def test_hostile_pages_are_drawn_in_a_bounded_time(kind: str) -> None:
    began = time.process_time()
    assert drawn(HOSTILE[kind]).startswith(MARK)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "body",
    [
        f"<div {{x}} class=a\x08b><p>{STORY[0]}\x08{STORY[1]}<p>{STORY[2]}</div>",
        f"<p style='a\x01b'>{STORY[0]}",
        f"<frameset><img src=http://evil.example/x onerror=alert(1)><p onclick=x()>{STORY[0]}",
    ],
)
def test_names_and_signs_that_no_xml_may_have_are_left_out(body: str) -> None:
    picture = drawn(body)
    assert STORY[0][:40] in picture
    assert not re.search(r"onerror|onclick|evil|[\x01\x08]", picture)
