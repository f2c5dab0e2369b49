"""A finished crawl is extended or started again, with the log of a real server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from greencrawl.schema.records import STOPPED
from tests.support.redis_server import RedisServer
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

LEASED = 32
"""A session has at most this many URLs."""
DEEP = [f"/{n}" for n in range(1, 6)]
_numbers = count(1)
"""Numbers of crawls."""


class Site:
    """``/`` links to ``/1``, ``/1`` to ``/2`` and so on; each also links to a page of another
    host."""

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
        self.name = f"crawl-{next(_numbers)}"

    def put(self, seeds: tuple[str, ...] = ("/",), **options: Any) -> None:
        """Create or update the crawl."""
        given = {"delay": 0, **options}
        self.system.crawl([self.server.url(path) for path in seeds], self.name, **given)

    def crawl(self, seeds: tuple[str, ...] = ("/",), **options: Any) -> None:
        """Create or update the crawl, and wait until it is done."""
        self.put(seeds, tries=1, **options)
        self.wait_done()

    def wait_done(self, seconds: float = 30) -> None:
        self.system.wait_done(seconds, self.name)

    def post(self, path: str, body: object = None) -> Any:
        """Call a path below the crawl."""
        return self.system.call("POST", f"/v1/crawls/{self.name}/{path}", body)

    def stats(self) -> dict[str, Any]:
        return self.system.stats(self.name)

    def rounds(self) -> dict[str, dict[str, Any]]:
        path = f"/v1/crawls/{self.name}/rounds"
        return {one["kind"]: one for one in self.system.call("GET", path)}

    def stored(self) -> set[str]:
        return {url.removeprefix(self.server.url("")) for url in self.titles()}

    def titles(self) -> dict[str, str]:
        reply = self.system.call("GET", f"/v1/pages?crawl={self.name}&limit=100")
        return {one["url"]: one["title"] for one in reply["items"]}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with shared_system(tmp_path_factory.mktemp("shared"), request_seconds="5") as system:
        yield system


@pytest.fixture
def rig(shared: System) -> Iterator[Rig]:
    site = Site()
    with SiteServer(site) as server:
        yield Rig(shared, server, site)


@pytest.fixture
def own_rig(
    tmp_path: Path, redis_server: RedisServer, request: pytest.FixtureRequest
) -> Iterator[Rig]:
    """A rig with processes of its own."""
    site, settings = Site(), dict(request.param)
    if "bodies" in settings:
        settings["bodies"] = f"warc:{tmp_path / settings['bodies']}"
    with (
        SiteServer(site) as server,
        System(tmp_path, [redis_server.url], **settings).start() as system,
    ):
        yield Rig(system, server, site)


def test_a_greater_depth_is_crawled_without_fetching_stored_pages_again(rig: Rig) -> None:
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


def test_a_wider_scope_is_crawled_without_fetching_stored_pages_again(rig: Rig) -> None:
    with SiteServer(elsewhere := Site()) as other:
        rig.site.elsewhere = other.url("/5")
        rig.crawl()
        assert (len(rig.site.took()), elsewhere.took()) == (6, {})
        rig.crawl(scope="any")
        assert (rig.site.took(), elsewhere.took()) == ({}, {"/5": 1})
        assert rig.rounds()["read"]["why"].startswith("scope host → any")
        assert rig.rounds()["read"]["total"] == 6


@pytest.mark.parametrize("own_rig", [{"bodies": "warc"}], indirect=True)
def test_a_page_is_read_again_once_its_missing_body_is_back(own_rig: Rig, tmp_path: Path) -> None:
    folder, url = tmp_path / "warc", own_rig.server.url("/1")
    own_rig.crawl(depth=1)
    folder.rename(tmp_path / "away")
    own_rig.put(tries=1, depth=2)

    def dead() -> list[dict[str, Any]]:
        reply = own_rig.system.call("GET", f"/v1/dead?crawl={own_rig.name}")
        return [item["letter"] for item in reply["items"]]

    wait_until(dead, 30, "it is a dead letter")
    (letter,) = dead()
    assert (letter["kind"], letter["url"]) == ("body_away", url)
    assert letter["detail"].startswith("its body is away: ")

    def why() -> str:
        (told,) = own_rig.system.call("GET", f"/v1/urls?crawl={own_rig.name}&url={url}")
        return str(told["why"])

    wait_until(lambda: "; given up when read again at " in why(), 30, "its task is finished")
    assert why().endswith(f": body_away ({letter['detail']})")
    (tmp_path / "away").rename(folder)
    own_rig.system.call("POST", "/v1/dead/requeue", {"crawl": own_rig.name})
    wait_until(lambda: own_rig.site.asked["/2"], 30, "its link is followed")
    assert (own_rig.site.asked["/1"], dead()) == (1, [])


def test_new_seeds_are_fetched_and_known_urls_are_not(rig: Rig) -> None:
    rig.crawl(depth=1)
    rig.site.took()
    rig.crawl(("/", "/4"), depth=1)
    assert rig.site.took() == {"/4": 1, "/5": 1}
    assert rig.rounds() == {}


def test_a_crawl_with_a_raised_limit_goes_on_where_it_ended(rig: Rig) -> None:
    rig.crawl(max_pages=2)
    assert rig.site.took() == {"/": 1, "/1": 1}
    rig.crawl(max_pages=4)
    assert rig.site.took() == {"/2": 1, "/3": 1}
    with pytest.raises(HTTPError, match="409"):
        rig.post("rounds")


def test_a_crawl_reaches_its_page_limit_though_pages_are_fetched_again_meanwhile(rig: Rig) -> None:
    """A URL that is being fetched for the first time is fetched once though it is forced."""
    rig.site.hold["/3"] = threading.Event()
    rig.put(max_pages=5)
    wait_until(lambda: rig.site.asked["/3"], 20, "/3 is asked for")
    wait_until(lambda: len(rig.stored()) == 3, 20, "three pages are stored")
    urls = [rig.server.url(path) for path in ("/", "/1", "/3")]
    for _ in range(2):
        reply = rig.post("urls", {"urls": urls, "force": True})
        assert [item["status"] for item in reply["items"]] == ["again", "again", "duplicate"]
    rig.site.hold["/3"].set()
    rig.wait_done()
    assert rig.site.took() == {"/": 2, "/1": 2, "/2": 1, "/3": 1, "/4": 1}
    stats = rig.stats()
    assert (stats["reason"], stats["stored"]) == ("max_pages", 5)
    assert (stats["fetched"], stats["requeued"]) == (7, 2)


def test_a_round_of_fetching_keeps_each_page_until_its_new_version_is_stored(rig: Rig) -> None:
    rig.crawl()
    before = rig.stats()
    rig.site.took()
    assert set(rig.titles().values()) == {"version 1"}
    rig.site.version, rig.site.hold["/3"] = 2, threading.Event()
    rig.post("rounds")
    wait_until(lambda: rig.site.asked["/3"], 30, "the page in the middle is asked for")
    wait_until(lambda: "version 2" in rig.titles().values(), 30, "the new round is seen")
    assert len(rig.titles()) == 6
    assert rig.titles()[rig.server.url("/3")] == "version 1"
    again = rig.post("rounds")
    assert not again["ended_ms"]
    rig.site.hold["/3"].set()
    rig.wait_done()
    assert rig.site.took() == dict.fromkeys(["/", *DEEP], 1)
    assert set(rig.titles().values()) == {"version 2"}
    stats = rig.stats()
    assert (stats["stored"], stats["fetched"], stats["requeued"]) == (6, 12, 6)
    assert stats["bytes"] == 2 * before["bytes"], "each fetch was transferred"


def test_a_round_removes_no_page_while_the_site_is_down(rig: Rig) -> None:
    rig.crawl()
    rig.site.down = True
    rig.site.took()
    rig.post("rounds")
    wait_until(lambda: rig.stats()["dead"], 30, "a page is given up")
    assert set(rig.site.took()) <= {"/", *DEEP}
    assert set(rig.titles().values()) == {"version 1"}
    assert len(read_stored(rig.system.folder / "data", rig.name).pages) == 6


def test_a_stopped_crawl_is_reopened_by_new_seeds_and_not_by_known_ones(rig: Rig) -> None:
    rig.crawl(depth=1)
    rig.post("stop", {})
    wait_until(lambda: rig.stats()["reason"] == STOPPED, 30, "it is stopped")
    rig.site.took()
    known = {"urls": [rig.server.url("/"), rig.server.url("/1")]}
    assert rig.post("urls", known)["duplicate"] == 2
    rig.crawl(depth=3)  # it ends at once
    stats = rig.stats()
    assert (stats["state"], stats["reason"], rig.site.took()) == ("done", STOPPED, {})
    new = {"urls": [rig.server.url("/5")]}
    assert rig.post("urls", new)["added"] == 1
    rig.wait_done()
    assert rig.site.took() == {"/2": 1, "/3": 1, "/5": 1}


@pytest.mark.parametrize("own_rig", [{"request_seconds": "2", "lease_seconds": "6"}], indirect=True)
def test_a_round_is_completed_though_redis_and_the_broker_are_killed(
    own_rig: Rig, redis_server: RedisServer
) -> None:
    paths = ["/", *DEEP, *(f"/side/{n}" for n in range(40))]
    own_rig.crawl(tuple(paths))
    assert set(own_rig.site.took()) == set(paths)
    own_rig.site.version = 2
    own_rig.put(delay=0.05)
    own_rig.post("rounds")
    wait_until(lambda: len(own_rig.site.asked) > 5, 30, "it is under way")
    redis_server.kill()
    own_rig.system.kill("broker")
    redis_server.start()
    own_rig.system.start_broker()
    own_rig.wait_done(60)
    asked = own_rig.site.took()
    assert set(asked) == set(paths)
    assert sum(asked.values()) <= len(paths) + LEASED, "once, but for what was leased"
    assert set(own_rig.titles().values()) == {"version 2"}
