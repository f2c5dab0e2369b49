"""Which pages are folded into their canonical page, and which never are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    CloseItem,
    Directives,
    Fetched,
    StoredPage,
    Task,
    TaskKind,
)
from greencrawl.worker.directives import folding
from greencrawl.worker.directives.folding import MOST_CHARS, says_the_same
from greencrawl.worker.link_checker import MAX_REDIRECTS
from tests.worker.test_pipeline import World, html, status

WORDS = " ".join(f"word{n}" for n in range(100))
COPY = Directives(withheld="copy")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.set(scope="host", canonical="fold")
    return made


def body(text: str = WORDS, canonical: str = "/", more: str = "") -> str:
    return f"<title>T</title><link rel=canonical href='{canonical}'>{more}<p>{text}"


def named(url: str, redirects: int = 1) -> Admission:
    """Return the admission for the canonical URL of a page at depth 3."""
    return Admission(url, 3, 3, redirects, TaskKind.CANONICAL)


def keep(world: World, url: str = "http://h/", **more: Any) -> StoredPage:
    """Put a page into the store."""
    number = world.stores.fingerprint(url)
    page = StoredPage(
        crawl=1, fingerprint=number, url=url, **{"status": 200, "text": WORDS, **more}
    )
    world.stores.stored[number] = page
    return page


def run(world: World, answer: str, url: str = "http://h/a", depth: int = 3) -> StoredPage:
    world.site.answers[url] = html(answer)
    world.run(Task(1, url, depth, depth))
    page = world.stores.results[-1].page
    assert page is not None
    kept = page.directives is None or not page.directives.withheld
    assert (page.body != b"") == kept
    assert kept or (page.title, page.text) == ("", "")
    return page


def test_a_copy_of_a_stored_page_keeps_only_its_row_and_links(world: World) -> None:
    keep(world)
    page = run(world, body(more="<a href=/b>b</a>"))
    assert page.directives == COPY
    assert (page.canonical, page.text, page.body) == ("http://h/", "", b"")
    assert page.links == [named("http://h/"), Admission("http://h/b", 4, 4)]
    assert world.result.outcome.kind == "copy"


def test_copies_are_not_folded_by_default(world: World) -> None:
    world.set(scope="host")
    keep(world)
    page = run(world, body())
    assert page.text
    assert page.links == []
    assert page.canonical == "http://h/"


def test_a_page_with_another_text_than_its_canonical_page_is_kept_and_that_url_admitted(
    world: World,
) -> None:
    keep(world, text="a home page that the whole site names")
    page = run(world, body())
    assert page.directives is None
    assert page.text
    assert page.links == [named("http://h/")]


@pytest.mark.parametrize(
    "original",
    [
        {"status": 302},
        {"canonical": "http://h/elsewhere"},
        {"canonical": "http://h/a"},
        {"directives": Directives(robots=("noindex",), withheld="noindex")},
        {"directives": COPY},
    ],
)
def test_a_row_that_stands_for_no_page_has_no_copies(
    world: World, original: dict[str, Any]
) -> None:
    keep(world, **original)
    assert run(world, body()).text


def test_a_page_is_no_copy_if_its_canonical_page_is_not_stored(world: World) -> None:
    page = run(world, body(canonical="/gone"))
    assert page.text
    assert page.links == [named("http://h/gone")]


def test_an_original_may_name_itself_in_an_equivalent_spelling(world: World) -> None:
    keep(world, "http://h/~x", canonical="http://h/%7Ex")
    assert run(world, body(canonical="/%7ex")).directives == COPY


@pytest.mark.parametrize("canonical", ["/a", "http://h/%61", "http://h:80/a#x"])
def test_a_page_that_names_itself_as_canonical_is_no_copy(world: World, canonical: str) -> None:
    keep(world, "http://h/a")
    page = run(world, body(canonical=canonical))
    assert page.text
    assert page.links == []


def test_a_canonical_url_out_of_scope_is_noted(world: World) -> None:
    keep(world, "http://other/")
    page = run(world, body(canonical="http://other/"))
    assert page.text
    assert page.links == []
    assert page.canonical == "http://other/"


def test_nofollow_admits_no_canonical_url(world: World) -> None:
    keep(world)
    page = run(world, body(more="<meta name=robots content=nofollow>"))
    assert page.links == []
    assert page.directives == Directives(robots=("nofollow",), withheld="copy")


def test_a_copy_that_says_noindex_is_withheld_as_noindex(world: World) -> None:
    keep(world)
    page = run(world, body(more="<meta name=robots content=noindex>"))
    assert page.directives == Directives(robots=("noindex",), withheld="noindex")
    assert page.links == [named("http://h/")]


def test_rules_of_normalise_hold_for_canonical_urls(world: World) -> None:
    world.set(scope="host", canonical="fold", normalise=("tracking",))
    page = run(world, body(canonical="/b?utm_source=x"))
    assert page.links == [named("http://h/b")]
    assert run(world, body(canonical="/a?utm_source=x")).links == []


def test_a_link_that_is_the_canonical_url_is_admitted_once_at_its_depth(world: World) -> None:
    page = run(world, body(canonical="/b", more="<a href=/b>b</a><a href=/c>c</a>"))
    assert page.links == [named("http://h/b"), Admission("http://h/c", 4, 4)]


@pytest.mark.parametrize("kind", [TaskKind.PAGE, TaskKind.SITEMAP])
def test_a_chain_of_canonical_urls_is_followed_up_to_a_bound(world: World, kind: TaskKind) -> None:
    world.set(scope="host", canonical="fold", depth=0)
    indexes = INDEX_STEP if kind is TaskKind.SITEMAP else 0
    task = Task(1, "http://h/p0", 0, 0, redirects=indexes, kind=kind)
    chain = 0
    while True:
        world.site.answers[task.url] = html(body(canonical=f"/p{chain + 1}"))
        world.run(task)
        page = world.stores.results[-1].page
        assert page is not None
        if not page.links:
            break
        chain += 1
        kind = TaskKind.CANONICAL
        assert page.links == [Admission(f"http://h/p{chain}", 0, 0, chain, kind)]
        task = Task(1, page.links[0].url, 0, 0, redirects=page.links[0].redirects, kind=kind)
    assert chain == MAX_REDIRECTS
    assert page.canonical == f"http://h/p{chain + 1}"


def test_a_copy_after_the_last_allowed_redirect_is_still_a_copy(world: World) -> None:
    keep(world)
    world.site.answers["http://h/a"] = html(body(more="<a href=/>home</a>"))
    world.run(Task(1, "http://h/a", 3, 3, redirects=MAX_REDIRECTS))
    page = world.result.page
    assert page is not None
    assert page.directives == COPY
    assert page.links == [Admission("http://h/", 4, 4)], "a link that it has, as any other"


@pytest.mark.parametrize(("canonical", "admitted"), [("/bar", False), ("/foo/2", True)])
@pytest.mark.parametrize("depth", [0, 1])
def test_the_canonical_url_of_a_seed_is_judged_as_a_link(
    world: World, canonical: str, admitted: bool, depth: int
) -> None:
    world.set(scope="host", canonical="fold", include=("/foo",), depth=depth)
    keep(world, "http://h/bar")
    page = run(world, body(canonical=canonical), "http://h/foo", depth)
    assert page.text
    kind = TaskKind.CANONICAL
    wanted = [Admission(f"http://h{canonical}", depth, depth, 1, kind)] if admitted else []
    assert page.links == wanted


def test_the_canonical_url_of_a_seed_is_not_treated_as_a_seed_later(world: World) -> None:
    world.set(scope="host", canonical="fold", include=("/foo",))
    world.run(Task(1, "http://h/1", 0, redirects=1, kind=TaskKind.CANONICAL))
    assert world.site.pages == [], "the crawl's rules have changed since it was admitted"
    assert [final.kind for final in world.result.finals] == ["scope"]
    world.site.answers["http://h/foo"] = status(301, location="/bar")
    for kind, targets in ((TaskKind.PAGE, ["http://h/bar"]), (TaskKind.CANONICAL, [])):
        world.run(Task(1, "http://h/foo", 0, redirects=1, kind=kind))
        page = world.stores.results[-1].page
        assert page is not None
        assert [link.url for link in page.links] == targets


def test_the_canonical_url_of_a_seed_is_parked_as_a_link_is(world: World) -> None:
    world.set(scope="host", canonical="fold", host_pages=1)
    world.site.answers |= {"http://h/": html(), "http://h/1": html(), "http://h/2": html()}
    world.run(
        Task(1, "http://h/", 0), Task(2, "http://h/1", 0),
        Task(3, "http://h/2", 0, kind=TaskKind.CANONICAL),
    )  # fmt: skip
    states = [[final.state for final in result.finals] for result in world.stores.results]
    assert states == [[], [], ["parked"]]
    [final] = world.stores.results[-1].finals
    assert final.again == Admission("http://h/2", 0, 0, kind=TaskKind.CANONICAL)


@pytest.mark.parametrize(("kind", "read"), [(TaskKind.PAGE, True), (TaskKind.CANONICAL, False)])
def test_a_canonical_url_is_not_read_as_a_list_of_urls(
    world: World, kind: TaskKind, read: bool
) -> None:
    plain = {"content-type": "text/plain"}
    world.site.answers["http://h/list.txt"] = Fetched("", 200, plain, b"http://h/listed")
    world.run(Task(1, "http://h/list.txt", 0, kind=kind))
    page = world.result.page
    assert page is not None
    assert bool(page.links) == read


def test_equal_bodies_without_text_are_copies(world: World) -> None:
    answer = "<link rel=canonical href='/'><img src=x>"
    page = run(world, answer)
    assert page.text == ""
    assert page.body
    keep(world, digest=page.digest, text="")
    assert run(world, answer).directives == COPY
    keep(world, digest=b"another", text="")
    assert run(world, answer).directives is None


def test_an_original_on_its_way_to_the_store_is_waited_for(world: World) -> None:
    world.site.answers["http://h/"] = html(body())
    world.site.answers["http://h/a"] = html(body())
    looked = gevent.event.Event()
    find = world.stores.page

    def page(crawl: int, number: int, **more: Any) -> StoredPage | None:
        looked.set()
        return find(crawl, number, **more)

    world.stores.page = page  # type: ignore[method-assign]
    running: gevent.Greenlet[..., CloseItem | None] = gevent.spawn(
        world.run, "http://h/", "http://h/a"
    )
    assert looked.wait(5)
    assert len(world.stores.results) == 1
    keep(world)
    running.get(timeout=5)
    copy = world.stores.results[1].page
    assert copy is not None
    assert copy.directives == COPY


def test_a_copy_waits_a_bounded_time_for_an_original_that_is_never_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "WAIT_SECONDS", 0.1)
    world.site.answers["http://h/"] = html(body())
    world.site.answers["http://h/a"] = html(body())
    world.run("http://h/", "http://h/a")
    pages = [result.page for result in world.stores.results]
    assert [page and page.directives for page in pages] == [None, None]


# -- which texts count as the same


@pytest.mark.parametrize(
    ("copy", "original", "same"),
    [
        (WORDS, WORDS, True),
        ("", "", False),
        ("", WORDS, False),
        (WORDS, "", False),
        (" ".join(reversed(WORDS.split())), WORDS, True),
        (WORDS, WORDS + " and more", True),
        (WORDS + " new", WORDS, True),
        (WORDS + " quite a few new words that the other lacks", WORDS, False),
        (WORDS + " " + WORDS, WORDS, False),
        ("新闻" * 100, "新闻" * 100 + "页", True),
        ("新闻" * 100 + "页" * 30, "新闻" * 100, False),
        ("x" * (MOST_CHARS + 1), "x" * (MOST_CHARS + 1), True),
        ("x " * MOST_CHARS, "y" + "x " * MOST_CHARS, False),
    ],
)
def test_a_copy_has_at_most_a_twentieth_of_words_that_its_original_lacks(
    copy: str, original: str, same: bool
) -> None:
    assert says_the_same(copy, original) == same


@given(st.text("ab ", max_size=60), st.text("ab ", max_size=60))
def test_a_copy_stays_a_copy_if_its_original_has_more_text(copy: str, more: str) -> None:
    assert says_the_same(copy, f"{copy} {more}") == bool(copy.split()) or copy == f"{copy} {more}"


@pytest.mark.parametrize("unit", ["a ", "abcdefghij", "a b c ", "\u4e00", " "])
def test_the_longest_texts_that_are_compared_cost_little(unit: str) -> None:
    text = (unit * MOST_CHARS)[:MOST_CHARS]
    began = time.thread_time()
    says_the_same(text, text[1:])
    assert time.thread_time() - began < 0.5, "some 0.02 s"
