"""The main text of pages, and the cost of hostile ones."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.worker.extract import main
from greencrawl.worker.extract.main import text
from greencrawl.worker.extract.main.library import extract
from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import BLOCKS

needs_compiled = pytest.mark.skipif(not main.available(), reason="nothing was compiled")

MENU = f"<nav>{''.join(f'<li><a href=/{i}>Topic {i}</a>' for i in range(20))}</nav>"
STORY = [
    "The harbour froze in January, and for the first time in forty years people walked on it.",
    "Nobody had expected the ice to hold, said the harbour master, who measured it every morning.",
    "By the end of the week, there were stalls, skates for hire, and a band that played all night.",
    "Then the wind turned to the south, and on Sunday the fire brigade called everybody back.",
]
FOOT = "<footer><p>Copyright 2026. All rights reserved.</p><a href=/p>Privacy</a></footer>"
ARTICLE = (
    f"<html><head><title>When the harbour froze - The Herald</title></head><body>{MENU}"
    f"<article><h1>When the harbour froze</h1>{''.join(f'<p>{p}</p>' for p in STORY)}</article>"
    f"<aside class=related><h3>Related</h3><ul><li><a href=/x>Storms of the year</a></ul></aside>"
    f"{FOOT}</body></html>"
)
HEAD = "How the ice came"
HEADED = ARTICLE.replace("</p><p>", f"</p><h2>{HEAD}</h2><p>", 1)


def read(body: str) -> str:
    root, _ = tree_of(body.encode())
    assert root is not None
    return main.main_text(root)


@needs_compiled
def test_main_text_of_an_article_excludes_menu_related_links_and_footer() -> None:
    found = read(ARTICLE)
    assert all(paragraph in found for paragraph in STORY)
    assert "Topic" not in found
    assert "rights reserved" not in found
    assert "Storms of the year" not in found


@needs_compiled
@pytest.mark.parametrize("count", [300, 900])
def test_a_very_long_article_is_read_to_its_end(count: int) -> None:
    told = [
        f"In the year {1000 + i} the ice came late, {STORY[i % 4][:120]}." for i in range(count)
    ]
    found = read(ARTICLE.replace(STORY[-1], "</p><p>".join(told)))
    assert [one for one in told if one not in found] == []
    assert "Topic" not in found
    assert "rights reserved" not in found


@needs_compiled
def test_each_block_has_its_score_and_whether_it_was_chosen() -> None:
    root, _ = tree_of(ARTICLE.encode())
    assert root is not None
    blocks = {block.text: block for block in main.judged(root)}
    story, link = blocks[STORY[1]], blocks["Topic 3"]
    assert (story.tag, story.length, story.chosen) == ("p", len(STORY[1].replace(" ", "")), True)
    assert (link.tag, link.chosen) == ("li", False)
    assert story.score > 0.5 > 0.2 > link.score


@needs_compiled
def test_links_of_markdown_are_absolute_and_in_the_page_s_encoding() -> None:
    links = "<a href='/x?q=é'>More</a> <a href='mailto:a@b'>mail</a>"
    body = f"<article><p>{STORY[0]} {links}<p>{STORY[1]}"
    root, _ = tree_of(body.encode())
    assert root is not None
    found = main.markdown(root, "http://example.org/a/b", "iso-8859-1")
    assert "[More](http://example.org/x?q=%E9)" in found
    assert "[mail](mailto:a@b)" in found


@needs_compiled
def test_noscript_is_read_only_if_the_page_shows_almost_no_text() -> None:
    hidden = f"<noscript>{''.join(f'<p>{p}</p>' for p in STORY)}</noscript>"
    assert STORY[2] in read(f"<body><p>Please wait.</p>{hidden}</body>")
    more = f"{''.join(f'<p>{p} Again.' for p in STORY * 2)}{hidden.replace('By', 'BY')}"
    assert "BY" not in read(ARTICLE.replace("</article>", f"{more}</article>"))


@needs_compiled
def test_a_heading_listed_in_the_contents_is_written_once_above_its_part() -> None:
    heads = [f"{number}. How the winter of {1970 + number} began" for number in range(1, 6)]
    contents = "".join(f"<dt><a href=#p{one[0]}>{one}</a></dt>" for one in heads)
    parts = "".join(f"<h2 id=p{one[0]}>{one}</h2><p>{' '.join(STORY)} {one[0]}" for one in heads)
    found = read(ARTICLE.replace("<p>", f"<p>Contents</p><dl>{contents}</dl>{parts}<p>", 1))
    assert [found.count(one) for one in heads] == [1] * len(heads)
    assert all(found.index(one) > found.index(STORY[1]) for one in heads[1:])


@needs_compiled
def test_a_heading_is_taken_only_with_the_text_below_it() -> None:
    assert f"{STORY[0]}\n\n{HEAD}\n\n{STORY[1]}" in read(HEADED)
    behind = ARTICLE.replace("</article>", f"<h2>{HEAD}</h2></article>")
    assert HEAD not in read(behind)


@needs_compiled
def test_a_data_table_keeps_cells_that_repeat_each_other() -> None:
    skates = "Skates for the whole family"
    cells = [(skates, "by the hour on the ice"), ("Tea", "by the hour on the ice"), (skates, "2")]
    rows = "".join(f"<tr><td>{one}<td>{other}" for one, other in cells)
    table = f"<table><tr><th>What was there<th>How{rows}</table>"
    found = read(ARTICLE.replace("</p><p>", f"</p>{table}<p>", 1))
    assert "\n".join(f"{one}\t{other}" for one, other in cells) in found


def test_main_text_is_empty_without_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "compiled", None)
    root, _ = tree_of(ARTICLE.encode())
    assert root is not None
    assert not main.available()
    assert main.main_text(root) == main.markdown(root, "http://example.org/") == ""
    assert main.judged(root) == []


HOSTILE = {
    "elements": "<p>" + "<div>a</div>" * 100_000,
    "blocks": "<p>a b" * 60_000,
    "deep": "<div>a" * 60_000,
    "marks": "<b>a</b>" * 200_000,
    "links": "<a href=x>a</a>" * 100_000,
    "classes": "<div class='" + "aB " * 600_000 + "'>a",
    "one line": "word, " * 300_000,
    "breaks": "a<br>" * 100_000,
    "lists": "<ul><li>a" * 30_000,
    "tables": "<table><tr><td>a" * 30_000,
    "cells": "<table>" + ("<tr>" + "<td>a" * 50) * 1000,
    "titles": f"<title>{'a b ' * 90}</title>" + "<p>a b a b a b c" * 16_000,
    "no words": "<p>" + "&nbsp; \n" * 200_000,
    "scripts": "<script type=ld+json>" + '"@type":"Article",' * 60_000 + "</script>a",
}


@needs_compiled
@pytest.mark.parametrize("kind", HOSTILE)
def test_main_text_of_hostile_pages_is_read_in_bounded_time(kind: str) -> None:
    """Pages have up to 1.8 MB and are parsed before, so that only main text is timed."""
    root, _ = tree_of(HOSTILE[kind].encode())
    assert root is not None
    began = time.process_time()
    main.main_text(root)
    main.markdown(root, "http://example.org/")
    assert time.process_time() - began < 1
    assert len(main.judged(root)) <= text.MOST_BLOCKS


PIECES = [
    *(f"<{name}>" for name in (*BLOCKS, "a", "b", "em", "code", "time", "noscript", "head", "x-y")),
    *(f"</{name}>" for name in ("p", "div", "li", "ul", "table", "tr", "td", "pre", "a", "b")),
    "<a href=/x>", "<main role=navigation>", "<div class='aB comment-list' id=footer>",
    "<section hidden>", "<p style='display:none'>", "<div itemprop=articleBody>",
    "<script type='ld+json'>", "</body></html>", "word", " ", "\n", "two words. ", "日本。", "2019",
    "12,5 €", "* _x_ |", "\u00a0", "©", "&#0;",
]  # fmt: skip


@needs_compiled
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=80))
def test_main_text_can_be_read_from_any_page(pieces: list[str]) -> None:
    root, _ = tree_of("".join(pieces).encode())
    if root is None:
        return
    blocks = main.judged(root)
    assert all(block.text and block.text == block.text.strip(" \n") for block in blocks)
    assert all(0 <= block.score <= 1 and block.length > 0 for block in blocks)
    assert all(blocks[block.first].text == block.text for block in blocks)
    text = main.main_text(root)
    for block in blocks:
        if block.chosen:
            assert block.text in text
    main.markdown(root, "http://example.org/")


def test_main_text_is_found_if_the_parser_puts_it_into_the_head() -> None:
    story = "<main>" + "".join(f"<p>{text}" for text in STORY)
    bare, whole = (
        extract(f"<!doctype html><title>x</title>{body}{story}".encode(), "http://h/").main
        for body in ("", "<body>")
    )
    assert bare == whole != ""
