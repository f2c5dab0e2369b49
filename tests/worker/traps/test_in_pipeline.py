"""Tasks of a trap in the pipeline: no request, a row that says why, and the host's record."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from greencrawl.schema.records import LEVELS, CloseItem, Done, Task, TaskKind
from greencrawl.schema.records.auth import Source
from greencrawl.worker.pipeline import Pipeline
from greencrawl.worker.session.held import HeldSession
from tests.worker.test_pipeline import World, _session, html


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for n in range(60):
        there = "".join(f"<li><a href=/item/{20 * n + m}>Item {m}</a>" for m in range(100, 120))
        world.site.answers[f"http://h/item/{n}"] = html(f"<p>Out of stock. See also:{there}")
    world.set(scope="host", traps="on")
    return world


def run(
    world: World, first: int, count: int, pipeline: Pipeline, record: bytes = b"", depth: int = 1
) -> CloseItem:
    tasks = tuple(Task(n, f"http://h/item/{n}", depth, depth) for n in range(first, first + count))
    session = msgspec.structs.replace(_session(tasks, 0.0, "h"), traps=record)
    close = pipeline.run(HeldSession(session, 1e12))
    assert close is not None
    return close


def test_a_trap_is_parked_without_a_request_with_its_shape_and_the_reason(world: World) -> None:
    close = run(world, 0, 20, world.pipeline())
    fetched = len(world.site.pages)
    assert 4 <= fetched <= 12
    assert world.outcomes[fetched:] == [Done(kind="parked")] * (20 - fetched)
    (final,) = world.stores.results[-1].finals
    assert (final.state, final.kind, final.shape) == ("parked", "trap", "http://h/item/{n}")
    assert "brought nothing new" in final.detail
    assert 0 < len(close.report.traps) <= 4096


def test_links_of_a_poor_shape_come_last(world: World) -> None:
    run(world, 0, 20, world.pipeline())
    stored = [result.page for result in world.stores.results if result.page is not None]
    assert {link.level for link in stored[0].links} == {2}
    assert {link.level for link in stored[-1].links} == {LEVELS - 1}


def test_another_worker_knows_a_trap_from_the_record_of_the_host(world: World) -> None:
    record = run(world, 0, 10, world.pipeline()).report.traps
    asked = len(world.site.asked)
    run(world, 30, 10, world.pipeline(), record)
    assert world.outcomes[-10:] == [Done(kind="parked")] * 10
    assert len(world.site.asked) == asked, "not even robots.txt"
    run(world, 40, 10, world.pipeline())
    assert world.site.pages[-1] == "http://h/item/45", "nothing is known without it"


def test_a_stored_page_of_a_trap_is_fetched_again_and_its_shape_stays_parked(world: World) -> None:
    pipeline, stores = world.pipeline(), world.stores
    run(world, 0, 20, pipeline)
    first = list(world.site.pages)
    pages = [result.page for result in stores.results if result.page is not None]
    stores.stored.update((page.fingerprint, page) for page in pages)
    run(world, 0, 20, pipeline)
    assert world.site.pages == first * 2, "as --fresh asks for them; others are parked"


def test_a_seed_is_fetched_whatever_its_shape(world: World) -> None:
    pipeline = world.pipeline()
    run(world, 0, 20, pipeline)
    run(world, 30, 5, pipeline, depth=0)
    assert world.site.pages[-1] == "http://h/item/34"


def test_a_trap_is_fetched_if_its_shape_is_released_or_traps_are_off(world: World) -> None:
    for change in ({"released": ("http://h/item/{n}",)}, {"released": ("*",)}):
        world.stores.crawl_ = msgspec.structs.replace(world.stores.crawl_, **change)
        asked = len(world.site.pages)
        run(world, 0, 30, world.pipeline())
        assert len(world.site.pages) == asked + 30
    site = world.site
    world.set(scope="host", traps="off")
    asked = len(site.pages)
    run(world, 0, 30, world.pipeline())
    assert len(site.pages) == asked + 30


def test_the_page_budget_of_a_host_holds_over_all_sessions(world: World) -> None:
    world.set(scope="host", host_pages=3)
    record = run(world, 0, 2, world.pipeline()).report.traps
    close = run(world, 2, 3, world.pipeline(), record)
    assert world.site.pages[-1] == "http://h/item/2"
    (final,) = world.stores.results[-1].finals
    assert final.shape == "http://h/{all}"
    assert close.report.traps


def test_pages_forbidden_by_robots_txt_do_not_count_towards_host_pages(world: World) -> None:
    world.set(scope="host", host_pages=3)
    forbidden = "User-agent: *\n" + "".join(f"Disallow: /item/{n}$\n" for n in range(5))
    world.site.answers["http://h/robots.txt"] = html(forbidden)
    run(world, 0, 10, world.pipeline())
    assert world.site.pages == [f"http://h/item/{n}" for n in (5, 6, 7)]


def test_a_page_that_is_fetched_again_does_not_count_towards_host_pages(world: World) -> None:
    world.set(scope="host", host_pages=3)
    again = tuple(Task(n, f"http://h/item/{n}", 1, 1, kind=TaskKind.REFETCH) for n in range(5))
    tasks = (*again, *(Task(n, f"http://h/item/{n}", 1, 1) for n in range(5, 10)))
    assert world.pipeline().run(HeldSession(_session(tasks, 0.0, "h"), 1e12)) is not None
    parked = [outcome == Done(kind="parked") for outcome in world.outcomes]
    assert parked == [False] * 8 + [True] * 2


@pytest.mark.parametrize(("depth", "fetched"), [(1, True), (2, False)])
def test_urls_that_a_source_names_are_fetched_whatever_their_shape(
    world: World, depth: int, fetched: bool
) -> None:
    listed = Source(url="http://api/items", items="items[*].url")
    world.set(scope="host", traps="on", sources=(listed,))
    run(world, 0, 30, world.pipeline(), depth=depth)
    assert (len(world.site.pages) == 30) == fetched
