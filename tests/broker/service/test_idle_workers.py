"""Why a URL waits if no worker takes URLs: over the API, and in the Monitor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.schema.records import ALL, MemberRequest, NodeOptions
from tests.broker.api.test_app import Api

URL = "https://a.example/"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    made.crawl(seeds=[URL])
    for node in ("v", "w"):
        report(made, node)
    yield made
    made.service.stop()
    made.store.close()


def report(api: Api, node: str, *, leaving: bool = False) -> None:
    life = MemberRequest(id=f"{node}-0", node=node, kind="worker", incarnation=1, leaving=leaving)
    api.service.members.follow(life)


def why(api: Api) -> str:
    (found,) = api.call("GET", f"/v1/urls?url={URL}").json
    assert found["state"] == "waiting"
    return str(found["why"])


def test_a_url_waits_if_all_workers_are_paused_or_drained(api: Api) -> None:
    before = why(api)
    assert "worker" not in before
    api.service.members.order("v", NodeOptions(paused=True))
    assert why(api) == before, "the other one takes it"
    api.service.members.order("w", NodeOptions(drain=True))
    assert why(api) == f"all workers are paused or drained (see `greencrawl nodes`); {before}"
    api.service.members.order("w", NodeOptions(), ("drain",))
    assert why(api) == before
    api.service.members.order(ALL, NodeOptions(paused=True))
    assert why(api).startswith("all workers are paused or drained")


def test_a_url_waits_if_no_worker_is_running(api: Api) -> None:
    before = why(api)
    for node in ("v", "w"):
        report(api, node, leaving=True)
    assert why(api) == before, "one asked for work in the last minute"
    api.queue.at_work = 0
    assert why(api) == f"no worker takes URLs: none is running; {before}"


def test_a_paused_crawl_is_the_reason_before_its_workers(api: Api) -> None:
    api.service.members.order(ALL, NodeOptions(paused=True))
    api.call("POST", "/v1/crawls/test/pause")
    assert why(api).startswith("the crawl is paused; ")
    assert "workers" not in why(api)


def test_a_redis_node_that_is_away_may_know_of_a_worker(api: Api) -> None:
    before = why(api)
    api.queue.at_work, api.queue.beats.away = 0, True
    assert why(api) != before
    api.queue.lost_node = "b"
    assert why(api) == before
