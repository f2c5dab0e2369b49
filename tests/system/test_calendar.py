"""Each period asks again for known pages: once, whatever process dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.effort import cases, examples
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until

PERIODS = examples(2, 10)
DEPTH = 34
"""The chain's depth: there are fewer priority levels."""


class Site:
    """A chain of pages, a page with links to some others, and a sitemap; all send entity tags."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.unchanged = 0
        self.stores = {"/": [f"/leaf/{n}" for n in range(20)] + ["/chain/1"]}
        for n in range(1, DEPTH):
            self.stores[f"/chain/{n}"] = [f"/chain/{n + 1}"]
        self.map = b""

    def __call__(self, request: Request) -> Answer:
        path = request.target
        if path == "/sitemap.xml":
            body = self.map
        elif path == "/robots.txt" or path in self.gone:
            return Answer(404)
        else:
            body = html(path, self.stores.get(path, []))
        tag = f'"{len(body)}-{path}"'
        if request.headers.get("if-none-match") == tag:
            self.unchanged += 1
            return Answer(304, headers={"ETag": tag})
        kind = "application/xml" if path.endswith(".xml") else "text/html"
        return Answer(body=body, headers={"ETag": tag, "Content-Type": kind})


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with shared_system(tmp_path_factory.mktemp("calendar")) as started:
        yield started


def periods(system: System, crawl: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = system.call("GET", f"/v1/crawls/{crawl}/periods")
    return found[::-1]


def wait_period(system: System, crawl: str, number: int) -> None:
    def over() -> bool:
        found = periods(system, crawl)
        return len(found) >= number and found[number - 1]["ended_ms"] > 0

    wait_until(over, 60, f"period {number} ends")


@pytest.mark.parametrize("order", cases(["depth"], ["breadth", "best"]))
def test_every_known_page_gets_one_conditional_request_in_each_period(
    system: System, order: str
) -> None:
    site, name = Site(), f"all-{order}"
    with SiteServer(site) as server:
        site.map = (
            '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
            f"<url><loc>{server.url('/mapped')}</loc></url></urlset>"
        ).encode()
        recrawl = {"every": "2s", "depth": "all"}
        system.crawl(
            [server.url("/")],
            name,
            delay=0,
            recrawl=recrawl,
            order=order,
            sitemaps="on",
            host_pages=60,
        )
        for number in range(1, PERIODS + 1):
            wait_period(system, name, number)
        system.call("POST", f"/v1/crawls/{name}/stop", {})
        system.wait_done(60, name)
        found = periods(system, name)
        asked = Counter(hit.target for hit in server.hits)
        del asked["/robots.txt"]
        assert len(asked) == 21 + DEPTH + 2, "pages, the sitemap and what it lists"
        odd = {path: n for path, n in asked.items() if n not in (len(found), len(found) - 1)}
        assert not odd, "each once a period, but for the last, which was stopped perhaps"
        again = sum(asked.values()) - len(asked)
        assert site.unchanged == again, "each with what the server said of it"
        assert system.stats(name)["unchanged"] == again


def test_a_gone_url_keeps_its_page_and_is_found_again_when_it_returns(system: System) -> None:
    site = Site()
    with SiteServer(site) as server:
        recrawl = {"every": "1s", "depth": 1}
        system.crawl([server.url("/")], "gone", delay=0, recrawl=recrawl)
        wait_period(system, "gone", 1)
        site.gone.add("/leaf/3")
        wait_period(system, "gone", 3)
        asked = Counter(hit.target for hit in server.hits)
        assert asked["/chain/2"] == 1, "it is deeper"
        assert asked["/leaf/4"] >= 3
        (state,) = system.call("GET", f"/v1/urls?crawl=gone&url={server.url('/leaf/3')}")
        assert "gone" in state["why"]
        assert "asked for again in the first period from" in state["why"]
        assert "it was gone 2 times in a row" in state["why"]
        assert state["page"], "its last version stays"
        site.gone.clear()

        def back() -> bool:
            (state,) = system.call("GET", f"/v1/urls?crawl=gone&url={server.url('/leaf/3')}")
            return "gone" not in state["why"]

        wait_until(back, 60, "it is looked at again")
        system.call("POST", "/v1/crawls/gone/stop", {})
        system.wait_done(60, "gone")
