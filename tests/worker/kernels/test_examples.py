"""The kernels in examples/; docs/kernels.md explains how to write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from greencrawl.schema.records import Dead, Fetched, KernelRule
from tests.support.checkout import ROOT
from tests.worker.test_pipeline import World, html, status

LINES = 40


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.set(
        kernels=(
            KernelRule(match="*/feed.json*", kernel="examples.json_feed:JsonFeed"),
            KernelRule(match="http://h/list.csv*", kernel="examples.csv_list:CsvList"),
        )
    )
    return made


def feed(**more: object) -> Fetched:
    items = [
        {"id": "1", "url": "http://h/one", "title": "One", "content_text": "First"},
        {"id": "2", "url": "http://far/two", "content_text": "Second", "_own": {}},
        {"id": "3", "content_html": "<p>Third"},
    ]
    told = {"version": "https://jsonfeed.org/version/1.1", "title": "T", "items": items, **more}
    return html(json.dumps(told), content_type="application/feed+json")


@pytest.mark.parametrize("name", ["json_feed", "csv_list"])
def test_the_example_kernels_are_short(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= LINES


def test_a_json_feed_becomes_links_records_and_a_link_to_its_next_page(world: World) -> None:
    world.site.answers["http://h/feed.json"] = feed(next_url="/feed.json?page=2")
    world.run("http://h/feed.json")
    page = world.result.page
    assert page is not None
    assert (page.title, page.text.split()) == ("T", ["First", "Second"])
    assert [(one.url, one.depth) for one in page.links] == [
        ("http://h/feed.json?page=2", 0), ("http://h/one", 1),
    ]  # fmt: skip
    assert json.loads(page.items)[0] == {"id": "1", "url": "http://h/one", "title": "One"}
    assert world.result.attempts[-1].detail == "kernel json-feed"


@pytest.mark.parametrize("body", ["{}", "[]", "<p>", '{"version": 1, "items": 2}'])
def test_an_answer_that_is_no_json_feed_becomes_a_dead_letter(world: World, body: str) -> None:
    world.site.answers["http://h/feed.json"] = html(body, content_type="application/json")
    world.run("http://h/feed.json")
    assert world.outcomes == [Dead("kernel")]
    assert world.result.finals[0].detail.startswith("kernel json-feed: ")


def test_a_list_in_csv_is_requested_part_by_part(world: World) -> None:
    parts = {"": "url,name\r\n/a,A\r\n", "?part=2": 'url,name\n"/b","B, or C"\n,none\n'}
    for query, body in parts.items():
        answer = html(body, content_type="text/csv", x_parts="2")
        world.site.answers[f"http://h/list.csv{query}"] = answer
    world.run("http://h/list.csv", delay=1.0)
    page = world.result.page
    assert page is not None
    assert [one.url for one in page.links] == ["http://h/a", "http://h/b"]
    assert [row["name"] for row in json.loads(page.items)] == ["A", "B, or C", "none"]
    assert world.site.pages == ["http://h/list.csv", "http://h/list.csv?part=2"]
    assert world.site.headers[-1]["accept"] == "text/csv"
    assert world.stopping.waits == [1, 1], "each request is paced"


def test_a_list_in_csv_with_too_many_parts_is_a_dead_letter_and_a_missing_list_is_gone(
    world: World,
) -> None:
    world.site.answers["http://h/list.csv"] = html("url\n", content_type="text/csv", x_parts="30")
    for part in range(2, 30):
        world.site.answers[f"http://h/list.csv?part={part}"] = html(f"url\n/{part}\n")
    world.run("http://h/list.csv")
    assert world.outcomes == [Dead("kernel")]
    assert "20 requests were made for one page" in world.result.finals[0].detail
    world.stores.results.clear()
    world.site.answers["http://h/list.csv"] = status(404)
    world.run("http://h/list.csv")
    assert world.result.finals[0].state == "gone"
