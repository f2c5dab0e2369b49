"""Parked URLs over the HTTP API: listed by shape, explained, and released."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.records import Commit, Crawl, Final
from tests.broker.api.test_app import Api

DAYS, TAGS = "https://a.example/cal/{n}?d={n}", "https://a.example/tag/{w}"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    made.crawl(scope="any")
    yield made
    made.store.close()


def park(api: Api, *paths: str, shape: str = DAYS, at_ms: int = 1000) -> None:
    urls = [f"https://a.example/{path}" for path in paths]
    finals = [
        Final(
            crawl=1, fingerprint=api.queue.fingerprint(url), url=url, state="parked", kind="trap",
            detail="nothing new", shape=shape, at_ms=at_ms,
        )
        for url in urls
    ]  # fmt: skip
    api.store.commit(Commit(finals=finals))


def release(api: Api, **more: Any) -> Any:
    return api.call("POST", "/v1/parked/release", {"crawl": "test", **more})


def test_parked_urls_are_listed_by_shape_with_the_released_shapes(api: Api) -> None:
    park(api, "cal/1", "cal/2")
    park(api, "tag/x", shape=TAGS)
    found = api.call("GET", "/v1/parked?crawl=test").json
    assert [(one["shape"], one["count"]) for one in found["items"]] == [(DAYS, 2), (TAGS, 1)]
    assert found["items"][0]["host"] == "a.example"
    assert found["items"][0]["reason"] == "nothing new"
    assert found["released"] == []
    assert release(api, shape=TAGS).json["added"] == 1
    found = api.call("GET", "/v1/parked?crawl=test").json
    assert [one["shape"] for one in found["items"]] == [DAYS]
    assert found["released"] == [TAGS]


def test_a_release_queues_the_urls_reopens_the_crawl_and_tells_the_partitions(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    park(api, "cal/1", "cal/2")
    ended = api.store.set_state(1, "done", "finished")
    told: list[Crawl] = []
    monkeypatch.setattr(api.queue, "put_crawl", told.append)
    assert release(api, shape=DAYS).json == {
        "added": 2, "duplicate": 0, "rejected": 0, "items": [], "pending": 0, "again": 0,
    }  # fmt: skip
    crawl = api.store.crawl(1)
    assert (crawl.state, crawl.released, crawl.revision) == ("active", (DAYS,), 2)
    assert [one.revision for one in told[:1]] == [ended.revision + 1], "before it is queued"
    assert {"https://a.example/cal/1", "https://a.example/cal/2"} <= set(api.queue.seen[1])
    assert api.store.pending_seeds() == []
    assert release(api, shape=DAYS).json["added"] == 0
    assert api.store.crawl(1).revision == 2, "the second time it changes nothing"


def test_no_url_is_parked_after_a_release_of_all_shapes(api: Api) -> None:
    park(api, "cal/1")
    park(api, "tag/x", shape=TAGS)
    assert release(api, all=True).json["added"] == 2
    assert api.store.crawl(1).released == ("*",)
    park(api, "cal/3")
    assert api.call("GET", "/v1/parked?crawl=test").json["items"] == []


@pytest.mark.parametrize("body", [{}, {"all": True, "shape": DAYS}, {"shape": "", "all": False}])
def test_a_release_must_name_either_a_shape_or_all(api: Api, body: dict[str, Any]) -> None:
    result = release(api, **body)
    assert result.status_code == 400
    assert result.json["errors"][0]["field"] == "shape"
    assert api.store.crawl(1).released == ()


def test_a_crawl_with_a_thousand_released_shapes_refuses_one_more(api: Api) -> None:
    api.store.add_released(1, [str(n) for n in range(1000)])
    result = release(api, shape=DAYS)
    assert result.status_code == 400
    assert "1,000" in result.json["detail"]
    assert release(api, all=True).status_code == 200


def test_released_urls_of_a_node_that_is_away_stay_pending(api: Api) -> None:
    park(api, "cal/1")
    api.queue.lost_node = "b"
    url = "https://lost.example/"
    final = Final(crawl=1, fingerprint=1, url=url, state="parked", kind="trap", shape=DAYS, at_ms=1)
    api.store.commit(Commit(finals=[final]))
    result = release(api, shape=DAYS).json
    assert (result["added"], result["pending"]) == (1, 1)
    assert len(api.store.pending_seeds()) == 1


def test_the_explanation_of_a_parked_url_has_its_shape_and_the_command_to_release_it(
    api: Api,
) -> None:
    park(api, "cal/1")
    (found,) = api.call("GET", "/v1/urls?url=https://a.example/cal/1&crawl=test").json
    assert found["state"] == "parked"
    assert found["why"].startswith("parked at 1970-01-01 00:00:01 UTC: nothing new, of the shape ")
    assert f"`greencrawl traps test --release '{DAYS}'`" in found["why"]
