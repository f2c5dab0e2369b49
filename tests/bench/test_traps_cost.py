"""The cost of the judge is measured on pages that are all new, alternately with and without it."""

from __future__ import annotations

from pathlib import Path

from bench.traps.cost import KINDS, MENU, Cost, crawled, fetched, line, measured
from greencrawl.schema.records import Fetched, Task
from tests.support.effort import by_night


def pages_of(name: str, most: int) -> list[tuple[Task, Fetched]]:
    site, start = KINDS[name](most)
    return fetched(site, start, most)


def test_synthetic_pages_are_listed_once_each_by_rising_depth() -> None:
    pages = pages_of("synthetic", 60)
    assert len(pages) == 60
    depths = [task.depth for task, _ in pages]
    assert depths == sorted(depths)
    assert len({task.url for task, _ in pages}) == len({page.body for _, page in pages}) == 60
    assert all(page.body.count(b"<a href") == MENU + 2 for _, page in pages)
    assert 18_000 < len(pages[0][1].body) < 22_000


def test_the_time_of_the_trap_judge_is_compared_with_that_of_reading(tmp_path: Path) -> None:
    cost = measured("synthetic", pages_of("synthetic", 40), 3, tmp_path)
    assert (cost.name, cost.pages) == ("synthetic", 40)
    assert cost.reading > 0
    assert cost.least <= cost.judge <= cost.most
    assert cost.share == cost.judge / cost.reading


@by_night
def test_the_share_of_the_trap_judge_is_relative_to_the_cost_of_a_crawled_page(
    tmp_path: Path,
) -> None:
    site, start = KINDS["catalogue"](200)
    assert crawled(site, start, 200, 1, tmp_path) > 100
    cost = Cost("catalogue", 30, 100.0, 12.0, 11.0, 13.0, 600.0)
    assert cost.share == 0.02
    assert line(cost).startswith("ok")
    assert line(cost).split()[-3:] == ["600", "2.0%", "catalogue"]
    assert not line(Cost("catalogue", 30, 100.0, 24.0, 22.0, 26.0, 600.0)).startswith("ok")
