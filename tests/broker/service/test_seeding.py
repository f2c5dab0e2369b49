"""Seeding over the HTTP API: every way to send URLs, and the result for each URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.broker.api import bodies
from greencrawl.broker.tasks.purge import Purging
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import Commit, Final
from tests.broker.api.test_app import FORM, JSON, NDJSON, Api, fields
from tests.support.store_records import page

PATH = "/v1/crawls/test/urls"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    made.crawl(scope="any", exclude=["/private/"])
    yield made
    made.service.stop()
    made.store.close()


def statuses(result: Any) -> list[str]:
    assert result.status_code == 200, result.text
    return [item["status"] for item in result.json["items"]]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"urls": ["https://a.example/", "https://b.example/"]}', JSON),
        (b'{"urls": ["https://a.example/", "https://b.example/"]}', FORM),
        (b' {\n "force" : false, "urls": ["https://a.example/", "https://b.example/"]}', FORM),
        (b'"https://a.example/"\n{"url": "https://b.example/"}\n', NDJSON),
        (b'{"url": "https://a.example/"}\r\n\r\n{"url": "https://b.example/", "depth": 2}', FORM),
        (b"https://a.example/\nhttps://b.example/", {"Content-Type": "text/plain"}),
        (b"  https://a.example/  \n\nhttps://b.example/\n", NDJSON),
    ],
)
def test_urls_may_be_sent_in_each_accepted_format(
    api: Api, body: bytes, headers: dict[str, str]
) -> None:
    result = api.call("POST", PATH, body, headers=headers)
    assert statuses(result) == ["added", "added"]
    assert api.queue.seen[1] == ["https://a.example/", "https://b.example/"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"https://a.example/\n{nonsense\n", "line 2"),
        (b'https://a.example/\n\n{"url": "https://b.example/", "depht": 1}', "line 3.depht"),
        (b'{"url": "https://b.example/", "depth": -1}', "line 1.depth"),
        (b'["https://a.example/"]', "line 1"),
        (b"https://a.example/\n\xff\xfe", "line 2"),
        (b"https://a.example/\n" + b"x" * 9000, "line 2"),
    ],
)
def test_a_bad_line_of_seeds_is_named_and_no_url_is_admitted(
    api: Api, body: bytes, field: str
) -> None:
    result = api.call("POST", PATH, body, headers=NDJSON)
    assert result.status_code == 400
    assert fields(result) == [field]
    assert api.queue.seen == {}


def test_a_batch_of_seeds_has_a_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_SEEDS", 2)
    result = api.call("POST", PATH, b"https://a.example/\n" * 3, headers=NDJSON)
    assert fields(result) == ["line 3"]


def test_seeding_again_changes_nothing(api: Api) -> None:
    body = {"urls": ["https://a.example/x", "HTTPS://A.EXAMPLE:443/x#part"]}
    assert statuses(api.call("POST", PATH, body)) == ["added", "duplicate"]
    assert statuses(api.call("POST", PATH, body)) == ["duplicate", "duplicate"]


def test_spellings_of_one_url_are_queued_once_even_by_force(api: Api) -> None:
    body = {"urls": ["https://a.example/%7Ex", "https://a.example/~x"], "force": True}
    assert statuses(api.call("POST", PATH, body)) == ["added", "duplicate"]
    assert api.queue.seen[1] == ["https://a.example/%7Ex"]
    assert [item.url for batch in api.store.seeds(1) for item in batch.urls] == api.queue.seen[1]


def test_seeds_are_rewritten_by_the_rules_of_the_crawl(api: Api) -> None:
    crawl = api.crawl(name="rules", normalise=["tracking"], seeds=["https://a.example/?utm_id=1"])
    number = crawl["id"]
    assert api.queue.seen[number] == ["https://a.example/"]
    assert crawl["roots"] == ["a.example"]
    path = PATH.replace("test", "rules")
    urls = ["https://a.example/x?utm_id=2", "https://a.example/x"]
    assert statuses(api.call("POST", path, {"urls": urls})) == ["added", "duplicate"]
    assert api.queue.seen[number][1:] == ["https://a.example/x"]
    (found,) = api.call("GET", f"/v1/urls?crawl=rules&url={urls[0]}").json
    assert found["url"] == urls[1]


def test_a_crawl_with_an_unknown_normalise_rule_is_refused(api: Api) -> None:
    answer = api.call("POST", "/v1/crawls", {"name": "wrong", "normalise": ["trackers"]})
    assert answer.status_code == 400


def test_force_queues_urls_that_were_seen(api: Api) -> None:
    body = {"urls": ["https://a.example/x"]}
    api.call("POST", PATH, body)
    assert statuses(api.call("POST", PATH, {**body, "force": True})) == ["duplicate"], "it waits"
    number = api.queue.fingerprint("https://a.example/x")
    api.store.commit(Commit([page(1, number)]))
    twice = {"urls": [*body["urls"] * 2, "https://a.example/new"], "force": True}
    answer = api.call("POST", PATH, twice)
    assert statuses(answer) == ["again", "duplicate", "added"]
    assert [answer.json[name] for name in ("again", "duplicate", "added")] == [1, 1, 1]
    again = api.call("POST", PATH + "?force=true", b"https://a.example/x", headers=NDJSON)
    assert statuses(again) == ["again"]
    assert api.queue.seen[1].count("https://a.example/x") == 3


def test_a_seed_that_cannot_be_fetched_is_rejected_with_its_reason(api: Api) -> None:
    deep = {"url": "https://a.example/", "depth": 51}
    urls = ["mailto:a@b.example", "https://a.example/private/1", deep, "https://a.example/"]
    result = api.call("POST", PATH, {"urls": urls})
    assert statuses(result) == ["rejected", "rejected", "rejected", "added"]
    reasons = [item.get("reason", "") for item in result.json["items"]]
    assert reasons == [
        "invalid: neither http nor https", "exclude pattern '/private/'", "depth 51 > 50", "",
    ]  # fmt: skip
    assert (result.json["added"], result.json["rejected"]) == (1, 3)


def test_a_batch_of_nothing_but_rejected_urls_is_not_logged(api: Api) -> None:
    assert statuses(api.call("POST", PATH, {"urls": ["ftp://a.example/"]})) == ["rejected"]
    assert api.call("POST", PATH, {"urls": []}).json["items"] == []
    assert list(api.store.seeds(1)) == []


def test_the_first_urls_define_the_scope_and_later_ones_are_judged_by_it(api: Api) -> None:
    api.crawl("hosts")
    path = "/v1/crawls/hosts/urls"
    both = {"urls": ["https://a.example/", "no url", "https://b.example/"]}
    assert statuses(api.call("POST", path, both)) == ["added", "rejected", "added"]
    assert api.call("GET", "/v1/crawls/hosts").json["roots"] == ["a.example", "b.example"]
    later = {"urls": ["https://a.example/1", "https://c.example/"]}
    assert statuses(api.call("POST", path, later)) == ["added", "rejected"]


def test_seeds_of_a_crawl_give_it_its_roots_and_posting_it_again_adds_more(api: Api) -> None:
    made = api.crawl("mine", seeds=["https://a.example/x"], scope="domain")
    assert made["roots"] == ["a.example"]
    more = api.call("POST", "/v1/crawls", {"name": "mine", "seeds": ["https://b.example/"]})
    assert more.status_code == 200
    assert set(more.json["roots"]) == {"a.example", "b.example"}
    assert more.json["id"] == made["id"]


def test_a_new_crawl_is_refused_if_its_options_exclude_one_of_its_seeds(api: Api) -> None:
    seeds = ["https://a.example/", "https://a.example/private/"]
    body = {"name": "x", "seeds": seeds, "exclude": ["/private/"]}
    result = api.call("POST", "/v1/crawls", body)
    assert result.status_code == 400
    assert fields(result) == ["seeds[1]"]
    assert api.call("GET", "/v1/crawls/x").status_code == 404
    bad = api.call("POST", "/v1/crawls", {"name": "x", "seeds": ["https://a.example/", "mailto:x"]})
    assert fields(bad) == ["seeds[1]"]


LIST = {"url": "https://api.example/2/list?n=5", "items": "a", "next": "b", "cursor": "c"}


def test_the_urls_of_sources_are_seeds_too(api: Api) -> None:
    made = api.crawl("list", sources=[LIST], scope="prefix")
    assert made["roots"] == ["api.example/2/"]
    assert api.queue.seen[made["id"]] == [LIST["url"]]
    api.crawl("both", sources=[LIST], seeds=["https://a.example/", LIST["url"]])
    assert list(api.queue.seen.values())[-1] == ["https://a.example/", LIST["url"]]


def test_a_source_that_is_wrong_is_named(api: Api) -> None:
    body = {"name": "x", "sources": [LIST, {**LIST, "url": "ftp://a", "items": "["}]}
    result = api.call("POST", "/v1/crawls", body)
    assert result.status_code == 400
    assert fields(result) == ["sources[1].url", "sources[1].items"]
    kept_out = {"name": "x", "sources": [LIST], "exclude": ["/2/"]}
    assert fields(api.call("POST", "/v1/crawls", kept_out)) == ["sources[0].url"]


def test_a_batch_that_redis_refused_stays_pending_and_is_answered_503(api: Api) -> None:
    api.queue.away = True
    assert api.call("POST", PATH, {"urls": ["https://a.example/"]}).status_code == 503
    pending = api.store.pending_seeds()
    assert [a.url for a in pending[0].urls] == ["https://a.example/"]
    api.queue.away = False
    api.call("POST", PATH, {"urls": ["https://b.example/"]})
    assert [batch.id for batch in api.store.pending_seeds()] == [pending[0].id]


def test_seeding_a_done_crawl_makes_it_active_again(api: Api) -> None:
    api.store.set_state(1, "done", "finished")
    api.call("POST", PATH, {"urls": ["https://a.example/"]})
    assert api.call("GET", "/v1/crawls/test").json["state"] == "active"
    assert api.queue.crawls[1].state == "active"


def test_a_crawl_is_paused_and_resumed_in_the_store_and_in_the_frontier(api: Api) -> None:
    assert api.call("POST", "/v1/crawls/test/pause").json["state"] == "paused"
    assert {crawl.state for crawl in api.queue.crawls.values()} == {"paused"}
    assert api.call("POST", "/v1/crawls/test/pause").status_code == 200
    assert api.call("POST", "/v1/crawls/test/resume").json["state"] == "active"
    assert api.queue.crawls[1].state == "active"
    api.store.set_state(1, "done", "finished")
    assert api.call("POST", "/v1/crawls/test/pause").status_code == 409


def test_a_deleted_crawl_is_unknown_at_once_and_removed_in_the_background(api: Api) -> None:
    purging = Purging(api.service)
    api.queue.away = True  # the deletion has to wait
    assert api.call("DELETE", "/v1/crawls/test").status_code == 202
    with pytest.raises(Unavailable):
        purging.work()
    (under_way,) = api.call("GET", "/v1/purges").json
    assert (under_way["crawl"], under_way["instance"], under_way["host"]) == ("test", 1, "")
    for method, path, body in [
        ("GET", "/v1/crawls/test", None),
        ("DELETE", "/v1/crawls/test", None),
        ("POST", PATH, {"urls": ["https://a.example/"]}),
        ("POST", "/v1/crawls/test/resume", None),
    ]:
        assert api.call(method, path, body).status_code == 404
    api.queue.away = False
    purging.work()
    assert api.call("GET", "/v1/purges").json == []
    assert api.queue.crawls == {}
    assert api.call("POST", "/v1/crawls", {"name": "test"}).json["id"] > 1


def test_large_batches_are_judged_in_the_order_given(api: Api) -> None:
    urls = [f"https://h{i % 7}.example/{i}" for i in range(2500)]
    lines = "\n".join(json.dumps(url) for url in urls).encode()
    result = api.call("POST", PATH, lines, headers=NDJSON)
    assert [item["url"] for item in result.json["items"]] == urls
    assert result.json["added"] == 2500


def test_a_seed_on_which_a_pattern_would_backtrack_for_ever_is_judged(api: Api) -> None:
    api.crawl(seeds=["https://a.example/"], exclude=["/(a+)+$"])
    endless = f"https://a.example/{'a' * 4000}!"
    answer = api.call("POST", "/v1/crawls/test/urls", {"urls": [endless, "https://a.example/aa"]})
    assert [item["status"] for item in answer.json["items"]] == ["added", "rejected"]


def test_a_crawl_is_refused_if_its_pattern_cannot_be_matched_in_bounded_time(api: Api) -> None:
    crawl = {"name": "other", "include": ["fine", "/(?!en)"]}
    answer = api.call("POST", "/v1/crawls", crawl)
    assert answer.status_code == 400
    assert fields(answer) == ["include[1]"]
    assert "no look-around" in answer.json["detail"]
    assert "other" not in [made["name"] for made in api.call("GET", "/v1/crawls").json]


@pytest.mark.parametrize("force", [False, True])
def test_urls_of_a_node_that_is_away_are_kept_and_queued_when_it_is_back(
    api: Api, force: bool
) -> None:
    api.queue.lost_node = "b"
    urls = ["https://a.example/", "https://lost.example/", "https://b.example/"]
    result = api.call("POST", PATH, {"urls": urls, "force": force})
    assert statuses(result) == ["added", "pending", "added"]
    assert (result.json["added"], result.json["duplicate"], result.json["pending"]) == (2, 0, 1)
    assert "away" in result.json["items"][1]["reason"]
    (batch,) = api.store.pending_seeds()
    upkeep = Upkeep(api.service)
    upkeep.step()
    assert [one.id for one in api.store.pending_seeds()] == [batch.id]
    api.queue.lost_node = ""
    upkeep.step()
    assert api.store.pending_seeds() == []
    assert sorted(set(api.queue.seen[1])) == sorted(urls)


def test_dead_letters_of_a_node_that_is_away_are_queued_when_it_is_back(api: Api) -> None:
    for number, url in enumerate(("https://a.example/", "https://lost.example/")):
        letter = Final(
            crawl=1, fingerprint=number, url=url, state="dead", kind="timeout", detail="",
            at_ms=1,
        )  # fmt: skip
        api.store.commit(Commit(finals=[letter]))
    api.queue.lost_node = "b"
    result = api.call("POST", "/v1/dead/requeue", {"crawl": "test"}).json
    assert (result["added"], result["pending"]) == (1, 1)
    assert len(api.store.pending_seeds()) == 1
    api.queue.lost_node = ""
    Upkeep(api.service).step()
    assert api.store.pending_seeds() == []
    assert "https://lost.example/" in api.queue.seen[1]


@pytest.mark.parametrize(
    "limit", ["max_pages", "max_bytes", "max_seconds", "host_pages", "shape_pages"]
)
def test_a_crawl_with_a_limit_refuses_a_round(api: Api, limit: str) -> None:
    api.crawl(scope="any", **{limit: 5})
    refused = api.call("POST", "/v1/crawls/test/rounds")
    assert (refused.status_code, api.store.rounds(1)) == (409, [])
    said = f"crawl test has {limit}, which counts what is fetched again, too"
    assert refused.json["detail"].startswith(said)
    api.crawl(scope="any")
    assert api.call("POST", "/v1/crawls/test/rounds").status_code == 200
