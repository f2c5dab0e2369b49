"""A seed determines everything; a schedule survives a file; unneeded events can be removed."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.nemesis import schedule
from tests.nemesis.faults import Strokes
from tests.nemesis.schedule import FAULTS, OPERATIONS, Schedule, make, options_of
from tests.nemesis.shrink import minimise
from tests.nemesis.site import Graph, graph_of, mapped, number_of, reachable, resource_at, robots
from tests.nemesis.world import Store


@pytest.mark.parametrize("store", ["sqlite", "mysql"])
def test_the_same_random_seed_makes_the_same_schedule_and_a_file_keeps_it(
    store: Store, tmp_path: Path
) -> None:
    made = make(5, store, 6)
    assert made == make(5, store, 6)
    assert made.events != make(6, store, 6).events
    made.save(tmp_path / "kept.json")
    assert Schedule.load(tmp_path / "kept.json") == made


@pytest.mark.parametrize("store", ["sqlite", "mysql"])
def test_schedules_contain_every_kind_of_event_and_each_can_be_executed(store: Store) -> None:
    events = [event for seed in range(40) for event in make(seed, store, 6).events]
    wanted = {*FAULTS, *OPERATIONS} - ({"lock"} if store == "mysql" else set())
    assert {event.kind for event in events} == wanted
    assert all(hasattr(Strokes, f"_{kind}") for kind in wanted)
    assert all(0 <= event.at <= 360 for event in events if event.kind in OPERATIONS)
    assert all(0.09 <= event.seconds <= 40 for event in events if event.kind == "stop")


def test_some_crawls_have_sitemaps_requisites_or_traps_and_parked_urls_are_released() -> None:
    events = [event for seed in range(20) for event in make(seed, "sqlite", 6).events]
    made = [event for event in events if event.kind == "create"]
    graphs = [graph_of(f"/{event.arguments['graph']}/") for event in made]
    small = [graph for graph in graphs if graph is not None and graph.key]
    for letter, option in (("s", "sitemaps"), ("q", "requisites"), ("t", "traps")):
        some = [graph for graph in small if letter in graph.extras]
        assert len(small) / 5 < len(some) < len(small) * 4 / 5
        assert all(options_of(graph)[option] == "on" for graph in some)
    assert any("shape_pages" in event.arguments for event in made)
    assert any(event.kind == "release" for event in events)


def test_several_faults_overlap_in_most_schedules() -> None:
    overlapping = 0
    for seed in range(20):
        faults = [event for event in make(seed, "sqlite", 6).events if event.is_fault]
        overlapping += any(
            a.at < b.at < a.at + a.seconds
            for a, b in pairwise(faults)
            if a.arguments != b.arguments
        )
    assert overlapping >= 15


def test_shrinking_leaves_only_the_events_that_the_failure_needs() -> None:
    def fails(some: list[int]) -> bool:
        return {3, 17, 18} <= set(some)

    assert minimise(list(range(40)), fails, time.monotonic() + 10) == [3, 17, 18]
    assert minimise(list(range(40)), fails, time.monotonic() - 1) == list(range(40))


def test_a_tag_identifies_a_graph_and_the_links_of_its_pages() -> None:
    graph = Graph(12, 55, 10, 5)
    assert graph_of(f"/{graph.tag}/p/3") == graph
    page = resource_at(graph.url(9, "p/0", 80 + 1))
    assert page.status == 200
    assert graph.url(9, "p/1", 81) in page.links
    assert {graph_of(link) for link in page.links} == {graph}
    assert number_of(graph.url(9, "x", 81).removeprefix("http://").partition("/")[0]) == 4
    assert resource_at(graph.url(9, "p/5", 81)).status == 404
    assert schedule.DELAY_SECONDS > 0


def test_a_graph_with_sitemaps_follows_from_its_key_and_robots_txt_names_them() -> None:
    graph = mapped(6)
    assert graph_of(f"/{graph.tag}/p/3") == graph
    urls = reachable(graph.seeds(1, 81))
    assert {graph_of(url) for url in urls} == {graph}
    assert {resource_at(url).status for url in urls} <= {200, 302, 404}
    named = f"Sitemap: {graph.url(0, 'x/index.xml', 81)}\n"
    assert named in robots(graph.host(0), 81).decode()
    assert "Sitemap" not in robots(graph.host(1), 81).decode()
    kinds = {resource_at(url).kind for url in urls}
    assert kinds == {"html", "index", "urlset", "gzip", "text"}
    assert {resource_at(url).kind for url in reachable(mapped(7).seeds(1, 81))} >= {
        "css",
        "image",
        "font",
    }
