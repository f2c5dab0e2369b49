"""Documents in ``srcdoc``: their links count as the page's, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from time import process_time

import pytest

from greencrawl.worker.extract import extract, outline
from greencrawl.worker.extract.links import Resolved
from greencrawl.worker.extract.sources.srcdoc import MOST_BYTES, MOST_DOCUMENTS
from greencrawl.worker.extract.sources.wanted import Wanted

URL = "https://h.example/dir/page"


def frame(document: str, more: str = "") -> str:
    return f'<iframe srcdoc="{escape(document)}" {more}></iframe>'


def urls(html: str) -> list[str]:
    return [link.url for link in extract(html.encode(), URL, "text/html").links]


def quick(html: str, wanted: Wanted | None = None) -> list[str]:
    """Return the links of a page as pages are usually read, without making link objects."""
    _, found = outline(html.encode(), URL, "text/html", wanted=wanted or Wanted())
    assert isinstance(found, Resolved)
    return [*found.urls, *found.more]


@pytest.mark.parametrize("read", [urls, quick])
def test_links_of_a_srcdoc_document_are_followed(read: Callable[[str], list[str]]) -> None:
    document = "<a href=1>x</a><iframe src=2></iframe><meta http-equiv=refresh content='0;url=3'>"
    html = f"<a href=0>x</a>{frame(document, 'src=own')}"
    assert read(html) == [f"https://h.example/dir/{name}" for name in ("0", "own", "1", "2", "3")]


def test_srcdoc_document_uses_the_base_of_the_page_unless_it_has_its_own() -> None:
    html = f"<base href=/b/>{frame('<a href=1>')}{frame('<base href=c/><a href=2>')}"
    assert urls(html) == ["https://h.example/b/1", "https://h.example/b/c/2"]


def test_srcdoc_within_a_srcdoc_is_not_read() -> None:
    assert quick(frame("<a href=1>x</a>" + frame("<a href=2>"))) == ["https://h.example/dir/1"]


def test_links_of_a_srcdoc_keep_nofollow_and_skip_fragments() -> None:
    page = extract(
        frame("<a href=1 rel=NoFollow>x</a><a href='#x'>y</a>").encode(), URL, "text/html"
    )
    assert [(link.url, link.rel) for link in page.links] == [
        ("https://h.example/dir/1", "nofollow")
    ]


def test_srcdoc_can_be_excluded_from_the_sources() -> None:
    wanted = Wanted(Wanted().sources - {"srcdoc"})
    assert quick(frame("<a href=1>", "src=2"), wanted) == ["https://h.example/dir/2"]


def test_comments_and_empty_srcdoc_documents_have_no_links() -> None:
    assert quick(frame("<!-- <a href=1> -->") + frame("") + "<iframe srcdoc></iframe>") == []


def test_srcdoc_documents_beyond_the_bound_are_not_read() -> None:
    many = "".join(frame(f"<a href={number}>") for number in range(MOST_DOCUMENTS + 5))
    assert len(quick(many)) == MOST_DOCUMENTS
    large = frame("<a href=1>" + " " * (MOST_BYTES - 20)) + frame("<a href=2>" + " " * 20)
    assert quick(large) == ["https://h.example/dir/1"]


def test_tag_of_thousands_of_attributes_is_not_read() -> None:
    bomb = "<a " + " ".join(f"a{number}" for number in range(8000)) + " href=1>"
    began = process_time()
    assert quick(frame(bomb) + frame("<a href=2>")) == ["https://h.example/dir/2"]
    assert process_time() - began < 0.3


def test_number_of_srcdoc_frames_is_bounded() -> None:
    began = process_time()
    assert len(quick("<iframe srcdoc=x></iframe>" * 100_000 + frame("<a href=1>"))) == 0
    assert process_time() - began < 2
