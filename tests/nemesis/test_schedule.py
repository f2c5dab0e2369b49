"""A seed says all; what it says survives a file; what is not needed can be taken out."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.nemesis import schedule
from tests.nemesis.faults import Strokes
from tests.nemesis.schedule import FAULTS, OPERATIONS, Schedule, make
from tests.nemesis.shrink import minimise
from tests.nemesis.site import Graph, graph_of, look, number_of
from tests.nemesis.world import Store


@pytest.mark.parametrize("store", ["sqlite", "mysql"])
def test_a_seed_always_makes_the_same_schedule_and_a_file_keeps_it(
    store: Store, tmp_path: Path
) -> None:
    made = make(5, store, 6)
    assert made == make(5, store, 6)
    assert made.events != make(6, store, 6).events
    made.save(tmp_path / "kept.json")
    assert Schedule.load(tmp_path / "kept.json") == made


@pytest.mark.parametrize("store", ["sqlite", "mysql"])
def test_all_kinds_come_and_each_can_be_done(store: Store) -> None:
    events = [event for seed in range(40) for event in make(seed, store, 6).events]
    wanted = {*FAULTS, *OPERATIONS} - ({"lock"} if store == "mysql" else set())
    assert {event.kind for event in events} == wanted
    assert all(hasattr(Strokes, f"_{kind}") for kind in wanted)
    assert all(0 <= event.at <= 360 for event in events if event.kind in OPERATIONS)
    assert all(0.09 <= event.seconds <= 40 for event in events if event.kind == "stop")


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


def test_shrinking_leaves_what_it_takes() -> None:
    def fails(some: list[int]) -> bool:
        return {3, 17, 18} <= set(some)

    assert minimise(list(range(40)), fails, time.monotonic() + 10) == [3, 17, 18]
    assert minimise(list(range(40)), fails, time.monotonic() - 1) == list(range(40))


def test_a_tag_names_a_graph_and_its_pages_know_their_links() -> None:
    graph = Graph(12, 55, 10, 5)
    assert graph_of(f"/{graph.tag}/p/3") == graph
    page = look(graph.url(9, "p/0", 80 + 1))
    assert page.status == 200
    assert graph.url(9, "p/1", 81) in page.links
    assert {graph_of(link) for link in page.links} == {graph}
    assert number_of(graph.url(9, "x", 81).removeprefix("http://").partition("/")[0]) == 4
    assert look(graph.url(9, "p/5", 81)).status == 404
    assert schedule.DELAY_SECONDS > 0
