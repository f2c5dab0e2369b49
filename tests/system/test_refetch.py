"""Pages that are fetched again: unchanged, changed, gone, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


class Site:
    """``/tag`` and ``/date`` send a validator each, ``/plain`` sends none."""

    def __init__(self) -> None:
        self.version = 1
        self.gone: set[str] = set()
        self.asked: list[tuple[str, str, int]] = []
        """(path, condition in the request, status)"""

    def __call__(self, request: Request) -> Answer:
        path = request.target
        if path == "/robots.txt":
            return Answer(404)
        answer = self.answer(path, request.headers)
        tag = request.headers.get("if-none-match", "")
        sent = tag or request.headers.get("if-modified-since", "")
        self.asked.append((path, sent, answer.status))
        return answer

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        if path in self.gone:
            return Answer(404)
        said = {"Content-Type": "text/html"}
        if path == "/tag":
            said["ETag"] = f'"{self.version}"'
            if headers.get("if-none-match") == said["ETag"]:
                return Answer(304, headers={"ETag": said["ETag"]})
            links = ["/new"] if self.version > 1 else []
            return Answer(body=html(f"version {self.version}", links), headers=said)
        if path == "/date":
            said["Last-Modified"] = DATE
            if headers.get("if-modified-since") == DATE:
                return Answer(304)
        return Answer(body=html(path, ["/tag", "/date", "/plain"]), headers=said)

    def took(self) -> list[tuple[str, str, int]]:
        """Return the requests since the last call, in order of path."""
        asked, self.asked = self.asked, []
        return sorted(asked)


def page(system: System, url: str) -> dict[str, Any]:
    (state,) = system.call("GET", f"/v1/urls?crawl=test&url={url}")
    found: dict[str, Any] = system.call("GET", f"/v1/pages/{state['page']}")
    return {**found, "why": state["why"], "state": state["state"]}


def again(system: System, urls: list[str]) -> None:
    """Ask for them again if they have changed, and wait until all are done."""
    finished = system.stats()["finished"] + len(urls)
    system.call("POST", "/v1/crawls/test/urls", {"urls": urls, "if_changed": True})
    wait_until(lambda: system.stats()["finished"] >= finished, 30, "all are asked for again")
    system.wait_done(30)


def test_pages_are_refetched_with_conditional_requests(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    site = Site()
    with SiteServer(site) as server, System(tmp_path, [redis_server.url]).start() as system:
        urls = [server.url(path) for path in ("/date", "/plain", "/tag")]
        date, plain, tag = urls
        system.crawl([server.url("/")], delay=0)
        system.wait_done(30)
        assert [path for path, _, _ in site.took()] == ["/", "/date", "/plain", "/tag"]
        before = page(system, tag)

        again(system, urls)
        assert site.took() == [("/date", DATE, 304), ("/plain", "", 200), ("/tag", '"1"', 304)]
        assert system.stats()["unchanged"] == 2
        same = page(system, tag)
        assert (same["fetched_ms"], len(same["versions"])) == (before["fetched_ms"], 1)
        assert "unchanged at " in same["why"]
        assert [one["changed"] for one in page(system, plain)["versions"]] == [False, True]

        site.version = 2
        again(system, urls)
        assert site.took() == [
            ("/date", DATE, 304), ("/new", "", 200), ("/plain", "", 200), ("/tag", '"1"', 200),
        ]  # fmt: skip
        changed = page(system, tag)
        assert changed["headers"]["etag"] == '"2"'
        assert [one["changed"] for one in changed["versions"]] == [True, True]

        site.gone = {"/date"}
        again(system, urls)
        assert site.took() == [("/date", DATE, 404), ("/plain", "", 200), ("/tag", '"2"', 304)]
        gone = page(system, date)
        assert (gone["state"], gone["gone_since_ms"] > gone["fetched_ms"]) == ("fetched", True)
        assert "settled as gone when asked again" in gone["why"]
        stored = read_stored(tmp_path / "data")
        assert {date} == stored.gone
        assert date in stored.pages
        again(system, urls)
        assert ("/date", DATE, 404) in site.took()
        still = page(system, date)
        assert (still["gone_since_ms"], still["why"]) == (gone["gone_since_ms"], gone["why"])

        site.gone = set()
        again(system, urls)
        assert ("/date", DATE, 304) in site.took()
        back = page(system, date)
        assert (back["gone_since_ms"], "unchanged at " in back["why"]) == (0, True)
        assert read_stored(tmp_path / "data").gone == set()
        assert system.stats()["failures"] == {"gone": 2}
