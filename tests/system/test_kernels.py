"""Kernels in real processes: the shipped ones, one that no worker can import, and harmful ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.effort import cases
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

OWN = "tests.support.own_kernels"


def site(request: Request) -> Answer:
    """Answer with a JSON Feed of two pages, a CSV list of two parts, and the pages that they link
    to."""
    path, _, query = request.target.partition("?")
    if path == "/feed.json":
        items = [{"id": query, "url": f"/item-{query or 1}", "content_text": "x"}]
        more = {} if query else {"next_url": "/feed.json?2"}
        told = {"version": "https://jsonfeed.org/version/1.1", "items": items, **more}
        return Answer(body=json.dumps(told).encode(), headers={"Content-Type": "application/json"})
    if path == "/list.csv":
        body = f"url\n/row-{query or 1}\n".encode()
        return Answer(body=body, headers={"Content-Type": "text/csv", "X-Parts": "2"})
    if path == "/map.xml":
        body = b"<urlset><url><loc>/mapped</loc></url></urlset>"
        return Answer(body=body, headers={"Content-Type": "text/xml"})
    return Answer(404) if path == "/robots.txt" else Answer(body=b"<title>T</title>")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("kernels")
    with shared_system(folder, stall_seconds="1", request_seconds="2") as made:
        yield made


def rules(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"match": match, "kernel": kernel} for match, kernel in pairs]


def explained(system: System, crawl: str, url: str) -> str:
    (state,) = system.call("GET", f"/v1/urls?crawl={crawl}&url={quote(url, safe='')}")
    return str(state["why"])


def test_shipped_kernels_crawl_a_feed_and_a_list_and_explain_names_them(system: System) -> None:
    with SiteServer(site, ("127.0.0.2",)) as server:
        named = rules(
            ("*/feed.json*", "examples.json_feed:JsonFeed"),
            ("*/list.csv*", "examples.csv_list:CsvList"),
        )
        seeds = [server.url(path) for path in ("/feed.json", "/list.csv", "/map.xml")]
        system.crawl(seeds, "lists", kernels=named, delay=0)
        system.wait_done(30, "lists")
        asked = Counter(hit.target for hit in server.hits)
        why = {path: explained(system, "lists", server.url(path)) for path in asked}
    assert asked == Counter(
        [
            "/robots.txt", "/feed.json", "/feed.json?2", "/list.csv", "/list.csv?part=2",
            "/map.xml", "/item-1", "/item-2", "/row-1", "/row-part=2", "/mapped",
        ]
    )  # fmt: skip
    assert "read by the kernel json-feed" in why["/feed.json"]
    assert "read by the kernel csv-list" in why["/list.csv"]
    assert "read by the kernel sitemap" in why["/map.xml"]
    assert "kernel" not in why["/item-1"]


def test_a_crawl_whose_kernel_no_worker_can_import_says_so(system: System) -> None:
    with SiteServer(site, ("127.0.0.3",)) as server:
        named = rules(("*", "no.such:Kernel"))
        system.crawl([server.url("/")], "odd", kernels=named, delay=0)

        def odd() -> dict[str, Any]:
            return system.stats("odd")

        wait_until(lambda: odd()["stuck"], 20, "the crawl says that nobody takes it")
        assert "the kernel no.such:Kernel is for it" in explained(system, "odd", server.url("/"))
        (refused,) = odd()["refused"]
        assert refused["hook"] == "no.such:Kernel"
        assert "cannot import 'no.such'" in refused["reason"]
        system.call("POST", "/v1/crawls", {"name": "odd", "delay": 0})
        wait_until(lambda: odd()["state"] == "done", 20, "without the kernel it is crawled")
        assert odd()["refused"] == []


@pytest.mark.parametrize(
    ("kernel", "mode", "kind"),
    cases(
        [("Asking", "sleep", "stalled")],
        [
            ("Asking", "hang", "stalled"), ("Asking", "kill", "process_death"),
            ("Hostile", "hang", "stalled"), ("Hostile", "kill", "process_death"),
        ],
    ),
)  # fmt: skip
def test_a_kernel_that_harms_its_process_loses_only_that_page(
    system: System, tmp_path: Path, kernel: str, mode: str, kind: str
) -> None:
    """As with a harmful page: the second time the page is read alone, which proves the harm."""
    name = f"{kernel}-{mode}".lower()
    with SiteServer(site, ("127.0.0.4",)) as server:
        paths = [f"/own/{word}" for word in (mode, "good", "better")]
        named = rules(("*/own/*", f"{OWN}:{kernel}"))
        seeds = [server.url(path) for path in paths]
        system.crawl(seeds, name, kernels=named, delay=0, tries=1)
        system.wait_done(60, name)
        letters = system.call("GET", f"/v1/dead?crawl={name}")["items"]
        assert [one["letter"]["url"] for one in letters] == [seeds[0]]
        assert letters[0]["letter"]["kind"] == kind
        assert system.stats(name)["failures"] == {kind: 2}
        stored = read_stored(Path(system.folder) / "data", name)
        assert stored.pages == set(seeds[1:])
