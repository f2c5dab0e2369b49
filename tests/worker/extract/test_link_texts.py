"""Short texts of links, as the part in C reads them and as Python does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.net import action_texts, actions
from greencrawl.schema.net.action_texts import trimmed
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Task
from greencrawl.schema.records.auth import Basic
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract import text
from greencrawl.worker.extract.links import Resolved
from greencrawl.worker.extract.page import add_links, outline
from greencrawl.worker.reading import Reading, read

URL = "https://h.example/list/"
needs_compiled = pytest.mark.skipif(text.compiled is None, reason="nothing is compiled")

LINKS = """
<a href=/1>« Log out »</a> <a href=/2><b>删</b>除</a> <a href=/3><img alt="Удалить"></a>
<a href=/4 aria-label=Delete><i></i>×</a> <a href=/5 title="حذف"></a> <a href=#x>退出</a>
<a href="/ü">【退出】</a>
<a href=/6>with more than sixty-four bytes, as many titles of articles have them</a>
<area href=/7 alt=z> <a href=/8>&nbsp;Log
 out&nbsp;</a> <a href=/9></a><a>no link</a>
<a href=/10>open <a href=/11>nested</a> on <div><a href=/12>last
"""
TEXTS = {
    "/1": "Log out", "/2": "删除", "/3": "Удалить", "/4": "Delete", "/5": "حذف", "/%C3%BC": "退出",
    "/6": "…", "/7": None, "/8": "Log out", "/9": None, "/10": "open", "/11": "nested",
    "/12": "last",
}  # fmt: skip


def outlined(body: str) -> Resolved:
    _, found = outline(body.encode(), URL, "text/html; charset=utf-8", texts=True)
    assert isinstance(found, Resolved)
    assert found.texts is not None
    assert len(found.texts) == len(found.urls) == len(found.rels)
    return found


@needs_compiled
def test_texts_stand_beside_their_urls() -> None:
    found = outlined(LINKS)
    assert found.texts is not None
    said = {url.removeprefix(URL[:17]): t for url, t in zip(found.urls, found.texts, strict=True)}
    assert said == TEXTS
    _, plain = outline(LINKS.encode(), URL, "text/html; charset=utf-8")
    assert isinstance(plain, Resolved)
    assert (plain.urls, plain.rels, plain.texts) == (found.urls, found.rels, None)


AROUND = [
    *"«»×÷[](){}<>!.,:;|/\\-_*…→←✖☰【】「」　🗑🔒ÀØößzZaA09أبก字é々！０Ａ",
    *" \t\n\xa0\ue000\uf8ff\ufe0f\u200f",
]


@needs_compiled
@given(st.lists(st.sampled_from(AROUND), max_size=8), st.sampled_from(["", "x", "退出", "Log out"]))
def test_what_stands_around_a_text_is_the_same_in_c_and_python(
    around: list[str], word: str
) -> None:
    half = len(around) // 2
    given = "".join([*around[:half], word, *around[half:]])
    found = outlined(f"<p>.</p><a href=/x>{given.replace('&', '&amp;').replace('<', '&lt;')}</a>")
    expected = trimmed(re.sub("[ \t\n\xa0]+", " ", given)) or None
    assert found.texts == [expected]


def crawl(**options: object) -> CrawlContext:
    made = CrawlOptions(scope="any", **options)  # type: ignore[arg-type]
    return context_of(Crawl(id=1, name="t", state="active", options=made, roots=("*",)))


def reading(context: CrawlContext, body: str) -> Reading:
    headers = {"content-type": "text/html; charset=utf-8"}
    return read(context, Task(1, URL), Fetched(URL, 200, headers, body.encode()))


PAGE = """{}<a href=/a/1>One</a><a href=/a/2>删除</a><a href=/a/3>Three</a>
<a href=/o/7?x>删除文章</a><a href=/bye><img alt=退出></a><a href="/a/3/%C9%BE%B3%FD">x</a>
<a href=/out><i></i></a><a href=/out>[退出]</a>"""


@pytest.mark.parametrize("base", ["", "<base href=/list/>"])
def test_a_page_is_read_alike_with_and_without_the_part_in_c(base: str) -> None:
    """With a base the page is Python's."""
    context = crawl(auth=(Basic(name="club", hosts=("h.example",)),))
    found = reading(context, PAGE.format(base))
    assert [link.url for link in found.links] == [f"https://h.example/a/{n}" for n in (1, 2, 3)]
    skipped = ["/o/7?x", "/bye", "/a/3/%C9%BE%B3%FD", "/out"]
    assert sorted(found.skipped) == sorted(f"https://h.example{path}" for path in skipped)
    assert reading(context, PAGE.format(base)).skipped == {}
    stranger = reading(crawl(), PAGE.format(base))
    assert len(stranger.links) == 7
    assert stranger.skipped == {}


def test_words_are_not_read_for_crawls_that_do_not_log_in() -> None:
    actions._urls.cache_clear()
    action_texts._phrases.cache_clear()
    assert reading(crawl(), PAGE.format("")).links
    assert actions._urls.cache_info().misses == action_texts._phrases.cache_info().misses == 0


def test_a_link_without_a_text_has_that_of_a_later_one_to_its_url() -> None:
    body = b"<a href=/a><img></a><a href=/a>One</a><a href=/a>Two</a>"
    page, found = outline(body, URL, "text/html", anchors=True)
    add_links(page, found)
    assert [(link.url, link.anchor) for link in page.links] == [("https://h.example/a", "One")]
