"""A page's links, their order and their texts."""

from __future__ import annotations

import pytest

from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Task
from greencrawl.worker.crawls import context_of
from greencrawl.worker.extract import extract
from greencrawl.worker.extract.page import add_links, outline
from greencrawl.worker.kernels.http import read

URL = "https://example.org/docs/index.html"


def urls(html: str, url: str = URL) -> list[str]:
    return [link.url for link in extract(html.encode(), url, "text/html").links]


def test_links_are_followed_in_document_order() -> None:
    html = """<head><link rel=next href=/1><link rel="prev foo" href=/2>
    <meta http-equiv=refresh content="3;url=/3"></head>
    <a href=/4>x</a><map><area href=/5></map><iframe src=/6></iframe><a href=/7>y</a>"""
    assert urls(html) == [f"https://example.org/{n}" for n in range(1, 8)]


def test_total_length_of_links_is_bounded_if_the_base_is_long() -> None:
    """Half a megabyte would become 240 MB of URLs."""
    base = "https://example.org/" + "a" * 8000 + "/"
    found = urls(f"<base href={base}>" + "".join(f"<a href={i}>" for i in range(30_000)))
    assert 3900 < len(found) < 4200
    assert found[-1] == base + str(len(found) - 1)


def test_bound_for_a_long_base_is_the_same_if_no_link_objects_are_made() -> None:
    """A few references are not counted; this many have to be."""
    context = context_of(
        Crawl(id=1, name="t", state="active", options=CrawlOptions(), roots=("example.org",))
    )
    base = "https://example.org/" + "a" * 8000 + "/"
    body = f"<base href={base}>" + "".join(f"<a href={i}>" for i in range(30_000))
    fetched = Fetched(URL, 200, {"content-type": "text/html"}, body.encode())
    assert [link.url for link in read(context, Task(1, URL), fetched).links] == urls(body)


def test_frames_are_followed() -> None:
    html = "<frameset><frame src=a.html><frame src=b.html></frameset>"
    assert urls(html) == ["https://example.org/docs/a.html", "https://example.org/docs/b.html"]


TEMPLATES = [
    ("<template><a href=/x>x</a></template><a href=/y>y</a>", "y"),
    ("<div><template><div><template><a href=/x></a></template></div><a href=/x2></a></template>"
     "<a href=/y>y</a></div>", "y"),
    ("<template><base href=/z/><iframe src=/x></iframe></template><a href=/y>y</a>", "y"),
    ("<template shadowrootmode=open><a href=/x>x</a></template><a href=/y>y</a>", "x y"),
    ("<template><p>open</template><a href=/y>y</a>", "y"),
    ("<template><tr><td>open</template><a href=/y>y</a>", "y"),
]  # fmt: skip


@pytest.mark.parametrize(("html", "followed"), TEMPLATES)
@pytest.mark.parametrize("before", ["", "<base href=https://example.org/docs/>"])
def test_links_in_a_template_are_followed_only_if_it_is_a_shadow_root(
    html: str, followed: str, before: str
) -> None:
    wanted = [f"https://example.org/{one}" for one in followed.split()]
    assert urls(before + html) == wanted
    page, found = outline((before + html).encode(), URL, "text/html")
    add_links(page, found)
    assert [link.url for link in page.links] == wanted


@pytest.mark.parametrize(
    "html",
    [
        "<img src=/x>", "<script src=/x></script>", "<link rel=stylesheet href=/x>",
        "<link rel=alternate hreflang=de href=/x>", "<link href=/x>", "<form action=/x></form>",
        "<a name=x>y</a>", "<a href='#top'>x</a>", "<a href=''>x</a>", "<iframe></iframe>",
        "<!-- <a href=/x> -->", "<script>'<a href=/x>'</script>",
        "<meta http-equiv=refresh content=30>", "<meta name=refresh content='0;url=/x'>",
    ],
)  # fmt: skip
def test_references_that_are_no_links_to_pages_are_not_followed(html: str) -> None:
    page = extract(html.encode(), URL, "text/html")
    assert (page.links, page.invalid_links) == ([], 0)


def test_links_that_are_not_http_are_counted_as_invalid() -> None:
    html = "<a href=javascript:x()><a href=mailto:a@b.c><a href=http://[><a href=/ok>"
    page = extract(html.encode(), URL, "text/html")
    assert [link.url for link in page.links] == ["https://example.org/ok"]
    assert page.invalid_links == 3


