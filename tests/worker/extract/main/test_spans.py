"""Spans of main text, kept as a page is read: the same as those read on demand, in few bytes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.text.spans import main_of
from greencrawl.worker.extract import main
from greencrawl.worker.extract.main import text
from greencrawl.worker.extract.main.library import extract
from greencrawl.worker.extract.page import outline
from greencrawl.worker.extract.text import compiled
from tests.worker.extract.main.test_main_text import ARTICLE, FOOT, MENU, STORY

needs_compiled = pytest.mark.skipif(not main.available(), reason="nothing was compiled")
URL = "http://example.org/a"
TABLE = "<table><tr><th>Ship<th>Tons<tr><td>Anna<td>40<tr><td>Berta<td>52</table>"
CODE = "<pre>def thaw(ice):\n    if ice:\n        return  ice  -  1\n\treturn 0\n\n\ndone</pre>"
LIST = "<ul><li>Skates<li>Stalls, and a <b>b</b>and<li>Fire<br>brigade</ul>"
HIDDEN = f"<script>later()</script><noscript>{'<p>'.join(STORY)}</noscript>"
WIDE = "港は一月に凍った。\u3000四十年ぶりに人が歩いた。&nbsp;氷は厚く、\u200b風は南に変わった。"
PAGES = {
    "article": ARTICLE,
    "table, code and list": ARTICLE.replace("</article>", f"{TABLE}{CODE}{LIST}</article>"),
    "noscript": HIDDEN,
    "noscript beside a menu": f"{MENU}{HIDDEN}{FOOT}",
    "other white space": f"{MENU}<article>{f'<p>{WIDE}</p>' * 3}<p>{STORY[0]}</article>{FOOT}",
    "own elements": f"{MENU}<x-a>{STORY[0]}</x-a><x-a>{STORY[1]}</x-a><x-a>{STORY[2]}</x-a>",
    "said twice": f"<nav>{STORY[0][:40]} {STORY[1]}</nav>{ARTICLE}",
    "a broken character": ARTICLE.replace("harbour", "harb\udcff", 2),
    "nothing": "<p>",
    "a menu": MENU,
}  # fmt: skip


@needs_compiled
@pytest.mark.parametrize("name", PAGES)
def test_stored_spans_give_the_same_main_text_as_reading_on_demand(name: str) -> None:
    body = PAGES[name].encode("utf-8", "surrogateescape")
    page, _ = outline(body, URL, "text/html; charset=utf-8", spans=True)
    wanted = extract(body, URL, "text/html; charset=utf-8")
    assert page.text == wanted.text
    assert main_of(page.text, page.spans) == wanted.main
    assert page.spans[:1], "that there is none is told as well"
    if name == "article":
        assert all(paragraph in wanted.main for paragraph in STORY)
        assert len(page.spans) <= 4 * 5 + 2


@needs_compiled
def test_spans_are_made_only_for_pages_and_only_if_they_are_wanted() -> None:
    assert outline(ARTICLE.encode(), URL, "text/html")[0].spans == b""
    assert outline(ARTICLE.encode(), URL, "text/css", spans=True)[0].spans == b""


def test_no_spans_are_made_without_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "compiled", None)
    page, _ = outline(ARTICLE.encode(), URL, "text/html", spans=True)
    assert (page.spans, main_of(page.text, page.spans)) == (b"", None)


words = st.lists(st.sampled_from(("tea", "Tee", "茶", "x" * 40, "é")), max_size=12)
white = st.sampled_from((" ", "\n\n", "\n", "\t", "\n    ", "  "))


@needs_compiled
@given(words, st.lists(st.tuples(st.sampled_from(("tea", "Tee", "茶x", "x" * 40)), white)))
def test_spans_give_back_any_main_text_whatever_the_text_of_the_page_is(
    all_text: list[str], chosen: list[tuple[str, str]]
) -> None:
    assert compiled is not None
    found = "".join(word + joint for word, joint in chosen)
    spans = compiled.main_spans(" ".join(all_text), found)
    assert main_of(" ".join(all_text), spans) == found


@needs_compiled
def test_search_for_words_that_are_missing_in_the_text_takes_bounded_time() -> None:
    assert compiled is not None
    all_text = "ab" * 4_000_000
    found = "\n\n".join(f"{n} is not in it" for n in range(16_000))
    began = time.thread_time()
    spans = compiled.main_spans(all_text, found)
    assert time.thread_time() - began < 0.2
    assert main_of(all_text, spans) == found
