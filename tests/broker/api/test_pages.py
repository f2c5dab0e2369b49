"""Lists of pages, one page, its text and its body, over HTTP and from a store."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import falcon.testing
import gevent
import pytest

from greencrawl.broker.api.app import HttpApp
from greencrawl.broker.api.security import Guard
from greencrawl.broker.service import pages
from greencrawl.broker.service.pages import Reader
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import Admission, Commit, CrawlOptions, PageFilter, StoredPage
from greencrawl.schema.text.patterns import Pattern
from greencrawl.store import open_store
from greencrawl.store.base import Store
from tests.support.mariadb import MariaDb
from tests.support.memory import memory_folder
from tests.support.queue_double import QueueDouble
from tests.support.store_records import digest

HOSTILE = b"<script>fetch('/v1/crawls/news', {method: 'DELETE'})</script>"


def page(crawl: int, number: int, **more: Any) -> StoredPage:
    more.setdefault("url", f"http://{'a' if number % 2 else 'b'}.example/{number}")
    more.setdefault("status", 200)
    more.setdefault("fetched_ms", 1000 * number)
    if more.get("body"):
        more.setdefault("digest", digest(more["body"]))
    return StoredPage(crawl=crawl, fingerprint=number, **more)


_names = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with memory_folder() as folder:
        running = MariaDb(folder / "one").start()
        yield running
        running.stop()


@pytest.fixture(params=["sqlite", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        opened = open_store(f"sqlite:///{tmp_path / 'content.sqlite'}")
    else:
        opened = open_store(request.getfixturevalue("server").database(f"t{next(_names)}"))
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: Store) -> int:
    return store.put_crawl("news", CrawlOptions(), ["a.example", "b.example"]).id


class Api:
    def __init__(self, store: Store, admin: str = "", worker: str = "") -> None:
        http_app = HttpApp(Service(QueueDouble(), store), Guard(worker, admin))
        self._client = falcon.testing.TestClient(http_app.wsgi)

    def get(self, path: str, token: str = "", **query: Any) -> falcon.testing.Result:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self._client.simulate_get(
            path, query_string=urlencode(query), host="localhost", headers=headers
        )

    def urls(self, **query: Any) -> list[str]:
        answer = self.get("/v1/pages", crawl="news", **query)
        assert answer.status_code == 200, answer.text
        return [item["url"] for item in answer.json["items"]]


@pytest.fixture
def api(store: Store) -> Api:
    return Api(store)


def test_pages_are_listed_some_at_a_time_in_the_order_of_storing(
    api: Api, store: Store, crawl: int
) -> None:
    store.commit(Commit([page(crawl, n, body=b"x" * n, title=f"第{n}页") for n in range(1, 8)]))
    store.commit(Commit([page(crawl, -8, status=301, final_url="http://a.example/1")]))
    found, after = [], ""
    while True:
        answer = api.get("/v1/pages", crawl="news", limit=3, **({"after": after} if after else {}))
        assert len(answer.json["items"]) <= 3
        assert answer.json["looked_at"] == len(answer.json["items"])
        found += answer.json["items"]
        after = answer.json["next"]
        if not after:
            break
    assert [item["status"] for item in found] == [200] * 7 + [301]
    assert [item["body_bytes"] for item in found] == [1, 2, 3, 4, 5, 6, 7, 0]
    assert found[0]["title"] == "第1页"
    assert found[-1]["target"] == "http://a.example/1"
    assert found[-1]["id"] == f"{crawl}-fffffffffffffff8"
    assert "target" not in found[0] or found[0]["target"] == ""


def test_a_list_of_pages_has_no_next_part_after_the_last_page(
    api: Api, store: Store, crawl: int
) -> None:
    store.commit(Commit([page(crawl, n) for n in range(1, 4)]))
    assert api.get("/v1/pages", crawl="news", limit=3).json["next"] == ""


def test_pages_are_chosen_by_host_status_time_and_pattern(
    api: Api, store: Store, crawl: int
) -> None:
    some = [page(crawl, n) for n in range(1, 7)]
    some[1].status, some[2].status = 404, 301
    some[3].text = "Widgets\nand 茶"
    store.commit(Commit(some))
    assert api.urls(host="a.example") == [some[n].url for n in (0, 2, 4)]
    assert api.urls(status="4xx") == [some[1].url]
    assert api.urls(status="300-499") == [some[1].url, some[2].url]
    assert api.urls(since="1970-01-01T00:00:05") == [some[4].url, some[5].url]
    assert api.urls(grep="(?i)widgets$|/6") == [some[5].url]
    assert api.urls(grep="(?im)^widgets$") == [some[3].url]
    assert api.urls(grep=r"\p{Han}", host="b.example") == [some[3].url]
    assert api.urls(grep=r"\p{Han}", host="a.example") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "9xx"}, "status"),
        ({"grep": "(?=a)"}, "grep"),
        ({"grep": "("}, "grep"),
        ({"status": "2x"}, "status"),
        ({"since": "soon"}, "since"),
        ({"host": "a/b"}, "host"),
        ({"after": "..."}, "after"),
        ({"limit": "0"}, "limit"),
        ({"sort": "up"}, "sort"),
    ],
)
def test_the_list_of_pages_names_a_bad_parameter(
    api: Api, crawl: int, query: dict[str, str], field: str
) -> None:
    answer = api.get("/v1/pages", crawl="news", **query)
    assert answer.status_code == 400
    assert field in answer.json["detail"]


def test_a_search_answers_after_a_bounded_number_of_pages_and_can_be_continued(
    api: Api, store: Store, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SEARCHED", 100)
    store.commit(Commit([page(crawl, n, text=f"number {n}.") for n in range(1, 301)]))
    found, after, answers = [], "", 0
    while True:
        more = {"after": after} if after else {}
        answer = api.get("/v1/pages", crawl="news", grep=r"number 29\d\.", **more).json
        assert answer["looked_at"] <= 100 + pages.BATCH
        found += [item["url"].rpartition("/")[2] for item in answer["items"]]
        after = answer["next"]
        answers += 1
        if not after:
            break
    assert found == [str(n) for n in range(290, 300)]
    assert answers >= 3


@pytest.mark.parametrize("pattern", [{}, {"grep": "/[0-9]+$"}])
@pytest.mark.parametrize("chosen", [{"status": "404"}, {"since": "1970-01-01T00:04:55"}])
def test_a_list_may_answer_without_a_page_and_be_continued_if_few_pages_match(
    api: Api,
    store: Store,
    crawl: int,
    monkeypatch: pytest.MonkeyPatch,
    pattern: dict[str, str],
    chosen: dict[str, str],
) -> None:
    monkeypatch.setattr(pages, "LOOKED_AT", 100)
    store.commit(Commit([page(crawl, n, status=200 + n // 295 * 204) for n in range(1, 301)]))
    found, after, empty, looked_at = [], "", 0, 0
    while True:
        more = {"after": after} if after else {}
        answer = api.get("/v1/pages", crawl="news", limit=4, **chosen, **pattern, **more).json
        looked_at += answer["looked_at"]
        empty += not answer["items"]
        found += [int(item["url"].rpartition("/")[2]) for item in answer["items"]]
        after = answer["next"]
        if not after:
            break
    assert found == list(range(295, 301))
    assert empty >= 2
    assert 200 < looked_at <= 300


def test_a_search_stops_at_its_limit_and_can_be_continued(store: Store, crawl: int) -> None:
    store.commit(Commit([page(crawl, n, text="same") for n in range(1, 31)]))
    reader, after, found = Reader(store), "", []
    while True:
        look = reader.look(crawl, PageFilter(), Pattern("same"), limit=7, after=after)
        assert len(look.pages) <= 7
        found += [one.fingerprint for one in look.pages]
        after = look.next
        if not after:
            break
    assert found == list(range(1, 31))


def test_a_search_ends_though_its_pattern_could_backtrack_for_ever(
    api: Api, store: Store, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, text="a" * 50_000 + "!")]))
    with gevent.Timeout(20):
        assert api.urls(grep="(a+)+$") == []


def test_other_greenlets_run_while_a_heavy_pattern_is_searched(store: Store, crawl: int) -> None:
    letters = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz ", k=200_000)
    store.commit(
        Commit([page(crawl, 1, text="".join(letters))])
    )  # too varied for a small automaton
    searching = gevent.spawn(Reader(store).look, crawl, PageFilter(), Pattern("(.{0,500}a){2}9"))
    turns = 0
    while not searching.dead:
        gevent.sleep(0.001)
        turns += 1
    assert searching.get().pages == []
    assert turns > 20, "nothing else had its turn before the search was over"


def test_the_details_of_a_page_include_its_history(api: Api, store: Store, crawl: int) -> None:
    body = b"<title>Tea</title>"
    new = page(
        crawl, 5, fetched_ms=2000, body=body, title="Tea", text="茶", headers={"content-type": "x"},
        fields={"price": 3}, items=b'[{"n":1}]',
        links=[Admission("http://a.example/6", 1)], language="zh", spans=bytes([3, 15, 0, 0]),
    )  # fmt: skip
    store.commit(Commit([page(crawl, 5, fetched_ms=1000, body=b"old")]))
    store.commit(Commit([new]))
    told = api.get(f"/v1/pages/{new.id}").json
    assert told["crawl"] == "news"
    assert told["host"] == "a.example"
    assert told["headers"] == {"content-type": "x"}
    assert told["fields"] == {"price": 3}
    assert told["items"] == [{"n": 1}]
    assert told["links"] == ["http://a.example/6"]
    assert (told["text_chars"], told["main"]) == (1, "茶")
    assert told["digest"] == digest(body).hex()
    assert [(v["fetched_ms"], v["changed"], v["body_bytes"]) for v in told["versions"]] == [
        (2000, True, len(body)),
        (1000, True, 3),
    ]
    text = api.get(f"/v1/pages/{new.id}/text")
    assert (text.text, text.headers["content-type"]) == ("茶", "text/plain; charset=utf-8")


def test_a_hostile_body_is_sent_as_a_download_that_no_browser_runs(
    api: Api, store: Store, crawl: int
) -> None:
    evil = page(crawl, 1, body=HOSTILE, headers={"content-type": "text/html"}, text="<script>")
    store.commit(Commit([evil]))
    for part in ("body", "text"):
        answer = api.get(f"/v1/pages/{evil.id}/{part}")
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind == ("application/octet-stream" if part == "body" else "text/plain")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
    body = api.get(f"/v1/pages/{evil.id}/body")
    assert body.content == HOSTILE
    assert re.fullmatch(
        r'attachment; filename="[0-9a-f-]+\.bin"', body.headers["content-disposition"]
    )


@pytest.mark.parametrize("part", ["", "/text", "/body"])
def test_an_unknown_page_gets_a_404(api: Api, store: Store, crawl: int, part: str) -> None:
    store.commit(Commit([page(crawl, 1)]))
    known = page(crawl, 1).id
    assert api.get(f"/v1/pages/{known}{part}").status_code == 200
    for missing in (page(crawl, 2).id, page(crawl + 1, 1).id, "1-1", "x", known.upper() + "0"):
        answer = api.get(f"/v1/pages/{missing}{part}")
        assert answer.status_code == 404, missing
        assert answer.headers["content-type"].startswith("application/problem+json")
    store.add_purge(crawl)
    assert api.get(f"/v1/pages/{known}{part}").status_code == 404


def test_only_the_admin_token_reads_stored_pages(store: Store, crawl: int) -> None:
    stored = page(crawl, 1)
    store.commit(Commit([stored]))
    locked = Api(store, admin="admin-secret", worker="worker-secret")
    for path in (f"/v1/pages/{stored.id}{part}" for part in ("", "/text", "/body")):
        assert locked.get(path).status_code == 401
        assert locked.get(path, "worker-secret").status_code == 403
        assert locked.get(path, "admin-secret").status_code == 200
    assert locked.get("/v1/pages", "worker-secret", crawl="news").status_code == 403
    assert locked.get("/v1/pages", "admin-secret", crawl="news").status_code == 200


def test_a_search_does_not_hold_up_other_queries_and_commits(store: Store, crawl: int) -> None:
    for start in range(0, 3000, 500):
        many = [page(crawl, n, text="word " * 8000) for n in range(start, start + 500)]
        store.commit(Commit(many))
    reader = Reader(store)
    searching = gevent.spawn(reader.look, crawl, PageFilter(), Pattern("nowhere to be found"))
    done = 0
    while not searching.dead:
        store.frontier()
        store.commit(Commit([page(crawl, 10_000 + done)]))
        done += 1
        if done > 5000:
            break
    assert searching.get(timeout=30).pages == []
    assert done >= 2, "nothing else was answered while pages were searched"


def test_a_search_ends_at_its_time_limit(
    store: Store, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit(Commit([page(crawl, n) for n in range(1, 301)]))
    monkeypatch.setattr(pages, "LOOK_SECONDS", 0.0)
    look = Reader(store).look(crawl, PageFilter(), Pattern("nothing"))
    assert 0 < look.looked_at <= pages.BATCH
    assert look.next
