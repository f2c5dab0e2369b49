"""The metadata that a page states about itself."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.worker.extract.main.dates import date_in_text, date_in_url, iso_date
from greencrawl.worker.extract.main.library import extract
from greencrawl.worker.extract.main.metadata import MOST_FEEDS, Metadata, metadata
from greencrawl.worker.extract.main.names import author_of, longest_part
from greencrawl.worker.extract.page import tree_of


def of(body: str, title: str = "", url: str = "http://example.org/") -> Metadata:
    root, _ = tree_of(f"<html><body>{body}".encode(), "text/html; charset=utf-8")
    assert root is not None
    return metadata(root, url, title)


def json_ld(value: object) -> str:
    return f"<script type=application/ld+json>{json.dumps(value)}</script>"


SITE = "<meta property=og:site_name content='The Herald'>"
LONG = "a title of which the first part is short"
TITLES = {
    "the heading that the title has": ("<h1>Ice!</h1><h1>The ice</h1>", "The ice - A", "The ice"),
    "not the site's name": (
        f"{SITE}<h1>The Herald</h1>",
        "Ice at last | The Herald",
        "Ice at last",
    ),
    "not the site's name behind a title": (
        "<h1>Herald Boards</h1>",
        "Ice? - Herald Boards",
        "Ice?",
    ),
    "the site's name before a title": (
        f"{SITE}<h1>Ice at last</h1>",
        "The Herald | Ice at last",
        "Ice at last",
    ),
    "the heading that begins it, not a longer one": (
        "<h1>The long history of the Herald</h1><h1>The ice</h1>",
        "The ice - The long history of the Herald - A",
        "The ice",
    ),
    "without the mark of a link to it": ("<h1>The ice¶</h1>", "The ice — Manual", "The ice"),
    "a heading that says it with most of its words": (
        "<h1>Menu</h1><h1>Why the old harbour froze</h1>",
        "The harbour froze: why, and how old it is",
        "Why the old harbour froze",
    ),
    "no heading of other words": ("<h1>Welcome to our site</h1>", "Ice at last", "Ice at last"),
    "without the site": (SITE, "The ice | The Herald", "The ice"),
    "of OpenGraph": ("<meta property=og:title content='The ice'>", "Herald", "The ice"),
    "the heading alone": ("<h1>The <b>ice</b></h1>", "", "The ice"),
    "a short part is no title": ("", f"A – {LONG} – B", LONG),
    "nothing": ("", "", ""),
}


@pytest.mark.parametrize("case", TITLES)
def test_the_title_is_chosen_among_headings_title_and_opengraph(case: str) -> None:
    body, title, expected = TITLES[case]
    assert of(body, title).title == expected


AUTHORS = {
    json_ld(
        {"@type": "NewsArticle", "author": [{"name": "A &amp; B"}, {"name": "C D"}]}
    ): "A & B, C D",
    json_ld(
        {"@graph": [{"@type": "Person", "name": "X"}, {"@type": "WebPage", "author": "A B"}]}
    ): "A B",
    "<script type=application/ld+json>{</script><meta name=author content='A B'>": "A B",
    "<meta property=article:author content='https://x.org/a'><a rel=author>A B</a>": "A B",
    "<p class=byline>By A B on 3 May 2024": "A B",
    "<div class=byline>By A B | 3 May 2024</div>": "A B",
    "<span itemprop=author><span itemprop=name>A B</span> of C</span>": "A B",
    "<meta name=author content=admin>": "",
    "": "",
}


@pytest.mark.parametrize("body", AUTHORS)
def test_the_author_is_whom_the_page_names(body: str) -> None:
    assert of(body).author == AUTHORS[body]


NEW, OLD = "datetime=2025-01-01>x</time>", "datetime=2024-05-31>x</time>"
DATES = {
    json_ld({"@type": "Article", "datePublished": "2024-05-31T10:00:00Z"}): "2024-05-31",
    "<meta property=article:published_time content=2024-05-31>": "2024-05-31",
    "<meta name=date content='31. Mai 2024'>": "2024-05-31",
    f"<time class=updated {NEW}<time {OLD}": "2024-05-31",
    f"<time {NEW}<time class=published {OLD}": "2024-05-31",
    "<div class=posted-on>Posted May 31st, 2024</div>": "2024-05-31",
    "<p>Paris, le 31 mai 2024": "2024-05-31",
    "<p>In 2024": "",
}


@pytest.mark.parametrize("body", DATES)
def test_the_date_is_that_of_publication(body: str) -> None:
    assert of(body).date == DATES[body]


def test_a_date_may_stand_in_the_url() -> None:
    assert of("<p>x", url="http://example.org/2024/5/31/ice").date == "2024-05-31"


def test_metadata_are_read_from_opengraph() -> None:
    body = "".join(
        f"<meta property='og:{name}' content='{name} 1'>"
        for name in ("site_name", "description", "image", "type")
    )
    found = of(body)
    assert (found.site_name, found.description) == ("site_name 1", "description 1")
    assert (found.image, found.kind) == ("http://example.org/image%201", "type 1")


ARTICLE = {
    "@graph": [
        {"@type": "WebSite", "name": "The Herald"},
        {"@type": ["NewsArticle"], "image": [{"url": "/ice.jpg"}], "publisher": {"name": "Other"}},
    ]
}


def test_metadata_missing_in_markup_are_read_from_json_ld() -> None:
    found = of(json_ld(ARTICLE), url="http://example.org/a/b")
    assert (found.site_name, found.kind) == ("The Herald", "NewsArticle")
    assert found.image == "http://example.org/ice.jpg"
    del ARTICLE["@graph"][0]
    assert of(json_ld(ARTICLE)).site_name == "Other"
    for odd in (3, [], {}, [3], {"url": 3}, "mailto:a@b"):
        assert of(json_ld({"@type": "Article", "image": odd, "publisher": odd})).image == ""


FEEDS = """<link rel=canonical href="mailto:a@b"><link rel=canonical href="/a?b=é">
<link rel="alternate" type="application/rss+xml" href="/feed">
<link rel="home alternate" type="application/atom+xml; charset=utf-8" href="atom.xml">
<link rel=alternate type=application/rss+xml href="/feed"><link rel=alternate hreflang=de href=/de>
<link rel=alternate type=application/feed+json href=><link rel=stylesheet type=text/css href=/c>"""


def test_feeds_and_canonical_are_absolute() -> None:
    root, _ = tree_of(FEEDS.encode(), "text/html; charset=utf-8")
    assert root is not None
    found = metadata(root, "http://h/", base="http://other.example/x/", encoding="iso-8859-1")
    assert found.canonical == "http://other.example/a?b=%E9"
    assert found.feeds == ("http://other.example/feed", "http://other.example/x/atom.xml")
    many = "".join(f"<link rel=alternate type=application/rss+xml href=/{n}>" for n in range(5000))
    assert len(of(many).feeds) == MOST_FEEDS


def test_dates_are_read_in_many_notations() -> None:
    assert iso_date("20240531T10") == "2024-05-31"
    assert iso_date("2024-02-31") == iso_date("tomorrow") == ""
    assert date_in_url("http://x/2024/05/") == date_in_url("http://x/2024/13/31/") == ""
    for text in (
        "May 31, 2024",
        "31 May 2024",
        "31.5.2024",
        "5/31/2024",
        "31/5/2024",
        "2024年5月31日",
    ):
        assert date_in_text(f"It was {text}.") == "2024-05-31"
    assert date_in_text("31 de mayo de 2024") == "2024-05-31"
    assert date_in_text("99.99.2024 and 1 2 3") == ""


@pytest.mark.parametrize(
    "said", ["http://x.org/a", "a@b.org", "May 31", "x" * 101, "a " * 13, "", "by"]
)
def test_a_text_that_is_no_name_is_not_taken_for_an_author(said: str) -> None:
    assert author_of(said) == ""


@given(text=st.text(max_size=200))
def test_author_and_date_of_any_text_are_well_formed(text: str) -> None:
    assert len(author_of(text)) <= 100
    assert date_in_text(text) == "" or len(date_in_text(text)) == 10
    assert longest_part(text, {text[:9]}) in (text.strip(), *text.split()) or text


@pytest.mark.parametrize(
    "body",
    [
        "<h1>a</h1>" * 100_000,
        "<time>a</time>" * 100_000,
        json_ld([[{"@type": "Article"}] * 100] * 1000),
        f"<script type=application/ld+json>{'[' * 500_000}</script>",
        "<div class=date>" + "1 " * 500_000,
        "<div class=author>a" * 50_000,
        f"<meta name=author content='{'by ' * 300_000}'>",
        "<meta name=date content='a'>" * 50_000,
        "<link rel=alternate type=application/rss+xml href=/feed>" * 50_000,
    ],
    ids=["headings", "times", "objects", "brackets", "digits", "bylines", "by", "metas", "links"],
)
def test_metadata_of_hostile_pages_are_read_in_bounded_time(body: str) -> None:
    root, _ = tree_of(f"<html><body>{body}".encode())
    assert root is not None
    began = time.process_time()
    metadata(root, "http://example.org/")
    assert time.process_time() - began < 2


def test_deeply_nested_types_in_json_ld_take_little_time() -> None:
    deep = '{"@type":' * 900 + '"x"' + "}" * 900
    scripts = f"<script type='application/ld+json'>{deep}</script>" * 5
    began = time.process_time()
    page = extract(f"{scripts}<p>text".encode(), "http://h/")
    assert (page.about.kind, page.comments) == ("", "")
    assert time.process_time() - began < 1
