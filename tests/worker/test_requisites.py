"""Requisites of pages: they are kept, and read only for what style sheets need."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    Done,
    Failure,
    FailureKind,
    Fetched,
    StoredPage,
    Task,
    TaskKind,
    pack_redirects,
    unpack_redirects,
)
from greencrawl.worker.kernels.reading import MAX_NEEDED
from greencrawl.worker.kernels.style import MAX_IMPORTS, MAX_SHEETS
from greencrawl.worker.link_checker import MAX_REDIRECTS
from tests.worker.test_pipeline import World, html, status

REQUISITE = TaskKind.REQUISITE


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.set(scope="host", requisites="on", depth=5)
    return world


def answer(body: str, content_type: str) -> Fetched:
    return Fetched("", 200, {"content-type": content_type}, body.encode(), wire_bytes=len(body))


def needed(url: str, depth: int = 0, redirects: int = 0) -> Task:
    return Task(1, url, depth, depth, redirects=redirects, kind=REQUISITE)


def page_of(world: World) -> StoredPage:
    """Return the page of the last run."""
    page = world.stores.results[-1].page
    assert page is not None
    return page


def test_a_page_admits_its_requisites_at_its_own_depth(world: World) -> None:
    world.site.answers["http://h/p"] = html("<a href=/b><img src=//cdn/i><a href=//other/>")
    world.run(Task(1, "http://h/p", 2, 2))
    assert page_of(world).links == [
        Admission("http://h/b", 3, 3), Admission("http://cdn/i", 2, 2, 0, REQUISITE),
    ]  # fmt: skip


def test_a_page_admits_no_requisites_by_default(world: World) -> None:
    world.set()
    world.site.answers["http://h/p"] = html("<img src=//cdn/i>")
    world.run("http://h/p")
    assert page_of(world).links == []


@pytest.mark.parametrize("options", [{}, {"bodies": "text"}, {"depth": 2}, {"include": ("^no",)}])
def test_an_image_that_is_a_requisite_is_kept_unread_under_any_options(
    world: World, options: dict[str, object]
) -> None:
    world.set(requisites="on", **options)
    world.site.answers["http://h/i"] = answer("<p>bytes", "image/png")
    world.run(needed("http://h/i", 2), host="h")
    page = page_of(world)
    assert (page.body, page.links, page.text, page.depth) == (b"<p>bytes", [], "", 2)
    assert world.outcomes == [Done(stored=True, bytes=8)]


def test_an_image_that_was_met_as_a_link_first_is_kept_too(world: World) -> None:
    world.site.answers["http://h/i"] = answer("bytes", "image/png")
    world.run(Task(1, "http://h/i", 1, 1))
    assert page_of(world).body == b"bytes"


def test_an_image_is_not_kept_without_the_option_requisites(world: World) -> None:
    world.set()
    world.site.answers["http://h/i"] = answer("bytes", "image/png")
    world.run(Task(1, "http://h/i", 1, 1))
    assert page_of(world).body == b""


@pytest.mark.parametrize("kind", [TaskKind.PAGE, REQUISITE])
def test_a_style_sheet_admits_its_requisites(world: World, kind: TaskKind) -> None:
    sheet = "@import 'two.css'; @font-face{src:url(//fonts/f.woff2)}"
    world.site.answers["http://h/css/one.css"] = answer(sheet, "text/css")
    world.run(Task(1, "http://h/css/one.css", 3, 3, redirects=4, kind=kind))
    assert page_of(world).links == [
        Admission("http://h/css/two.css", 3, 3, INDEX_STEP, REQUISITE),
        Admission("http://fonts/f.woff2", 3, 3, MAX_SHEETS * INDEX_STEP, REQUISITE),
    ]
    assert page_of(world).body == sheet.encode()


def test_endless_imports_of_style_sheets_are_followed_up_to_a_bound(world: World) -> None:
    """Each one has new ones, as in a trap."""
    page = html("<link rel=stylesheet href=/0.css>")
    world.site.answers["http://h/"] = page
    pipeline, asked = world.pipeline(), [Task(1, "http://h/", 0, 0)]
    for task in asked:
        assert len(asked) < 100
        if task.url.endswith(".css"):
            imports = "".join(f"@import '{len(asked) + n}.css';" for n in range(2))
            world.site.answers[task.url] = answer(imports, "text/css")
        world.run(task, pipeline=pipeline)
        asked += [
            Task(1, link.url, link.depth, link.level, redirects=link.redirects, kind=link.kind)
            for link in page_of(world).links
        ]
    assert len(asked) == 1 + 1 + 2 + 4 + 8, "three behind that of the page"
    assert {task.depth for task in asked} == {0}


def test_a_style_sheet_admits_a_bounded_number_of_requisites(world: World) -> None:
    imports = "".join(f"@import '{n}.css';" for n in range(MAX_IMPORTS + 5))
    sheet = imports + "".join(f"a{{b:url({n})}}" for n in range(MAX_NEEDED))
    world.site.answers["http://h/a.css"] = answer(sheet, "text/css")
    world.run(needed("http://h/a.css"))
    links = page_of(world).links
    assert len(links) == MAX_NEEDED
    noted = next(a.detail for a in world.result.attempts if a.kind == "links")
    assert noted == "25 URLs were left out: only 500 of a style sheet are kept"
    read = [link.url for link in links if link.redirects // INDEX_STEP < MAX_SHEETS]
    assert read == [f"http://h/{n}.css" for n in range(MAX_IMPORTS)]


def test_no_omission_is_noted_for_a_style_sheet_within_the_bound(world: World) -> None:
    sheet = "".join(f"a{{b:url({n})}}" for n in range(MAX_NEEDED))
    world.site.answers["http://h/a.css"] = answer(sheet, "text/css")
    world.run(needed("http://h/a.css"))
    assert len(page_of(world).links) == MAX_NEEDED
    assert [attempt.kind for attempt in world.result.attempts] == ["ok"]


def test_a_file_that_a_style_sheet_does_not_import_is_not_read_as_a_style_sheet(
    world: World,
) -> None:
    world.site.answers["http://h/a.css"] = answer("a{b:url(b.css)}", "text/css")
    world.run(needed("http://h/a.css"))
    [link] = page_of(world).links
    world.site.answers["http://h/b.css"] = answer("a{b:url(c.css)}", "text/css")
    world.run(needed("http://h/b.css", redirects=link.redirects))
    assert (page_of(world).url, page_of(world).links) == ("http://h/b.css", [])


def test_the_queue_keeps_the_import_depth_of_a_style_sheet_and_its_redirects() -> None:
    task = needed("http://h/a.css", redirects=MAX_SHEETS * INDEX_STEP + MAX_REDIRECTS)
    assert unpack_redirects(pack_redirects(task)) == (task.redirects, REQUISITE)


def test_redirects_of_a_style_sheet_do_not_add_to_its_import_depth(world: World) -> None:
    world.site.answers["http://h/a.css"] = status(302, location="/b.css")
    world.run(needed("http://h/a.css", redirects=INDEX_STEP))
    [link] = page_of(world).links
    assert link.redirects == INDEX_STEP + 1
    world.site.answers["http://h/b.css"] = answer("@import 'c.css'", "text/css")
    world.run(needed("http://h/b.css", redirects=link.redirects))
    assert [link.redirects for link in page_of(world).links] == [2 * INDEX_STEP]


def test_a_style_sheet_is_not_read_without_the_option_requisites(world: World) -> None:
    world.set()
    world.site.answers["http://h/a.css"] = answer("@import 'b.css'", "text/css")
    world.run(Task(1, "http://h/a.css", 1, 1))
    assert page_of(world).links == []


def test_a_requisite_that_is_a_page_of_the_crawl_is_read_as_a_page(world: World) -> None:
    """As a link it would be known already, so no other task would read it."""
    world.site.answers["http://h/o"] = html("<title>T</title><a href=/b><img src=i>")
    world.run(needed("http://h/o", 2))
    page = page_of(world)
    assert (page.title, page.depth) == ("T", 3)
    assert page.links == [
        Admission("http://h/b", 4, 4),
        Admission("http://h/i", 3, 3, 0, REQUISITE),
    ]


@pytest.mark.parametrize(
    ("url", "options", "depth"),
    [("http://cdn/o", {}, 0), ("http://h/o", {"include": ("^no",)}, 0), ("http://h/o", {}, 5)],
)
def test_a_requisite_in_html_that_is_no_page_of_the_crawl_is_kept_and_not_followed(
    world: World, url: str, options: dict[str, object], depth: int
) -> None:
    world.set(requisites="on", depth=5, **options)
    world.site.answers[url] = html("<title>T</title><a href=/b><img src=i>")
    world.run(needed(url, depth), host=url.split("/")[2])
    page = page_of(world)
    assert (page.title, page.links, page.depth) == ("", [], depth)
    assert page.body


def test_robots_txt_is_obeyed_for_requisites(world: World) -> None:
    world.site.answers["http://cdn/robots.txt"] = answer(
        "User-agent: *\nDisallow: /i", "text/plain"
    )
    world.run(needed("http://cdn/i"), host="cdn")
    assert world.site.pages == []
    assert world.outcomes == [Done(kind="robots")]


def test_a_requisite_that_a_later_rule_excludes_is_not_fetched(world: World) -> None:
    world.set(requisites="on", exclude=("/i$",))
    world.run(needed("http://cdn/i"), host="cdn")
    assert world.site.pages == []
    assert world.outcomes == [Done(kind="scope")]
    assert world.result.finals[0].detail == "exclude pattern '/i$'"


def test_the_redirect_of_a_requisite_leads_to_a_requisite_and_widens_no_scope(world: World) -> None:
    world.site.answers["http://example.org/i"] = status(301, location="http://www.example.org/i")
    world.run(needed("http://example.org/i"), host="example.org")
    assert page_of(world).links == [Admission("http://www.example.org/i", 0, 0, 1, REQUISITE)]
    assert world.stores.crawl_.roots == ("h",)


def test_a_requisite_that_is_gone_gets_a_final_state(world: World) -> None:
    world.run(needed("http://h/i"))
    assert [final.state for final in world.result.finals] == ["gone"]


def test_waiting_requisites_of_a_host_that_is_down_for_good_get_a_final_state(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = Failure(FailureKind.DNS_MISSING, "no such name")
    world.run(needed("http://h/i"), Task(2, "http://h/j", kind=REQUISITE), failures=99)
    finals = [final.url for result in world.stores.results for final in result.finals]
    assert finals == ["http://h/j"]


def test_requisites_are_not_parked_as_traps_and_do_not_count_for_traps(world: World) -> None:
    world.set(requisites="on", host_pages=1, shape_pages=1)
    pipeline = world.pipeline()
    for number in range(3):
        world.site.answers[f"http://h/{number}"] = answer("x", "image/png")
        world.run(needed(f"http://h/{number}", 1), pipeline=pipeline)
    world.site.answers["http://h/9"] = html("x")
    world.run(Task(1, "http://h/9", 1, 1), pipeline=pipeline)
    assert [outcome.kind for outcome in world.outcomes] == ["ok"] * 4


def test_requisites_do_not_count_as_links_when_traps_are_judged(world: World) -> None:
    world.set(requisites="on", traps="on")
    images = "".join(f"<img src=/image/{number}.png>" for number in range(30))
    world.site.answers["http://h/"] = html(f"<p>Some words<a href=/p/1>more</a>{images}")
    world.run(Task(1, "http://h/", 0, 0))
    assert [outcome.kind for outcome in world.outcomes] == ["ok"]
    assert [link.kind for link in page_of(world).links] == [
        TaskKind.PAGE,
        *[TaskKind.REQUISITE] * 30,
    ]