def test_each_url_is_listed_once_with_its_first_anchor() -> None:
    page = extract(b"<a href=/x>one</a><a href='/x#y'>two</a><a href=/z>z</a>", URL, "text/html")
    assert [(link.url, link.anchor) for link in page.links] == [
        ("https://example.org/x", "one"),
        ("https://example.org/z", "z"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "rel"),
    [
        ("NoFollow  ugc", "sponsored nofollow", "nofollow"),
        ("nofollow", "", ""),
        ("", "nofollow", ""),
        ("nofollow", "nofollow", "nofollow"),
    ],
)
def test_url_is_nofollow_only_if_all_its_links_are(first: str, second: str, rel: str) -> None:
    html = f'<a href=/x rel="{first}">1</a><a href=/x rel="{second}">2</a>'
    assert [link.rel for link in extract(html.encode(), URL, "text/html").links] == [rel]


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("/other/", "https://example.org/other/x"),
        ("https://cdn.example/a/b", "https://cdn.example/a/x"),
        ("javascript:void(0)", "https://example.org/docs/x"),
        ("", "https://example.org/docs/x"),
    ],
)
def test_base_applies_to_all_links_wherever_it_stands(base: str, expected: str) -> None:
    assert urls(f"<a href=x>x</a><base href='{base}'><base href='/second/'>") == [expected]


def test_base_is_recorded_and_references_within_the_page_then_lead_to_it() -> None:
    page = extract(b"<base href='/other/'><a href='#x'>x</a>", URL, "text/html")
    assert page.base == "https://example.org/other/"
    assert [link.url for link in page.links] == ["https://example.org/other/"]


@pytest.mark.parametrize(
    ("html", "anchor"),
    [
        ("<a href=/x> some \n text </a>", "some text"),
        ("<a href=/x>some <b>bold</b> text</a>", "some bold text"),
        ("<a href=/x><img src=i alt='a picture'> and text</a>", "a picture and text"),
        ("<a href=/x><span><i>a</i>b</span>c</a>d", "abc"),
        ("<a href=/x><script>no</script>yes</a>", "yes"),
        ("<a href=/x></a>tail", ""),
        ("<map><area href=/x alt='a region'></map>", "a region"),
        ("<iframe src=/x title='a frame'></iframe>", "a frame"),
    ],
)
def test_anchor_is_the_text_of_the_link(html: str, anchor: str) -> None:
    assert [link.anchor for link in extract(html.encode(), URL, "text/html").links] == [anchor]


def test_anchor_is_bounded_in_length_and_in_work() -> None:
    long, deep = extract(
        b"<a href=/x>" + b"word " * 100_000 + b"</a><a href=/y>" + b"<i></i>" * 100_000 + b"z</a>",
        URL,
        "text/html",
    ).links
    assert len(long.anchor) <= 200
    assert long.anchor.startswith("word word")
    assert deep.anchor == ""


@pytest.mark.parametrize(
    "content",
    ["0;url=/x", "0; URL = /x", "5 , url='/x' ", '0;url="/x"tail', "0;/x", "1.5;url=/x", "0 /x"],
)
def test_refresh_is_a_link(content: str) -> None:
    html = f"<meta http-equiv=Refresh content='{content.replace(chr(39), '&#39;')}'>"
    links = extract(html.encode(), URL, "text/html").links
    assert [(link.url, link.rel) for link in links] == [("https://example.org/x", "refresh")]


def test_canonical_link_is_resolved_or_dropped_if_invalid() -> None:
    def canonical(href: str) -> str | None:
        html = f"<link rel='Canonical foo' href='{href}'><link rel=canonical href=/second>"
        return extract(html.encode(), URL, "text/html").canonical

    assert canonical("./") == "https://example.org/docs/"
    assert canonical("mailto:x") is None
    assert extract(b"<p>x", URL, "text/html").canonical is None


def test_queries_are_encoded_as_the_page_is_and_paths_are_not() -> None:
    body = "<meta charset=gb2312><a href='/搜?q=中文'>搜</a>".encode("gbk")
    page = extract(body, URL, "text/html")
    assert page.encoding == "gbk"
    assert [(link.url, link.anchor) for link in page.links] == [
        ("https://example.org/%E6%90%9C?q=%D6%D0%CE%C4", "搜")
    ]
