"""The HTTP API on a double of the frontier and a real store: guards, bodies, problems, answers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import falcon.testing
import gevent
import pytest
from msgspec.structs import replace

from greencrawl.broker.api import bodies
from greencrawl.broker.api.app import HttpApp
from greencrawl.broker.api.security import Guard
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import Admission, Commit, Final, StoredPage, TaskKind
from greencrawl.store import open_store
from tests.support.queue_double import QueueDouble
from tests.support.store_records import page

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NDJSON = {"Content-Type": "application/x-ndjson"}
FINISH = {
    "session": "3/example.org",
    "token": "0123456789abcdef",
    "task": 1,
    "outcome": {"type": "done", "stored": True, "bytes": 10},
}


class Api:
    """An API with its parts, and one short call."""

    def __init__(self, folder: Path, worker: str = "", admin: str = "") -> None:
        self.queue = QueueDouble()
        self.store = open_store(f"sqlite:///{folder / 'content.sqlite'}")
        self.service = Service(self.queue, self.store)
        self.http_app = HttpApp(self.service, Guard(worker, admin))
        self.client = falcon.testing.TestClient(self.http_app.wsgi)

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> falcon.testing.Result:
        headers = {**JSON, **more.pop("headers", {})}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return self.client.simulate_request(
            method, path, host="localhost", body=data, headers=headers, **more
        )

    def crawl(self, name: str = "test", **options: Any) -> Any:
        result = self.call("POST", "/v1/crawls", {"name": name, **options})
        assert result.status_code in (200, 201), result.text
        return result.json


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    yield made
    made.service.stop()
    made.store.close()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path, worker="worker-secret", admin="admin-secret")
    yield made
    made.service.stop()
    made.store.close()


def fields(result: falcon.testing.Result) -> list[str]:
    return [error["field"] for error in result.json.get("errors", [])]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# --- tokens


@pytest.mark.parametrize(
    ("token", "path", "method", "status"),
    [
        ("", "/v1/stats", "GET", 401),
        ("wrong", "/v1/stats", "GET", 401),
        ("worker-secret", "/v1/stats", "GET", 200),
        ("admin-secret", "/v1/stats", "GET", 200),
        ("", "/v1/lease", "POST", 401),
        ("worker-secret", "/v1/lease", "POST", 400),  # past the guard: the body is missing
        ("admin-secret", "/v1/lease", "POST", 400),
        ("worker-secret", "/v1/crawls", "POST", 403),
        ("worker-secret", "/v1/dead/requeue", "POST", 403),
        ("worker-secret", "/v1/parked/release", "POST", 403),
        ("worker-secret", "/v1/hosts/example.org", "PATCH", 403),
        ("admin-secret", "/v1/crawls", "POST", 400),
        ("", "/metrics", "GET", 401),
        ("", "/healthz", "GET", 200),
        ("", "/readyz", "GET", 200),
        ("", "/openapi.json", "GET", 200),
    ],
)
def test_a_token_permits_the_requests_of_its_role(
    locked: Api, token: str, path: str, method: str, status: int
) -> None:
    result = locked.call(method, path, headers=bearer(token) if token else {})
    assert result.status_code == status
    assert ("www-authenticate" in result.headers) == (status == 401)
    if status >= 400:
        assert result.headers["content-type"] == "application/problem+json"
        assert result.json["status"] == status


@pytest.mark.parametrize("header", ["admin-secret", "Basic admin-secret", "Bearer", "Bearer  "])
def test_a_request_without_a_bearer_token_gets_a_401(locked: Api, header: str) -> None:
    assert locked.call("GET", "/v1/stats", headers={"Authorization": header}).status_code == 401


def test_a_token_is_judged_before_the_body_is_read(locked: Api) -> None:
    result = locked.call("POST", "/v1/crawls", b"x" * 100, headers={"Content-Length": "99999999"})
    assert result.status_code == 401


def test_a_broker_without_tokens_refuses_requests_from_foreign_web_pages(api: Api) -> None:
    api.crawl()
    seeds = {"urls": ["https://example.org/"]}
    origins = ["https://evil.example", "null", "http://localhost:1234", "https://localhost"]
    for origin in origins:
        page = {**FORM, "Origin": origin}
        assert api.call("POST", "/v1/crawls/test/urls", seeds, headers=page).status_code == 403
    own = {**FORM, "Origin": "http://localhost"}
    assert api.call("POST", "/v1/crawls/test/urls", seeds, headers=own).status_code == 200
    rebound = api.client.simulate_get("/v1/crawls", host="evil.example")
    assert rebound.status_code == 403


# --- bodies


def test_the_broker_names_an_unknown_field(api: Api) -> None:
    result = api.call("POST", "/v1/crawls", {"name": "a", "dept": 3})
    assert result.status_code == 400
    assert fields(result) == ["dept"]


def test_the_broker_names_a_nested_bad_field_with_its_path(api: Api) -> None:
    api.crawl()
    body = {"urls": ["https://a.example/", {"url": "https://b.example/", "depth": "x"}]}
    assert fields(api.call("POST", "/v1/crawls/test/urls", body)) == ["urls[1].depth"]
    bad_token = {"items": [{**FINISH, "token": "nothex"}]}
    assert fields(api.call("POST", "/v1/finish", bad_token)) == ["items[0].token"]


def test_the_broker_names_a_missing_field(api: Api) -> None:
    assert fields(api.call("POST", "/v1/lease", {"worker": "w"})) == ["incarnation"]


def test_the_broker_names_options_that_have_wrong_values_or_contradict_each_other(api: Api) -> None:
    result = api.call("POST", "/v1/crawls", {"name": "a", "slots": 4, "delay": 1, "exclude": ["("]})
    assert result.status_code == 400
    assert {field.partition("[")[0] for field in fields(result)} == {"slots", "exclude"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"name": "\xff"}', b"\x00\x01"])
def test_a_body_that_is_not_json_gets_a_400(api: Api, body: bytes) -> None:
    assert api.call("POST", "/v1/crawls", body).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/html"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 201),
        (FORM, 201),
        ({"Content-Encoding": "gzip"}, 415),
    ],
)
def test_bodies_of_unknown_media_types_are_refused(
    api: Api, headers: dict[str, str], status: int
) -> None:
    result = api.call("POST", "/v1/crawls", {"name": "a"}, headers=headers)
    assert result.status_code == status


def test_a_body_beyond_the_limit_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 100)
    result = api.call("POST", "/v1/crawls", b" " * 101)
    assert result.status_code == 413
    assert "100 bytes" in result.json["detail"]
    at_the_limit = json.dumps({"name": "a"}).encode().ljust(100)
    assert api.call("POST", "/v1/crawls", at_the_limit).status_code == 201


def test_a_body_without_a_length_is_limited_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 100)
    chunked = {"wsgi.input": io.BytesIO(b" " * 101)}
    result = api.client.simulate_post("/v1/crawls", host="localhost", extras=chunked)
    assert result.status_code == 413


def test_a_body_that_does_not_arrive_is_given_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            gevent.sleep(60)
            return b""

    monkeypatch.setattr(bodies, "READ_SECONDS", 0.01)
    result = api.client.simulate_post("/v1/crawls", host="localhost", extras={"wsgi.input": Slow()})
    assert result.status_code == 408


def test_a_body_that_breaks_off_is_a_400(api: Api) -> None:
    class Broken(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            raise OSError("unexpected end of file")

    result = api.client.simulate_post(
        "/v1/crawls", host="localhost", extras={"wsgi.input": Broken()}
    )
    assert result.status_code == 400
    assert "broke off" in result.json["detail"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("/v1/dead?crawl=a&limit=0", "limit"),
        ("/v1/dead?crawl=a&limit=x", "limit"),
        ("/v1/dead", "crawl"),
        ("/v1/parked?crawl=a&limit=0", "limit"),
        ("/v1/dead?crawl=a&crawl=b", "crawl"),
        ("/v1/urls?crawl=a", "url"),
        ("/v1/stats?crawls=a", "crawls"),
        ("/v1/crawls?x=1", "x"),
    ],
)
def test_the_broker_names_a_bad_parameter(api: Api, query: str, field: str) -> None:
    result = api.call("GET", query)
    assert result.status_code == 400
    assert fields(result) == [field]


# --- errors


def test_unknown_paths_and_methods_are_answered_with_a_problem(api: Api) -> None:
    missing = api.call("GET", "/v2/crawls")
    assert (missing.status_code, missing.json["title"]) == (404, "Not Found")
    wrong = api.call("PUT", "/v1/crawls")
    assert wrong.status_code == 405
    assert wrong.headers["content-type"] == "application/problem+json"
    assert set(wrong.headers["allow"].split(", ")) >= {"GET", "POST"}


def test_a_head_request_is_a_get_without_a_body(api: Api) -> None:
    result = api.call("HEAD", "/v1/crawls")
    assert (result.status_code, result.content) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/crawls/nope", None),
        ("DELETE", "/v1/crawls/nope", None),
        ("POST", "/v1/crawls/nope/urls", {"urls": ["https://a.example/"]}),
        ("POST", "/v1/crawls/nope/pause", None),
        ("POST", "/v1/crawls/nope/stop", {"now": True}),
        ("GET", "/v1/stats?crawl=nope", None),
        ("GET", "/v1/dead?crawl=nope", None),
        ("POST", "/v1/dead/requeue", {"crawl": "nope"}),
        ("GET", "/v1/parked?crawl=nope", None),
        ("POST", "/v1/parked/release", {"crawl": "nope", "all": True}),
        ("GET", "/v1/urls?url=https://a.example/&crawl=nope", None),
    ],
)
def test_an_unknown_crawl_is_a_404(api: Api, method: str, path: str, body: Any) -> None:
    assert api.call(method, path, body).status_code == 404


def test_a_call_gets_a_503_with_retry_after_while_redis_is_away(api: Api) -> None:
    api.queue.away = True
    result = api.call("POST", "/v1/finish", {"items": [FINISH]})
    assert result.status_code == 503
    assert result.headers["retry-after"] == "1"
    assert "redis is away" in result.json["detail"]


def test_a_defect_gets_a_500_without_its_details(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.queue.broken = ZeroDivisionError("secret detail")
    result = api.call("POST", "/v1/finish", {"items": [FINISH]})
    assert result.status_code == 500
    assert "secret" not in result.text


def test_a_stopping_broker_sends_callers_elsewhere(api: Api) -> None:
    api.http_app.requests.closing = True
    result = api.call("GET", "/v1/crawls")
    assert result.status_code == 503
    assert result.headers["connection"] == "close"


# --- operations


def test_workers_calls_reach_the_frontier_and_come_back_item_by_item(api: Api) -> None:
    session = {"session": FINISH["session"], "token": FINISH["token"]}
    lease = {"worker": "w1", "incarnation": 1, "sequence": 2, "wait": 0.5}
    assert api.call("POST", "/v1/lease", lease).json == {
        "sessions": [],
        "waited": 0.0,
        "lost": False,
        "superseded": 0,
    }
    assert api.queue.last.sequence == 2
    reconcile = {"worker": "w1", "incarnation": 1, "sequence": 2, "holding": []}
    assert api.call("POST", "/v1/reconcile", reconcile).json == {
        "sessions": 1,
        "tasks": 2,
        "away": [],
        "superseded": 0,
    }
    finish = api.call("POST", "/v1/finish", {"items": [FINISH, FINISH]})
    assert (finish.status_code, finish.json) == (200, {"results": ["stale", "stale"]})
    extend = api.call("POST", "/v1/sessions/extend", {"items": [session], "ttl": 30})
    assert (extend.json, api.queue.last) == ({"results": ["ok"]}, 30.0)
    close = {"items": [{**session, "report": {"latency": 0.5}, "release": [4]}]}
    assert api.call("POST", "/v1/sessions/close", close).json == {"results": ["ok"]}
    assert api.queue.last[0].release == (4,)
    assert api.call("POST", "/v1/release", {"items": [session]}).json == {"results": ["gone"]}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Example.ORG", "example.org"),
        ("example.org:80", "example.org"),
        ("a.example:81", "a.example:81"),
    ],
)
def test_a_host_is_found_by_any_usual_spelling(api: Api, given: str, shown: str) -> None:
    assert api.call("GET", f"/v1/hosts/{given}").json["host"] == shown


@pytest.mark.parametrize("given", ["a%3Fb", "u%40a.example", "%20", "a.example:99999"])
def test_an_invalid_host_gets_a_400(api: Api, given: str) -> None:
    assert api.call("GET", f"/v1/hosts/{given}").status_code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"urls": ["https://a.example/"], "if_changed": True}),
        ("?if_changed=true", {"urls": ["https://a.example/"]}),
    ],
)
def test_seeds_with_if_changed_are_queued_as_conditional_refetches(
    api: Api, path: str, body: Any
) -> None:
    crawl = api.crawl(seeds=["https://a.example/"])
    number = api.queue.fingerprint("https://a.example/")
    api.store.commit(Commit([page(crawl["id"], number)]))
    result = api.call("POST", f"/v1/crawls/test/urls{path}", body)
    assert (result.status_code, len(result.json["items"])) == (200, 1)
    *_, batch = api.store.seeds(crawl["id"])
    assert batch.force
    assert batch.urls == (Admission("https://a.example/", kind=TaskKind.REFETCH),)


def test_a_host_can_be_slowed_down(api: Api) -> None:
    result = api.call("PATCH", "/v1/hosts/example.org", {"delay": 5})
    assert (result.status_code, result.json["delay"]) == (200, 5.0)
    assert api.call("PATCH", "/v1/hosts/example.org", {"delay": -1}).status_code == 400


def test_readiness_follows_the_frontier_and_health_does_not(api: Api) -> None:
    assert api.call("GET", "/readyz").json == {"status": "ok", "away": []}
    api.queue.away = True
    assert api.call("GET", "/readyz").status_code == 503
    assert api.call("GET", "/healthz").status_code == 200


def test_metrics_count_requests_and_survive_an_outage(api: Api) -> None:
    api.crawl(seeds=["https://a.example/"])
    api.call("GET", "/v1/crawls/nope")
    text = api.call("GET", "/metrics").text
    assert 'greencrawl_http_requests_total{operation="create_crawl",status="201"} 1.0' in text
    assert 'greencrawl_http_requests_total{operation="get_crawl",status="404"} 1.0' in text
    assert 'greencrawl_crawl_waiting_urls{crawl="test"} 1.0' in text
    assert "greencrawl_lease_calls_waiting 3.0" in text
    asked = api.call("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert asked.text.endswith("# EOF\n")
    api.queue.away = True
    text = api.call("GET", "/metrics").text
    assert "greencrawl_frontier_up 0.0" in text


def test_the_explanation_of_a_url_lists_the_versions_of_its_page(api: Api) -> None:
    crawl = api.crawl(seeds=["https://a.example/"])
    url = "https://a.example/page"
    row = StoredPage(
        crawl=1, fingerprint=api.queue.fingerprint(url), url=url, status=200, fetched_ms=1000
    )
    api.store.commit(Commit([row]))
    asked = f"/v1/urls?crawl={crawl['name']}&url={url}"
    assert api.call("GET", asked).json[0]["versions"] == []
    api.store.commit(Commit([replace(row, fetched_ms=2000, body=b"new", status=203)]))
    (found,) = api.call("GET", asked).json
    told = [(v["fetched_ms"], v["status"], v["changed"]) for v in found["versions"]]
    assert told == [(2000, 203, True), (1000, 200, True)]


def test_the_explanation_of_a_url_tells_the_spelling_in_which_it_was_found(api: Api) -> None:
    crawl = api.crawl(seeds=["https://a.example/"])
    url = "https://a.example/%7Eme"
    number = api.queue.fingerprint(url)
    api.store.commit(Commit([StoredPage(crawl=1, fingerprint=number, url=url, status=200)]))
    for asked, said in ((url, False), ("https://a.example/~me", True)):
        (found,) = api.call(
            "GET", f"/v1/urls?crawl={crawl['name']}&url={quote(asked, safe='')}"
        ).json
        assert (found["url"], found["state"]) == (asked, "fetched")
        assert (f"it was found as {url}" in found["why"]) is said


def test_requeueing_ends_though_the_dead_letters_fail_again_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl, admit, rounds = api.crawl()["id"], api.queue.admit, []

    def dies(url: str, at_ms: int) -> Final:
        number = api.queue.fingerprint(url)
        return Final(
            crawl=crawl, fingerprint=number, url=url, state="dead", kind="gone", at_ms=at_ms
        )

    def fails_again(number: int, items: Sequence[Admission], **more: Any) -> Any:
        rounds.append(len(items))
        assert len(rounds) < 5
        done = admit(number, items, **more)
        api.store.commit(Commit(finals=[dies(item.url, len(rounds)) for item in items]))
        return done

    api.store.commit(Commit(finals=[dies(f"http://h/{n}", 0) for n in range(3)]))
    monkeypatch.setattr(api.queue, "admit", fails_again)
    assert api.call("POST", "/v1/dead/requeue", {"crawl": "test"}).json["added"] == 3
    assert rounds == [3]
    assert len(api.store.dead(crawl)) == 3, "they wait for the next time"
