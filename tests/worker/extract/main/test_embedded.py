"""Main text of pages that show nothing: their data contains it."""

from __future__ import annotations

import json
import time
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from greencrawl.worker.extract import main
from greencrawl.worker.extract.main import embedded, text
from greencrawl.worker.extract.main.embedded import MOST_DATA, data_of
from greencrawl.worker.extract.main.library import extract, picture_of
from greencrawl.worker.extract.page import tree_of
from tests.worker.extract.main.test_main_text import ARTICLE, MENU, STORY

needs_compiled = pytest.mark.skipif(not main.available(), reason="nothing was compiled")

HEAD = "<head><title>When the harbour froze - The Herald</title></head>"
PLAIN = "\n\n".join(STORY)
MARKUP = "".join(f'<p class="x" onclick="y()">{one}</p>' for one in STORY)
NODES = [
    {"type": "paragraph", "content": [{"type": "text", "text": part} for part in halves]}
    for halves in ((one[:20], one[20:]) for one in STORY)
]
TEASERS = [{"title": f"Storms of {year}", "url": f"/{year}", "tag": "news"} for year in range(9)]


def post(body: object) -> dict[str, object]:
    """Return the state of a page, as frameworks write it."""
    return {
        "props": {"pageProps": {"post": {"title": "When the harbour froze", "content": body},
                                "related": TEASERS, "messages": {"offer": PLAIN.upper()}}},
        "buildId": "d41d8cd98f00b204", "query": {"slug": "harbour"},
    }  # fmt: skip


def script(kind: str, value: object) -> str:
    return f"<script {kind}>{json.dumps(value)}</script>"


NEXT = "id=__NEXT_DATA__ type=application/json"
SHELLS = {
    "JSON-LD": script("type=application/ld+json", {"@type": "Article", "articleBody": PLAIN}),
    "markup in the state": script(NEXT, post(MARKUP)),
    "plain text in the state": script(NEXT, post(PLAIN)),
    "nodes of an editor": script(NEXT, post({"type": "doc", "content": NODES})),
    "a list of places": script("type=application/json id=__NUXT_DATA__", [[1, 2], *STORY]),
    "assigned": f"<script>window.__STATE__ = {json.dumps(post(PLAIN))};go()</script>",
    "parsed": f"<script>var state = JSON.parse({json.dumps(json.dumps(post(PLAIN)))})</script>",
    "an attribute": f'<div id=app data-page="{escape(json.dumps(post(PLAIN)))}"></div>',
    "JSON in JSON": script(NEXT, {"topic": json.dumps(post(PLAIN))}),
}


def tree(body: str) -> etree._Element:
    root, _ = tree_of(f"<html>{HEAD}<body>{body}</body></html>".encode())
    assert root is not None
    return root


@needs_compiled
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("shown", ["", "<div>Please wait.</div>"])
def test_main_text_of_a_page_without_text_is_read_from_its_data(shell: str, shown: str) -> None:
    root = tree(shown + SHELLS[shell])
    found = main.main_text(root)
    assert all(paragraph in found for paragraph in STORY)
    assert PLAIN.upper() not in found
    assert "Storms of 3" not in found
    assert main.data_instead(root) is not None
    assert STORY[2] in main.markdown(root, "http://h/")


@needs_compiled
def test_each_chinese_character_of_embedded_data_counts_as_a_word() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 70))) + "。"
    assert main.main_text(tree(script("type=application/ld+json", {"articleBody": text}))) == text
    latin = "a few words of a page, " * 3
    assert main.main_text(tree(script("type=application/ld+json", {"articleBody": latin}))) == ""


@needs_compiled
def test_embedded_data_are_not_read_if_the_page_shows_its_text() -> None:
    other = script("type=application/ld+json", {"articleBody": PLAIN.upper() * 20})
    more = "".join(f"<p>{one} So it was told later." for one in STORY)
    body = ARTICLE.replace("</article>", f"{more}</article>{other}")
    root, _ = tree_of(body.encode())
    assert root is not None
    assert PLAIN[:80].upper() not in main.main_text(root)
    assert main.data_instead(root) is None
    assert {block.embedded for block in main.judged(root)} == {""}


@needs_compiled
@pytest.mark.parametrize("shown", [MENU * 20, f"<p>{STORY[0]}"])
def test_embedded_data_are_not_read_if_they_hold_no_more_than_the_page_shows(shown: str) -> None:
    data = script("type=application/ld+json", {"articleBody": STORY[1]})
    assert main.data_instead(tree(shown + data)) is None


