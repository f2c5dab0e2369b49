"""Links for which a crawl has to ask: each source alone, and none by default."""

from __future__ import annotations

from time import process_time

import pytest

from greencrawl.schema.net.scope import check_options
from greencrawl.schema.records import CrawlOptions
from greencrawl.schema.text.link_sources import DEFAULT, SOURCES, chosen_sources
from greencrawl.worker.extract import outline
from greencrawl.worker.extract.links import Resolved
from greencrawl.worker.extract.sources.gathered import MOST_REFERENCES
from greencrawl.worker.extract.sources.json_ld import MOST_CHARACTERS
from greencrawl.worker.extract.sources.wanted import Wanted

URL = "https://h.example/dir/page"

PAGES = {
    "alternate": "<link rel=alternate hreflang=de href=1><link rel='Alternate x' href=2>",
    "feeds": "<link rel=alternate type='Application/RSS+xml; x=y' href=1><link rel=feed href=2>",
    "amphtml": "<link rel=amphtml href=1><link rel='x AMPHTML' href=2>",
    "canonical": "<link rel=canonical href=1><link rel=canonical href=2>",
    "objects": "<object data=1><param name=Movie value=2><param name=size value=no></object>"
    "<embed src=3><applet archive='4,5 6' codebase=7></applet><object codebase=8></object>",
    "data": "<p data-href=1 data-src=no><b data-url=' 2 '><i data-link=3><u data-uri=4>",
    "json-ld": '<script type="Application/LD+json; x">{"@context": "https://no.example/", "url":'
    ' "/dir/1", "logo": {"url": "/dir/2"}, "name": "/no", "sameAs": ["/dir/3", "no"],'
    ' "a": [[{"@id": "/dir/4"}]]}</script><script type=application/ld+json>{"url": </script>',
    "og": "<meta property=' OG:url' content=1><meta property=og:image content=no>",
    "xlink": "<svg><a xlink:href=1></a><image xlink:href=no /><use xlink:href=no /></svg>",
    "cite": "<blockquote cite=1><q cite=2><ins cite=3><del cite=4><img longdesc=5>",
}


def read(html: str, *names: str) -> list[str]:
    wanted = Wanted(chosen_sources(names))
    _, found = outline(html.encode(), URL, "text/html", wanted=wanted)
    assert isinstance(found, Resolved)
    return [*found.urls, *found.more]


@pytest.mark.parametrize("name", PAGES)
def test_source_of_links_is_read_only_if_it_is_chosen(name: str) -> None:
    found = [url.removeprefix("https://h.example/dir/") for url in read(PAGES[name], name)]
    numbers = sorted(map(int, found))
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers
    assert read(PAGES[name]) == []
    assert read(PAGES[name], *(set(SOURCES) - {name})) == []


@pytest.mark.parametrize(
    ("name", "html"),
    [
        ("a", "<a href=1>"), ("area", "<map><area href=1>"), ("frame", "<frameset><frame src=1>"),
        ("iframe", "<iframe src=1></iframe>"), ("srcdoc", "<iframe srcdoc='<a href=1>'></iframe>"),
        ("paging", "<link rel=next href=1>"),
        ("refresh", "<meta http-equiv=refresh content='0;url=1'>"),
    ],
)  # fmt: skip
def test_default_source_is_read_unless_it_is_taken_away(name: str, html: str) -> None:
    assert read(html) == ["https://h.example/dir/1"]
    assert read(html, "og", f"-{name}") == []
    others = [f"-{other}" for other in DEFAULT - {name, "a"}]
    assert read(html, *others) == ["https://h.example/dir/1"]


def test_these_tests_cover_every_source_of_links() -> None:
    assert {*PAGES, *DEFAULT} | {"forms", "content-location"} == set(SOURCES)


def test_last_mention_of_a_source_decides() -> None:
    assert chosen_sources(["og", "-og", "-a", "a"]) is DEFAULT
    assert chosen_sources(["-a", "cite"]) == DEFAULT - {"a"} | {"cite"}


def test_refusal_of_an_unknown_source_names_the_known_ones() -> None:
    [(field, what)] = check_options(CrawlOptions(links=("og", "-refesh")))
    assert field == "links[1]"
    assert what.startswith("no source of links: '-refesh'; there are a, area, frame, iframe,")


def test_base_applies_to_alternate_links_and_comments_have_no_links() -> None:
    html = "<base href=/b/><link rel=alternate href=1><!-- <link rel=alternate href=2> -->"
    assert read(html, "alternate") == ["https://h.example/b/1"]


def test_rel_of_a_link_element_is_kept_with_its_url() -> None:
    wanted = Wanted(chosen_sources(["alternate"]))
    html = b"<link rel='alternate NOFOLLOW' href=1><link rel=alternate href=2>"
    _, found = outline(html, URL, "text/html", wanted=wanted)
    assert list(found.more.values()) == ["alternate nofollow", "alternate"]


def test_references_and_urls_are_bounded() -> None:
    many = "".join(f"<p data-url={number}>" for number in range(MOST_REFERENCES + 100))
    assert len(read(many, "data")) <= MOST_REFERENCES
    long = f"<base href='/{'a' * 8000}/'>" + many
    assert sum(map(len, read(long, "data"))) < 5 * 1024 * 1024


def test_references_of_all_sources_are_bounded_together() -> None:
    numbers = range(MOST_REFERENCES * 2 // 3)
    links, images = (f"<p data-url=a{n}>" for n in numbers), (f"<img src=b{n}>" for n in numbers)
    wanted = Wanted(chosen_sources(["data"]), requisites=True)
    body = "".join([*links, *images]).encode()
    _, found = outline(body, URL, "text/html", wanted=wanted)
    assert len(found.more) == len(numbers)
    assert len(found.requisites) == MOST_REFERENCES - len(numbers)


def test_json_is_bounded_in_length_and_depth() -> None:
    block = "<script type=application/ld+json>%s</script>"
    deep = block % ('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert read(deep + block % '{"url": "/1"}', "json-ld") == ["https://h.example/1"]
    long = block % ('"' + "a" * MOST_CHARACTERS + '"')
    assert read(block % '{"url": "/1"}' + long + block % '{"url": "/2"}', "json-ld") == [
        "https://h.example/1"
    ]


def test_large_page_is_read_in_bounded_time() -> None:
    html = "<link rel=alternate href=x><p data-href=x><object data=x></object>" * 50_000
    began = process_time()
    read(html, *SOURCES)
    assert process_time() - began < 4
