"""The library: programs get a page through it."""

from __future__ import annotations

import pytest

from greencrawl.schema.errors import InvalidUrl
from greencrawl.worker.extract import main
from greencrawl.worker.extract.main.library import extract
from tests.worker.extract.main.test_main_text import ARTICLE, STORY

BODY = ARTICLE.replace(
    "<head>",
    "<head><base href='http://other.example/d/'><meta name=author content='A B'>"
    "<meta name=date content=2024-05-31>",
).replace(STORY[1], f"{STORY[1]} <a href='x'>See it.</a>")


def test_a_page_of_the_library_has_title_text_links_author_and_date() -> None:
    page = extract(BODY.encode(), "http://example.org/a", "text/html; charset=utf-8")
    assert page.title == "When the harbour froze"
    assert (page.author, page.date) == ("A B", "2024-05-31")
    assert "Topic 3" in page.text
    assert "http://other.example/d/x" in [link.url for link in page.links]


@pytest.mark.skipif(not main.available(), reason="nothing was compiled")
def test_main_text_is_read_when_it_is_asked_for() -> None:
    page = extract(BODY.encode(), "http://example.org/a")
    assert page.has_main
    assert STORY[3] in page.main
    assert "Topic 3" not in page.main
    assert "[See it.](http://other.example/d/x)" in page.markdown


def test_a_document_that_is_not_html_gives_an_empty_page() -> None:
    page = extract(b"%PDF-1.7", "http://example.org/a", "application/pdf")
    assert (page.title, page.main, page.markdown, page.author, page.date) == ("",) * 5
    assert page.links == []


def test_an_invalid_url_is_refused() -> None:
    with pytest.raises(InvalidUrl):
        extract(b"<p>a<a href=x>", "mailto:a@b")
