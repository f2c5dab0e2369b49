"""JSON sources: which pages belong to a list, which URLs they name, and bounds on hostile ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from greencrawl.schema.net.scope import check_options, root_of, starts
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Task
from greencrawl.schema.records.auth import Source
from greencrawl.schema.text import expressions
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract import listing as module
from greencrawl.worker.extract.listing import MAX_BYTES, MAX_ITEMS, Listing, ListingError
from greencrawl.worker.kernels import choosing
from greencrawl.worker.kernels.reading import Reading

URL = "https://api.example/items?kind=a&max=5"


def source(**given: Any) -> Source:
    made = {"url": URL, "items": "data[].url", "next": "meta.next", "cursor": "after"}
    return Source(**{**made, **given})


def body(*urls: Any, **meta: Any) -> bytes:
    return json.dumps({"data": [{"url": url} for url in urls], "meta": meta}).encode()


def listed(given: bytes, page: str = URL, **changed: Any) -> tuple[list[str], str]:
    found = Listing(source(**changed)).read(given, page)
    return found.items, found.next


def wrong(given: bytes, **changed: Any) -> str:
    with pytest.raises(ListingError) as caught:
        listed(given, **changed)
    return str(caught.value)


# -- which pages


@pytest.mark.parametrize(
    ("url", "held"),
    [
        (URL, True),
        (f"{URL}&after=x", True),
        ("https://api.example/items?after=x%26&kind=a&max=5", True),
        ("https://api.example/items?kind=a&max=5&%61fter=x", True),
        ("https://api.example/items?kind=a", False),
        ("https://api.example/items?kind=a&max=6", False),
        ("https://api.example/items", False),
        ("https://api.example/items/?kind=a&max=5", False),
        ("https://api.example:8443/items?kind=a&max=5", False),
        ("http://api.example/items?kind=a&max=5", False),
        ("https://other.example/items?kind=a&max=5", False),
    ],
)
def test_url_belongs_to_a_list_if_only_the_cursor_differs(url: str, held: bool) -> None:
    assert Listing(source()).holds(url) is held


def test_any_query_of_the_path_belongs_to_a_list_without_a_cursor() -> None:
    listing = Listing(source(cursor=""))
    assert listing.holds("https://api.example/items?page=7")
    assert not listing.holds("https://api.example/item")


# -- what they name


def test_items_are_urls_from_the_page_each_once_in_order() -> None:
    found, _ = listed(
        body("/b", "c?d=1#e", "https://x.example", "/b", None, "mailto:a@b", "http://")
    )
    assert found == [
        "https://api.example/b",
        "https://api.example/c?d=1",
        "https://x.example/",
    ]


def test_expressions_build_urls_and_nest_lists() -> None:
    data = {"data": [{"id": 1, "urls": ["/x", "/y"]}, {"id": 2}]}
    items = "data[*].[join('', ['/i/', to_string(id)]), urls]"
    found, _ = listed(json.dumps(data).encode(), items=items)
    assert [url.removeprefix("https://api.example") for url in found] == [
        "/i/1",
        "/x",
        "/y",
        "/i/2",
    ]


@pytest.mark.parametrize(
    ("cursor", "query"),
    [
        ("abc", "kind=a&max=5&after=abc"),
        (7, "kind=a&max=5&after=7"),
        (2**62, f"kind=a&max=5&after={2**62}"),
        ("a b&c=d#e/?%\u5fae", "kind=a&max=5&after=a%20b%26c%3Dd%23e%2F%3F%25%E5%BE%AE"),
    ],
)
def test_cursor_goes_into_the_url(cursor: Any, query: str) -> None:
    _, further = listed(body(next=cursor))
    assert further == f"https://api.example/items?{query}"
    assert Listing(source()).holds(further)


def test_cursor_replaces_the_one_in_the_url() -> None:
    first = "https://api.example/items?after=-1&max=5"
    _, further = listed(body(next="9"), first, url=first)
    assert further == "https://api.example/items?after=9&max=5"
    _, again = listed(body(next="10"), further, url=first)
    assert again == "https://api.example/items?after=10&max=5"


@pytest.mark.parametrize("end", [None, "", 0, "0", False])
def test_list_ends_if_the_page_names_no_next_cursor(end: Any) -> None:
    assert listed(body("/a", next=end))[1] == ""
    assert listed(body("/a"))[1] == ""
    assert listed(body("/a", next="x"), next="", cursor="")[1] == ""


def test_cursor_that_leads_to_its_own_page_ends_the_list() -> None:
    url = f"{URL}&after=x"
    assert listed(body("/a", next="x"), url)[1] == ""


def test_next_page_can_be_named_by_a_url_of_the_same_list() -> None:
    assert listed(body(next="?page=2"), cursor="")[1] == "https://api.example/items?page=2"
    assert "elsewhere, at https://evil.example/items" in wrong(
        body(next="https://evil.example/items?page=2"), cursor=""
    )
    assert "elsewhere, at http://api.example/items" in wrong(
        body(next="http://api.example/items?page=2"), cursor=""
    )
    assert "no next page" in wrong(body(next="ftp://api.example/items"), cursor="")


# -- what is no list


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "not JSON"),
        (b"<html>log in</html>", "not JSON"),
        (b'{"data": [', "not JSON"),
        (b"[" * 1_000_000, "nested too deep"),
        (b'{"a":' * 500_000, "nested too deep"),
        (b"9" * 5000, "not JSON"),
        (b" " * (MAX_BYTES + 1), "too long"),
        (body({"a": 1}, {"b": 2}), "items gives objects, and no URL"),
        (body(1, 2), "items gives numbers, and no URL"),
        (body("/a", next=["x"]), "next gives a list, and no cursor"),
        (body("/a", next={"x": 1}), "next gives objects, and no cursor"),
        (body("/a", next=1.5), "next gives a number, and no cursor"),
        (body("/a", next=True), "next gives true or false"),
        (body("/a", next="\ud83d"), "no next page: surrogates"),
        (body("/a", next="x" * 10_000), "a cursor of 10000 characters"),
    ],
)
def test_error_says_why_a_page_of_a_list_cannot_be_read(given: bytes, said: str) -> None:
    assert said in wrong(given)


def test_truncated_page_of_a_list_is_refused() -> None:
    with pytest.raises(ListingError, match="too long"):
        Listing(source()).read(body("/a"), URL, truncated=True)


@pytest.mark.parametrize("given", [b"null", b"[]", b"3", b'"x"', b"{}", b'{"data": {"url": 1}}'])
def test_empty_answers_are_empty_lists(given: bytes) -> None:
    assert listed(given) == ([], "")


def test_list_with_broken_characters_is_read() -> None:
    found, further = listed(b'{"data":[{"url":"/a","t":"\xff\xfe"},{"url":"/b\\ud83d"}],"meta":{}}')
    assert found == ["https://api.example/a", "https://api.example/b%EF%BF%BD"]
    assert further == ""
    assert listed(b"\xef\xbb\xbf" + body("/a"))[0] == ["https://api.example/a"]


def test_lists_in_other_encodings_are_read_as_pages_are() -> None:
    text = '{"data":[{"url":"/今天","t":"我们在这里说的是中国人的新闻"}]}'
    listing = Listing(source(next=""))
    for codec, content_type in (
        ("gbk", "application/json; charset=GBK"),
        ("big5hkscs", "application/json;charset=Big5"),
        ("gbk", "application/json"),
        ("utf-16", None),
    ):
        raw = text.encode(codec, "ignore")
        assert listing.read(raw, URL, content_type).items == [
            "https://api.example/%E4%BB%8A%E5%A4%A9"
        ]


def test_huge_lists_are_bounded() -> None:
    found, _ = listed(body(*(f"/{n}" for n in range(MAX_ITEMS + 500))))
    assert len(found) == MAX_ITEMS
    nested: Any = [["/x"] * 400] * 400
    assert listed(json.dumps(nested).encode(), items="@", next="")[0] == ["https://api.example/x"]


def test_values_looked_at_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_VALUES", 100)
    texts, _ = module._texts([[None] * 1000, ["/late"]])
    assert texts == []
    shared: Any = ["/x"]
    for _ in range(40):
        shared = [shared, shared]  # 2^40 texts, in 41 lists
    assert 0 < len(module._texts(shared)[0]) <= 100


# -- expressions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data[", "no JMESPath expression"),
        ("", "no JMESPath expression"),
        ("(" * 1024, "no JMESPath expression"),
        ("data[*].lower(url)", "JMESPath has no function lower()"),
        ("a || b[?c(@)].d", "JMESPath has no function c()"),
    ],
)
def test_expression_that_is_wrong_is_found_beforehand(text: str, said: str) -> None:
    assert said in (expressions.problem(text) or "")
    options = CrawlOptions(sources=(Source(url=URL, items=text or "[", next="a"),))
    assert [name for name, _ in check_options(options)] == ["sources[0].items"]


@pytest.mark.parametrize("text", ["join('', [url, missing])", "data[*].join(id, id)", "data[::0]"])
def test_expression_that_does_not_fit_the_data_is_an_error(text: str) -> None:
    assert "cannot be applied" in wrong(body("/a"), items=text)


def test_source_is_checked_beforehand() -> None:
    options = CrawlOptions(sources=(source(), source(url="ftp://x", next="")))
    names = [name for name, _ in check_options(options)]
    assert names == ["sources[1].url", "sources[1].cursor"]


def test_crawl_begins_at_its_seeds_and_sources() -> None:
    options = CrawlOptions(seeds=("https://a.example/",), sources=(source(),))
    assert starts(options) == [("seeds[0]", "https://a.example/"), ("sources[0].url", URL)]


# -- reading


def context(**given: Any) -> CrawlContext:
    options = CrawlOptions(**{"sources": (source(),), "scope": "host", **given})
    roots = (root_of("host", URL),)
    return context_of(Crawl(id=1, name="t", state="active", options=options, roots=roots))


def reading(given: bytes, task: Task, **options: Any) -> Reading:
    answer = Fetched(task.url, 200, {"content-type": "text/html"}, given)
    of = context(**options)
    return choosing.reading(of, task, answer).kernel.read(of, task, answer)


def test_depth_rises_for_items_and_not_for_the_next_page() -> None:
    found = reading(body("/a", "https://far.example/", next="2"), Task(1, URL, 3, 3))
    assert [(one.url, one.depth) for one in found.links] == [
        (f"{URL}&after=2", 3),
        ("https://api.example/a", 4),
    ]


def test_depth_limit_stops_items_but_not_the_list() -> None:
    found = reading(body("/a", next="2"), Task(1, URL), depth=0)
    assert [one.url for one in found.links] == [f"{URL}&after=2"]


def test_list_pages_are_exempt_from_include_but_not_from_exclude() -> None:
    found = reading(body("/a", "/b", next="2"), Task(1, URL), include=["/a$"])
    assert [one.url for one in found.links] == [f"{URL}&after=2", "https://api.example/a"]
    found = reading(body("/a", next="2"), Task(1, URL), exclude=["after="])
    assert [one.url for one in found.links] == ["https://api.example/a"]


def test_page_outside_of_the_list_is_read_as_html() -> None:
    html = b"<title>t</title><a href=/x>x</a>"
    found = reading(html, Task(1, "https://api.example/page"))
    assert (found.title, [one.url for one in found.links]) == ("t", ["https://api.example/x"])


def test_page_that_cannot_be_read_is_a_failure() -> None:
    found = reading(b"<a href=/x>x</a>", Task(1, URL))
    assert "not JSON" in found.failure
    assert found.links == []


def test_reading_of_a_list_can_be_sent_to_another_process() -> None:
    found = reading(b"", Task(1, URL))
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Reading)
    assert again == found