@needs_compiled
def test_each_block_names_the_embedded_data_that_it_comes_from() -> None:
    page = extract(f"<html>{HEAD}<body>{SHELLS['JSON-LD']}".encode(), "http://h/", "text/html")
    assert {block.embedded for block in page.blocks} == {"JSON-LD"}
    assert [block.text for block in page.blocks if block.chosen] == STORY
    assert "embedded data (JSON-LD)" in page.remark
    drawn = picture_of(page)
    assert "embedded data (JSON-LD)" in drawn
    assert STORY[1] in drawn


@needs_compiled
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", "shows no text"),
        ("<script>go()</script>", "shows no text without its 1 script"),
        ("<script>go()</script><script>stop()</script>", "shows no text without its 2 scripts"),
        ("<p>Some.", ""),
    ],
)
def test_the_remark_says_why_a_page_shows_no_text(body: str, expected: str) -> None:
    page = extract(f"<html><body>{body}".encode(), "http://h/", "text/html")
    assert page.remark.removeprefix("the page ") == expected
    assert expected[6:] in picture_of(page)


def test_the_remark_says_that_a_document_is_not_html() -> None:
    assert main.remark(None).startswith("it is not HTML")


TEXT = "Who had thought of that?"


@pytest.mark.parametrize(
    "value",
    [
        {"url": "https://example.org/a b", "css": "a { color: red }", "id": "a1", "n": 7},
        {"messages": {"a": TEXT}, "Config": TEXT},
        "<script>var text = 1;</script>",
        {"code": "function f() { return 1 }"},
    ],
)  # fmt: skip
def test_values_of_embedded_data_that_are_no_text_are_left_out(value: object) -> None:
    assert data_of(tree(script(NEXT, value)), "") is None


def test_embedded_markup_is_reduced_to_its_structure_and_the_urls_of_links() -> None:
    value = f'<h2 id=a>One head</h2><p style="x">{TEXT} <a class=b href="/x?a=1">this one</a><svg>'
    data = data_of(tree(script(NEXT, {"body": value})), "")
    assert data is not None
    assert [one.text for one in data.root.iter("h2")] == ["One head"]
    assert [dict(one.attrib) for one in data.root.iter("a", "p")] == [{}, {"href": "/x?a=1"}]
    assert not list(data.root.iter("svg"))


def test_characters_of_all_scripts_are_kept_in_embedded_data() -> None:
    said = "港は一月に凍った。 Лёд и ветер \ud83d!"
    data = data_of(tree(f"<script>var a = {json.dumps([said])}</script>"), "港")
    assert data is not None
    assert "".join(data.root.itertext()) == f"港港{said}".replace("\ud83d", "?")


DEEP = 100_000
HOSTILE = {
    "depth": script(NEXT, "x").replace('"x"', '{"a":' * DEEP + f'"{TEXT}"' + "}" * DEEP),
    "depth, assigned": f"<script>var a = {'[' * DEEP}</script>",
    "many assigned": f"<script>{'var a = [' * DEEP}</script>",
    "many values": script(NEXT, [TEXT] * 30_000),
    "a long text": script(NEXT, f"{TEXT} " * 60_000),
    "too much": script(NEXT, f"{TEXT} " * (MOST_DATA // 20)),
    "tags": script(NEXT, f"{TEXT} " + "<div><p " * 20_000),
    "unclosed": script(NEXT, f"{TEXT} " + "<b>x" * 20_000),
    "scripts in it": script(NEXT, f"{TEXT} <p>" + "<script" * 100_000),
    "a number": script(NEXT, 1).replace("1", "1" * 1_000_000),
    "JSON in JSON in JSON": script(NEXT, json.dumps([json.dumps(["[" * DEEP + "]"])])),
    "a long key": script(NEXT, {"K" * 100_000: [TEXT] * 15_000}),
    "attributes": f"<div data-a='{json.dumps([TEXT] * 100).replace('[', '{')}'>" * 100,
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_work_for_hostile_embedded_data_is_bounded(case: str) -> None:
    root = tree(HOSTILE[case])
    began = time.process_time()
    data = data_of(root, "a title " * 600_000)
    assert time.process_time() - began < 1
    assert data is None or len(etree.tostring(data.root)) < 3 * MOST_DATA


PIECES = st.sampled_from(
    ["{", "}", "[", "]", '"', ",", ":", '"a b c"', "1", "<p>", "</p>", "var a ="]
)


@given(st.lists(PIECES | st.text(max_size=8), max_size=40).map("".join))
def test_reading_embedded_data_never_raises(pieces: str) -> None:
    for kind in (NEXT, "", "type=application/ld+json"):
        root = tree(f"<script {kind}>{pieces}</script><div data-a='{escape(pieces * 60)}'>")
        data_of(root, pieces)


def test_bounds_for_embedded_data_are_those_of_the_docs() -> None:
    assert (MOST_DATA, embedded.MOST_VALUES, text.SHELL_SIGNS) == (2_097_152, 20_000, 600)
