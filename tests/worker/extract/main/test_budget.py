"""How much CPU main text, Markdown and metadata of expensive pages take."""

from __future__ import annotations

import json
import time

import pytest
from lxml import etree

from greencrawl.schema.records import Fetched
from greencrawl.worker.extract import main
from greencrawl.worker.extract.main import spans_of
from greencrawl.worker.extract.main.bylines import MOST_SEARCHED, Marked, Texts
from greencrawl.worker.extract.main.metadata import metadata
from greencrawl.worker.extract.page import outline, tree_of
from greencrawl.worker.kernels.http import granted

URL = "http://example.org/a"
TYPE = "text/html; charset=utf-8"
TEXT = "The harbour froze in January, and people walked over it. "
MANY = 100_000
SAID = json.dumps([{"@type": "Person", "name": f"A {i}", "text": TEXT} for i in range(9000)])

PAGES = {
    "deep": "<div>" * MANY + TEXT,
    "deep lists": "<ul><li>" * 120 + f"<li>{TEXT}" * 20_000,
    "blocks": "<p>ab c." * MANY,
    "records": "<ul>" + "<li class=post><h3><a href=/x>T</a></h3><p>Text.<i>by A</i>" * MANY,
    "table": "<table>" + ("<tr>" + "<td>1" * 100) * 1000,
    "tables in tables": ("<table><tr><td>a<td>b" * 80 + "</table>" * 80) * 700,
    "JSON-LD": f"<script type='application/ld+json'>{SAID}</script>" + f"<p>{TEXT}" * 5000,
    "JSON-LD alone": f"<script type='application/ld+json'>{SAID}</script>",
    "state": f"<script>window.__STATE__ = {SAID}</script>",
    "bylines in bylines": "<div class='byline date'>" * 240 + "<b>x</b>" * 60_000 + TEXT * 9000,
    "times in times": "<time>" * 240 + TEXT * 40_000,
    "metas": "<meta property=og:title content=x>" * MANY,
    "headings": f"<h1>{TEXT * 9}</h1>" * 3000,
    "breaks": "a<br><br>" * MANY,
    "links": "<p>" + "<a href=/author/a>ab</a> " * MANY,
}


def fetched(body: str) -> Fetched:
    data = body.encode()
    return Fetched(URL, 200, {"content-type": TYPE}, data, wire_bytes=len(data))


@pytest.mark.parametrize("name", PAGES)
def test_each_part_of_an_expensive_page_is_read_within_its_cpu_budget(name: str) -> None:
    page = f"<html><head><title>The harbour</title></head><body>{PAGES[name]}"
    most = granted(fetched(page))
    roots: list[etree._Element] = []
    read, _ = outline(page.encode(), URL, TYPE, roots=roots)
    took = {}
    for what, reads in {
        "main text": lambda: spans_of(roots[0], read.text),
        "Markdown": lambda: main.markdown(roots[0], URL),
        "comments": lambda: main.comments_text(roots[0]),
        "metadata": lambda: metadata(roots[0], URL, read.title),
    }.items():
        began = time.process_time()
        reads()
        took[what] = time.process_time() - began
    assert {what: spent for what, spent in took.items() if spent > most} == {}


@pytest.mark.skipif(not main.available(), reason="nothing was compiled")
@pytest.mark.parametrize("name", ["blocks", "state"])
def test_spans_of_main_text_are_left_out_if_the_cpu_budget_is_used_up(name: str) -> None:
    page = f"<title>The harbour</title>{PAGES[name]}".encode()
    told, _ = outline(page, URL, TYPE, spans=True)
    assert told.spans
    began = time.process_time()
    less, _ = outline(page, URL, TYPE, spans=True, main_seconds=0.001)
    assert less.spans == b"", "it is read from the body when it is asked for"
    assert less.text == told.text
    assert time.process_time() - began < 1


def test_an_author_is_searched_only_among_the_first_elements() -> None:
    author = "<span class=byline>By Ann Lee</span>"
    for before, found in ((100, ["By Ann Lee"]), (MOST_SEARCHED, [])):
        root, _ = tree_of(f"<body>{'<b>a</b>' * before}{author}".encode())
        assert root is not None
        assert [one.text for one in Marked(root).bylines()] == found


def test_texts_of_elements_are_read_up_to_a_bound() -> None:
    root, _ = tree_of(f"<body><div>{TEXT * 3000}</div><p>An end".encode())
    assert root is not None
    texts, div = Texts(), root.find(".//div")
    assert div is not None
    read = [texts.of(div) for _ in range(4)]
    assert [bool(text) for text in read] == [True, True, False, False]
    assert texts.of(root[0]) == ""
