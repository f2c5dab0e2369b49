"""Links in headers: which are read, their base URL, and which are skipped."""

from __future__ import annotations

from time import process_time

import pytest

from greencrawl.worker.extract import outline
from greencrawl.worker.extract.sources.headers import relations
from greencrawl.worker.extract.sources.wanted import Wanted

URL = "https://h.example/dir/page"


def links(headers: dict[str, str], *names: str, body: bytes = b"<p>x") -> dict[str, str]:
    wanted = Wanted(Wanted().sources | set(names))
    _, found = outline(body, URL, "text/html", headers=headers, wanted=wanted)
    return dict(found.more)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("</2>; rel=next", {"/2": "next"}),
        ('<2>; rel="prev", <?page=4>;rel=NEXT', {"/dir/2": "prev", "/dir/page?page=4": "next"}),
        ('<a,b>; title="x, <y>; rel=next"; rel="up next"', {"/dir/a,b": "up next"}),
        ('<2>; rel="next nofollow"; rel=up', {"/dir/2": "next nofollow"}),
        (' , < 2 > ; REL = "next" ,', {"/dir/2": "next"}),
        (r'<2>; title="a\"; rel=up"; rel=next', {"/dir/2": "next"}),
        ('<2>; rel="next', {"/dir/2": "next"}),
        ("<#top>; rel=next", {}),
        ("<mailto:a@b>; rel=next", {}),
        ("<2>; rel=next; anchor=/other", {}),
        ("<2>; rel=up, <3>", {}),
        ("<2; rel=next", {}),
        ("2; rel=next", {}),
        ("</style>; rel=preload", {}),
        ("", {}),
    ],
)
def test_next_and_previous_pages_of_a_link_header_are_followed(
    value: str, expected: dict[str, str]
) -> None:
    where = {f"https://h.example{path}": rel for path, rel in expected.items()}
    assert links({"link": value}) == where


def test_link_is_relative_to_the_answer_and_refresh_to_the_page() -> None:
    headers = {"link": "<2>; rel=next", "refresh": "0; url=3", "content-location": "4"}
    found = links(headers, "content-location", body=b"<base href=/other/><p>x")
    assert list(found) == [
        "https://h.example/dir/2", "https://h.example/other/3", "https://h.example/dir/4",
    ]  # fmt: skip


def test_other_links_in_headers_are_followed_if_the_crawl_chooses_them() -> None:
    headers = {"link": "<1>; rel=canonical, <2>; rel=alternate, <3>; rel=amphtml, "
        '<4>; rel=alternate; type="application/atom+xml"', "content-location": "5"}  # fmt: skip
    assert links(headers) == {}
    for number, name in enumerate(("canonical", "alternate", "amphtml", "feeds"), 1):
        assert list(links(headers, name)) == [f"https://h.example/dir/{number}"]
    assert list(links(headers, "content-location")) == ["https://h.example/dir/5"]


def test_default_sources_can_be_left_out() -> None:
    headers = {"link": "<1>; rel=next", "refresh": "0;url=2"}
    for left, number in (("paging", 2), ("refresh", 1)):
        wanted = Wanted(Wanted().sources - {left})
        _, found = outline(b"<p>x", URL, "text/html", headers=headers, wanted=wanted)
        assert list(found.more) == [f"https://h.example/dir/{number}"]


def test_bytes_beyond_ascii_are_sent_back_as_they_came() -> None:
    said = "<中>; rel=next".encode().decode("latin-1")
    assert list(links({"link": said})) == ["https://h.example/dir/%E4%B8%AD"]


@pytest.mark.parametrize("piece", ["<", "<a", "<a>", "<a>;", '<a>;b="', ";", '"', "<a>; ;", "\\"])
def test_hostile_link_header_is_read_in_bounded_time(piece: str) -> None:
    """Headers have 64 KiB at most."""
    began = process_time()
    list(relations(piece * (65_536 // len(piece))))
    list(relations("<a>;b=" + piece * (65_536 // len(piece))))
    assert process_time() - began < 0.5
