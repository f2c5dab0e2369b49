"""Points of plots and open alerts over the HTTP API and by the clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from greencrawl.broker.frontier.coordination.outages import Outage
from greencrawl.broker.service.watching import points
from greencrawl.schema.records import Alert, Counted, Crawl, CrawlOptions
from greencrawl.store.base import MINUTE_MS
from tests.broker.api.test_app import Api

FIRST = 31_000_000
CRAWL = Crawl(id=1, name="c", state="active", options=CrawlOptions(), roots=())


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    made.crawl()
    yield made
    made.store.close()


def sample(minute: int, pages: int = 0, **more: int) -> Counted:
    return Counted(crawl=1, minute=FIRST + minute, pages=pages, **more)


def test_a_plot_point_has_the_increase_of_counters_and_the_current_values() -> None:
    rows = [
        sample(0, 10, bytes=100, errors=1, unchanged=2, waiting=7, hosts=1),
        sample(1, 70, bytes=900, errors=4, unchanged=3, waiting=5, hosts=2),
        sample(5, 20, waiting=9),  # Redis has lost its counters since
    ]
    first, second = points(CRAWL, rows)
    assert (first.at_ms, first.seconds) == ((FIRST + 1) * MINUTE_MS, 60)
    assert (first.pages, first.bytes, first.errors, first.unchanged) == (60, 800, 3, 1)
    assert (first.waiting, first.hosts) == (5, 2)
    assert (second.seconds, second.pages, second.bytes, second.waiting) == (240, 0, 0, 9)
    assert points(CRAWL, rows[:1]) == points(CRAWL, []) == []


def test_a_new_crawl_has_a_plot_point_for_the_time_before_its_first_sample() -> None:
    rows = [sample(0, 10), sample(1, 70)]
    for minute, seconds in ((0, 60), (-1, 60), (-9, 540)):
        made = replace(CRAWL, created_ms=(FIRST + minute) * MINUTE_MS + 5)
        found = points(made, rows)
        assert [(one.pages, one.seconds) for one in found] == [(10, seconds), (60, 60)]
        later = (FIRST + minute + 1) * MINUTE_MS
        assert [one.pages for one in points(made, rows, later)] == [60], "it may have older rows"
    old = replace(CRAWL, created_ms=(FIRST - 16) * MINUTE_MS)
    assert [one.pages for one in points(old, rows)] == [60], "older rows may have been dropped"


def test_plot_points_can_be_limited_by_time_and_number(api: Api) -> None:
    api.store.put_samples([sample(n, 3 * n) for n in range(100)])
    path = "/v1/crawls/test/samples"
    every = api.call("GET", path).json
    assert [one["pages"] for one in every] == [3] * 99
    some = api.call("GET", f"{path}?points=10").json
    assert len(some) < 10
    assert sum(one["pages"] for one in some) >= 3 * 80
    at_ms = (FIRST + 98) * MINUTE_MS
    late = api.call("GET", f"{path}?since=1970-01-01").json
    assert late == every
    assert api.call("GET", f"{path}?since=2100-01-01").json == []
    assert api.call("GET", f"{path}?since=soon").status.startswith("400")
    assert api.call("GET", f"{path}?points=1").status.startswith("400")
    assert api.call("GET", "/v1/crawls/none/samples").status.startswith("404")
    assert every[-2]["at_ms"] == at_ms


def test_open_alerts_are_listed_with_an_outage_that_the_store_cannot_record(
    api: Api,
) -> None:
    one = Alert(kind="disk_full", subject="m", text="Full.", since_ms=5, began_ms=6)
    soon = Alert(kind="links_owed", subject="n", text="Owed.", since_ms=1)
    over = Alert(kind="node_lost", subject="w", text="Lost.", since_ms=1, began_ms=1, over_ms=2)
    api.store.put_alerts([one, soon, over])
    assert [found["subject"] for found in api.call("GET", "/v1/alerts").json] == ["m"]
    api.queue.outages.note = Outage(7, "The store takes no writes: full")
    found = api.call("GET", "/v1/alerts").json
    assert [(one["kind"], one["since_ms"]) for one in found] == [
        ("disk_full", 5), ("store_not_writable", 7)
    ]  # fmt: skip
    assert [one["subject"] for one in api.call("GET", "/v1/stats").json["alerts"]] == ["m", "store"]
