"""Directives of pages in the pipeline: what it keeps of them, and what it follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.records import Directives, Done, Fetched, Link, Page, StoredPage
from greencrawl.worker.extract.main import available
from tests.worker.test_pipeline import World, html, use

__all__ = ["use"]  # fixture

PAGE = '<title>T</title><p>some words<a href="/b">b</a>'
NOINDEX = '<meta name="robots" content="noindex">'


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def stored(world: World, body: str = PAGE, **headers: str) -> StoredPage:
    world.site.answers["http://h/"] = html(body, **headers)
    world.run("http://h/")
    page = world.stores.results[-1].page
    assert page is not None
    return page


def is_withheld(page: StoredPage) -> bool:
    assert page.digest, "it tells whether the page has changed"
    assert page.status == 200
    assert page.headers["content-type"] == "text/html"
    kept = (page.title, page.text, page.spans, page.body, page.fields, page.items)
    if kept == ("", "", b"", b"", None, b""):
        return True
    assert page.title == "T"
    assert "some words" in page.text
    assert bool(page.spans) == available()
    assert page.body
    return False


def test_a_page_that_says_noindex_keeps_its_row_and_links(world: World) -> None:
    body = "<html lang=en>" + NOINDEX + PAGE
    page = stored(world, body)
    assert is_withheld(page)
    assert page.directives == Directives(robots=("noindex",), withheld="noindex")
    assert [link.url for link in page.links] == ["http://h/b"]
    assert (page.language, page.encoding, page.final_url) == ("en", "utf-8", "http://h/")
    assert world.result.outcome == Done(True, len(body), "noindex")


def test_the_option_noindex_keep_keeps_the_page_and_its_directives(world: World) -> None:
    world.set(noindex="keep")
    page = stored(world, NOINDEX + PAGE)
    assert not is_withheld(page)
    assert page.directives == Directives(robots=("noindex",))
    assert world.result.outcome == Done(True, len(NOINDEX + PAGE))


def test_a_page_with_the_directive_none_keeps_its_row_and_no_links(world: World) -> None:
    page = stored(world, x_robots_tag="none")
    assert is_withheld(page)
    assert page.links == []


def test_a_page_that_says_nothing_has_no_directives(world: World) -> None:
    page = stored(world)
    assert not is_withheld(page)
    assert page.directives is None


@pytest.mark.parametrize(
    ("tags", "withheld"),
    [
        (("otherbot: noindex", "nofollow"), False),
        (("otherbot: nofollow", "noindex"), True),
        (("greencrawl: noindex",), True),
        (("otherbot: noindex",), False),
    ],
)
def test_an_x_robots_tag_applies_only_to_the_crawler_that_it_names(
    world: World, tags: tuple[str, ...], withheld: bool
) -> None:
    answer = html(PAGE, x_robots_tag=", ".join(tags))
    answer.robots_tags = tags if len(tags) > 1 else ()
    world.site.answers["http://h/"] = answer
    world.run("http://h/")
    assert world.result.page is not None
    assert is_withheld(world.result.page) == withheld


@pytest.mark.parametrize(
    ("date", "withheld"),
    [
        ("1970-01-01T00:00:00Z", "unavailable_after"),
        ("1 Jan 1969 10:00:00 EST", "unavailable_after"),
        ("1970-01-01T00:00:01Z", ""),
        ("25 Jun 2030 15:00:00 PST", ""),
    ],
)
def test_a_page_is_not_kept_if_its_date_unavailable_after_was_over_at_the_fetch(
    world: World, date: str, withheld: str
) -> None:
    page = stored(world, f'<meta name=robots content="unavailable_after: {date}">' + PAGE)
    assert page.fetched_ms == 5
    assert is_withheld(page) == bool(withheld)
    assert page.directives is not None
    assert page.directives.withheld == withheld


@pytest.mark.parametrize("content_type", ["application/pdf", "text/plain", "application/json"])
def test_an_x_robots_tag_applies_to_answers_of_every_type(world: World, content_type: str) -> None:
    world.keep_all = True
    answer = html("%PDF", x_robots_tag="noindex")
    answer.headers["content-type"] = content_type
    world.site.answers["http://h/"] = answer
    world.run("http://h/")
    page = world.result.page
    assert page is not None
    assert page.directives == Directives(robots=("noindex",), withheld="noindex")
    assert page.body == b""
    assert page.digest


def test_a_redirect_that_says_noindex_is_followed_and_its_body_is_not_kept(world: World) -> None:
    named = {"location": "/b", "x-robots-tag": "noindex"}
    world.site.answers["http://h/"] = Fetched("", 302, named, b"moved")
    world.run("http://h/")
    page = world.result.page
    assert page is not None
    assert (page.body, page.final_url) == (b"", "http://h/b")
    assert [link.url for link in page.links] == ["http://h/b"]
    assert world.result.outcome == Done()


def test_a_hook_gets_the_links_of_a_noindex_page_but_makes_no_fields_of_it(
    world: World, use: Callable[..., None]
) -> None:
    seen: list[Page] = []

    def on_page(page: Page, fetched: Fetched) -> dict[str, Any]:
        seen.append(page)
        return {"text": page.text}

    def links(page: Page, links: list[Link]) -> list[Link]:
        assert not page.index
        return [*links, Link("http://h/of-the-hook")]

    use(on_page=on_page, items=lambda page: [{"text": page.text}], links=links)
    page = stored(world, NOINDEX + PAGE)
    assert is_withheld(page)
    assert seen == []
    assert {link.url for link in page.links} == {"http://h/b", "http://h/of-the-hook"}
    world.set(noindex="keep")
    assert not is_withheld(stored(world, NOINDEX + PAGE))
    assert [one.index for one in seen] == [False]


def test_the_canonical_url_that_a_page_names_is_stored_with_it(world: World) -> None:
    page = stored(world, '<link rel=canonical href="/a">' + PAGE)
    assert page.canonical == "http://h/a"
    assert not is_withheld(page)
    assert [link.url for link in page.links] == ["http://h/b"], "it is not followed"
    header = {"link": '</c>; rel="canonical"'}
    assert (
        stored(world, '<link rel=canonical href="/a">' + PAGE, **header).canonical == "http://h/a"
    )
    assert stored(world, PAGE, **header).canonical == "http://h/c"
    world.site.answers["http://h/"].headers["content-type"] = "application/pdf"  # type: ignore[union-attr]
    world.run("http://h/")
    page_of_pdf = world.stores.results[-1].page
    assert page_of_pdf is not None
    assert page_of_pdf.canonical == "http://h/c"
