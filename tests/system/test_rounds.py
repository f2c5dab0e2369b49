"""A finished crawl that is extended or had anew, with the log of a real server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from greencrawl.schema.records import STOPPED
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

LEASED = 32
"""URLs that a session has at most."""
DEEP = [f"/{n}" for n in range(1, 6)]


class Site:
    """``/`` leads to ``/1``, that to ``/2`` and so on, and each to a page of another host."""

    def __init__(self) -> None:
        self.elsewhere = ""
        self.down = False
        self.version = 1
        self.hold: dict[str, threading.Event] = {}
        self.asked: Counter[str] = Counter()

    def __call__(self, request: Request) -> Answer:
        path = request.target
        if path == "/robots.txt":
            return Answer(404)
        self.asked[path] += 1
        if path in self.hold:
            self.hold[path].wait(30)
        if self.down:
            return Answer(500)
        number = int(path[1:] or 0) if path[1:].isdigit() or path == "/" else 0
        links = [f"/{number + 1}"] if number < len(DEEP) else []
        if self.elsewhere and path == "/":
            links.append(self.elsewhere)
        return Answer(body=html(f"version {self.version}", links))

    def took(self) -> dict[str, int]:
        asked, self.asked = self.asked, Counter()
        return dict(asked)


class Rig:
    def __init__(self, system: System, server: SiteServer, site: Site) -> None:
        self.system, self.server, self.site = system, server, site

    def crawl(self, seeds: tuple[str, ...] = ("/",), **options: Any) -> None:
        """Create or update the crawl, and wait until it is done."""
        self.system.crawl([self.server.url(path) for path in seeds], delay=0, tries=1, **options)
        self.system.wait_done(30)

    def rounds(self) -> dict[str, dict[str, Any]]:
        return {one["kind"]: one for one in self.system.call("GET", "/v1/crawls/test/rounds")}

    def stored(self) -> set[str]:
        return {url.removeprefix(self.server.url("")) for url in self.titles()}

    def titles(self) -> dict[str, str]:
        reply = self.system.call("GET", "/v1/pages?crawl=test&limit=100")
        return {one["url"]: one["title"] for one in reply["items"]}


@pytest.fixture
def rig(tmp_path: Path, redis_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[Rig]:
    site, settings = Site(), dict(getattr(request, "param", {"request_seconds": "5"}))
    if "bodies" in settings:
        settings["bodies"] = f"warc:{tmp_path / settings['bodies']}"
    with (
        SiteServer(site) as server,
        System(tmp_path, [redis_server.url], **settings).start() as system,
    ):
        yield Rig(system, server, site)


def test_a_greater_depth_is_followed_from_what_is_stored(rig: Rig) -> None:
    rig.crawl(depth=2)
    assert rig.site.took() == {"/": 1, "/1": 1, "/2": 1}
    rig.crawl(depth=4)
    assert rig.site.took() == {"/3": 1, "/4": 1}
    made = rig.rounds()["read"]
    assert (made["why"], made["total"]) == ("depth 2 → 4", 1)
    assert made["ended_ms"]
    rig.crawl(depth=4)
    assert rig.site.took() == {}
    assert rig.rounds()["read"] == made


def test_a_wider_scope_is_followed_from_what_is_stored(rig: Rig) -> None:
    with SiteServer(elsewhere := Site()) as other:
        rig.site.elsewhere = other.url("/5")
        rig.crawl()
        assert (len(rig.site.took()), elsewhere.took()) == (6, {})
        rig.crawl(scope="any")
        assert (rig.site.took(), elsewhere.took()) == ({}, {"/5": 1})
        assert rig.rounds()["read"]["why"].startswith("scope host → any")
        assert rig.rounds()["read"]["total"] == 6


@pytest.mark.parametrize("rig", [{"bodies": "warc"}], indirect=True)
def test_a_page_whose_body_is_away_is_read_when_it_is_back(rig: Rig, tmp_path: Path) -> None:
    folder, url = tmp_path / "warc", rig.server.url("/1")
    rig.crawl(depth=1)
    folder.rename(tmp_path / "away")
    rig.system.crawl([rig.server.url("/")], delay=0, tries=1, depth=2)

    def dead() -> list[dict[str, Any]]:
        reply = rig.system.call("GET", "/v1/dead?crawl=test")
        return [item["letter"] for item in reply["items"]]

    wait_until(dead, 30, "it is a dead letter")
    (letter,) = dead()
    assert (letter["kind"], letter["url"]) == ("body_away", url)
    assert letter["detail"].startswith("its body is away: ")
    (told,) = rig.system.call("GET", f"/v1/urls?crawl=test&url={url}")
    assert "; given up when read again at " in told["why"]
    assert told["why"].endswith(f": body_away ({letter['detail']})")
    (tmp_path / "away").rename(folder)
    rig.system.call("POST", "/v1/dead/requeue", {"crawl": "test"})
    wait_until(lambda: rig.site.asked["/2"], 30, "its link is followed")
    assert (rig.site.asked["/1"], dead()) == (1, [])


def test_more_seeds_are_fetched_and_what_is_known_is_not(rig: Rig) -> None:
    rig.crawl(depth=1)
    rig.site.took()
    rig.crawl(("/", "/4"), depth=1)
    assert rig.site.took() == {"/4": 1, "/5": 1}
    assert rig.rounds() == {}


def test_a_later_limit_goes_on_where_the_crawl_ended(rig: Rig) -> None:
    rig.crawl(max_pages=2)
    assert rig.site.took() == {"/": 1, "/1": 1}
    rig.crawl(max_pages=4)
    assert rig.site.took() == {"/2": 1, "/3": 1}
    with pytest.raises(HTTPError, match="409"):
        rig.system.call("POST", "/v1/crawls/test/rounds")


def test_a_crawl_that_is_had_anew_keeps_its_pages_until_new_ones_are_there(rig: Rig) -> None:
    rig.crawl()
    rig.site.took()
    assert set(rig.titles().values()) == {"version 1"}
    rig.site.version, rig.site.hold["/3"] = 2, threading.Event()
    rig.system.call("POST", "/v1/crawls/test/rounds")
    wait_until(lambda: rig.site.asked["/3"], 30, "the page in the middle is asked for")
    wait_until(lambda: "version 2" in rig.titles().values(), 30, "the new round is seen")
    assert len(rig.titles()) == 6
    assert rig.titles()[rig.server.url("/3")] == "version 1"
    again = rig.system.call("POST", "/v1/crawls/test/rounds")
    assert not again["ended_ms"]
    rig.site.hold["/3"].set()
    rig.system.wait_done(30)
    assert rig.site.took() == dict.fromkeys(["/", *DEEP], 1)
    assert set(rig.titles().values()) == {"version 2"}


def test_a_site_that_is_down_takes_no_page_away(rig: Rig, tmp_path: Path) -> None:
    rig.crawl()
    rig.site.down = True
    rig.site.took()
    rig.system.call("POST", "/v1/crawls/test/rounds")
    wait_until(lambda: rig.system.stats()["dead"], 30, "a page is given up")
    assert set(rig.site.took()) <= {"/", *DEEP}
    assert set(rig.titles().values()) == {"version 1"}
    assert len(read_stored(tmp_path / "data").pages) == 6


def test_a_stopped_crawl_is_reopened_by_new_seeds_and_not_by_known_ones(rig: Rig) -> None:
    rig.crawl(depth=1)
    rig.system.call("POST", "/v1/crawls/test/stop", {})
    wait_until(lambda: rig.system.stats()["reason"] == STOPPED, 30, "it is stopped")
    rig.site.took()
    known = {"urls": [rig.server.url("/"), rig.server.url("/1")]}
    assert rig.system.call("POST", "/v1/crawls/test/urls", known)["duplicate"] == 2
    rig.crawl(depth=3)  # is done
    stats = rig.system.stats()
    assert (stats["state"], stats["reason"], rig.site.took()) == ("done", STOPPED, {})
    new = {"urls": [rig.server.url("/5")]}
    assert rig.system.call("POST", "/v1/crawls/test/urls", new)["added"] == 1
    rig.system.wait_done(30)
    assert rig.site.took() == {"/2": 1, "/3": 1, "/5": 1}


@pytest.mark.parametrize("rig", [{"request_seconds": "2", "lease_seconds": "6"}], indirect=True)
def test_a_round_is_had_whole_whatever_dies(rig: Rig, redis_server: RedisServer) -> None:
    paths = ["/", *DEEP, *(f"/side/{n}" for n in range(40))]
    rig.crawl(tuple(paths))
    assert set(rig.site.took()) == set(paths)
    rig.site.version = 2
    rig.system.crawl([rig.server.url("/")], delay=0.05)
    rig.system.call("POST", "/v1/crawls/test/rounds")
    wait_until(lambda: len(rig.site.asked) > 5, 30, "it is under way")
    redis_server.kill()
    rig.system.kill("broker")
    redis_server.start()
    rig.system.start_broker()
    rig.system.wait_done(60)
    asked = rig.site.took()
    assert set(asked) == set(paths)
    assert sum(asked.values()) <= len(paths) + LEASED, "once, but for what was leased"
    assert set(rig.titles().values()) == {"version 2"}
